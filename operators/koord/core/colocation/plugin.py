"""Keeps the ColocationPolicies of a cluster, and which nodes have to be looked at again.

They have no part in planning: what is published on nodes is planned with like any resource.
"""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from koord.core.colocation.strategy import ObservedColocation, PolicySettings
from koord.core.engine.policies import Policies
from koord.core.model.nodes import Node
from koord.core.model.pod_charge import PodCharge


class ColocationPolicies(Policies[PolicySettings]):
    """All ColocationPolicies, by name."""

    name: ClassVar = "colocation"

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        """Grows with each change of a policy."""
        self._changed: dict[str, None] | None = None
        """None until somebody takes it: where nothing is published, nothing piles up."""

    @override
    def upsert(self, policy: ObservedColocation) -> None:
        super().upsert(policy)
        self.changes += 1

    @override
    def remove(self, policy: ObservedColocation) -> None:
        super().remove(policy)
        self.changes += 1

    @override
    def charge(self, row: int, charge: PodCharge, count: int) -> None:
        # What a new pod requests counts before any report shows it.
        self.note(charge.load.node)

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        self.note(node.name)

    @override
    def remove_node(self, row: int, name: str) -> None:
        self.note(name)

    def note(self, node: str) -> None:
        """Note that something about a node has changed, such as the report of what it uses."""
        if self._changed is not None:
            self._changed[node] = None

    def take_changed(self) -> Mapping[str, None]:
        """Return the nodes that have changed since the last call; none by the first."""
        changed, self._changed = self._changed or {}, {}
        return changed
