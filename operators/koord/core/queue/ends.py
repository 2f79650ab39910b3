"""When pods on nodes have ended: at the latest, and as expected.

Asks what is known of run times; knows neither what is reserved nor whose turn it is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from koord.core.engine.state_view import StateView
from koord.core.model.pods import Handling, Pod
from koord.core.plugins.nominations import Nominations
from koord.core.queue.endings import is_pinned
from koord.core.queue.limits import RunLimits
from koord.core.queue.room import FOREVER
from koord.core.queue.run_time import KILL_MARGIN, LATE_STEP, Knowledge, RunTime, end_of

EXPECTED_AT_LEAST: Final = 3600
"""Pods of which nobody knows the end are expected to go on as long as they have run, and for so
long at least, in seconds."""

STUCK_SECONDS: Final = 600
"""A pod that is still there so long after it should have gone may never go: a finalizer keeps it,
or its node is lost. No room is held for others where it is."""


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


@dataclass(slots=True)
class _KnownRun:
    pod: Pod
    run_time: RunTime
    beside: object
    """What it follows from beside the pod, as it was."""


class KnownRuns:
    """How long pods on nodes run, kept from cycle to cycle while what it follows from stays.

    ``beside`` returns what else that is, of a pod without a limit.
    """

    def __init__(
        self,
        view: StateView,
        limits: RunLimits,
        beside: Callable[[Pod], object],
        end_of_owner: Callable[[Pod], int | None],
    ) -> None:
        self._view, self._limits, self._beside = view, limits, beside
        self.end_of_owner = end_of_owner
        self._of: dict[str, _KnownRun] = {}
        self.certain: dict[str, tuple[EndingPod, int | None]] = {}
        """The ends of pods with limits, by uid, each with that of its owner: until then it holds as
        long as both do."""

    def forget_gone(self) -> None:
        """Forget pods that are gone, now and then."""
        if len(self._of) > 2 * len(self._view.pods):
            for kept in (self._of, self.certain):
                for uid in kept.keys() - self._view.pods.keys():
                    del kept[uid]

    def of(self, pod: Pod) -> RunTime:
        """Return what is known of a pod; nothing is kept until it has been accepted."""
        kept_run = self._of.get(pod.uid)
        if kept_run is not None and kept_run.pod is pod and kept_run.beside == self._beside(pod):
            return kept_run.run_time
        kept_run = _KnownRun(pod, self._limits.run_time_of_placed(pod), self._beside(pod))
        if pod.started:
            self._of[pod.uid] = kept_run
        return kept_run.run_time


class Ends:
    """The ends of the pods on nodes, as of one time."""

    def __init__(self, view: StateView, runs: KnownRuns, now: int) -> None:
        self._view, self._runs, self._now = view, runs, now
        self._row_of = view.table.row_of
        runs.forget_gone()
        self._of: dict[str, EndingPod | None] = {}
        self._all: list[EndingPod] | None = None
        self._victims = {
            pod.uid for nomination in view.plugin(Nominations) for pod in nomination.victims
        }

    def all(self) -> Sequence[EndingPod]:
        """Return all pods on known nodes, in the order of their ends."""
        if self._all is None:
            placed = (pod for pod in self._view.pods.values() if pod.node)
            ends = (self.of(pod) for pod in placed if not pod.phase.is_terminal)
            self._all = [ending for ending in ends if ending is not None]
            self._all.sort(key=attrgetter("end"))
        return self._all

    def on(self, node: str) -> Iterator[EndingPod]:
        """Yield the pods on a node."""
        for pod in self._view.pods_on(node):
            running = self.of(pod)
            if running is not None:
                yield running

    def of(self, pod: Pod) -> EndingPod | None:
        """Return when a pod has ended; None if its node is unknown."""
        kept, owner = self._runs.certain.get(pod.uid, (None, None))
        is_kept = kept is not None and kept.pod is pod and kept.end > self._now
        is_kept = is_kept and pod.uid not in self._victims and self._runs.end_of_owner(pod) == owner
        if kept is not None and is_kept and self._row_of.get(pod.node) == kept.row:
            return kept
        if pod.uid not in self._of:
            self._of[pod.uid] = self._make(pod)
        return self._of[pod.uid]

    def _make(self, pod: Pod) -> EndingPod | None:
        row = self._row_of.get(pod.planned_node)
        if row is None:
            return None
        if pod.is_terminating or pod.uid in self._victims:
            gone_by = int(pod.gone_by) or self._evicted_at(pod) + pod.grace + KILL_MARGIN
            if self._now - gone_by >= STUCK_SECONDS:
                return EndingPod(pod, row, FOREVER, FOREVER, Knowledge.NONE)
            at = gone_by if gone_by > self._now else self._now + LATE_STEP
            return EndingPod(pod, row, at, at, Knowledge.DECLARED)
        run_time = self._runs.of(pod)
        start = int(pod.started) or self._now
        end = end_of(run_time, start, self._now)
        if end is None:
            return EndingPod(pod, row, FOREVER, self._guess(pod, start), Knowledge.NONE)
        ending = EndingPod(pod, row, end.at, end.at, end.level)
        if pod.started and end.level is Knowledge.DECLARED:
            self._runs.certain[pod.uid] = (ending, self._runs.end_of_owner(pod))
        return ending

    def _evicted_at(self, pod: Pod) -> int:
        """Return when a pod is deleted that goes for another, as far as it is known by now."""
        is_marked = pod.marked or pod.ends_until
        return int(max(pod.marked, pod.ends_until)) if is_marked else self._now

    def _guess(self, pod: Pod, start: int) -> int:
        if is_pinned(pod) or pod.handling is Handling.RESERVE:
            return FOREVER
        return self._now + max(self._now - start, EXPECTED_AT_LEAST)
