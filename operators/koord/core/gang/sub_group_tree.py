"""Gangs made of sub-groups: replicas, pipelines, tensor groups, each of use only as a whole.

Sub-groups form a tree whose root is the gang. A sub-group is *complete* if it has the members that
it needs, and as many complete sub-groups right below it as it asks for; so quorum is a matter of
adding up from below. What sub-groups share of the network is decided where pods are placed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

ROOT: Final = ""
"""The name of the gang itself among its sub-groups."""


@dataclass(frozen=True, slots=True)
class SubGroup:
    """Some members of a gang, and all of the sub-groups that name it as ``parent``.

    ``min_member`` counts all members in it, those of sub-groups too. ``layer`` is the layer of the
    network of which they must share a domain, empty for none. ``min_sub_groups`` says how many
    sub-groups right below it must be complete; None: all of them.
    """

    name: str
    min_member: int = 0
    layer: str = ""
    parent: str = ROOT
    min_sub_groups: int | None = None


@dataclass(frozen=True)
class SubGroupTree:
    """The sub-groups of one gang, which form a tree below ``root``."""

    root: SubGroup
    groups: tuple[SubGroup, ...]

    @cached_property
    def by_name(self) -> Mapping[str, SubGroup]:
        """Every sub-group, and the gang itself."""
        return {self.root.name: self.root, **{one.name: one for one in self.groups}}

    @cached_property
    def below(self) -> Mapping[str, tuple[SubGroup, ...]]:
        """Name -> the sub-groups right below."""
        found: dict[str, list[SubGroup]] = {name: [] for name in self.by_name}
        for one in self.groups:
            found[one.parent].append(one)
        return {name: tuple(groups) for name, groups in found.items()}

    def home_of(self, name: str) -> str:
        """Return the sub-group that a pod belongs to which names ``name``."""
        return name if name in self.by_name else ROOT

    def names_in(self, name: str) -> frozenset[str]:
        """Return a sub-group and all below it."""
        return frozenset({name}).union(*(self.names_in(one.name) for one in self.below[name]))

    def count(self, name: str, members: Mapping[str, int]) -> int:
        """Return how many members a sub-group has, with those below it."""
        own = members.get(name, 0)
        return own + sum(self.count(one.name, members) for one in self.below[name])

    def find_short(self, name: str, members: Mapping[str, int]) -> tuple[SubGroup, ...]:
        """Return why a sub-group is not complete: itself, or sub-groups below it; none if it is."""
        group = self.by_name[name]
        short = [self.find_short(one.name, members) for one in self.below[name]]
        lacking = [missing for missing in short if missing]
        wanted = len(short) if group.min_sub_groups is None else group.min_sub_groups
        if len(short) - len(lacking) < wanted:
            return tuple(one for missing in lacking for one in missing)
        return (group,) if self.count_useful(name, members) < group.min_member else ()

    def count_useful(self, name: str, members: Mapping[str, int]) -> int:
        """Return how many members a sub-group has that are not in incomplete ones below it."""
        return _count(self._find_useful(name, members), members)

    def choose(self, name: str, members: Mapping[str, int]) -> frozenset[str]:
        """Return the complete sub-groups at and below one that are to start first.

        Those that come first are chosen where not all are needed, and more of them for as long as
        members are lacking.
        """
        group, chosen = self.by_name[name], frozenset({name})
        complete = self._complete_below(name, members)
        wanted = len(complete) if group.min_sub_groups is None else group.min_sub_groups
        for at, one in enumerate(complete):
            if at >= wanted and _count(chosen, members) >= group.min_member:
                break
            chosen |= self.choose(one.name, members)
        if _count(chosen, members) < group.min_member:
            return self._find_useful(name, members)
        return chosen

    def _find_useful(self, name: str, members: Mapping[str, int]) -> frozenset[str]:
        below = self._complete_below(name, members)
        return frozenset({name}).union(*(self._find_useful(one.name, members) for one in below))

    def _complete_below(self, name: str, members: Mapping[str, int]) -> list[SubGroup]:
        return [one for one in self.below[name] if not self.find_short(one.name, members)]


def _count(names: frozenset[str], members: Mapping[str, int]) -> int:
    return sum(members.get(name, 0) for name in names)
