"""Pods that draw others to them: how many of each selector are on which node.

Source: Koordinator's annotation ``network-topology-selector``; pods with the same value want to be
close. Knows no tree.
"""

from collections import Counter
from collections.abc import Mapping

_NOWHERE: Mapping[str, int] = {}


class PodAttraction:
    """Selector -> node -> pods, by one writer."""

    def __init__(self) -> None:
        self._nodes: dict[str, Counter[str]] = {}
        self._places: dict[str, tuple[str, str]] = {}

    def note(self, uid: str, selector: str, node: str) -> None:
        """Say where a pod is, and what its annotation says; empty if nowhere or nothing."""
        place = (selector, node)
        before = self._places.pop(uid, None)
        if before is not None:
            self._count(*before, -1)
        if selector and node:
            self._places[uid] = place
            self._count(selector, node, 1)

    def pods_by_node(self, selector: str) -> Mapping[str, int]:
        """Return node -> pods with that selector; do not write to it."""
        return self._nodes.get(selector, _NOWHERE)

    def _count(self, selector: str, node: str, one: int) -> None:
        nodes = self._nodes.setdefault(selector, Counter())
        nodes[node] += one
        if not nodes[node]:
            del nodes[node]
        if not nodes:
            del self._nodes[selector]
