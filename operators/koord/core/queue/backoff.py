"""Keeps units waiting whose pods fail soon after each start: longer each time.

Whoever always fails would have the first turn again and again. Of capacity it knows nothing: who
waits for room is woken by what gives it. What is counted are pods that exist, or that this process
has seen; less of them makes pauses shorter, never longer. Repairs of started gangs never wait here.
"""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Admitting, Plugin
from koord.core.model.plan import Unit, UnitKey
from koord.core.model.pods import Pod, PodPhase
from koord.core.model.reasons import Reason
from koord.core.model.vain_starts import LONGEST_PAUSE_SECONDS, VainStarts, count_failure
from koord.core.queue.counts import has_started
from koord.core.queue.earlier_runs import controller_of, place_of
from koord.core.queue.plugin import Queues
from koord.core.queue.reasons import FailsAtOnce

if TYPE_CHECKING:
    from koord.core.model.changes import Feed

FAILS_WITHIN: Final = 60
"""A pod that fails later than that has got somewhere, in seconds."""
RECOVERED_AFTER: Final = 600
"""What has run for so long fails no longer, whatever becomes of it."""
_MANY: Final = 1000
"""From so many on, those that matter no longer are forgotten."""


class Backoffs(Plugin):
    """Who has failed how often in a row: a gang, or pods of a controller in one place."""

    name = "backoff"
    after = ("queue",)

    def __init__(self) -> None:
        self._feed: Feed | None = None
        self._vain: dict[str, VainStarts] = {}
        self._refused: dict[UnitKey, float] = {}
        """Unit that waits -> until when."""

    @override
    def absorb(self) -> None:
        if not self.view.plugin(Queues).is_limiting:
            self._feed = None
            self._vain.clear()
            return
        if self._feed is None:
            self._feed = self.view.feed()
        changes = self._feed.drain()
        singles = (self.view.pods.get(uid) for uid in changes.singles)
        members = (self.view.gangs.members(gang).values() for gang in changes.gangs)
        pods = [*(pod for pod in singles if pod), *(pod for pods in members for pod in pods)]
        for pod in sorted(filter(_has_run, pods), key=_finished):
            self._note(pod)
        if len(self._vain) > _MANY:
            since = self.view.now - 2 * LONGEST_PAUSE_SECONDS
            self._vain = {key: vain for key, vain in self._vain.items() if vain.at > since}

    def _note(self, pod: Pod) -> None:
        key = _source_of(pod)
        before = self._vain.get(key)
        if pod.phase is PodPhase.SUCCEEDED or _ran(pod) >= RECOVERED_AFTER:
            if before is not None and pod.finished > before.at:
                del self._vain[key]
            return
        # What was created before the last failure belongs to the same start.
        if key and _failed_at_once(pod) and (before is None or pod.created > before.at):
            self._vain[key] = count_failure(before, pod.finished)

    def find(self, unit: Unit) -> FailsAtOnce | None:
        """Return why a unit is not tried now."""
        vains = [(key, self._vain[key]) for key in _sources_of(unit) if key in self._vain]
        until, failures = max(
            ((vain.until(key), vain.count) for key, vain in vains), default=(0.0, 0)
        )
        return FailsAtOnce(failures, until) if self.view.now < until else None

    def note_refused(self, unit: UnitKey, until: float) -> None:
        """Have a unit tried again then."""
        self._refused[unit] = until

    @override
    def take_due(self) -> Collection[UnitKey]:
        due = {unit for unit, until in self._refused.items() if until <= self.view.now}
        for unit in due:
            del self._refused[unit]
        return due

    @override
    def next_due(self) -> float | None:
        return min(self._refused.values(), default=None)

    @override
    def open(self, cycle: Cycle) -> "BackoffSession | None":
        return BackoffSession(self, cycle) if self._vain else None


class BackoffSession(Admitting):
    """Those who fail, in one cycle."""

    name = Backoffs.name

    def __init__(self, backoffs: Backoffs, cycle: Cycle) -> None:
        self._backoffs, self._cycle = backoffs, cycle

    @override
    def admit(self, unit: Unit) -> Reason | None:
        reason = self._backoffs.find(unit)
        if reason is None or has_started(unit, self._backoffs.view):
            return None
        if self._cycle.is_deciding:
            self._backoffs.note_refused(unit.key, reason.until)
        return reason


def _sources_of(unit: Unit) -> Iterator[str]:
    for demand in unit.demands:
        if demand.gang:
            yield demand.gang
        else:
            yield from map(_source_of, demand.pods)


def _source_of(pod: Pod) -> str:
    """Return what makes pods in the place of a failed one; empty: nobody knows."""
    if pod.gang is not None:
        return pod.gang.key
    controller = controller_of(pod)
    if controller is None:
        return ""
    return f"{pod.namespace}/{controller.uid}/{place_of(pod, controller)}"


def _has_run(pod: Pod) -> bool:
    """Whether a pod has run and ended by itself: evictions and nodes are no fault of its own."""
    is_own = not pod.is_terminating and not pod.is_marked and not pod.rejection
    return is_own and pod.phase.is_terminal and bool(pod.started and pod.finished)


def _finished(pod: Pod) -> tuple[float, str]:
    return pod.finished, pod.uid


def _ran(pod: Pod) -> float:
    return pod.finished - pod.started


def _failed_at_once(pod: Pod) -> bool:
    return pod.phase is PodPhase.FAILED and _ran(pod) < FAILS_WITHIN
