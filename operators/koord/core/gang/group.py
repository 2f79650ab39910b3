"""Gang groups: which gangs start together.

Each gang declares its own list, and lists need not agree. A group is the transitive closure of
*mutual* listings: A and B belong together when A lists B and B lists A. A listing that is not
returned makes the group of the gang that wrote it inconsistent; the gang that is listed is not
affected, so no gang (of another namespace, say) is delayed by being listed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from koord.core.model.gangs import GangKey
from koord.core.model.pods import ExceededLimit

GROUP_SEPARATOR: Final = ","
"""Not allowed in names of gangs."""
MAX_GANGS: Final = 256
"""Gangs of a group: every member records all of them, and each has to look at the others."""
MAX_ID: Final = 32 * 1024
"""Characters of the id of a group, which is recorded on every member, several times."""

GroupId: TypeAlias = str
"""The sorted gang keys of a group, joined with ``,``."""

Listing: TypeAlias = Callable[[GangKey], frozenset[GangKey] | None]
"""The gangs that a gang lists; None when it is unknown or has no usable settings yet."""


@dataclass(frozen=True, slots=True)
class Group:
    """Gangs that start together, sorted.

    ``unreturned`` holds (lister, gangs that do not list it back), ``absent`` holds (lister, gangs
    that are unknown or without settings); both sorted, and empty when the group may start.
    """

    id: GroupId
    gangs: tuple[GangKey, ...]
    unreturned: tuple[tuple[GangKey, tuple[GangKey, ...]], ...] = ()
    absent: tuple[tuple[GangKey, tuple[GangKey, ...]], ...] = ()

    exceeded_limit: ExceededLimit | None = field(init=False, compare=False)
    """Why it is too large to start, whatever its members are."""

    def __post_init__(self) -> None:
        limit = None
        if len(self.gangs) > MAX_GANGS:
            limit = ExceededLimit("gangs in its group", len(self.gangs), MAX_GANGS)
        elif len(self.id) > MAX_ID:
            limit = ExceededLimit("characters in the names of its group", len(self.id), MAX_ID)
        object.__setattr__(self, "exceeded_limit", limit)


def make_gang_key(namespace: str, name: str) -> GangKey:
    return f"{namespace}/{name}"


def make_group_id(gangs: Iterable[GangKey]) -> GroupId:
    return GROUP_SEPARATOR.join(sorted(gangs))


def close_group(key: GangKey, listing: Listing) -> Group:
    """Return the gangs reached by mutual listings from ``key``, itself included.

    A group of ``n`` gangs has n² listings, but most of its gangs have equal lists. So each distinct
    list is read once; a graph with an edge per listing would be too large for thousands of gangs.
    """
    reached, queue = {key}, [key]
    lists: dict[frozenset[GangKey], _List] = {}
    unreturned: dict[GangKey, tuple[GangKey, ...]] = {}
    absent: dict[GangKey, tuple[GangKey, ...]] = {}
    while queue:
        lister = queue.pop()
        listed = listing(lister) or frozenset()
        by_list = lists.get(listed)
        if by_list is None:
            by_list = lists[listed] = _List(listed, listing)
        mutual = [gang for gang, own in by_list.other_lists.items() if lister in own]
        one_sided = {gang for gang in by_list.other_lists if gang != lister}.difference(mutual)
        if lister not in listed:
            one_sided.update(by_list.same)
        elif not by_list.is_followed:
            by_list.is_followed = True
            mutual += by_list.same
        if one_sided:
            unreturned[lister] = tuple(sorted(one_sided))
        if unknown := tuple(gang for gang in by_list.unknown if gang != lister):
            absent[lister] = unknown
        queue += (gang for gang in mutual if gang not in reached)
        reached.update(mutual)
    return Group(
        id=make_group_id(reached),
        gangs=tuple(sorted(reached)),
        unreturned=tuple(sorted(unreturned.items())),
        absent=tuple(sorted(absent.items())),
    )


class _List:
    """The gangs of one list, by what they list themselves: the same, another list, or nothing."""

    def __init__(self, listed: frozenset[GangKey], listing: Listing) -> None:
        self.same: list[GangKey] = []
        self.other_lists: dict[GangKey, frozenset[GangKey]] = {}
        self.unknown: list[GangKey] = []
        self.is_followed = False
        """Whether ``same`` were added to the group already."""
        for gang in sorted(listed):
            own = listing(gang)
            if own is None:
                self.unknown.append(gang)
            elif own is listed or own == listed:
                self.same.append(gang)
            else:
                self.other_lists[gang] = own
