"""The members of gangs with sub-groups: which are missing, and which must be placed together.

The rules of the whole gang are those of its parts. A sub-group that has no placed member starts as
a whole, with everything that it needs at and below it, once all of that is there; one that has
started is repaired, and grows, pod by pod. Members whose sub-group cannot start now are left out,
with the reason. Before the gang has started, all that it needs is one unit; the rest follows.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from koord.core.gang.cache import GangCache, sort_members
from koord.core.gang.done import count_done_by_sub_group
from koord.core.gang.reasons import GangCount, GangNotStarted, MissingMembers
from koord.core.gang.tally import is_placed
from koord.core.model.gangs import (
    ROOT,
    FilledTree,
    GangKey,
    MatchPolicy,
    SubGroup,
    SubGroupTree,
    TreeIndex,
    fill,
    tree_of,
)
from koord.core.model.plan import Demand, LeftOut
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason, WaitingForForeignGate


@dataclass(frozen=True, slots=True)
class DivisionPart:
    """Demands that are decided together, and the sub-group that they are all of."""

    name: str
    demands: tuple[Demand, ...]


@dataclass(frozen=True, slots=True)
class SubGroupCount:
    """The members of one sub-group: those that count, and those of them that have a place."""

    name: str
    min_member: int
    present: int
    placed: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Division:
    """What is planned of the waiting members of a gang, and what is left out."""

    parts: Sequence[DivisionPart]
    left_out: Sequence[LeftOut] = ()


def find_missing(cache: GangCache, key: GangKey) -> tuple[GangCount, ...]:
    """Count the members of the sub-groups that keep a gang from starting; empty if it can.

    If it is the gang itself that lacks members, its incomplete sub-groups are named as well: those
    with members, whose members are of no use, or else all of them.
    """
    tree = _tree_of(cache, key)
    if tree is None:
        return ()
    members = _count_present(cache, key, tree)
    short = members.find_short(ROOT)
    if tree.root in short:
        below = [
            sub_group for child in tree.below[ROOT] for sub_group in members.find_short(child.name)
        ]
        begun = [sub_group for sub_group in below if members.count(sub_group.name)]
        short = (*short, *(begun or below))
    return _count_short(key, short, members)


def count_sub_groups(cache: GangCache, key: GangKey) -> tuple[SubGroupCount, ...]:
    """Count the members of each sub-group of a gang, those below it included."""
    tree = _tree_of(cache, key)
    if tree is None:
        return ()
    present = _count_present(cache, key, tree)
    placed = count_placed(cache, key, tree)
    return tuple(
        SubGroupCount(
            group.name,
            group.min_member,
            present.count(group.name),
            placed.count(group.name),
            is_complete=not present.is_short(group.name),
        )
        for group in tree.groups
    )


def first_incomplete(counts: tuple[SubGroupCount, ...], most: int) -> tuple[SubGroupCount, ...]:
    """Return all sub-groups if they are few, else the first of those that lack members."""
    if len(counts) <= most:
        return counts
    return tuple(count for count in counts if not count.is_complete)[:most]


def count_useless(cache: GangCache, key: GangKey) -> int:
    """Count the members that are in incomplete sub-groups, and so do not count for the gang."""
    tree = _tree_of(cache, key)
    if tree is None:
        return 0
    members = _count_present(cache, key, tree)
    return members.members.total() - members.count_useful(ROOT)


def is_placed_whole(cache: GangCache, key: GangKey) -> bool:
    """Whether members with a place make the gang complete; also without sub-groups."""
    tree = _tree_of(cache, key)
    return tree is None or not count_placed(cache, key, tree).is_short(ROOT)


def find_incomplete(cache: GangCache, key: GangKey) -> frozenset[str]:
    """Return the sub-groups that are not complete with the members that have a place."""
    tree = _tree_of(cache, key)
    if tree is None:
        return frozenset()
    placed = count_placed(cache, key, tree)
    return frozenset(group.name for group in tree.groups if placed.is_short(group.name))


def find_started(cache: GangCache, key: GangKey) -> Callable[[Pod], bool]:
    """Return whether a member is in a sub-group of which others were released."""
    tree = _tree_of(cache, key)
    if tree is None:
        return lambda _: True
    released = (pod for pod in cache.members(key).values() if pod.recorded)
    counts = fill(tree, _by_name(tree, released))
    return lambda pod: counts.count(tree.find(pod.sub_group)) > 0


def waits_for_gates(cache: GangCache, key: GangKey) -> bool:
    """Whether sub-groups that a gang needs are complete only with members behind foreign gates."""
    tree = _tree_of(cache, key)
    if tree is None or not cache.tally(key).foreign:
        return False
    able = count_placed(cache, key, tree, more=cache.tally(key).plannable.values())
    return able.is_short(ROOT)


def divide_start(cache: GangCache, demand: Demand) -> Division:
    """Divide the demand of a gang that starts: its first part is all that starts together."""
    tree = _tree_of(cache, demand.gang)
    if tree is None:
        return Division((DivisionPart(ROOT, (demand,)),))
    divider = _make_divider(cache, demand, tree)
    divider.start(ROOT, demand.required)
    return divider.division


def divide_started(cache: GangCache, demand: Demand) -> Division:
    """Divide the demand of a gang that has started into parts that are decided separately."""
    tree = _tree_of(cache, demand.gang)
    if tree is None:
        singles = (replace(demand, pods=(pod,), required=1) for pod in demand.pods)
        return Division([DivisionPart(ROOT, (single,)) for single in singles])
    divider = _make_divider(cache, demand, tree)
    divider.go_on(ROOT)
    return divider.division


def blame_gates(behind: Iterable[Pod]) -> WaitingForForeignGate:
    """Say which gates keep members from being planned."""
    pods = sort_members(behind)
    gates = sorted({gate for pod in pods for gate in pod.foreign_gates})
    return WaitingForForeignGate(pod=pods[0].key, gates=tuple(gates), pods=len(pods))


def _tree_of(cache: GangCache, key: GangKey) -> SubGroupTree | None:
    return tree_of(cache.spec(key))


def is_present_whole(cache: GangCache, key: GangKey) -> bool:
    """Whether members that wait, run or are done make the gang complete."""
    tree = _tree_of(cache, key)
    return tree is None or not _count_present(cache, key, tree).is_short(ROOT)


def _count_present(cache: GangCache, key: GangKey, tree: SubGroupTree) -> FilledTree:
    """Count the members that count towards minima: the present ones, and those that are done."""
    present = cache.tally(key).present.values()
    return fill(tree, count_done_by_sub_group(cache, key) + _by_name(tree, present))


def count_placed(
    cache: GangCache, key: GangKey, tree: SubGroupTree, *, more: Iterable[Pod] = ()
) -> FilledTree:
    """Count the members that need no place, as they have one or are done; and ``more``."""
    placed = filter(is_placed, cache.members(key).values())
    done = count_done_by_sub_group(cache, key)
    return fill(tree, done + _by_name(tree, placed) + _by_name(tree, more))


def _full_name(key: GangKey, group: SubGroup) -> str:
    return f"{key}/{group.name}" if group.name else key


def _by_name(tree: SubGroupTree, pods: Iterable[Pod]) -> Counter[str]:
    return Counter(tree.find(pod.sub_group) for pod in pods)


def _count_short(
    key: GangKey, short: Iterable[SubGroup], members: FilledTree
) -> tuple[GangCount, ...]:
    return tuple(
        GangCount(
            _full_name(key, sub_group), members.count_useful(sub_group.name), sub_group.min_member
        )
        for sub_group in short
    )


def _by_sub_group(tree: SubGroupTree, pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    pods_by_name = defaultdict[str, list[Pod]](list)
    for pod in pods:
        pods_by_name[tree.find(pod.sub_group)].append(pod)
    return pods_by_name


def _make_divider(cache: GangCache, demand: Demand, tree: SubGroupTree) -> "_Divider":
    spec, members = cache.spec(demand.gang), cache.members(demand.gang).values()
    released = (pod for pod in members if pod.recorded is not None and is_placed(pod))
    return _Divider(
        demand=demand,
        tree=tree,
        waiting=_by_sub_group(tree, demand.pods),
        behind=_by_sub_group(tree, cache.tally(demand.gang).foreign.values()),
        placed=count_placed(cache, demand.gang, tree),
        released=fill(tree, _by_name(tree, released)),
        waits_for_all=spec is not None and spec.match_policy is not MatchPolicy.ONCE_SATISFIED,
        has_multiples=demand.constraint is not None and bool(demand.constraint.multiples),
    )


@dataclass(slots=True)
class _Divider:
    """Divides the waiting members of one gang."""

    demand: Demand
    tree: SubGroupTree
    waiting: Mapping[str, Sequence[Pod]]
    behind: Mapping[str, Sequence[Pod]]
    """Members behind foreign gates."""
    placed: FilledTree
    released: FilledTree
    """Placed by us, which proves that the sub-group was complete."""
    waits_for_all: bool
    """Whether replacements of lost members wait until their sub-group is complete again."""
    has_multiples: bool
    """Whether members of one sub-group that are placed one by one may violate a multiple."""
    _sizes: Counter[str] = field(init=False)
    _able: FilledTree = field(init=False)
    """Members that are placed or could be, by sub-group."""
    _present: FilledTree = field(init=False)
    """The same, with those behind foreign gates."""
    _waiting_below: FilledTree = field(init=False)
    _parts: list[DivisionPart] = field(default_factory=list)
    _left_out: list[LeftOut] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sizes = Counter({name: len(pods) for name, pods in self.waiting.items()})
        able = self._sizes + self.placed.members
        behind = Counter({name: len(pods) for name, pods in self.behind.items()})
        self._able = fill(self.tree, able)
        self._present = fill(self.tree, able + behind)
        self._waiting_below = fill(self.tree, self._sizes)

    @property
    def division(self) -> Division:
        return Division(tuple(self._parts), tuple(self._left_out))

    def start(self, name: str, least: int = 0) -> None:
        """Start a sub-group as a whole, with at least so many members, or leave it out."""
        tree = self.tree
        if self._able.is_short(name):
            self._leave_out(name)
            return
        chosen = sorted(self._able.choose(name), key=tree.index.positions.__getitem__)
        required = _Requirement(tree.index, self._sizes, self.placed, frozenset(chosen))
        required.settle(name)
        required.take_more(name, least - required.counts.total())
        needs = required.counts.total()
        if name != ROOT and (not needs or (needs == 1 and not tree.below[name])):
            self.go_on(name)
            return
        demands = tuple(
            replace(
                self.demand,
                pods=tuple(self.waiting[name]),
                required=required.counts[name],
                sub_group=name,
            )
            for name in chosen
            if self.waiting[name]
        )
        self._parts.append(DivisionPart(name, demands))
        for child_name in (child.name for parent in chosen for child in tree.below[parent]):
            if child_name in required.chosen or not self._has_waiting(child_name):
                continue
            if self._runs(child_name):
                self.go_on(child_name)
            else:
                self._leave_out(child_name)

    def go_on(self, name: str) -> None:
        """Repair a sub-group that has started, and let it grow."""
        own = self.waiting[name]
        sizes = [len(own)] if self.has_multiples and own else [1] * len(own)
        lacking = max(self.tree.by_name[name].min_member - self.placed.members[name], 0)
        for size in sizes:
            pods, own = tuple(own[:size]), own[size:]
            needs = min(lacking, size) if self.has_multiples else 1
            demand = replace(self.demand, pods=pods, required=needs, sub_group=name)
            self._parts.append(DivisionPart(name, (demand,)))
        for child in self.tree.below[name]:
            if not self._has_waiting(child.name):
                continue
            if self._runs(child.name):
                self.go_on(child.name)
            else:
                self.start(child.name)

    def _runs(self, name: str) -> bool:
        """Whether a sub-group has started, and its members may come one by one."""
        if not self.released.count(name):
            return False
        return not (self.waits_for_all and self.placed.is_short(name))

    def _leave_out(self, name: str) -> None:
        """Leave out a sub-group that is incomplete, or starts only after what it belongs to."""
        tree, gang = self.tree, self.demand.gang
        names = list(self._names_in(name))
        pods = tuple(pod for name in names for pod in self.waiting[name])
        behind = [pod for name in names for pod in self.behind[name]]
        full_name = _full_name(gang, tree.by_name[name])
        reason: Reason
        if short := self._present.find_short(name):
            reason = MissingMembers(_count_short(gang, short, self._present), full_name)
        elif self._able.is_short(name):
            reason = blame_gates(behind)
        else:
            parent = tree.by_name[tree.by_name[name].parent]
            reason = GangNotStarted(full_name, _full_name(gang, parent))
        if pods:
            self._left_out.append(LeftOut(gang, full_name, pods, reason))

    def _has_waiting(self, name: str) -> bool:
        return self._waiting_below.count(name) > 0

    def _names_in(self, name: str) -> Iterator[str]:
        yield name
        for sub_group in self.tree.below[name]:
            yield from self._names_in(sub_group.name)


@dataclass(slots=True)
class _Requirement:
    """Computes how many members of each sub-group must be placed."""

    index: TreeIndex
    waiting: Mapping[str, int]
    placed: FilledTree
    chosen: frozenset[str]
    counts: Counter[str] = field(default_factory=Counter)

    def settle(self, name: str) -> int:
        """Require the minimum of a chosen sub-group and those below it, bottom-up.

        Returns how many members are required in it.
        """
        required = sum(self.settle(sub_group.name) for sub_group in self._chosen_below(name))
        had = required + self.placed.count(name)
        missing = max(self.index.by_name[name].min_member - had, 0)
        return required + missing - self.take_more(name, missing)

    def take_more(self, name: str, missing: int) -> int:
        """Require more members of a sub-group, its own first; return how many are still missing."""
        if missing <= 0:
            return 0
        more = min(missing, self.waiting.get(name, 0) - self.counts[name])
        self.counts[name] += more
        missing -= more
        for sub_group in self._chosen_below(name):
            missing = self.take_more(sub_group.name, missing)
        return missing

    def _chosen_below(self, name: str) -> Iterator[SubGroup]:
        return (sub_group for sub_group in self.index.below[name] if sub_group.name in self.chosen)
