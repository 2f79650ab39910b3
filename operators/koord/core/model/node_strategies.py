"""Strategies for nodes: one for the whole cluster, and others for the nodes that selectors pick.

The first selector that matches decides; strategies are not stacked. What a strategy is, and how one
of a selector is made of that of the cluster, is not known here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from koord.core.model.selectors import LabelSelector, is_selected

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class NodeStrategies(Generic[S]):
    """The strategy of the cluster, and those of selectors in their order."""

    cluster: S
    nodes: tuple[tuple[LabelSelector, S], ...] = ()

    def of(self, labels: Mapping[str, str]) -> S:
        """Return the strategy of a node with these labels."""
        return next(
            (strategy for selector, strategy in self.nodes if is_selected(labels, selector)),
            self.cluster,
        )
