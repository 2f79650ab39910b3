"""The members of gangs with sub-groups: which are missing, and which must be placed together.

Before the gang has started, all of it is one unit: sub-groups that are needed must get their
members, the others are placed whole or not at all. Afterwards each sub-group is decided separately:
one without members on nodes starts whole, one that runs is repaired and grows pod by pod.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from koord.core.gang.cache import GangCache
from koord.core.gang.reasons import GangCount
from koord.core.gang.tally import is_placed, is_present
from koord.core.gang_model import ROOT, GangKey, SubGroup, SubGroupTree
from koord.core.plan import Demand
from koord.core.pods import Pod


def find_missing(cache: GangCache, key: GangKey) -> tuple[GangCount, ...]:
    """Count the members of the sub-groups that keep a gang from starting; empty if it can."""
    tree = _tree_of(cache, key)
    if tree is None:
        return ()
    members = _count(tree, filter(is_present, cache.members(key).values()))
    short = tree.find_short(ROOT, members)
    return tuple(
        GangCount(_full_name(key, one), tree.count_useful(one.name, members), one.min_member)
        for one in short
    )


def divide_demand(cache: GangCache, demand: Demand) -> list[Demand]:
    """Divide the demand of a gang that has not started by sub-groups, if it has some."""
    tree = _tree_of(cache, demand.gang)
    if tree is None:
        return [demand]
    placed = _count(tree, filter(is_placed, cache.members(demand.gang).values()))
    waiting = _by_sub_group(tree, demand.pods)
    sizes = Counter({name: len(pods) for name, pods in waiting.items()})
    required = _Requirement(tree, sizes, placed, tree.choose(ROOT, sizes + placed))
    required.settle(ROOT)
    required.take_more(ROOT, demand.required - required.counts.total())
    return [
        replace(
            demand,
            pods=tuple(waiting[name]),
            required=required.counts[name],
            sub_group=name,
            least=max(tree.by_name[name].min_member - placed[name], 0),
        )
        for name in tree.by_name
        if waiting[name]
    ]


def divide_started(cache: GangCache, demand: Demand) -> Iterator[Demand]:
    """Divide the demand of a gang that has started into demands that are decided separately."""
    tree = _tree_of(cache, demand.gang)
    if tree is None:
        yield from (replace(demand, pods=(pod,), required=1) for pod in demand.pods)
        return
    placed = _count(tree, filter(is_placed, cache.members(demand.gang).values()))
    for name, pods in _by_sub_group(tree, demand.pods).items():
        least = tree.by_name[name].min_member
        if not placed[name] and least > 1 and pods:
            whole = replace(demand, pods=tuple(pods), required=least, sub_group=name, least=least)
            yield whole
            continue
        for pod in pods:
            yield replace(demand, pods=(pod,), required=1, sub_group=name)


def _tree_of(cache: GangCache, key: GangKey) -> SubGroupTree | None:
    """Return the sub-groups of a gang, with its own minimum at the root."""
    spec = cache.spec(key)
    if spec is None or spec.sub_groups is None:
        return None
    return replace(spec.sub_groups, root=replace(spec.sub_groups.root, min_member=spec.min_member))


def _full_name(key: GangKey, group: SubGroup) -> str:
    return f"{key}/{group.name}" if group.name else key


def _count(tree: SubGroupTree, pods: Iterable[Pod]) -> Counter[str]:
    return Counter(tree.find(pod.sub_group) for pod in pods)


def _by_sub_group(tree: SubGroupTree, pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {name: [] for name in tree.by_name}
    for pod in pods:
        found[tree.find(pod.sub_group)].append(pod)
    return found


@dataclass(slots=True)
class _Requirement:
    """Computes how many members of each sub-group must be placed."""

    tree: SubGroupTree
    waiting: Mapping[str, int]
    placed: Mapping[str, int]
    chosen: frozenset[str]
    counts: Counter[str] = field(default_factory=Counter)

    def settle(self, name: str) -> None:
        """Require the minimum of a chosen sub-group and those below it, bottom-up."""
        for one in self._chosen_below(name):
            self.settle(one.name)
        had = self.tree.count(name, self.counts) + self.tree.count(name, self.placed)
        self.take_more(name, self.tree.by_name[name].min_member - had)

    def take_more(self, name: str, missing: int) -> int:
        """Require more members of a sub-group, its own first; return how many are still missing."""
        more = min(max(missing, 0), self.waiting.get(name, 0) - self.counts[name])
        self.counts[name] += more
        missing -= more
        for one in self._chosen_below(name):
            missing = self.take_more(one.name, missing)
        return missing

    def _chosen_below(self, name: str) -> Iterator[SubGroup]:
        return (one for one in self.tree.below[name] if one.name in self.chosen)
