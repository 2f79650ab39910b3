"""Which members a started gang has lost and needs: of the whole gang, and of each sub-group.

Sub-groups that have started must stay complete, whether the gang needs them or not; of the others
as many are lost as the gang has too few. A minimum that is raised after the start is no loss: no
sub-group needs more members than the gang ever had.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from koord.core.gang.cache import Gang, GangCache
from koord.core.gang.done import count_done
from koord.core.gang.sub_group_members import count_placed
from koord.core.gang.tally import is_placed, is_planned
from koord.core.model.gangs import ROOT, FilledTree, GangKey, GangSpec, SubGroup, SubGroupTree, fill
from koord.core.model.pods import Pod


@dataclass(frozen=True, slots=True)
class LostMembers:
    """A sub-group, or ``ROOT`` for the gang itself, that has lost ``missing`` members it needs.

    ``left`` of the ``needed`` ones are there. Members missing below it are not counted again.
    """

    sub_group: str
    left: int
    needed: int
    missing: int


def find_lost_members(
    cache: GangCache, key: GangKey, done: int, *, with_planned: bool = False
) -> tuple[LostMembers, ...]:
    """Return what a started gang and its sub-groups lack; ``done`` of its members are done.

    ``with_planned``: members that are released, and not bound yet, are left as well.
    """
    gang = cache.gang(key)
    spec, tally = gang.spec, gang.tally
    if spec is None:
        return ()
    members = gang.members.values() if with_planned else ()
    planned = [pod for pod in members if is_planned(pod) and not is_placed(pod)]
    if spec.sub_groups is not None:
        return _find_lost_by_sub_group(cache, key, spec, planned)
    needed, left = needed_strength(gang), tally.placed + done + len(planned)
    return (LostMembers(ROOT, left, needed, needed - left),) if left < needed else ()


def _find_lost_by_sub_group(
    cache: GangCache, key: GangKey, spec: GangSpec, planned: Iterable[Pod]
) -> tuple[LostMembers, ...]:
    gang = cache.gang(key)
    # How many members it has had at once, as far as is known; 0: unknown.
    had = max((strength for _, strength in gang.tally.releases), default=0)
    tree = _cap(spec, had)
    placed = (pod for pod in gang.members.values() if pod.recorded is not None and is_placed(pod))
    left = count_placed(cache, key, tree, more=planned)
    search = _LossSearch(
        tree, left, fill(tree, Counter(tree.find(pod.sub_group) for pod in placed))
    )
    return tuple(_limit(search.find(ROOT), had))


def serves(sub_groups: SubGroupTree | None, sub_group: str, lost: str) -> bool:
    """Whether members of one sub-group may replace those that another one has lost."""
    if sub_groups is None:
        return True
    return sub_groups.is_in(sub_group, lost) or sub_groups.is_in(lost, sub_group)


_NO_SUB_GROUPS: Final = SubGroupTree(SubGroup(ROOT), ())


def _cap(spec: GangSpec, had: int) -> SubGroupTree:
    """Return the sub-groups of a gang, with minima that it has reached before."""
    most = had or 1 << 62
    tree = spec.sub_groups or _NO_SUB_GROUPS
    if all(group.min_member <= most for group in tree.groups):
        return tree.rooted(min(spec.min_member, most))
    return SubGroupTree(
        tree.root._replace(min_member=min(spec.min_member, most)),
        tuple(group._replace(min_member=min(group.min_member, most)) for group in tree.groups),
    )


def _limit(losses: Iterable[LostMembers], had: int) -> Iterator[LostMembers]:
    """Cut what is missing: no gang has lost more members than it had."""
    left = had or 1 << 62
    for lost_member in losses:
        missing = min(lost_member.missing, left)
        left -= missing
        if missing:
            yield replace(lost_member, missing=missing)


@dataclass(frozen=True, slots=True)
class _LossSearch:
    tree: SubGroupTree
    left: FilledTree
    placed: FilledTree
    """Placed by us, which proves that the sub-group was complete."""

    def find(self, name: str) -> list[LostMembers]:
        """Return what is lost in a sub-group that has started."""
        group, losses = self.tree.by_name[name], list[LostMembers]()
        complete, empty = 0, list[SubGroup]()
        for child in self.tree.below[name]:
            if self.placed.count(child.name):
                lost = self.find(child.name)
                losses += lost
                complete += 1  # with what is to be replaced
            elif self.left.is_short(child.name):
                empty.append(child)
            else:
                complete += 1
        losses += map(self._lose_all, empty[: max(0, self._wanted(group) - complete)])
        left = self.left.count(name)
        missing = group.min_member - left - sum(lost_member.missing for lost_member in losses)
        if missing > 0:
            losses.append(LostMembers(name, left, group.min_member, missing))
        return losses

    def _lose_all(self, group: SubGroup) -> LostMembers:
        left, needed = self.left.count(group.name), max(1, self._needed(group))
        return LostMembers(group.name, left, needed, max(1, needed - left))

    def _needed(self, group: SubGroup) -> int:
        below = self.tree.below[group.name][: self._wanted(group)]
        return max(group.min_member, sum(map(self._needed, below)))

    def _wanted(self, group: SubGroup) -> int:
        most = len(self.tree.below[group.name])
        return most if group.min_sub_groups is None else group.min_sub_groups


def needed_strength(gang: Gang) -> int:
    """Return how many members a started gang needs not to be degraded.

    That is its minimum, but not more than it ever had: raising the minimum is not a loss.
    """
    spec = gang.spec
    if spec is None:
        return 0
    had = max((strength for _, strength in gang.tally.releases), default=0)
    return min(spec.min_member, had) if had else spec.min_member


def count_strength(cache: GangCache, key: GangKey) -> int:
    """Count the members that are placed for good or done."""
    return cache.tally(key).placed + count_done(cache, key)


def has_minimum(cache: GangCache, key: GangKey, *, without: int = 0) -> bool:
    """Whether the minimum of a gang is placed for good or done.

    ``without`` is the number of placed members that do not count.
    """
    spec = cache.spec(key)
    return spec is None or count_strength(cache, key) - without >= spec.min_member
