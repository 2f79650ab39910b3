"""Which members may be lost soon, by their nodes: these have failed, are gone, or are about to go.

Writes nothing; who tells it is not known here.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from koord.core.autoscaler.nodes import find_end
from koord.core.engine.state import ClusterState
from koord.core.gang.reasons import MemberOnFailedNode, MemberOnLeavingNode
from koord.core.model.gangs import GangKey

_GONE: Final = "it is gone"
_FAILED: Final = "it has failed"


@dataclass(slots=True)
class EndangeredMembers:
    """Remembers the nodes that members may be lost with, to see when that changes."""

    state: ClusterState
    nodes: dict[str, str] = field(default_factory=dict)
    """Node -> by what its members may be lost."""

    def on_changed(self, nodes: Collection[str]) -> set[GangKey]:
        """Return the gangs with members on nodes that have failed, are to go, or come back."""
        dangers = {node: self._danger_of(node) for node in nodes}
        before = self.nodes
        changed = {node for node, danger in dangers.items() if danger != before.get(node, "")}
        self.nodes = {
            node: danger
            for node, danger in (before | dangers).items()
            if danger and (danger != _GONE or self.state.pods_on(node))
        }
        if not changed:
            return set()
        pods = (pod for pod in self.state.pods.values() if pod.node in changed)
        return {pod.gang.key for pod in pods if pod.gang is not None}

    def find(self, gang: GangKey) -> MemberOnFailedNode | MemberOnLeavingNode | None:
        """Return members of a gang that may be lost, or will be: those whose nodes are gone."""
        pods = (pod for pod in self.state.gangs.members(gang).values() if pod.is_alive)
        on = Counter(pod.node for pod in pods)
        failed = tuple(sorted(filter(self._has_failed, on)))
        gone = tuple(sorted(filter(self._is_gone, on)))
        count = sum(on[node] for node in (*failed, *gone))
        if count:
            self.nodes |= dict.fromkeys(gone, _GONE)  # nobody tells of them after a restart
            return MemberOnFailedNode(count, failed, gone)
        leaving = {node: taint for node in sorted(on) if (taint := self._find_end(node))}
        count, taints = sum(on[node] for node in leaving), tuple(leaving.values())
        return MemberOnLeavingNode(count, tuple(leaving), taints[0]) if count else None

    def _danger_of(self, node: str) -> str:
        """Return by what the members on a node may be lost; empty by nothing."""
        if self._is_gone(node):
            return _GONE
        return _FAILED if self._has_failed(node) else self._find_end(node)

    def _has_failed(self, node: str) -> bool:
        row = self.state.table.row_of.get(node)
        return row is not None and self.state.table.node_at(row).has_failed

    def _find_end(self, node: str) -> str:
        """Return the taint by which a node is about to go; empty if there is none."""
        row = self.state.table.row_of.get(node)
        return "" if row is None else find_end(self.state.table.node_at(row))

    def _is_gone(self, node: str) -> bool:
        """Whether there is no Node of this name, although pods may still be on it."""
        return bool(node) and node not in self.state.table.row_of
