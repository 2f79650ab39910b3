"""What a round decides, and what it asks of those who know pods and nodes beside their load."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from koord.core.balance.caps import CapScope
from koord.core.balance.model import BalancePod, NodeClass
from koord.core.balance.thresholds import HotUsage, NodeLimits
from koord.core.model.units import Amounts


@dataclass(frozen=True, slots=True)
class MoveRefusal:
    """Why a pod does not go: the rule, and its text."""

    rule: str
    text: str


NO_TARGET: Final = MoveRefusal("NoTarget", "no low node takes it")
NOT_SETTLED: Final = MoveRefusal("MovedLately", "it or its like moved here a short while ago")
NO_USAGE: Final = MoveRefusal("NoUsage", "nobody reports what it uses")
HAS_JOB: Final = MoveRefusal("E-4", "a job moves it, or could not")
CAPPED: Final = {
    CapScope.TOTAL: MoveRefusal("CapTotal", "the round moves no more pods"),
    CapScope.NODE: MoveRefusal("CapPerNode", "the round moves no more pods of this node"),
    CapScope.NAMESPACE: MoveRefusal("CapPerNamespace", "the round moves no more of its namespace"),
    CapScope.WORKLOAD: MoveRefusal("CapPerWorkload", "the round moves no more of its workload"),
}


class MovePermission(Protocol):
    """What is known of pods and nodes beside their load."""

    def refuse(self, pod: BalancePod) -> MoveRefusal | None:
        """Return why a pod may not be evicted now, after the moves of this round so far."""

    def find_node(self, pod: BalancePod, nodes: Sequence[str]) -> str | None:
        """Return one of these nodes that takes a pod; those that are preferred come first."""

    def note(self, pod: BalancePod, node: str, /) -> None:
        """Count a pod as moved in all later questions."""


class Stop(StrEnum):
    """Why nothing is moved in a pool."""

    NO_THRESHOLDS = "NoThresholds"
    NO_HOT_NODE = "NoHotNode"
    NOT_HOT_LONG_ENOUGH = "NotHotLongEnough"
    NO_LOW_NODE = "NoLowNode"
    TOO_FEW_LOW_NODES = "TooFewLowNodes"
    ALL_NODES_LOW = "AllNodesLow"


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that goes, where to, and why."""

    pod: BalancePod
    target: str
    pool: str
    reason: HotUsage


@dataclass(frozen=True, slots=True)
class StayingPod:
    """A pod of a hot node that does not go, and the first rule that keeps it."""

    pod: BalancePod
    refusal: MoveRefusal


@dataclass(slots=True)
class PoolOutcome:
    """What a round made of one pool; what nodes used before its moves."""

    name: str
    classes: dict[str, NodeClass] = field(default_factory=dict)
    usage: dict[str, Amounts] = field(default_factory=dict)
    limits: dict[str, NodeLimits] = field(default_factory=dict)
    stop: Stop | None = None
    is_full: bool = False
    """Whether low nodes were filled up before all hot ones had given enough."""


@dataclass(slots=True)
class RoundOutcome:
    """What a round decides."""

    pools: list[PoolOutcome] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    staying: list[StayingPod] = field(default_factory=list)
    caps_hit: set[CapScope] = field(default_factory=set)
