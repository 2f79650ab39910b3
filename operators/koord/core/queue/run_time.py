"""How long units run: what is known of it, how certain that is, and when those that run have ended.

Times are in seconds; bounds count from the start. Nothing here knows how
limits are enforced, or reads a clock.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koord.core.model.pods import Handling, Pod
from koord.core.model.run_terms import NO_TERMS, RunTerms
from koord.core.queue.reasons import NAME
from koord.core.queue.settings import QueueSettings

KILL_MARGIN: Final = 30
"""Between the end of the grace period and the room being free."""
LATE_STEP: Final = 60
"""By how much an end is put off that a limit should have brought."""


class Knowledge(StrEnum):
    """How it is known how long a unit runs, best first."""

    DECLARED = "Declared"
    """It has a limit, after which it is killed."""
    STATED = "Stated"
    """Its owner says what he expects."""
    HISTORY = "History"
    """By runs of its kind."""
    DEFAULT = "Default"
    """Its queue has an expectation for those that say nothing."""
    NONE = "None"

    def is_at_least(self, other: str) -> bool:
        """Whether it is as good as ``other``, which is one of these."""
        return _RANKS[self] <= _RANKS[Knowledge(other)]


_RANKS: Final = {level: rank for rank, level in enumerate(Knowledge)}


@dataclass(frozen=True, slots=True)
class RunTime:
    """How long a unit runs; None: nobody knows."""

    level: Knowledge = Knowledge.NONE
    expected: int | None = None
    bound: int | None = None
    """From its start until it has ended, at the latest: with what it takes to kill it."""
    limit: int | None = None
    """After how long it is killed."""


UNKNOWN: Final = RunTime()


@dataclass(frozen=True, slots=True)
class Estimate:
    """What earlier runs tell."""

    expected: int
    bound: int
    is_enough: bool = True
    """Whether there were enough runs to go by them alone; few only say more of a limit."""


_ALL: Final = 100


@dataclass(frozen=True, slots=True)
class PastRuns:
    """What the past tells of a unit: runs of its kind, if there are enough, and its own."""

    estimate: Estimate | None = None
    percent_of: Callable[[int], int] = lambda _: _ALL
    """Returns what part of a limit, in seconds, it is expected to take, in percent."""
    ran: int = 0
    """For how long it has run by now, in seconds."""


NO_RUNS: Final = PastRuns()


@dataclass(frozen=True, slots=True)
class End:
    """When a unit that runs has ended at the latest.

    If it ``is_outrun`` it should have ended before: its limit was enforced late, or its estimate
    was too short.
    """

    at: int
    level: Knowledge
    is_outrun: bool = False


@dataclass(frozen=True, slots=True)
class QueueHints:
    """What a pod says to queues."""

    is_held: bool = False
    deadline: int | None = None
    """`activeDeadlineSeconds` of its spec: its kubelet ends it then."""
    terms: RunTerms = NO_TERMS
    retry: str = ""
    """What its owner has written to have it tried again."""


NO_HINTS: Final = QueueHints()
_UNENFORCEABLE: Final = frozenset({Handling.RESERVE, Handling.NOT_OURS})


def hints_of(pod: Pod) -> QueueHints:
    """Return what a pod says to queues."""
    for name, hints in pod.extensions:
        if name == NAME and isinstance(hints, QueueHints):
            return hints
    return NO_HINTS


def killed_at(pod: Pod) -> int | None:
    """Return when its kubelet kills a pod that runs; None: it has no limit, or has not started."""
    deadline = hints_of(pod).deadline
    return int(pod.started) + deadline if deadline is not None and pod.started else None


def is_overdue(pod: Pod, now: float) -> bool:
    """Whether a pod should have been killed and gone by now."""
    killed = killed_at(pod)
    return killed is not None and killed + pod.grace + KILL_MARGIN <= now


def smallest(*limits: int | None) -> int | None:
    """Return the smallest of the limits that there are."""
    return min((limit for limit in limits if limit is not None), default=None)


def limits_of(pod: Pod, gang: RunTerms, settings: QueueSettings) -> tuple[int | None, int | None]:
    """Return after how long a waiting pod is killed, and after how long its run is.

    The first is what its spec says, and begins anew with each pod. The second is what the pod or
    its gang says beside that; whoever says neither has the limit of the queue.
    """
    hints = hints_of(pod)
    if pod.handling in _UNENFORCEABLE:
        return hints.deadline, None
    written = smallest(hints.terms.max_run_time, gang.max_run_time)
    if written is None and hints.deadline is None:
        default = settings.default_run_time if settings.enforce_default else None
        written = smallest(settings.max_run_time, default)
    return hints.deadline, written


def limit_of(pod: Pod, gang: RunTerms, settings: QueueSettings) -> int | None:
    """Return the limit that a waiting pod starts with, if nothing ran in its place before."""
    return smallest(*limits_of(pod, gang, settings))


def run_time_of(
    pods: Sequence[tuple[Pod, RunTerms]],
    settings: QueueSettings,
    limit: Callable[[Pod, RunTerms], int | None],
    past: PastRuns = NO_RUNS,
) -> RunTime:
    """Return what is known of a unit, of its pods with what their gangs say: it ends with the last.

    ``limit`` is what each of them is killed after; a part of it is expected if that is all that is
    known, or if what is known has passed.
    """
    limits = [limit(pod, gang) for pod, gang in pods]
    stated = _stated(pods)
    if not pods or None in limits:
        return _estimate(stated, settings, past.estimate)
    longest = max(each for each in limits if each is not None)
    bound = max(
        each + pod.grace for each, (pod, _) in zip(limits, pods, strict=True) if each is not None
    )
    expected = _estimate(stated, settings, past.estimate).expected
    if stated is None and past.estimate is not None:
        expected = past.estimate.expected  # also one run says more than a limit
    percent = past.percent_of(longest)
    if not expected or (expected <= past.ran and percent < _ALL):
        expected = -(-longest * percent // _ALL)
    return RunTime(Knowledge.DECLARED, min(expected, longest), bound + KILL_MARGIN, longest)


def run_time_of_running(
    pods: Sequence[tuple[Pod, RunTerms]],
    settings: QueueSettings,
    past: PastRuns = NO_RUNS,
    end_of_owner: Callable[[Pod], int | None] = lambda _: None,
) -> RunTime:
    """Return what is known of pods that run: only what Kubernetes enforces limits them.

    ``end_of_owner`` is when it ends what a pod belongs to.
    """

    def limit(pod: Pod, _: RunTerms) -> int | None:
        end = end_of_owner(pod)
        of_owner = None if end is None else max(end - int(pod.started), 0)
        return smallest(hints_of(pod).deadline, of_owner)

    return run_time_of(pods, settings, limit, past)


def end_of(run_time: RunTime, start: int, now: int) -> End | None:
    """Return when what started at ``start`` has ended; None: nobody knows."""
    if run_time.bound is None:
        return None
    end = start + run_time.bound
    if end > now:
        return End(end, run_time.level)
    if run_time.level is Knowledge.DECLARED:
        end += ((now - end) // LATE_STEP + 1) * LATE_STEP
    else:
        doublings = ((now - start) // run_time.bound).bit_length()
        end = start + (run_time.bound << doublings)
    return End(end, run_time.level, is_outrun=True)


def start_of(pods: Iterable[Pod], now: int) -> int:
    """Return when pods of a unit on nodes started: now, while no kubelet has accepted one."""
    return min((int(pod.started) for pod in pods if pod.started), default=now)


def _stated(pods: Iterable[tuple[Pod, RunTerms]]) -> int | None:
    """Return the longest expected run time, if each pod has one."""
    longest = None
    for pod, gang in pods:
        expected = hints_of(pod).terms.expected_run_time or gang.expected_run_time
        if expected is None:
            return None
        longest = max(expected, longest or 0)
    return longest


def _estimate(stated: int | None, settings: QueueSettings, history: Estimate | None) -> RunTime:
    if stated is not None:
        return RunTime(Knowledge.STATED, stated, _one_and_a_half(stated))
    if history is not None and history.is_enough:
        return RunTime(Knowledge.HISTORY, history.expected, history.bound)
    return default_of(settings)


def default_of(settings: QueueSettings) -> RunTime:
    """Return what is known of a unit of which nobody says anything."""
    default = settings.default_run_time
    if default is None:
        return UNKNOWN
    return RunTime(Knowledge.DEFAULT, default, _one_and_a_half(default))


def _one_and_a_half(seconds: int) -> int:
    return seconds + -(-seconds // 2)
