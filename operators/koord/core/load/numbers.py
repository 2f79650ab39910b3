"""The numbers of one node: what is used of each resource, up to what, and what there is.

Computed from its report, its pods and the thresholds that hold there. Knows no columns and no time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from koord.core.engine.node_table import UNLIMITED
from koord.core.load.assigned import NodePods
from koord.core.load.model import NodeLoad
from koord.core.load.options import Basis, LoadOptions, LoadThresholds
from koord.core.load.usage import Vector, add, base_of, most_used, vector_of


class Family(Enum):
    """Kinds of columns, each with one for every resource."""

    GENERAL = auto()
    """What is used, limited by the thresholds of pods in general."""
    PROD = auto()
    """What pods of class prod use, limited by thresholds for them; as in general where there are
    none."""
    SCORE = auto()
    """What is used, as nodes are compared; limits nothing."""
    PROD_SCORE = auto()
    """What pods of class prod use, as nodes are compared for such pods; limits nothing."""
    CAPACITY = auto()
    """What the node has; 0 where nothing is known of its use."""


@dataclass
class NodeNumbers:
    """The numbers of one node."""

    options: LoadOptions
    thresholds: LoadThresholds
    capacity: Vector
    report: NodeLoad | None
    pods: NodePods
    is_expired: bool
    """Whether the report is too old."""

    def used(self, family: Family) -> Vector:
        """Return what is used of each resource."""
        match family:
            case Family.GENERAL:
                return self.general
            case Family.PROD:
                return self.prod if self.thresholds.has_prod else self.general
            case Family.SCORE:
                return self._used(self._score_base)
            case Family.PROD_SCORE:
                return self.prod
            case Family.CAPACITY:
                return self.pods.counted.nothing

    def limit(self, family: Family, at: int) -> int:
        """Return how much of a resource may be used."""
        match family:
            case Family.PROD if self.thresholds.has_prod:
                return self._limit(self.thresholds.prod, at)
            case Family.GENERAL | Family.PROD:
                return self._limit(self.thresholds.general, at)
            case Family.SCORE | Family.PROD_SCORE:
                return UNLIMITED
            case Family.CAPACITY:
                is_known = self.report is not None and not self.is_expired
                return self.capacity[at] if is_known else 0

    def basis_of(self, family: Family) -> Basis:
        """Return which numbers of the report a column rests on."""
        return self.options.score_basis if family is Family.SCORE else self.thresholds.general_basis

    @property
    def general(self) -> Vector:
        return self._used(self._general_base)

    @property
    def prod(self) -> Vector:
        if self.report is None or not self.options.prod_includes_system:
            return self.pods.prod
        return add(self.pods.prod, vector_of(self.report.system, self.options.resources))

    @cached_property
    def _general_base(self) -> Vector | None:
        return base_of(self.report, self.thresholds.general_basis, self.options.resources)

    @cached_property
    def _score_base(self) -> Vector | None:
        return base_of(self.report, self.options.score_basis, self.options.resources)

    def _used(self, base: Vector | None) -> Vector:
        return self.pods.full if base is None else add(base, self.pods.node)

    def _limit(self, thresholds: Mapping[str, int], at: int) -> int:
        threshold = thresholds.get(self.options.resources[at], 0)
        if not threshold or not self.capacity[at]:
            return UNLIMITED
        if self.report is None or not self.report.is_reported:
            return UNLIMITED
        if self.is_expired and self.options.filters_expired:
            return UNLIMITED  # refused for its age, or used as if there were no report
        return most_used(threshold, self.capacity[at])
