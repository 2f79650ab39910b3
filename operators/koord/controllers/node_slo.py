"""Applies the NodeSLO of each node: for clusters whose koordlet reads them, without its manager."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koord.core.engine.state import ClusterState
from koord.core.load.model import LoadSource
from koord.core.load.plugin import Loads
from koord.core.model.nodes import Node
from koord.core.nodeslo.plugin import NodeSlos
from koord.core.nodeslo.render import (
    FIELDS,
    KEYS,
    SloSettings,
    choose,
    is_shown,
    keep_fields,
    render_chosen,
)
from koord.core.slo_config.plugin import SloConfigs
from koord.kube.client import Client, Media
from koord.kube.translate.node_slo import MANAGER, bandwidth_of, make_node_slo

log = logging.getLogger(__name__)

_PATH: Final = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
_NO_AGENT: Final = (
    "NodeSLOs are rendered, but no node has a report of koordlet: nothing applies them"
)


@dataclass(slots=True)
class NodeSloPolicy:
    """Says once if no node reports by the agent that would apply NodeSLOs."""

    state: ClusterState
    client: Client
    warn: Callable[[str, str], None]
    name: str = "node-slo"
    with_agent: int = 0
    """Nodes of which koordlet reports, at the last look."""
    without_agent: int = 0
    _settings: SloSettings = field(default_factory=SloSettings)
    _unknown: tuple[str, ...] = ()
    """Fields of which nothing valid was ever read: they stay as they are."""
    _rendered: dict[tuple[object, ...], dict[str, Any]] = field(default_factory=dict)
    """Specs of this look: thousands of nodes have few different ones."""
    _compared: dict[tuple[int, int], tuple[object, object, bool]] = field(default_factory=dict)
    """The same of what is shown and what was rendered, by identity: whether they are equal."""
    _agents: frozenset[str] = frozenset()
    _is_warned: bool = False

    def begin(self) -> bool:
        config = self.state.plugin(SloConfigs)
        parts = {part: config.of(part) for part in FIELDS}
        self._settings = SloSettings({kind: part for kind, part in parts.items() if part})
        self._unknown = tuple(
            FIELDS[kind]
            for kind, part in parts.items()
            if not part and config.has_problems(KEYS[kind])
        )
        reports = self.state.plugin(Loads).of_source(LoadSource.NODE_METRIC)
        self._agents = frozenset(report.node for report in reports if report.updated)
        self.with_agent = self.without_agent = 0
        self._rendered.clear()
        self._compared.clear()
        return True

    def find(self, node: Node) -> dict[str, Any] | None:
        if node.name in self._agents:
            self.with_agent += 1
        else:
            self.without_agent += 1
        spec = self._render(node)
        present = self.state.plugin(NodeSlos).objects.get(node.name)
        if present is not None and self._unknown:
            spec = keep_fields(spec, present.spec, self._unknown)
            return None if is_shown(present.spec, spec) else spec
        return None if present is not None and self._is_shown(present.spec, spec) else spec

    def _render(self, node: Node) -> dict[str, Any]:
        chosen, bandwidth = choose(self._settings, node.labels), bandwidth_of(node)
        key = (*map(id, chosen), bandwidth)
        spec = self._rendered.get(key)
        if spec is None:
            spec = self._rendered[key] = render_chosen(chosen, bandwidth)
        return spec

    def _is_shown(self, shown: Mapping[str, Any], spec: dict[str, Any]) -> bool:
        key = id(shown), id(spec)
        compared = self._compared.get(key)
        if compared is None:
            # Both are kept, so that no other object gets the identity of one.
            compared = self._compared[key] = shown, spec, is_shown(shown, spec)
        return compared[2]

    async def write(self, node: Node, change: object) -> None:
        if not isinstance(change, dict):
            raise TypeError(type(change).__name__)
        params = {"fieldManager": MANAGER, "force": "true"}
        body = make_node_slo(node, change)
        await self.client.patch(f"{_PATH}/{node.name}", body, Media.APPLY_PATCH, params)

    async def finish(self) -> None:
        is_in_vain = not self.with_agent and bool(self.without_agent)
        if is_in_vain and not self._is_warned:
            self.warn("NodeSLONotApplied", _NO_AGENT)
        self._is_warned = is_in_vain
