"""Gang groups: which gangs start together.

Each gang declares its own list, and lists need not agree. A group is the transitive closure of
*mutual* listings: A and B belong together when A lists B and B lists A. A listing that is not
returned makes the group of the gang that wrote it inconsistent; the gang that is listed is not
affected, so nobody can hold up a gang (of another namespace, say) by naming it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from koord.core.gang.model import GangKey

GROUP_SEPARATOR: Final = ","
"""No name of a gang holds one."""

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


def make_gang_key(namespace: str, name: str) -> GangKey:
    """Write the identity of a gang."""
    return f"{namespace}/{name}"


def make_group_id(gangs: Iterable[GangKey]) -> GroupId:
    """Write the identity of a group."""
    return GROUP_SEPARATOR.join(sorted(gangs))


def close_group(key: GangKey, listing: Listing) -> Group:
    """Follow mutual listings from ``key``, which is in its own group whatever it lists."""
    found = {key}
    queue = [key]
    unreturned: dict[GangKey, tuple[GangKey, ...]] = {}
    absent: dict[GangKey, tuple[GangKey, ...]] = {}
    while queue:
        lister = queue.pop()
        back = {gang: listing(gang) for gang in listing(lister) or () if gang != lister}
        mutual = {gang for gang, lists in back.items() if lists is not None and lister in lists}
        if unknown := tuple(sorted(gang for gang, lists in back.items() if lists is None)):
            absent[lister] = unknown
        if silent := tuple(sorted(back.keys() - mutual - set(unknown))):
            unreturned[lister] = silent
        queue += mutual - found
        found |= mutual
    return Group(
        id=make_group_id(found),
        gangs=tuple(sorted(found)),
        unreturned=tuple(sorted(unreturned.items())),
        absent=tuple(sorted(absent.items())),
    )
