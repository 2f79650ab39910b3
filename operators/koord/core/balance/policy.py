"""A RebalancePolicy as it is in force: its settings, and the rules that they give for a cluster.

Durations are seconds. Where both are missing, how long a node counts as hot and how long hot rounds
are remembered follow from the interval: with a longer interval nothing would ever be moved.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from koord.core.balance.batch_reclaim import BatchReclaimRules
from koord.core.balance.detectors import make_condition
from koord.core.balance.model import (
    PLACEMENT_MARGIN,
    BalancePool,
    BalanceRules,
    MoveCaps,
    Thresholds,
)
from koord.core.engine.policies import ObservedPolicy
from koord.core.model.selectors import LabelSelector, is_selected
from koord.core.model.units import MEMORY

DEFAULT_POOL: Final = "default"
_ABNORMALITIES: Final = 5
_NORMALITIES: Final = 3
_REMEMBERED: Final = 300.0


class BalanceMode(StrEnum):
    """What becomes of the moves of a round."""

    ADVISE = "Advise"
    MIGRATE = "Migrate"
    EVICT = "Evict"


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """One pool; ``selector`` None: all nodes. Numbers that are None are the default ones."""

    name: str
    thresholds: Thresholds
    selector: LabelSelector = None
    weights: Mapping[str, int] = field(default_factory=dict)
    abnormalities: int | None = None
    normalities: int | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class RebalanceSettings:
    """What a valid policy says."""

    pools: tuple[PoolSettings, ...]
    mode: BalanceMode = BalanceMode.ADVISE
    interval: float = 120.0
    is_paused: bool = False
    caps: MoveCaps = field(default_factory=MoveCaps)
    number_of_nodes: int = 0
    expiration: float = 180.0
    remembered: float | None = None
    included: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    pod_selectors: tuple[LabelSelector, ...] = ()
    batch_reclaim: BatchReclaimRules | None = None
    """When batch pods leave nodes that are short; None: they do not."""

    @property
    def detectors_kept(self) -> float:
        """How long hot rounds are remembered."""
        return max(_REMEMBERED, 3 * self.interval) if self.remembered is None else self.remembered

    @property
    def moves(self) -> bool:
        """Whether pods are moved at all."""
        return self.mode is not BalanceMode.ADVISE

    def allows(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod may be moved as far as the policy says."""
        if namespace in self.excluded or namespace not in (self.included or {namespace}):
            return False
        return not self.pod_selectors or any(
            is_selected(labels, selector) for selector in self.pod_selectors
        )

    def make_rules(
        self, labels: Mapping[str, Mapping[str, str]], *, compat: bool = False
    ) -> BalanceRules:
        """Return the rules for nodes with these labels."""
        return BalanceRules(
            tuple(self._make_pool(pool, labels) for pool in self.pools),
            self.caps,
            self.number_of_nodes,
            compat,
        )

    def _make_pool(
        self, pool: PoolSettings, labels: Mapping[str, Mapping[str, str]]
    ) -> BalancePool:
        nodes = None
        if pool.selector is not None:
            nodes = frozenset(name for name in labels if is_selected(labels[name], pool.selector))
        condition = make_condition(
            _ABNORMALITIES if pool.abnormalities is None else pool.abnormalities,
            _NORMALITIES if pool.normalities is None else pool.normalities,
            2 * self.interval if pool.timeout is None else pool.timeout,
        )
        return BalancePool(pool.name, pool.thresholds, nodes, pool.weights, condition)


BalancePolicy: TypeAlias = ObservedPolicy[RebalanceSettings]


def find_rival(policy: BalancePolicy, policies: Iterable[BalancePolicy]) -> str:
    """Return the name of an older policy that moves pods; "" if there is none.

    Two that move would undo what the other does.
    """
    rivals = (
        other
        for other in policies
        if other.uid != policy.uid
        and other.settings is not None
        and other.settings.moves
        and not other.settings.is_paused
        and (other.created, other.name) < (policy.created, policy.name)
    )
    return min((rival.name for rival in rivals), default="")


@dataclass(frozen=True, slots=True)
class CloseThreshold:
    """Nodes get pods up to a use from which they give them away, or nearly; ``pods`` says which."""

    pods: str
    resource: str
    placed_to: float
    moved_from: float

    def text(self) -> str:
        return (
            f"placement fills nodes to {self.placed_to:g} % of {self.resource}, and from "
            f"{self.moved_from:g} % on {self.pods} are moved away; that must be at "
            f"least {PLACEMENT_MARGIN:g} points more"
        )


def find_close_threshold(
    settings: RebalanceSettings, placed_to: Mapping[str, float]
) -> CloseThreshold | None:
    """Return where new pods would be moved away again; ``placed_to`` are limits of placement."""
    for pool in settings.pools:
        if pool.thresholds.are_deviations:
            continue
        for resource, high in sorted(pool.thresholds.high.items()):
            limit = placed_to.get(resource, 0)
            if limit and limit > high - PLACEMENT_MARGIN:
                return CloseThreshold(f"pods of pool {pool.name}", resource, limit, high)
    reclaim, limit = settings.batch_reclaim, placed_to.get(MEMORY, 0)
    if reclaim is not None and limit > reclaim.memory_threshold - PLACEMENT_MARGIN:
        return CloseThreshold("batch pods", MEMORY, limit, reclaim.memory_threshold)
    return None
