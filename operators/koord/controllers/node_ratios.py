"""Writes the ratios of nodes: how fast their processors are, how often resources are offered."""

import logging
from dataclasses import dataclass
from typing import Final

from koord.core.amplification.publish import RatioChange, find_change
from koord.core.amplification.ratios import (
    NORMALIZATION_KEY,
    OFFER_KEY,
    BadRatio,
    NormalizationStrategies,
    OfferStrategies,
)
from koord.core.engine.state import ClusterState
from koord.core.model.nodes import Node
from koord.core.numa.plugin import Numa
from koord.core.slo_config.plugin import SloConfigs
from koord.kube.client import Client, Media
from koord.kube.errors import NotFound
from koord.kube.events import EventRecorder, EventType
from koord.kube.objects import ObjectRef
from koord.kube.translate.ratios import make_ratio_patch

log = logging.getLogger(__name__)

_ACTION: Final = "Normalizing"


@dataclass(slots=True)
class NodeRatioPolicy:
    """Says in an event of a node why it has no ratios; what it shows stays as it is then."""

    state: ClusterState
    client: Client
    events: EventRecorder
    name: str = "node-ratios"
    refused: int = 0
    """Nodes for which no ratio can be given, at the last look."""
    _normalizations: NormalizationStrategies | None = None
    _offers: OfferStrategies | None = None
    _refused: int = 0

    def begin(self) -> bool:
        config = self.state.plugin(SloConfigs)
        self._normalizations = config.of(NormalizationStrategies)
        self._offers = config.of(OfferStrategies)
        self._refused = 0
        # A ratio is made of both: while one is invalid, and was never valid, all stay as they are.
        for key, of in ((NORMALIZATION_KEY, self._normalizations), (OFFER_KEY, self._offers)):
            if of is None and config.has_problems(key):
                return False
        return self._normalizations is not None or self._offers is not None

    def find(self, node: Node) -> RatioChange | None:
        report = self.state.plugin(Numa).reports.get(node.name)
        processor = None if report is None else report.processor
        change = find_change(node, processor, self._normalizations, self._offers)
        ref = ObjectRef("v1", "Node", "nodes", node.name, node.uid)
        if isinstance(change, BadRatio):
            self._refused += 1
            text = f"the ratios of the node stay as they are: {change.message}"
            self.events.record(
                ref, EventType.WARNING, action=_ACTION, reason=change.code, note=text
            )
            return None
        self.events.forget(ref, _ACTION)
        return change or None

    async def write(self, node: Node, change: object) -> None:
        if not isinstance(change, RatioChange):
            raise TypeError(type(change).__name__)
        patch = make_ratio_patch(change)
        patch["metadata"]["uid"] = node.uid
        path = f"/api/v1/nodes/{node.name}/status"  # needs no right to cordon or taint a node
        try:
            await self.client.patch(path, patch, Media.MERGE_PATCH)
        except NotFound:
            return  # gone meanwhile
        written = {"normalization": change.normalization, "offers": change.offers}
        log.info("Wrote the ratios of a node", extra={"node": node.name, **written})

    async def finish(self) -> None:
        self.refused = self._refused
