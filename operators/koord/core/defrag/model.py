"""Values of defragmentation: moves, what they cost, and what is proven of them.

All values are immutable. Nothing here knows nodes, clocks or writes: who may move and where to is
decided elsewhere, and others carry it out.
"""

from dataclasses import dataclass

from koord.core.eviction.model import Cost, VictimUnit
from koord.core.model.plan import Placement, UnitKey
from koord.core.model.pods import Allocation, Pod


@dataclass(frozen=True, slots=True)
class PodMove:
    """One pod, and the node and devices that are reserved before it is evicted."""

    pod: Pod
    target: str
    allocations: tuple[Allocation, ...] = ()

    @property
    def source(self) -> str:
        """The node that it leaves."""
        return self.pod.planned_node


@dataclass(frozen=True, slots=True)
class MoveStep:
    """Pods that move together: a pod, or all members of a gang.

    All their places are free once the steps before it are done, and before one of them leaves.
    """

    unit: VictimUnit
    moves: tuple[PodMove, ...]


@dataclass(frozen=True, slots=True, order=True)
class MoveCost:
    """What a set of moves costs: first the number of pods, then what evicting them costs."""

    pods: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class MoveProof:
    """What is proven of the moves.

    ``is_minimal``: without any step the unit does not fit. ``is_fewest``: it does not fit with
    fewer pods moved. ``is_cheapest``: no other moves of as many pods cost less. All are unknown
    (False) if the search ran out of ``steps``.
    """

    is_minimal: bool
    is_fewest: bool
    is_cheapest: bool
    steps: int


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Moves, in order, after which a waiting unit fits, and where its pods go then.

    There are no steps if it fits by now.
    """

    unit: UnitKey
    steps: tuple[MoveStep, ...]
    placement: Placement
    cost: MoveCost
    proof: MoveProof

    @property
    def moves(self) -> tuple[PodMove, ...]:
        """All moves in order."""
        return tuple(move for step in self.steps for move in step.moves)

    @property
    def freed(self) -> tuple[str, ...]:
        """The nodes that pods leave and the unit takes."""
        left = {move.source for move in self.moves}
        taken = {assignment.node for assignment in self.placement.assignments}
        return tuple(sorted(left & taken))
