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
    """Follow mutual listings from ``key``, which is in its own group whatever it lists.

    Most gangs of a group list the same, and thousands may: what follows from a list alone is found
    once, not once per gang that wrote it.
    """
    found = {key}
    queue = [key]
    read: dict[frozenset[GangKey], _List] = {}
    unreturned: dict[GangKey, tuple[GangKey, ...]] = {}
    absent: dict[GangKey, tuple[GangKey, ...]] = {}
    while queue:
        lister = queue.pop()
        listed = listing(lister) or frozenset()
        if listed not in read:
            read[listed] = _read_list(listed, listing)
        answer = _ask(lister, listed, read[listed])
        if answer.unknown:
            absent[lister] = answer.unknown
        if answer.silent:
            unreturned[lister] = answer.silent
        new = [gang for gang in answer.mutual if gang not in found]
        queue += new
        found.update(new)
    return Group(
        id=make_group_id(found),
        gangs=tuple(sorted(found)),
        unreturned=tuple(sorted(unreturned.items())),
        absent=tuple(sorted(absent.items())),
    )


@dataclass(slots=True)
class _List:
    """What the gangs of one list write themselves: the very same, another one, or nothing."""

    same: tuple[GangKey, ...]
    others: tuple[tuple[GangKey, frozenset[GangKey]], ...]
    unknown: tuple[GangKey, ...]
    is_followed: bool = False
    """Whether ``same`` were named as mutual already."""


@dataclass(frozen=True, slots=True)
class _Answer:
    mutual: tuple[GangKey, ...]
    silent: tuple[GangKey, ...]
    unknown: tuple[GangKey, ...]


def _read_list(listed: frozenset[GangKey], listing: Listing) -> _List:
    back = [(gang, listing(gang)) for gang in sorted(listed)]
    return _List(
        same=tuple(gang for gang, lists in back if lists is listed or lists == listed),
        others=tuple(
            (gang, lists)
            for gang, lists in back
            if lists is not None and lists is not listed and lists != listed
        ),
        unknown=tuple(gang for gang, lists in back if lists is None),
    )


def _ask(lister: GangKey, listed: frozenset[GangKey], read: _List) -> _Answer:
    """Tell who of a list lists ``lister`` back; who was told before is not told again."""
    mutual = [gang for gang, lists in read.others if lister in lists]
    silent = [gang for gang, lists in read.others if lister not in lists and gang != lister]
    if lister not in listed:
        silent += read.same
    elif not read.is_followed:
        read.is_followed = True
        mutual += read.same
    unknown = tuple(gang for gang in read.unknown if gang != lister)
    return _Answer(tuple(mutual), tuple(sorted(silent)), unknown)
