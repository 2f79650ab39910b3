"""Input and output of the planner: units, placements with their writes, refusals.

A *unit* is decided as a whole: a single pod, or all gangs of a gang group. The planner places at
least ``required`` pods of every demand of the unit, or none of the unit.

An ``ObjectWrite`` to another object than the pod has to be there before the pod is bound (PreBind):
what it means is known to the plugin that makes it, how it is sent to ``kube``.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from koord.core.model.gangs import SubGroupTree
from koord.core.model.native_terms import NativeTerms
from koord.core.model.pods import Allocation, Pod
from koord.core.model.reasons import Reason
from koord.core.model.run_terms import NO_TERMS, RunTerms
from koord.core.model.topology_constraint import TopologyConstraint


@dataclass(frozen=True, slots=True)
class ObjectWrite:
    """Sets fields of the object at ``path`` of the API, if it is still as it was planned.

    Keys are JSON pointers, values what is there afterwards (``patch``) and before (``test``); None
    stands for nothing. A field that is patched and not tested must have been absent before. So the
    write can be repeated, told from the object, and taken back: whoever plans again after a crash
    finds it done.
    """

    path: str
    patch: Mapping[str, Any]
    test: Mapping[str, Any] = field(default_factory=dict)

    @property
    def before(self) -> Mapping[str, Any]:
        """All that must be there before it."""
        return {**dict.fromkeys(self.patch), **self.test}

    @property
    def undone(self) -> "ObjectWrite":
        """The write that takes it back, as long as nobody has changed the fields since."""
        before = self.before
        return ObjectWrite(
            self.path, {at: before[at] for at in self.patch}, {**before, **self.patch}
        )


UnitKey: TypeAlias = str
"""The group id (sorted gang keys, joined with ``,``), or the uid of a single pod."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The waiting members of one gang (or one single pod), and how many of them must be placed.

    Members may stand for pods that do not exist yet (``Handling.STAND_IN``): they get nodes like
    others, and what their plugins write then (``pre_bind``) has the pods created.

    ``required`` may be less than ``len(pods)``: the rest is surplus, placed when there is room.
    """

    gang: str
    pods: tuple[Pod, ...]
    required: int
    min_member: int = 0
    placed: int = 0
    """Members that have a node already, or have succeeded."""
    constraint: TopologyConstraint | None = None
    """Of the gang: another constraint makes it another demand, as do the next three."""
    placed_with: tuple[str, ...] = ()
    """The gangs of the group, itself included, that share its topology domains."""
    placed_there: int = 0
    """Members of those gangs that are on nodes, which determine its domains."""
    sub_groups: SubGroupTree | None = None
    sub_group: str = ""
    """Of a gang with sub-groups: the one that these members are in."""
    is_held: bool = False
    """Whether the owner of the gang keeps it from starting; without that it is another demand."""
    most_priority: int | None = None
    """The highest priority with which the gang has its turn; None: that of its pods."""
    retry: str = ""
    """What was written to have the gang tried again: with another text it is another demand."""
    run: RunTerms = NO_TERMS
    """What the gang says of its run."""
    native: NativeTerms | None = None
    """What it says if it is a native PodGroup of Kubernetes."""
    placed_alive: int = 0
    """Members of a native PodGroup that have a node, and have not ended."""

    def is_left_to_scheduler(self, members: int) -> bool:
        """Whether the scheduler that the members name binds them, if so many are released.

        kube-scheduler writes the status of a native PodGroup only if it binds the members, and it
        waits until it sees as many as the minimum: it does not count those that have succeeded.
        """
        if self.native is None:
            return False
        return not self.native.is_gang or self.placed_alive + members >= self.min_member

    def first_required(self) -> Sequence[Pod]:
        """Return the first pods in order, as many as are required."""
        return self.pods[: self.required]

    def smallest_required(self) -> Sequence[Pod]:
        """Return the pods with the smallest requests, as many as are required."""
        by_size = sorted(
            self.pods, key=lambda pod: (max(n for _, n in pod.shape.requests), pod.key)
        )
        return by_size[: self.required]

    def strength_with(self, placed: int) -> int:
        """Return how much of its minimum the gang has with ``placed`` more members.

        With sub-groups it is all members: each of them has a minimum of its own.
        """
        members = self.placed + placed
        return members if self.sub_groups is not None else min(self.min_member, members)


@dataclass(frozen=True, slots=True)
class Unit:
    """One decision. ``since`` (epoch seconds) is when its quorum was first seen.

    ``is_repair`` marks the rest of a gang that has already started; it goes before everything else.
    ``group`` is the gang group id that members are bound under, empty for a single pod.
    ``lease_seconds``: how long room is held for those members of a NonStrict unit that fit; 0: not.
    """

    key: UnitKey
    demands: tuple[Demand, ...]
    group: str = ""
    priority: int = 0
    since: float = 0.0
    is_repair: bool = False
    lease_seconds: int = 0
    pods: tuple[Pod, ...] = field(init=False, repr=False, compare=False)
    """All waiting pods of the unit."""

    def __post_init__(self) -> None:
        if len(self.demands) == 1:
            pods = tuple(self.demands[0].pods)
        else:
            pods = tuple(pod for demand in self.demands for pod in demand.pods)
        object.__setattr__(self, "pods", pods)

    @property
    def required(self) -> int:
        """How many pods must be placed for the unit to be placed at all."""
        return sum(demand.required for demand in self.demands)

    @property
    def is_whole(self) -> bool:
        """Whether it decides about gangs, and not about one pod."""
        return bool(self.group) and self.key != self.demands[0].pods[0].uid

    def strengths_with(self, placed: Collection[str]) -> dict[str, int]:
        """Return how much of its minimum each gang has once the pods with these uids are placed."""
        members: dict[str, int] = {}
        demands = {demand.gang: demand for demand in self.demands} if self.group else {}
        for demand in self.demands:
            count = sum(pod.uid in placed for pod in demand.pods)
            members[demand.gang] = members.get(demand.gang, 0) + count
        return {gang: demand.strength_with(members[gang]) for gang, demand in demands.items()}


@dataclass(frozen=True, slots=True)
class Assignment:
    """One pod, its node, and its allocations there.

    ``is_open``: its own scheduler may choose another node, which only that one can find.
    """

    pod: Pod
    node: str
    allocations: tuple[Allocation, ...] = ()
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class ObservedTopology:
    """Where in a network topology all members of a gang are.

    ``layer`` and ``domain`` (its path) name the lowest domain that holds them all; ``used`` counts
    the domains with a member, per layer. ``gap`` is the layer, and the number of its domains, that
    a better placement may save; None if this one is known to be the best.
    """

    topology: str
    layer: str
    domain: tuple[str, ...]
    used: tuple[tuple[str, int], ...]
    gap: tuple[str, int] | None = None

    @property
    def is_optimal(self) -> bool:
        """Whether no better placement existed when this one was made."""
        return self.gap is None


@dataclass(frozen=True, slots=True)
class Placement:
    """A unit that was placed: to be committed member by member under one ``plan_id``.

    ``group`` is the gang group that the members are released with, empty for a single pod.
    """

    unit: UnitKey
    plan_id: str
    group: str
    assignments: tuple[Assignment, ...]
    topologies: tuple[ObservedTopology, ...] = ()
    """One per topology constraint of the unit's gangs."""
    strengths: Mapping[str, int] = field(default_factory=dict)
    """Gang -> how much of its minimum it has with these members."""
    charged: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Pod uid -> the quota that the pod is charged to from now on; others are in none."""
    writes: Mapping[str, Sequence[ObjectWrite]] = field(default_factory=dict, compare=False)
    """Pod uid -> what has to be written to other objects before the pod is bound."""
    time_limits: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Pod uid -> after how many seconds its kubelet is to end it."""
    uids: frozenset[str] = field(init=False, repr=False, compare=False)
    """The members that are released together."""
    youngest: float = field(init=False, repr=False, compare=False)
    """When the youngest of them was created, in seconds since the epoch."""

    gap: str = field(init=False, repr=False, compare=False)
    """By how much a better placement may have been missed, as it is recorded."""

    def __post_init__(self) -> None:
        gaps = (topology.gap for topology in self.topologies if topology.gap is not None)
        gap = max((f"{layer}+{count}" for layer, count in gaps), default="")
        object.__setattr__(self, "gap", gap)
        uids = frozenset(assignment.pod.uid for assignment in self.assignments)
        object.__setattr__(self, "uids", uids)
        youngest = max((assignment.pod.created for assignment in self.assignments), default=0.0)
        object.__setattr__(self, "youngest", youngest)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A unit, or the surplus of a placed one, that was not placed, and why."""

    unit: UnitKey
    pods: tuple[Pod, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Members of a sub-group that are not planned now, and why. ``name`` includes their gang."""

    gang: str
    name: str
    pods: tuple[Pod, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one planning cycle, in the order of decision."""

    placements: tuple[Placement, ...] = ()
    refusals: tuple[Unplaced, ...] = ()
