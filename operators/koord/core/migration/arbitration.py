"""Which of the waiting jobs start now: sorted, filtered by rules and limits, one after another.

Jobs that start count at once, so that later ones of the same round see them. Jobs of a group start
together, and the limits then count what others move: a gang moves as a whole or not at all. What is
forbidden fails; what exceeds a limit waits for the next round.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from koord.core.migration.eligibility import find_ineligible
from koord.core.migration.model import (
    JobMode,
    JobReason,
    MigrationJob,
    MigrationOptions,
    MovedPod,
)
from koord.core.migration.workload import Workload, count_away, is_full, limits_of
from koord.core.model.koordinator_class import QOS_LABEL, KoordinatorClass, find_raw_class

_CLASS_RANK: Final = {
    KoordinatorClass.FREE: 1,
    KoordinatorClass.BATCH: 2,
    KoordinatorClass.MID: 3,
    KoordinatorClass.PROD: 4,
}
_NO_CLASS: Final = 5
_QOS_RANK: Final = {"BestEffort": 1, "Burstable": 2, "Guaranteed": 3}
_OUR_QOS_RANK: Final = {"BE": 1, "LS": 3, "LSR": 4, "LSE": 5, "SYSTEM": 6}
_NO_QOS: Final = 2
_MOST_NAMED: Final = 4


class Answer(Enum):
    """What becomes of a waiting job in this round."""

    START = auto()
    WAIT = auto()
    FORBID = auto()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, and why; ``reason`` is what a job fails with that is forbidden."""

    answer: Answer
    text: str = ""
    reason: JobReason = JobReason.FORBIDDEN


@dataclass(frozen=True, slots=True)
class MigratingGang:
    """The members of a gang that run, by uid, and how many of them it needs."""

    key: str
    members: frozenset[str]
    least: int


@dataclass(frozen=True, slots=True)
class MigrationCandidate:
    """A waiting job; ``pod`` None: it has gone. ``forbidden``: why it must not be moved now."""

    job: MigrationJob
    pod: MovedPod | None = None
    workload: Workload | None = None
    gang: MigratingGang | None = None
    forbidden: str = ""

    @property
    def workload_uid(self) -> str:
        """What makes the pod and its like; of a Deployment its uid, not that of a ReplicaSet."""
        if self.workload is not None:
            return self.workload.uid
        return "" if self.pod is None else self.pod.workload

    @property
    def workload_key(self) -> str:
        """The workload in the namespace of the pod; see ``MigrationJob.workload``."""
        return f"{self.job.pod.namespace}/{self.workload_uid}" if self.workload_uid else ""


class Migrating:
    """Jobs that may move their pods now, counted."""

    def __init__(self, jobs: Iterable[MigrationJob]) -> None:
        self.total = 0
        self.nodes: Counter[str] = Counter()
        self.namespaces: Counter[str] = Counter()
        self.workloads: defaultdict[str, set[str]] = defaultdict(set)
        self.gangs: defaultdict[str, set[str]] = defaultdict(set)
        self.pods: set[str] = set()
        for job in jobs:
            self._add(
                job.pod.uid,
                job.origin.node,
                job.pod.namespace,
                job.workload,
                job.origin.gang,
            )

    def add(self, unit: MigrationCandidate) -> None:
        pod = unit.pod
        if pod is not None:
            self._add(pod.uid, pod.node, pod.namespace, unit.workload_key, pod.gang)

    def _add(self, uid: str, node: str, namespace: str, workload: str, gang: str) -> None:
        self.total += 1
        self.nodes[node] += 1
        self.namespaces[namespace] += 1
        self.workloads[workload].add(uid)
        self.pods.add(uid)
        if gang:
            self.gangs[gang].add(uid)


_Rank: TypeAlias = tuple[object, ...]


def rank_pod(pod: MovedPod) -> _Rank:
    """Return the sort key of pods: who is moved first comes first; ties by name and uid."""
    band = find_raw_class(pod.labels, pod.priority)
    return (
        _NO_CLASS if band is None else _CLASS_RANK[band],
        pod.priority,
        _QOS_RANK.get(pod.qos, _NO_QOS),
        _OUR_QOS_RANK.get(pod.labels.get(QOS_LABEL, ""), _NO_QOS),
        pod.deletion_cost,
        pod.eviction_cost,
        -pod.created,
        pod.namespace,
        pod.name,
        pod.uid,
    )


def sort_candidates(
    candidates: Iterable[MigrationCandidate], migrating: Migrating
) -> list[MigrationCandidate]:
    """Sort jobs: what a Job has begun to move first, its pods together, then by pod and age.

    Jobs whose pods are gone come first: they end at once.
    """
    ranked = sorted(candidates, key=lambda candidate: -candidate.job.created)
    ranked.sort(key=lambda unit: () if unit.pod is None else rank_pod(unit.pod))
    first_of: dict[str, int] = {}
    for at, candidate in enumerate(ranked):
        first_of.setdefault(_batch_of(candidate) or candidate.job.uid, at)
    ranked.sort(key=lambda unit: first_of[_batch_of(unit) or unit.job.uid])
    ranked.sort(key=lambda unit: -len(migrating.workloads.get(_batch_of(unit), ())))
    return ranked


def _batch_of(candidate: MigrationCandidate) -> str:
    """Return the batch/Job of the pod of a job; empty for another workload."""
    controller = None if candidate.pod is None else candidate.pod.controller
    is_of_job = controller is not None and controller.kind == "Job"
    return candidate.workload_key if is_of_job else ""


def arbitrate(
    candidates: Sequence[MigrationCandidate],
    active: Iterable[MigrationJob],
    options: MigrationOptions,
) -> dict[str, Verdict]:
    """Return the verdict on each waiting job, by uid; ``active`` are the jobs that have started."""
    migrating = Migrating(active)
    verdicts: dict[str, Verdict] = {}
    for units in _group(sort_candidates(candidates, migrating)):
        verdict = _judge(units, migrating, options)
        verdicts |= dict.fromkeys((unit.job.uid for unit in units), verdict)
        if verdict.answer is Answer.START:
            for unit in units:
                migrating.add(unit)
    return verdicts


def _group(candidates: Sequence[MigrationCandidate]) -> Iterator[tuple[MigrationCandidate, ...]]:
    """Yield what starts together, at the rank of the first."""
    by_key: dict[str, list[MigrationCandidate]] = {}
    for candidate in candidates:
        by_key.setdefault(candidate.job.key, []).append(candidate)
    return map(tuple, by_key.values())


def _judge(
    units: tuple[MigrationCandidate, ...], migrating: Migrating, options: MigrationOptions
) -> Verdict:
    if units[0].job.group and len(units) < units[0].job.group_size:
        return Verdict(Answer.WAIT, _tell_incomplete(units))
    if all(unit.pod is None for unit in units):
        names = ", ".join(sorted(unit.job.pod.key for unit in units)[:_MOST_NAMED])
        return Verdict(Answer.FORBID, f"{names}: there is no such pod", JobReason.MISSING_POD)
    forbidden = next(filter(None, (_forbid(unit, migrating, options) for unit in units)), "")
    forbidden = forbidden or _forbid_gangs(units, migrating)
    if forbidden:
        return Verdict(Answer.FORBID, forbidden)
    exceeded = _find_exceeded(units, migrating, options) if options.arbitrates else ""
    return Verdict(Answer.WAIT, exceeded) if exceeded else Verdict(Answer.START)


def _tell_incomplete(units: tuple[MigrationCandidate, ...]) -> str:
    job = units[0].job
    return f"{len(units)} of the {job.group_size} jobs of the group {job.group} are there"


def _forbid(unit: MigrationCandidate, migrating: Migrating, options: MigrationOptions) -> str:
    """Return why the pod of a job must not be moved, whatever else is moved."""
    pod, job = unit.pod, unit.job
    if pod is None:
        return "" if not job.group else f"the pod {job.pod.key} of the group has gone"
    broken = find_ineligible(
        pod,
        options,
        workload=None if job.group else unit.workload,
        has_job=pod.uid in migrating.pods,
        mode=job.mode or options.default_mode,
    )
    if broken is not None:
        return str(broken)
    is_direct = (job.mode or options.default_mode) is JobMode.EVICT_DIRECTLY
    if pod.controller is None and not is_direct:
        return "no place can be reserved for a pod without a controller; use mode EvictDirectly"
    return unit.forbidden


def _forbid_gangs(units: tuple[MigrationCandidate, ...], migrating: Migrating) -> str:
    """Return which gang would neither move as a whole nor go on without those that move."""
    moved = {unit.pod.uid for unit in units if unit.pod is not None}
    for gang in {unit.gang.key: unit.gang for unit in units if unit.gang is not None}.values():
        left = gang.members - moved - migrating.gangs[gang.key]
        if left and len(left) < gang.least:
            return (
                f"{len(left)} members of the gang {gang.key} would go on, which needs "
                f"{gang.least}: it moves as a whole or not at all"
            )
    return ""


def _find_exceeded(
    units: tuple[MigrationCandidate, ...], migrating: Migrating, options: MigrationOptions
) -> str:
    """Return the first limit that is reached by what others move; "" if the job may start."""
    pods = [unit.pod for unit in units if unit.pod is not None]
    counted = (
        ("MaxMigratingGlobally", options.most_globally, [("in all", migrating.total)]),
        ("MaxMigratingPerNode", options.most_per_node, _count(pods, "node", migrating.nodes)),
        (
            "MaxMigratingPerNamespace",
            options.most_per_namespace,
            _count(pods, "namespace", migrating.namespaces),
        ),
    )
    for gate, most, counts in counted:
        if most is None or (options.compat and most == 0) or not options.checks(gate):
            continue
        for name, count in counts:
            if count >= most:
                return f"{gate}: {count} of {most} {name} are being moved"
    return "" if units[0].job.group else _find_full_workload(units[0], migrating, options)


def _count(
    pods: Iterable[MovedPod], field: str, counts: Mapping[str, int]
) -> list[tuple[str, int]]:
    names = sorted({str(getattr(pod, field)) for pod in pods})
    return [(f"of {field} {name}", counts.get(name, 0)) for name in names]


def _find_full_workload(
    unit: MigrationCandidate, migrating: Migrating, options: MigrationOptions
) -> str:
    pod, workload = unit.pod, unit.workload
    if pod is None or workload is None or pod.evicts_protected:
        return ""
    limits = limits_of(
        workload.replicas,
        options.most_per_workload,
        options.most_unavailable,
        compat=options.compat,
    )
    moving = migrating.workloads.get(unit.workload_key, set()) - {pod.uid}
    most = limits.most_migrating
    if options.checks("MaxMigratingPerWorkload") and moving and len(moving) >= most:
        return f"MaxMigratingPerWorkload: {len(moving)} of {most} of {workload.name}"
    most = limits.most_unavailable
    away_of = "" if options.compat else pod.uid
    is_checked = options.checks("MaxUnavailablePerWorkload")
    if is_checked and is_full(away_of, workload, moving, most):
        away = count_away(away_of, workload.unready, moving)
        return f"MaxUnavailablePerWorkload: {away} of {most} of {workload.name} are away"
    return ""
