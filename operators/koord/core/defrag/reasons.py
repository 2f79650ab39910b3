"""Why no moves help a waiting unit: reasons of defragmentation."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from koord.core.eviction.reasons import Counts, NotHelpful
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import PodReason, Reason


@dataclass(frozen=True, slots=True)
class NothingMayMove(NotHelpful):
    """No running pod may move: how many for which reason."""

    code: ClassVar = "NothingMayMove"
    reason_class: ClassVar = ReasonClass.ROOM
    way_out: ClassVar = "the list above, or more nodes"
    says: ClassVar = (
        "none of {running:# running pod} may move{protected:?: {_whys:list}}; without moves: "
        "{reason.text()}"
    )
    running: int
    reason: Reason
    protected: Counts = ()


@dataclass(frozen=True, slots=True)
class MovesNotHelpful(NotHelpful):
    """The unit does not fit even without all pods that may move, and why."""

    code: ClassVar = "MovesNotHelpful"
    reason_class: ClassVar = ReasonClass.ROOM
    way_out: ClassVar = "what that reason asks for"
    says: ClassVar = (
        "it would not fit even without {movable:the pod that may move|all {movable} pods that may "
        "move}{protected:? ({_whys:list} may not)}: {reason.text()}"
    )
    movable: int
    reason: Reason
    protected: Counts = ()


@dataclass(frozen=True, slots=True)
class NoRoomToMove(Reason):
    """The pods in the way find no place elsewhere, in any order of moves.

    ``most`` is how many pods may move at a time, if that was in the way; 0: it was not.
    """

    code: ClassVar = "NoRoomToMove"
    reason_class: ClassVar = ReasonClass.ROOM
    way_out: ClassVar = "more nodes, or more moves at a time"
    says: ClassVar = (
        "the pods in its way find no place on other nodes: {movable:# pod} may move, in any order"
        "{most:?, {most} at a time}; at least {least:# move} would be needed"
    )
    movable: int
    least: int
    most: int = 0


@dataclass(frozen=True, slots=True)
class MovesNotSearched(Reason):
    """The search used up its steps before it found moves."""

    code: ClassVar = "MovesNotSearched"
    reason_class: ClassVar = ReasonClass.OPERATORS
    way_out: ClassVar = "it is tried again when the cluster has changed"
    says: ClassVar = (
        "the search among {movable:# pod} that may move took {steps:,} steps without a result; at "
        "least {least:# move} would be needed"
    )
    movable: int
    least: int
    steps: int


@dataclass(frozen=True, slots=True)
class MovesDoNotApply(Reason):
    """The unit waits for something else than room on nodes."""

    code: ClassVar = "MovesDoNotApply"
    reason_class: ClassVar = ReasonClass.ROOM
    way_out: ClassVar = "what its condition says"
    says: ClassVar = "moving pods does not help: {reason.text()}"
    reason: Reason

    def _advice(self) -> Iterable[str]:
        return self.reason.advice()


@dataclass(frozen=True, slots=True)
class NoOtherNode(PodReason):
    """A pod that has to leave its node fits only on nodes that are emptied, too."""

    code: ClassVar = "NoOtherNode"
    reason_class: ClassVar = ReasonClass.ROOM
    way_out: ClassVar = "room on other nodes"
    says: ClassVar = "{pod} would fit only on nodes that are emptied, too"
