"""The members of gangs with sub-groups: who is missing, and what must be placed together.

Before the gang has started, all of it is one unit: the sub-groups that are needed must get their
members, the others come along whole or not at all. Afterwards each sub-group stands for itself: one
without members on nodes starts whole, one that runs is repaired and grows pod by pod.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from koord.core.gang.cache import GangCache
from koord.core.gang.model import GangKey
from koord.core.gang.reasons import GangCount
from koord.core.gang.sub_group_tree import ROOT, SubGroup, SubGroupTree
from koord.core.gang.tally import is_placed, is_present
from koord.core.plan import Demand
from koord.core.pods import Pod


def find_missing(book: GangCache, key: GangKey) -> tuple[GangCount, ...]:
    """Count the members of sub-groups because of which a gang cannot start; empty if it can."""
    nest = _nest_of(book, key)
    if nest is None:
        return ()
    members = _count(nest, filter(is_present, book.members(key).values()))
    short = nest.find_short(ROOT, members)
    return tuple(
        GangCount(_full_name(key, one), nest.count_useful(one.name, members), one.min_member)
        for one in short
    )


def divide_demand(book: GangCache, demand: Demand) -> list[Demand]:
    """Divide what a gang demands that has not started by sub-groups; others are not divided."""
    nest = _nest_of(book, demand.gang)
    if nest is None:
        return [demand]
    placed = _count(nest, filter(is_placed, book.members(demand.gang).values()))
    waiting = _by_sub_group(nest, demand.pods)
    sizes = Counter({name: len(pods) for name, pods in waiting.items()})
    required = _Requirement(nest, sizes, placed, nest.choose(ROOT, sizes + placed))
    required.settle(ROOT)
    required.take_more(ROOT, demand.required - required.counts.total())
    return [
        replace(
            demand,
            pods=tuple(waiting[name]),
            required=required.counts[name],
            sub_group=name,
            least=max(nest.by_name[name].min_member - placed[name], 0),
        )
        for name in nest.by_name
        if waiting[name]
    ]


def divide_started(book: GangCache, demand: Demand) -> Iterator[Demand]:
    """Yield what a gang demands that has started, each to be decided for itself."""
    nest = _nest_of(book, demand.gang)
    if nest is None:
        yield from (replace(demand, pods=(pod,), required=1) for pod in demand.pods)
        return
    placed = _count(nest, filter(is_placed, book.members(demand.gang).values()))
    for name, pods in _by_sub_group(nest, demand.pods).items():
        least = nest.by_name[name].min_member
        if not placed[name] and least > 1 and pods:
            whole = replace(demand, pods=tuple(pods), required=least, sub_group=name, least=least)
            yield whole
            continue
        for pod in pods:
            yield replace(demand, pods=(pod,), required=1, sub_group=name)


def _nest_of(book: GangCache, key: GangKey) -> SubGroupTree | None:
    """Return the sub-groups of a gang, with what the gang itself needs."""
    spec = book.spec(key)
    if spec is None or spec.nest is None:
        return None
    return replace(spec.nest, root=replace(spec.nest.root, min_member=spec.min_member))


def _full_name(key: GangKey, group: SubGroup) -> str:
    return f"{key}/{group.name}" if group.name else key


def _count(nest: SubGroupTree, pods: Iterable[Pod]) -> Counter[str]:
    return Counter(nest.home_of(pod.sub_group) for pod in pods)


def _by_sub_group(nest: SubGroupTree, pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {name: [] for name in nest.by_name}
    for pod in pods:
        found[nest.home_of(pod.sub_group)].append(pod)
    return found


@dataclass(slots=True)
class _Requirement:
    """How many members of each sub-group must be placed."""

    nest: SubGroupTree
    waiting: Mapping[str, int]
    placed: Mapping[str, int]
    chosen: frozenset[str]
    counts: Counter[str] = field(default_factory=Counter)

    def settle(self, name: str) -> None:
        """Require what a chosen sub-group and those below it need, from below."""
        for one in self._chosen_below(name):
            self.settle(one.name)
        had = self.nest.count(name, self.counts) + self.nest.count(name, self.placed)
        self.take_more(name, self.nest.by_name[name].min_member - had)

    def take_more(self, name: str, lacking: int) -> int:
        """Require more members of a sub-group, its own first; return how many still lack."""
        more = min(max(lacking, 0), self.waiting.get(name, 0) - self.counts[name])
        self.counts[name] += more
        lacking -= more
        for one in self._chosen_below(name):
            lacking = self.take_more(one.name, lacking)
        return lacking

    def _chosen_below(self, name: str) -> Iterator[SubGroup]:
        return (one for one in self.nest.below[name] if one.name in self.chosen)
