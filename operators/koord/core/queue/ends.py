"""When pods on nodes have ended: at the latest, and as expected.

Asks what is known of run times; knows neither what is reserved nor whose turn it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from koord.core.engine.state_view import StateView
from koord.core.model.pods import Handling, Pod
from koord.core.plugins.nominations import Nominations
from koord.core.queue.endings import is_pinned
from koord.core.queue.limits import RunLimits
from koord.core.queue.room import FOREVER
from koord.core.queue.run_time import KILL_MARGIN, LATE_STEP, Knowledge, end_of

EXPECTED_AT_LEAST: Final = 3600
"""Pods of which nobody knows the end are expected to go on as long as they have run, and for so
long at least, in seconds."""


@dataclass(frozen=True, slots=True)
class EndingPod:
    """A pod on a node."""

    pod: Pod
    row: int
    end: int
    """``FOREVER`` if nobody knows."""
    expected: int
    """``FOREVER`` if it does not end by itself."""
    level: Knowledge


class Ends:
    """The ends of the pods on nodes, as of one time."""

    def __init__(self, view: StateView, limits: RunLimits, now: int) -> None:
        self._view, self._limits, self._now = view, limits, now
        self._of: dict[str, EndingPod | None] = {}
        self._victims = {
            pod.uid for nomination in view.plugin(Nominations) for pod in nomination.victims
        }

    def all(self) -> Iterator[EndingPod]:
        """Yield all pods on known nodes."""
        for pod in self._view.pods.values():
            if pod.node and not pod.phase.is_terminal:
                running = self.of(pod)
                if running is not None:
                    yield running

    def on(self, node: str) -> Iterator[EndingPod]:
        """Yield the pods on a node."""
        for pod in self._view.pods_on(node):
            running = self.of(pod)
            if running is not None:
                yield running

    def of(self, pod: Pod) -> EndingPod | None:
        """Return when a pod has ended; None if its node is unknown."""
        if pod.uid not in self._of:
            self._of[pod.uid] = self._make(pod)
        return self._of[pod.uid]

    def _make(self, pod: Pod) -> EndingPod | None:
        row = self._view.table.row_of.get(pod.planned_node)
        if row is None:
            return None
        if pod.is_terminating or pod.uid in self._victims:
            gone_by = int(pod.gone_by) or self._evicted_at(pod) + pod.grace + KILL_MARGIN
            at = gone_by if gone_by > self._now else self._now + LATE_STEP
            return EndingPod(pod, row, at, at, Knowledge.DECLARED)
        start = int(pod.started) or self._now
        end = end_of(self._limits.run_time_of_placed(pod), start, self._now)
        if end is not None:
            return EndingPod(pod, row, end.at, end.at, end.level)
        return EndingPod(pod, row, FOREVER, self._guess(pod, start), Knowledge.NONE)

    def _evicted_at(self, pod: Pod) -> int:
        """Return when a pod is deleted that goes for another, as far as it is known by now."""
        is_marked = pod.marked or pod.ends_until
        return int(max(pod.marked, pod.ends_until)) if is_marked else self._now

    def _guess(self, pod: Pod, start: int) -> int:
        if is_pinned(pod) or pod.handling is Handling.RESERVE:
            return FOREVER
        return self._now + max(self._now - start, EXPECTED_AT_LEAST)
