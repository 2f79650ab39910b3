"""Loops over nodes: what they offer to batch pods, and what is written for their agents."""

import asyncio
from dataclasses import replace
from typing import Any, cast

from tests.builders import make_node
from tests.cluster import FakeCluster
from tests.colocation.test_publisher import CPU, Publishing
from tests.controllers.test_node_publishing import (
    TWICE,
    Server,
    configure,
    ratios_of,
    slos_of,
)
from tests.isolation.plays import NAMES, Patch, fail_on_bad, play

from koord.controllers import node_ratios, node_slo, over_commit
from koord.controllers.node_publishing import NodePolicy
from koord.controllers.status_controller import StatusController
from koord.core.load.model import NodeLoad
from koord.core.load.plugin import Loads


@play("status")
def offers(patch: Patch) -> list[str]:
    publishing = Publishing()
    cluster = publishing.cluster
    for name in NAMES:
        made = make_node(name).build()
        cluster.nodes(replace(made, capacity=dict(made.allocatable)))
        cluster.state.plugin(Loads).upsert(NodeLoad(name, updated=publishing.now))
    cluster.state.remove_node("n0")
    fail_on_bad(patch, over_commit, "decide_offer")
    controller = StatusController(cast("Any", publishing.publisher), lambda: publishing.now)
    controller.look()
    publishing.now += 60.0
    asyncio.run(controller.flush())
    table = cluster.state.table
    return [name for name, row in table.live_rows() if CPU in table.node_at(row).allocatable]


def written(cluster: FakeCluster, server: Server, policy: NodePolicy) -> list[str]:
    cluster.nodes(*map(make_node, NAMES))
    paths = [path.removesuffix("/status") for path, _ in server.look(cluster, policy)]
    return [path.rpartition("/")[2] for path in paths]


@play("node-ratios")
def ratios(patch: Patch) -> list[str]:
    cluster, server = FakeCluster(), Server()
    configure(cluster, TWICE)
    fail_on_bad(patch, node_ratios, "find_change")
    return written(cluster, server, ratios_of(server, cluster))


@play("node-slo")
def node_slos(patch: Patch) -> list[str]:
    cluster, server = FakeCluster(), Server()
    fail_on_bad(patch, node_slo, "bandwidth_of")
    return written(cluster, server, slos_of(server, cluster))


@play("node-slo")
def writes_of_node_slos(patch: Patch) -> list[str]:
    cluster, server = FakeCluster(), Server()
    fail_on_bad(patch, node_slo, "make_node_slo")
    return written(cluster, server, slos_of(server, cluster))
