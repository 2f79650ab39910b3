"""Limits of run times in a cluster: which one each pod starts with, and who may not start with his.

A limit is of the whole run: what replaces a pod has what the earlier ones have left of it. How a
limit is enforced is not known here.
"""

from collections.abc import Callable, Sequence

from koord.core.engine.state_view import StateView
from koord.core.model.plan import Demand, Unit
from koord.core.model.pods import Pod
from koord.core.model.run_terms import NO_TERMS, RunTerms
from koord.core.queue.counts import has_started
from koord.core.queue.earlier_runs import EarlierRuns
from koord.core.queue.reasons import TimeLimitReached, TimeLimitTooLong
from koord.core.queue.run_time import (
    Estimate,
    PastRuns,
    RunTime,
    default_of,
    limit_of,
    limits_of,
    run_time_of,
    run_time_of_running,
    smallest,
    start_of,
)
from koord.core.queue.settings import QueueSettings


class RunLimits:
    """The limits of waiting pods."""

    def __init__(
        self,
        view: StateView,
        queue_of: Callable[[Pod], str],
        settings_of: Callable[[str], QueueSettings],
        estimate: Callable[[Sequence[Pod]], Estimate | None],
        end_of_owner: Callable[[Pod], int | None],
    ) -> None:
        self._view, self._queue_of, self._settings_of = view, queue_of, settings_of
        self._estimate = estimate
        self._earlier: EarlierRuns | None = None
        self._end_of_owner = end_of_owner
        self.percent_of: Callable[[Pod, int, int], int] = lambda *_: 100
        """Returns what part of its limit a run is expected to take that has gone on for so long, if
        nothing else is known; whoever remembers runs sets it."""

    def terms_of(self, pod: Pod) -> RunTerms:
        """Return what the gang of a pod says of its run."""
        spec = None if pod.gang is None else self._view.gangs.spec(pod.gang.key)
        return NO_TERMS if spec is None else spec.run

    def left_of(self, pod: Pod) -> int | None:
        """Return after how many seconds a pod is to be ended if it starts now; None: never."""
        return self._left_of(pod, self.terms_of(pod), self._settings_of(self._queue_of(pod)))

    def lasts(self, pod: Pod) -> int | None:
        """Return after how many seconds a pod has been ended if it starts now; None: unknown."""
        return self._lasts(pod, self.terms_of(pod), self._settings_of(self._queue_of(pod)))

    def run_time_of(self, unit: Unit) -> RunTime:
        """Return how long a waiting unit runs if it starts now."""
        settings = self._settings_of(self._queue_of(unit.pods[0]))
        pods = [(pod, demand.run) for demand in unit.demands for pod in demand.pods]
        return run_time_of(
            pods,
            settings,
            lambda pod, gang: self._lasts(pod, gang, settings),
            self._past_of(unit.pods),
        )

    def run_time_of_running(self, pods: Sequence[Pod]) -> RunTime:
        """Return how long a unit runs of which these are the pods on nodes."""
        if self._says_nothing(pods):
            # Of most pods nobody knows more than that, and there are tens of thousands.
            return default_of(self._settings_of(self._queue_of(pods[0])))
        now = int(self._view.now)
        ran = now - start_of((pod for pod in pods if not pod.phase.is_terminal), now)
        return run_time_of_running(
            [(pod, self.terms_of(pod)) for pod in pods],
            self._settings_of(self._queue_of(pods[0])),
            self._past_of(pods, ran),
            self._end_of_owner,
        )

    def _says_nothing(self, pods: Sequence[Pod]) -> bool:
        """Whether all that is known of a pod is its queue."""
        (first, *more), end_of_owner = pods, self._end_of_owner
        is_plain = not (more or first.gang or first.extensions)
        return is_plain and end_of_owner(first) is None and self._estimate(pods) is None

    def run_time_of_placed(self, pod: Pod) -> RunTime:
        """Return how long a pod on a node runs.

        Until it has been accepted there, what enforces its limit is written with its release.
        """
        if pod.started:
            return self.run_time_of_running((pod,))
        settings, terms = self._settings_of(self._queue_of(pod)), self.terms_of(pod)
        return run_time_of(
            [(pod, terms)],
            settings,
            lambda each, gang: self._lasts(each, gang, settings),
            PastRuns(self._estimate((pod,))),
        )

    def _past_of(self, pods: Sequence[Pod], ran: int = 0) -> PastRuns:
        return PastRuns(
            self._estimate(pods), lambda limit: self.percent_of(pods[0], limit, ran), ran
        )

    def refuse(self, unit: Unit) -> TimeLimitTooLong | TimeLimitReached | None:
        """Return why a unit may not start with its limit."""
        if not unit.pods:
            return None
        queue = self._queue_of(unit.pods[0])
        settings = self._settings_of(queue)
        most = settings.max_run_time
        speaking = [demand for demand in unit.demands if most is not None or _says_limit(demand)]
        if not speaking:
            return None
        is_start = not has_started(unit, self._view)
        for demand in speaking:
            for pod in demand.pods:
                limit = limit_of(pod, demand.run, settings)
                if limit is None:
                    continue
                if is_start and most is not None and limit > most:
                    return TimeLimitTooLong(pod.key, limit, most, queue)
                left = self._left_of(pod, demand.run, settings)
                if left is not None and left <= 0:
                    return TimeLimitReached(pod.key, limit)
        return None

    def _lasts(self, pod: Pod, gang: RunTerms, settings: QueueSettings) -> int | None:
        end = self._end_of_owner(pod)
        of_owner = None if end is None else max(end - int(self._view.now), 0)
        return smallest(self._left_of(pod, gang, settings), of_owner)

    def _left_of(self, pod: Pod, gang: RunTerms, settings: QueueSettings) -> int | None:
        of_pod, of_run = limits_of(pod, gang, settings)
        if of_run is None:
            return of_pod
        if self._earlier is None:
            self._earlier = EarlierRuns(self._view)
        return smallest(of_pod, of_run - self._earlier.passed(pod))


def _says_limit(demand: Demand) -> bool:
    """Whether pods of a demand, or their gang, may say how long they run."""
    says_of_gang = demand.run is not NO_TERMS and demand.run != NO_TERMS
    return says_of_gang or any(pod.extensions for pod in demand.pods)
