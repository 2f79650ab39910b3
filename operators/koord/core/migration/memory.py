"""What is remembered of moves: read from the jobs, so that a restart changes nothing.

For a while a pod that was moved stays where it is, and its workload stays away from the node that
it left. Each time that the workload comes back to that node, and is moved off again, that lasts
twice as long: otherwise its pods would go round in circles.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from koord.core.migration.model import MigrationJob, MigrationOptions

MOST_DOUBLINGS: Final = 6


def count_returns(jobs: Iterable[MigrationJob]) -> dict[str, int]:
    """Return, per job (uid), how often its workload had come back to the node that it left.

    Of several pods that were moved at once none had come back: they were there before.
    """
    counts: dict[str, int] = {}
    past: defaultdict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for at, job in sorted(_moved(jobs), key=lambda moved: (moved[0], moved[1].uid)):
        before = past[job.workload, job.origin.node]
        returns = (count for left_at, count in before if left_at <= job.origin.pod_created)
        counts[job.uid] = min(max(returns, default=-1) + 1, MOST_DOUBLINGS)
        before.append((at, counts[job.uid]))
    return counts


def _moved(jobs: Iterable[MigrationJob]) -> Iterator[tuple[float, MigrationJob]]:
    for job in jobs:
        at = job.status.evicted_at
        if at is not None and job.workload:
            yield at, job


def remembered_until(job: MigrationJob, returns: int, options: MigrationOptions) -> float:
    """Return until when a move is remembered; a time that has passed if there was none."""
    at = job.status.evicted_at
    return float("-inf") if at is None else at + options.memory * (1 << returns)


def find_recently_moved(
    jobs: Collection[MigrationJob], pod: str, now: float, options: MigrationOptions
) -> MigrationJob | None:
    """Return the job that moved a pod (uid) to where it is, if that is remembered."""
    moved = (job for job in jobs if job.status.pod is not None and job.status.pod.uid == pod)
    return next(_remembered(moved, jobs, now, options), None)


def find_left_nodes(
    jobs: Collection[MigrationJob], workload: str, now: float, options: MigrationOptions
) -> frozenset[str]:
    """Return the nodes that pods of a workload (its key) were moved from, if that is remembered."""
    own = [job for job in jobs if workload and job.workload == workload and job.origin.node]
    return frozenset(job.origin.node for job in _remembered(own, own, now, options))


def _remembered(
    jobs: Iterable[MigrationJob],
    past: Iterable[MigrationJob],
    now: float,
    options: MigrationOptions,
) -> Iterator[MigrationJob]:
    returns: Mapping[str, int] = count_returns(past)
    for job in jobs:
        if now < remembered_until(job, returns.get(job.uid, 0), options):
            yield job
