"""How load counts: the arguments of Koordinator's LoadAwareScheduling, and what is ours.

Only values; where they are read, and how they are applied, stands elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from koord.core.load.model import EXPIRATION, NAME, Aggregation
from koord.core.model.nodes import Node
from koord.core.model.units import CPU, MEMORY

DEFAULT_THRESHOLDS: Final[Mapping[str, int]] = {CPU: 65, MEMORY: 95}
DEFAULT_FACTORS: Final[Mapping[str, int]] = {CPU: 85, MEMORY: 70}
DEFAULT_WEIGHTS: Final[Mapping[str, int]] = {CPU: 1, MEMORY: 1}


@dataclass(frozen=True, slots=True)
class Basis:
    """Which numbers of a report count: the plain use, or an aggregate over ``seconds``.

    0 seconds is the longest time that is reported.
    """

    aggregation: Aggregation | None = None
    seconds: float = 0.0


PLAIN: Final = Basis()


@dataclass(frozen=True, slots=True)
class LoadThresholds:
    """Percentages of the capacity of a node, by resource, that its use must not exceed.

    Aggregated ones replace the plain ones where they are in effect.
    """

    plain: Mapping[str, int] = field(default_factory=dict)
    prod: Mapping[str, int] = field(default_factory=dict)
    aggregated: Mapping[str, int] = field(default_factory=dict)
    basis: Basis = PLAIN
    """Of the aggregated ones."""

    @property
    def is_aggregated(self) -> bool:
        return bool(self.aggregated) and self.basis.aggregation is not None

    @property
    def general(self) -> Mapping[str, int]:
        """Those of pods for which no others hold."""
        return self.aggregated if self.is_aggregated else self.plain

    @property
    def general_basis(self) -> Basis:
        return self.basis if self.is_aggregated else PLAIN

    @property
    def has_prod(self) -> bool:
        return any(self.prod.values())

    def overridden_by(self, own: "LoadThresholds") -> "LoadThresholds":
        """Return them with the parts that a node says itself, part by part."""
        is_own = own.is_aggregated
        return LoadThresholds(
            own.plain or self.plain,
            own.prod or self.prod,
            own.aggregated if is_own else self.aggregated,
            own.basis if is_own else self.basis,
        )


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """What annotations of a node say: thresholds, and what it has without over-commitment."""

    thresholds: LoadThresholds = LoadThresholds()
    raw_allocatable: tuple[tuple[str, int], ...] = ()
    """What really runs there is compared with this, not with what is offered several times."""


NO_OWN_LIMITS: Final = OwnLimits()


def own_limits_of(node: Node) -> OwnLimits:
    """Return what annotations of a node say about its load."""
    own = next((own for name, own in node.extensions if name == NAME), None)
    return own if isinstance(own, OwnLimits) else NO_OWN_LIMITS


@dataclass(frozen=True)
class LoadOptions:
    """All arguments; durations are in seconds, None or 0: off."""

    is_on: bool = False
    thresholds: LoadThresholds = LoadThresholds(DEFAULT_THRESHOLDS)
    filters_expired: bool = True
    """Whether nodes with an outdated report are treated apart at all."""
    admits_expired: bool = False
    """Whether such nodes are then used as if there were no report."""
    expiration: float = EXPIRATION
    weights: Mapping[str, int] = field(default_factory=lambda: DEFAULT_WEIGHTS)
    dominant: int = 0
    prod_includes_system: bool = False
    scores_prod: bool = False
    score_basis: Basis = PLAIN
    factors: Mapping[str, int] = field(default_factory=lambda: DEFAULT_FACTORS)
    after_scheduled: int = 0
    after_initialized: int = 0
    is_customizable: bool = False
    """Whether annotations of pods count."""
    supported: tuple[str, ...] = ()
    relieves: bool = False
    """Whether pods that only thresholds keep waiting get the nodes of which least is used."""

    @property
    def refuses_expired(self) -> bool:
        return self.filters_expired and not self.admits_expired

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """All resources that are looked at, by name: the first one that is exceeded is reported."""
        limits = self.thresholds
        named = (limits.plain, limits.prod, limits.aggregated, self.weights, self.factors)
        return tuple(
            sorted({CPU, MEMORY, *self.supported, *(key for part in named for key in part)})
        )

    @property
    def scores(self) -> bool:
        """Whether nodes are compared by their load."""
        return bool(self.dominant or any(self.weights.values()))
