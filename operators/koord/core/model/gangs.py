"""Gangs: settings declared by a PodGroup or by annotations of pods, sub-groups, and PodGroups.

Source of the rules: Koordinator's coscheduling (PodGroup, gang annotations, gang groups);
``docs/gangs.md`` documents every key and default.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Final, NamedTuple, TypeAlias

from koord.core.model.gang_history import Episode
from koord.core.model.native_terms import NativeTerms
from koord.core.model.run_terms import NO_TERMS, RunTerms
from koord.core.model.topology_constraint import TopologyConstraint

GangKey: TypeAlias = str
"""``namespace/name`` of a gang."""
DEFAULT_WAIT_SECONDS = 600
DEFAULT_HOLD_SECONDS = 600
"""How long room is kept for a gang at most."""


class GangMode(StrEnum):
    """What happens to members that could be placed when another cannot."""

    STRICT = "Strict"
    NON_STRICT = "NonStrict"


class MatchPolicy(StrEnum):
    """Which members count towards the quorum."""

    ONCE_SATISFIED = "once-satisfied"
    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"


class OnMemberFailure(StrEnum):
    """What happens to a started gang that has lost members and is below its minimum."""

    REPLACE = "Replace"
    RESTART_GANG = "RestartGang"
    IGNORE = "Ignore"


class OnBindFailure(StrEnum):
    """What happens to a gang of which members were bound, but less than the minimum."""

    RETRY = "Retry"
    RESTART_GANG = "RestartGang"


class GangSource(StrEnum):
    """Where the settings of a gang come from."""

    POD_GROUP = "GangFromPodGroupCrd"
    ANNOTATION = "GangFromPodAnnotation"
    NATIVE = "GangFromNativePodGroup"
    """A native PodGroup of Kubernetes: read, never written."""
    OWNER = "GangFromOwner"
    """The pods name none; what owns them says it."""

    @property
    def has_object(self) -> bool:
        return self in {GangSource.POD_GROUP, GangSource.NATIVE}


@dataclass(frozen=True, slots=True)
class BadValue:
    """An invalid setting: the key, its value, and what is used instead."""

    key: str
    value: str
    in_force: str
    problem: str


@dataclass(frozen=True, slots=True)
class DeprecatedKey:
    """A deprecated key that is used, and still works."""

    key: str
    instead: str


ROOT: Final = ""
"""The name of the gang itself in its tree of sub-groups."""


class SubGroup(NamedTuple):
    """Members of a gang that are useful together only, with the sub-groups that name it as parent.

    ``min_member`` counts all members in it, those of sub-groups too. ``layer`` is the layer of the
    network of which they must share a domain, empty for none. ``min_sub_groups`` is how many
    sub-groups right below it must be complete; None: all of them.
    """

    name: str
    min_member: int = 0
    layer: str = ""
    parent: str = ROOT
    min_sub_groups: int | None = None


@dataclass(frozen=True)
class SubGroupTree:
    """The sub-groups of one gang, a tree whose ``root`` is the gang itself.

    A sub-group is *complete* if it has the members that it needs, and as many complete sub-groups
    right below it as it needs.
    """

    root: SubGroup
    groups: tuple[SubGroup, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.root, self.groups))

    def rooted(self, min_member: int) -> "SubGroupTree":
        """Return the tree with another minimum of the gang itself."""
        return self if self.root.min_member == min_member else _root(self, min_member)

    @property
    def index(self) -> "TreeIndex":
        return _index_of(self)

    @property
    def by_name(self) -> Mapping[str, SubGroup]:
        return self.index.by_name

    @property
    def below(self) -> Mapping[str, tuple[SubGroup, ...]]:
        return self.index.below

    def find(self, name: str) -> str:
        """Return the sub-group of a pod that names ``name``: the gang itself if there is none."""
        return name if name in self.by_name else ROOT

    def is_in(self, name: str, parent: str) -> bool:
        """Whether pods that name ``name`` are in ``parent`` or below it."""
        name = self.find(name)
        while name not in {parent, ROOT}:
            name = self.by_name[name].parent
        return name == parent


class _ByParent(dict[str, tuple[SubGroup, ...]]):
    """The sub-groups right below others; most have none, and take no room."""

    def __missing__(self, _name: str) -> tuple[SubGroup, ...]:
        return ()


class TreeIndex:
    """Where the sub-groups of a tree are, and which are incomplete while nobody is in them.

    It takes more memory than the tree, so it is kept only for trees that were asked about lately.
    """

    def __init__(self, tree: SubGroupTree) -> None:
        self.by_name: Mapping[str, SubGroup] = {
            tree.root.name: tree.root,
            **{group.name: group for group in tree.groups},
        }
        below: dict[str, list[SubGroup]] = {}
        for group in tree.groups:
            below.setdefault(group.parent, []).append(group)
        self.below: Mapping[str, tuple[SubGroup, ...]] = _ByParent(
            (name, tuple(groups)) for name, groups in below.items()
        )
        self.incomplete = {name for name, group in self.by_name.items() if group.min_member > 0}
        self.lacking: dict[str, int] = {}
        """Sub-groups that have incomplete ones right below them, and how many."""
        if self.incomplete:
            for parent in reversed([*self._find_parents()]):
                self._count_lacking(parent)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The order of the sub-groups, as listed."""
        return {name: at for at, name in enumerate(self.by_name)}

    def is_short_below(self, sub_group: SubGroup, lacking: int) -> bool:
        """Whether ``lacking`` incomplete ones right below a sub-group are too many."""
        if sub_group.min_sub_groups is None or not lacking:
            return lacking > 0
        return len(self.below[sub_group.name]) - lacking < sub_group.min_sub_groups

    def _find_parents(self) -> Iterator[SubGroup]:
        """Yield the sub-groups that have others below them, each before those."""
        left = [self.by_name[ROOT]]
        while left:
            sub_group = left.pop()
            yield sub_group
            left += (child for child in self.below[sub_group.name] if child.name in self.below)

    def _count_lacking(self, parent: SubGroup) -> None:
        """Count the incomplete ones right below an empty sub-group, which may make it so, too."""
        names = [child.name for child in self.below[parent.name]]
        lacking = len(self.incomplete.intersection(names))
        if lacking:
            self.lacking[parent.name] = lacking
        if self.is_short_below(parent, lacking):
            self.incomplete.add(parent.name)


_TREES: Final = 16
"""Trees with as many sub-groups as may be take half a megabyte each with their index."""


@lru_cache(maxsize=_TREES)
def _root(tree: SubGroupTree, min_member: int) -> SubGroupTree:
    return replace(tree, root=tree.root._replace(min_member=min_member))


@lru_cache(maxsize=_TREES)
def _index_of(tree: SubGroupTree) -> TreeIndex:
    return TreeIndex(tree)


def fill(tree: SubGroupTree, members: Counter[str]) -> "FilledTree":
    """Return the tree with so many members; the same value for the same members asked lately."""
    return _fill(tree, frozenset(members.items()))


@lru_cache(maxsize=_TREES)
def _fill(tree: SubGroupTree, members: frozenset[tuple[str, int]]) -> "FilledTree":
    return FilledTree(tree, Counter(dict(members)))


class FilledTree:
    """The sub-groups of a gang with so many members each; see :func:`fill`.

    ``members`` has the number of those that are in a sub-group and in none below it. All is counted
    in one pass over the sub-groups that have members: there may be a thousand others, which are as
    the index says.
    """

    def __init__(self, tree: SubGroupTree, members: Counter[str]) -> None:
        self.tree = tree
        self.members = members
        self._index = tree.index
        self._counts: Counter[str] = Counter(members)
        self._useful: Counter[str] = Counter(members)
        self._completed: set[str] = set()
        """Those that are incomplete when empty, and are not with these members."""
        self._filled_below: Counter[str] = Counter()
        """How many right below a sub-group are among them."""
        for upward in self._find_upwards():
            self._add(upward)

    def _find_upwards(self) -> list[SubGroup]:
        """Return the sub-groups with members at or below them, each after those below it."""
        by_name, depths = self._index.by_name, dict[str, int]()
        for named in self.members:
            path, name = [], named
            while name not in depths:
                path.append(name)
                if name == ROOT:
                    break
                name = by_name[name].parent
            first = depths.get(name, -1) + 1
            depths |= {on_path: first + at for at, on_path in enumerate(reversed(path))}
        return [by_name[name] for name in sorted(depths, key=depths.__getitem__, reverse=True)]

    def _add(self, sub_group: SubGroup) -> None:
        """Count one sub-group for its parent."""
        name, parent = sub_group.name, sub_group.parent
        is_complete = (
            not self._is_short_below(sub_group) and self._useful[name] >= sub_group.min_member
        )
        was_incomplete = name in self._index.incomplete
        if is_complete and was_incomplete:
            self._completed.add(name)
        if name == ROOT:
            return
        self._counts[parent] += self._counts[name]
        if is_complete:
            self._useful[parent] += self._useful[name]
            self._filled_below[parent] += was_incomplete

    def _is_short_below(self, sub_group: SubGroup) -> bool:
        """Whether too few of the sub-groups right below one are complete."""
        name = sub_group.name
        lacking = self._index.lacking.get(name, 0) - self._filled_below[name]
        return self._index.is_short_below(sub_group, lacking)

    def count(self, name: str) -> int:
        """Return how many members a sub-group and those below it have."""
        return self._counts[name]

    def count_useful(self, name: str) -> int:
        """Return how many members a sub-group has outside incomplete ones below it."""
        return self._useful[name]

    def is_short(self, name: str) -> bool:
        """Whether a sub-group is incomplete."""
        return name in self._index.incomplete and name not in self._completed

    def find_short(self, name: str) -> tuple[SubGroup, ...]:
        """Return the incomplete sub-groups that make this one incomplete, or itself."""
        return tuple(self._find_short(name)) if self.is_short(name) else ()

    def _find_short(self, name: str) -> Iterator[SubGroup]:
        group = self._index.by_name[name]
        if not self._is_short_below(group):
            yield group
            return
        for sub_group in self._index.below[name]:
            if self.is_short(sub_group.name):
                yield from self._find_short(sub_group.name)

    def choose(self, name: str) -> frozenset[str]:
        """Return the complete sub-groups at and below one that start first, and have members.

        Where not all are needed, the first ones are chosen, and more while members are missing.
        """
        chosen, _ = self._choose(name)
        return frozenset(chosen)

    def _choose(self, name: str) -> tuple[list[str], int]:
        """Return the chosen sub-groups, and how many members they have."""
        group, chosen, count = self._index.by_name[name], [name], self.members[name]
        complete = self._complete_below(name)
        wanted = len(complete) if group.min_sub_groups is None else group.min_sub_groups
        for at, sub_group in enumerate(complete):
            if at >= wanted and count >= group.min_member:
                break
            if not self._counts[sub_group.name]:
                continue
            below, members = self._choose(sub_group.name)
            chosen += below
            count += members
        if count < group.min_member:
            return list(self._find_useful(name)), self.count_useful(name)
        return chosen, count

    def _find_useful(self, name: str) -> Iterator[str]:
        yield name
        for sub_group in self._complete_below(name):
            if self._counts[sub_group.name]:
                yield from self._find_useful(sub_group.name)

    def _complete_below(self, name: str) -> list[SubGroup]:
        incomplete, completed = self._index.incomplete, self._completed
        below = self._index.below[name]
        if not incomplete:
            return list(below)
        return [
            sub_group
            for sub_group in below
            if sub_group.name not in incomplete or sub_group.name in completed
        ]


@dataclass(frozen=True, slots=True)
class GangSpec:
    """The settings of one gang.

    ``group`` holds the gang keys that it lists, sorted: itself alone without a list. A gang is in
    its own group even if its list leaves it out.
    """

    key: GangKey
    min_member: int
    total: int
    wait_seconds: int = DEFAULT_WAIT_SECONDS
    mode: GangMode = GangMode.STRICT
    match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    group: tuple[GangKey, ...] = ()
    source: GangSource = GangSource.POD_GROUP
    bad_values: tuple[BadValue, ...] = ()
    topology: TopologyConstraint | None = None
    on_member_failure: OnMemberFailure = OnMemberFailure.REPLACE
    on_bind_failure: OnBindFailure = OnBindFailure.RETRY
    sub_groups: SubGroupTree | None = None
    listed: int = 0
    """How many gangs its list names, if those are too many; ``group`` holds the first then."""
    keeps_room: bool = True
    """Whether room is kept, for lost members or as its mode says."""
    is_held: bool = False
    """Whether its owner keeps it from starting."""
    most_priority: int | None = None
    """The highest priority with which it has its turn; None: that of its pods."""
    retry: str = ""
    """What its owner has written to have it tried again: another text makes it another one."""
    run: RunTerms = NO_TERMS
    finished: int = 0
    """How many of ``total`` have succeeded or were given up, as what owns the pods says."""
    native: NativeTerms | None = None


def tree_of(spec: GangSpec | None) -> SubGroupTree | None:
    """Return the sub-groups of a gang, with its own minimum at the root; None if it has none."""
    if spec is None or spec.sub_groups is None:
        return None
    return spec.sub_groups.rooted(spec.min_member)


@dataclass(frozen=True, slots=True)
class GangMembership:
    """The gang that a pod names.

    ``declared`` holds the settings from the pod's own annotations. It is None if the gang is named
    by the PodGroup label (the object carries the settings) or if the pod has no valid minimum.
    """

    key: GangKey
    source: GangSource
    declared: GangSpec | None = None
    bad_values: tuple[BadValue, ...] = ()
    deprecated: tuple[DeprecatedKey, ...] = ()
    found_by: str = ""
    """From what it was found, for people, if the pod does not name it."""


class GangPhase(StrEnum):
    """``status.phase`` of a PodGroup, as Koordinator defines it."""

    UNSET = ""
    PENDING = "Pending"
    PRE_SCHEDULING = "PreScheduling"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Bond(NamedTuple):
    """What makes members those of one run: their controller, and who was released with them.

    ``start`` identifies the ``size`` pods that were released together; empty and 0 for none.
    """

    controller: str
    start: str
    size: int


class BondRecord(NamedTuple):
    """How many members of one bond are done, and how many of them in which sub-groups."""

    bond: Bond
    done: int
    sub_groups: tuple[tuple[str, int], ...] = ()

    def by_sub_group(self) -> Counter[str]:
        """Count the members by sub-group; those of none, or of one not listed, in ``ROOT``."""
        counts, left = Counter[str](), self.done
        for name, done in self.sub_groups:
            counts[name] += min(max(done, 0), left)
            left = self.done - counts.total()
        counts[ROOT] += left
        return +counts


RunRecord: TypeAlias = tuple[BondRecord, ...]
"""What is remembered of the members of one run."""


@dataclass(frozen=True, slots=True)
class QueueMemory:
    """What a status remembers of a group that was the first of its queue: for a new process."""

    head_since: int
    reserved_since: int | None = None
    idle_seconds: int = 0
    places: tuple[tuple[str, int], ...] = ()
    """The nodes of which room was reserved; empty if not all of them are known."""
    latest: int | None = None
    """By when it was to start; None: room was held without a known time."""


@dataclass(frozen=True, slots=True)
class ObservedPodGroup:
    """A PodGroup object: its settings, and what of its status outlives a restart.

    ``attempts`` is the number of failed placement attempts that the status reports, None if it
    reports none. ``wait_reason`` is the reason of the condition ``Placed`` if it is not True. It
    decides nothing, but two operators write that condition, and each has to look again once the
    other has overwritten it. ``is_settled``: by its status Koordinator ignores it (see
    ``phase.is_settled``).
    """

    key: GangKey
    uid: str
    spec: GangSpec
    generation: int = 0
    created: float = 0.0
    is_terminating: bool = False
    phase: GangPhase = GangPhase.UNSET
    occupied_by: str = ""
    schedule_start: float | None = None
    attempts: int | None = None
    wait_reason: str = ""
    is_settled: bool = False
    history: tuple[Episode, ...] = ()
    """What happened to it, oldest first."""
    runs: RunRecord = ()
    """What its status remembers of members, also of those that are gone."""
    queued: QueueMemory | None = field(default=None, compare=False)
