"""Values of eviction: units, what they cost, plans and how they end, and what marks a victim.

All values are immutable. Who may be evicted and who is chosen is decided elsewhere; nothing here
knows nodes, clocks or writes.

The owner of a pod can write its annotations, and can fill them so that nothing fits any more. The
status is not the owner's. So the message of the condition alone says for whom a pod goes, also to
the next process.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from koord.core.model.budgets import Budget, split_by_budgets
from koord.core.model.patience import FOREVER, Patience
from koord.core.model.plan import Placement, UnitKey
from koord.core.model.pods import Pod, PodPhase, PreemptedBy
from koord.core.model.topology_constraint import Rank, rank_member


class VictimKind(StrEnum):
    """What is evicted together."""

    POD = "Pod"
    """A pod without a gang."""
    SURPLUS = "Surplus"
    """One member of a gang above its minimum; the gang goes on."""
    GANG = "Gang"
    """All members of a gang, and of the gangs of its group."""
    RESERVATION = "Reservation"


@dataclass(frozen=True, slots=True)
class VictimUnit:
    """Pods that are evicted together or not at all.

    ``key`` is the uid of the pod, or the id of the group for a whole gang. ``group`` is the id of
    the group, ``gangs`` how many gangs of it have members on nodes; empty and 0 for other pods.
    ``priority`` is the highest of its pods. ``doubts`` are pods that may stay long after their
    deletion. ``work`` are the seconds of hundredths of GPUs that are lost.
    """

    key: str
    kind: VictimKind
    pods: tuple[Pod, ...]
    priority: int = 0
    work: int = 0
    group: str = ""
    gangs: int = 0
    doubts: int = 0

    @property
    def name(self) -> str:
        """What users call it: the pod, the reservation, or the gangs of the group."""
        return self.group if self.kind is VictimKind.GANG else self.pods[0].title


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """What a set of victims costs; the first difference decides.

    ``violations`` are pods whose eviction a PodDisruptionBudget does not allow, ``gangs`` those
    that are evicted as a whole, ``priority`` the highest among the victims, ``doubts`` those that
    may stay long after their deletion. These come after the priority: otherwise a finalizer would
    protect a pod at the cost of others. Where the preemptor goes is more important than how many
    ``nodes`` lose pods.
    """

    violations: int
    gangs: int
    priority: int
    doubts: int
    work: int
    pods: int
    jobs: int
    nodes: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is proven of the victims.

    ``is_minimal``: without any one of them the preemptor does not fit. ``is_cheapest``: there are
    no victims that cost less. Both are unknown (False) if the search ran out of ``steps``.
    """

    is_minimal: bool
    is_cheapest: bool
    steps: int


@dataclass(frozen=True, slots=True)
class Alternative:
    """Other victims that were considered, and cost more."""

    victims: tuple[VictimUnit, ...]
    cost: Cost


@dataclass(frozen=True, slots=True)
class Preemption:
    """The victims of a preemptor, and where its pods go once they are gone.

    There are no victims if it fits by now.
    """

    preemptor: UnitKey
    victims: tuple[VictimUnit, ...]
    placement: Placement
    cost: Cost
    certificate: Certificate
    alternatives: tuple[Alternative, ...] = ()

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All pods to evict."""
        return tuple(pod for unit in self.victims for pod in unit.pods)


@dataclass(frozen=True, slots=True)
class Moment:
    """The time, in seconds since the epoch, and what spares running units then.

    A pod may run undisturbed for ``min_runtime`` seconds; each time that others took the place of a
    gang within a day doubles it for that gang. A gang that was preempted ``max_per_day`` times
    within a day is spared, except by units of a system priority; 0 spares none.
    """

    now: float = 0.0
    min_runtime: float = 0.0
    max_per_day: int = 0


ANY_MOMENT: Final = Moment()


@dataclass(frozen=True, slots=True)
class Exempt:
    """Units (by key) that must not be evicted, and pods (by uid) that are being evicted.

    ``patience`` says until when room is counted on that is being left; ``moment`` is what spares
    units for a time.
    """

    units: Collection[str] = ()
    terminating: Collection[str] = ()
    patience: Patience = FOREVER
    moment: Moment = ANY_MOMENT


NOBODY: Final = Exempt()


class Price(NamedTuple):
    """What a unit costs by itself; the first difference decides."""

    violations: int
    gangs: int
    priority: int
    doubts: int
    work: int
    pods: int


@dataclass(frozen=True, slots=True)
class _BudgetVictim:
    """The fields of a pod that budgets match."""

    namespace: str
    name: str
    labels: Mapping[str, str]


class Costs:
    """Computes what victims cost; ``budgets`` are the PodDisruptionBudgets of the cluster."""

    def __init__(self, budgets: tuple[Budget, ...]) -> None:
        self._budgets = budgets

    def of(self, victims: Collection[VictimUnit]) -> Cost:
        """Return the cost of a set of victims."""
        pods = {pod.uid: pod for victim in victims for pod in victim.pods}.values()
        return Cost(
            violations=self.count_violations(pods),
            gangs=sum(victim.gangs for victim in victims),
            priority=max((victim.priority for victim in victims), default=0),
            doubts=sum(victim.doubts for victim in victims),
            work=sum(victim.work for victim in victims),
            pods=len(pods),
            jobs=len({victim.group or victim.key for victim in victims}),
            nodes=len({pod.planned_node for pod in pods}),
        )

    def add(self, cost: Cost, victims: Collection[VictimUnit], more: VictimUnit) -> Cost:
        """Return the cost of ``victims``, which is ``cost``, and one more unit with other pods."""
        violations = cost.violations
        if self._budgets:
            violations = self.count_violations(
                [pod for victim in (*victims, more) for pod in victim.pods]
            )
        job = more.group or more.key
        return Cost(
            violations,
            cost.gangs + more.gangs,
            max(cost.priority, more.priority) if victims else more.priority,
            cost.doubts + more.doubts,
            cost.work + more.work,
            cost.pods + len(more.pods),
            cost.jobs + all((victim.group or victim.key) != job for victim in victims),
            nodes=0,
        )

    def count_violations(self, pods: Collection[Pod]) -> int:
        """Count pods whose eviction, in the order of their keys, a budget does not allow.

        Budgets do not count pods that are pending.
        """
        if not self._budgets:
            return 0
        covered = (
            _BudgetVictim(pod.namespace, pod.name, dict(pod.profile.labels))
            for pod in sorted(pods, key=lambda pod: pod.key)
            if pod.phase is not PodPhase.PENDING
        )
        return len(split_by_budgets(covered, self._budgets).violating)

    def sort(self, units: Iterable[VictimUnit]) -> list[VictimUnit]:
        """Sort units, the cheapest first; of equal ones, the last by name."""
        return sorted(sorted(units, key=_name_of, reverse=True), key=self.price_of)

    def price_of(self, unit: VictimUnit) -> Price:
        """Return what a unit costs by itself."""
        violations = self.count_violations(unit.pods)
        return Price(violations, unit.gangs, unit.priority, unit.doubts, unit.work, len(unit.pods))


def _name_of(unit: VictimUnit) -> tuple[str, Rank]:
    """Return what equal units are sorted by: members of one gang by their index."""
    if unit.group:
        return unit.group, rank_of(unit.pods[0])
    return unit.name, (False, 0, (), unit.key)


_FORM: Final = re.compile(
    r"(?P<preemptor>\S+) \(priority -?\d+\) needs its place \(plan (?P<plan>\S+)\)"
    r"(?:.*, triggerPod: (?P<pod>\S+)\))?"
)


def write_victim_text(
    by: PreemptedBy, priority: int, scheduler: str, *, compat: bool = False
) -> str:
    """Return the message; with ``compat`` Koordinator's words follow."""
    text = f"{by.preemptor} (priority {priority}) needs its place (plan {by.plan_id})"
    if not compat:
        return text
    return (
        f"{text} ({scheduler}: preempting to accommodate higher priority pods, preemptor: "
        f"{by.preemptor}, triggerPod: {by.pod})"
    )


def read_victim_text(text: str) -> PreemptedBy | None:
    """Return for whom a marked pod goes; None for another text.

    The first pod is "" unless it was written with ``compat``.
    """
    match = _FORM.match(text)
    if match is None:
        return None
    return PreemptedBy(match["plan"], match["preemptor"], match["pod"] or "")


def rank_of(pod: Pod) -> Rank:
    """Return the sort key of members: their order within the gang."""
    return rank_member(pod.index, pod.name, pod.uid)


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """Pods that go together or not at all.

    ``key`` names what it is for or who goes: a policy has one plan of a key at a time. Plans of one
    ``purpose`` wait for each other while pods may end by themselves. ``namespace`` is whoever
    caused it, if limits are to count there only; ``quota`` is the one that loses the pods.
    ``beneficiary`` is the unit for which they go, if it is one.
    """

    policy: str
    key: str
    pods: tuple[Pod, ...]
    purpose: str = ""
    namespace: str = ""
    quota: str = ""
    beneficiary: UnitKey = ""


class Outcome(StrEnum):
    """How plans end."""

    BOUND = "Bound"
    NOT_NEEDED = "NotNeeded"
    """The preemptor fits without it, or nobody needs the room any more."""
    PREEMPTOR_GONE = "PreemptorGone"
    """The preemptor was deleted, or changed."""
    INVALID = "Invalid"
    """The preemptor would not fit any more, for example because a node went."""
    FAILED = "Failed"
    """The API server refused a write."""
    STUCK = "VictimStuck"
    """Victims did not go; another plan is tried."""
    UNMARKED = "VictimUnmarked"
    """A victim could not be marked; another plan is made at once."""
    EXPIRED = "Expired"
    """The preemptor was not bound although its victims had time enough to go."""
    ENDED = "Ended"
    """All its pods were evicted, or have ended by themselves."""
    PROTECTED = "Protected"
    """Disruption budgets, or the API server, do not allow it now."""
    LIMITED = "Limited"
    """As many went already as a limit allows."""
