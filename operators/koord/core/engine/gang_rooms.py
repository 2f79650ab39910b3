"""Holds as values: as they were at one moment, and holds made of them again."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from koord.core.engine.member_holds import GangHold, MemberHold
from koord.core.model.gangs import ROOT
from koord.core.model.pods import Pod


@dataclass(frozen=True, slots=True)
class MemberRoom:
    """Room for a pod like ``pod`` on ``node``; empty: on any node."""

    pod: Pod
    node: str = ""
    lost_by: str = ROOT


@dataclass(frozen=True, slots=True)
class GangRoom:
    """The hold of a gang, or of a NonStrict unit; ``key`` is that of the gang or the unit."""

    key: str
    members: tuple[MemberRoom, ...]
    until: float
    began: float
    sizes: Mapping[str, int] = field(default_factory=dict)
    gang: str = ""
    priority: float = 0.0


def record_holds(holds: Mapping[str, GangHold]) -> Iterator[GangRoom]:
    """Yield what is held, by gang or unit."""
    for key, hold in holds.items():
        members = tuple(MemberRoom(each.pod, each.node, each.lost_by) for each in hold.members)
        sizes = dict(hold.sizes)
        yield GangRoom(key, members, hold.until, hold.began, sizes, hold.gang, hold.priority)


def make_holds(rooms: Iterable[GangRoom]) -> dict[str, GangHold]:
    """Return the holds that were recorded, in the order in which they were."""
    return {
        room.key: GangHold(
            [MemberHold(each.pod, each.node, lost_by=each.lost_by) for each in room.members],
            room.until,
            room.began,
            room.sizes,
            room.gang,
            room.priority,
        )
        for room in rooms
    }
