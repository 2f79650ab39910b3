"""Who writes for the agents of nodes, where that is configured: NodeSLOs and ratios."""

import time
from typing import TYPE_CHECKING

from koord.controllers.node_publishing import NodePolicy, NodePublisher
from koord.controllers.node_ratios import NodeRatioPolicy
from koord.controllers.node_slo import NodeSloPolicy
from koord.domains.nodeslo_settings import NodeRatioSettings, NodeSloSettings
from koord.kube.koord_manager import find_manager
from koord.operators.names import PLACEMENT
from koord.operators.slo_config import read_slo_config
from koord.runtime import collectors

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start_node_slos(parts: "Parts") -> None:
    if parts.settings.of(NodeSloSettings).render and PLACEMENT in parts.operators:
        policy = NodeSloPolicy(parts.reader.state, parts.client, parts.warn)
        publisher = _publish(parts, policy)

        def count() -> collectors.Samples:
            yield ("agent",), policy.with_agent
            yield ("no_agent",), policy.without_agent
            yield ("pending",), publisher.left

        parts.metrics.watch(*collectors.node_slos(count))


def start_ratios(parts: "Parts") -> None:
    if parts.settings.of(NodeRatioSettings).publish and PLACEMENT in parts.operators:
        policy = NodeRatioPolicy(parts.reader.state, parts.client, parts.events)
        publisher = _publish(parts, policy)

        def count() -> collectors.Samples:
            yield ("refused",), policy.refused
            yield ("pending",), publisher.left

        parts.metrics.watch(*collectors.node_ratios(count))


def _publish(parts: "Parts", policy: NodePolicy) -> NodePublisher:
    read_slo_config(parts)

    async def find() -> str:
        return await find_manager(parts.client, time.time())

    publisher = NodePublisher(
        parts.reader.state,
        policy,
        find,
        parts.reader.is_synced,
        time.monotonic,
        parts.warn,
    )
    parts.background.append(publisher.run)
    return publisher
