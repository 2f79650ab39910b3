"""What balancing decides about: nodes and pods with what they use, and the rules of a policy.

Values only. Where usage was measured, and which pods may be evicted, is decided elsewhere.
Amounts are integers: cpu in milli, all else in base units; ``pods`` is the number of live pods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from koord.core.balance.detectors import AnomalyCondition
from koord.core.model.units import PODS, Amounts

Percentages: TypeAlias = Mapping[str, float]

PLACEMENT_MARGIN: Final = 5.0
"""So many percentage points a target stays below the threshold from which it gives."""


class NodeClass(StrEnum):
    """What a node is in a pool. ``BothLow`` is low in all that it uses and in what prod uses."""

    HIGH = "High"
    PROD_HIGH = "ProdHigh"
    NORMAL = "Normal"
    PROD_LOW = "ProdLow"
    BOTH_LOW = "BothLow"
    LOW = "Low"


@dataclass(frozen=True, slots=True)
class BalancePod:
    """A live pod on a node, with what it uses; None where nobody reported that."""

    uid: str
    namespace: str
    name: str
    node: str
    usage: Amounts | None
    is_prod: bool = False
    workload: str = ""
    """Its controller or gang; its uid if it has none."""
    rank: tuple[int, ...] = ()
    """Who goes first, by priority class and the like: the lowest."""
    created: float = 0.0

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class BalanceNode:
    """A ready node with a fresh report, and its live pods."""

    name: str
    capacity: Amounts
    system: Amounts
    pods: tuple[BalancePod, ...]
    is_schedulable: bool = True

    def measure(self, *, only_prod: bool = False) -> dict[str, int]:
        """Return what is used; with ``only_prod`` by pods of class prod, and nothing else."""
        pods = [pod for pod in self.pods if pod.is_prod or not only_prod]
        used = {} if only_prod else dict(self.system)
        for pod in pods:
            for resource, amount in (pod.usage or {}).items():
                used[resource] = used.get(resource, 0) + amount
        used[PODS] = len(pods)
        return used


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Percentages by resource. As deviations they are distances from the average of the nodes."""

    low: Percentages = field(default_factory=dict)
    high: Percentages = field(default_factory=dict)
    prod_low: Percentages = field(default_factory=dict)
    prod_high: Percentages = field(default_factory=dict)
    are_deviations: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.low or self.high or self.prod_low or self.prod_high)


@dataclass(frozen=True, slots=True)
class BalancePool:
    """Nodes that are balanced among themselves; ``nodes`` None: all."""

    name: str
    thresholds: Thresholds
    nodes: frozenset[str] | None = None
    weights: Mapping[str, int] = field(default_factory=dict)
    condition: AnomalyCondition = field(default_factory=AnomalyCondition)


@dataclass(frozen=True, slots=True)
class MoveCaps:
    """At most so many moves per round; None is no limit, 0 allows none."""

    total: int | None = None
    per_node: int | None = None
    per_namespace: int | None = None
    per_workload: int | None = None


@dataclass(frozen=True, slots=True)
class BalanceRules:
    """How a policy balances. With ``compat`` it follows Koordinator where the two differ."""

    pools: tuple[BalancePool, ...]
    caps: MoveCaps = MoveCaps()
    number_of_nodes: int = 0
    """Nothing is done unless more nodes than these are low."""
    compat: bool = False
