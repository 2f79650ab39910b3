"""What there is to say of a pod that has its node, and was started with room for others."""

from dataclasses import dataclass
from typing import ClassVar

from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason
from koord.core.model.text import format_time, plural


@dataclass(frozen=True, slots=True)
class PlacedWithRoom(Reason):
    """It has its node, and room is held for the pods that come once it has started."""

    code: ClassVar = "PlacedWithRoom"
    reason_class: ClassVar = ReasonClass.WRITING
    is_placed: ClassVar = True
    says: ClassVar = (
        "it has its node; room for {_pods} of role {roles:list} is held on {_nodes} until {_when}"
    )
    count: int
    roles: tuple[str, ...]
    nodes: int
    until: float

    @property
    def _pods(self) -> str:
        return plural(self.count, "pod")

    @property
    def _nodes(self) -> str:
        return plural(self.nodes, "node")

    @property
    def _when(self) -> str:
        return format_time(self.until)


@dataclass(frozen=True, slots=True)
class RoomGivenBack(Reason):
    """The pods for which room was held did not come in time: now they wait like any others."""

    code: ClassVar = "RoomGivenBack"
    reason_class: ClassVar = ReasonClass.ROOM
    is_placed: ClassVar = True
    meaning: ClassVar = (
        "it has its node, and the room that was held for the pods after it was given back: they "
        "did not come within the wait time of the gang, 600 s at most, or units of higher priority "
        "needed it"
    )
    way_out: ClassVar = (
        "see why it did not become ready in time; the annotation "
        "`gang.scheduling.koordinator.sh/waiting-time` of its owner says how long room is held"
    )
    says: ClassVar = (
        "it has its node; room was held for {_pods} until {_when}, and is given back: they had not "
        "come, and wait for room like others"
    )
    count: int
    until: float

    @property
    def _pods(self) -> str:
        return plural(self.count, "pod")

    @property
    def _when(self) -> str:
        return format_time(self.until)
