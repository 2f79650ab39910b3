"""Events about gangs that are not complete, and about members that wait beside running ones.

There is one event per reason and gang: a complete gang that waits has it at once, see
``WaitReports``. These come later: only when a reason has lasted for a moment, while nothing is
being bound, and few in a second. So a gang whose members arrive one by one costs none.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from koord.controllers.coalescing import Agenda
from koord.core.engine.state import ClusterState
from koord.core.model.gangs import ObservedPodGroup
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.isolation import Isolation

EVENT_SECONDS: Final = 3.0
"""How long a reason must have lasted."""
MOST_PER_SECOND: Final = 4
"""Less than what the recorder sends: other events must not wait for these."""
MAX_WAITING: Final = 4096


class EventReporter(Protocol):
    """Emits events that are new."""

    def announce_pod_event(self, pod: Pod, reason: Reason) -> None: ...
    def announce_event(self, pod_group: ObservedPodGroup, reason: Reason, note: str) -> None: ...


@dataclass(slots=True)
class WaitEvents:
    """``is_busy`` tells whether pods are being bound; ``reason_of`` why a pod waits, if it does."""

    state: ClusterState
    announcer: EventReporter
    is_busy: Callable[[], bool] = lambda: False
    _isolated: Isolation = field(default_factory=lambda: Isolation("wait-events"))
    _due: Agenda[str] = field(default_factory=Agenda)
    _codes: dict[str, str] = field(default_factory=dict)
    """Pod uid -> the reason of its event that is due."""
    _second: int = 0
    _sent: int = 0
    """Events in this second."""

    def note(self, pod: Pod, reason: Reason, now: float) -> None:
        """Emit an event for the gang of a pod, its oldest member that waits, if this lasts."""
        if pod.uid not in self._codes and len(self._codes) >= MAX_WAITING:
            return
        self._codes[pod.uid] = reason.code
        self._due.look_at(pod.uid, now + EVENT_SECONDS)

    def first_due(self) -> float | None:
        return self._due.first()

    def emit(self, reason_of: Callable[[Pod], Reason | None], now: float) -> None:
        """Emit what is due."""
        for uid in self._due.take(now):
            if self.is_busy() or not self._may_send(now):
                self._due.look_at(uid, now + 1.0)
                continue
            self._isolated.call(uid, self._emit, uid, self._codes.pop(uid, ""), reason_of)

    def _emit(self, uid: str, code: str, reason_of: Callable[[Pod], Reason | None]) -> None:
        pod = self.state.pods.get(uid)
        reason = reason_of(pod) if pod is not None and pod.is_waiting else None
        if pod is None or reason is None or reason.code != code:
            return  # a newer reason is noted when it is reported
        gang = None if pod.gang is None else self.state.gangs.pod_group(pod.gang.key)
        if gang is not None and reason.is_incomplete:
            self.announcer.announce_event(gang, reason, "")
        else:
            self.announcer.announce_pod_event(pod, reason)

    def _may_send(self, now: float) -> bool:
        if int(now) != self._second:
            self._second, self._sent = int(now), 0
        self._sent += 1
        return self._sent <= MOST_PER_SECOND
