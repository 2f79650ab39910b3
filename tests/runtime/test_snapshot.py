"""A state that is made of a snapshot plans as the one that it was taken of, and is another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import make_cluster

from koord.core.engine.queue import find_pending
from koord.core.load.model import LoadSource, NodeLoad
from koord.core.load.plugin import Loads
from koord.domains.gang import POD_GROUPS
from koord.domains.load import NODE_METRICS
from koord.domains.placement import NODES, PODS
from koord.domains.registry import make_cluster_state
from koord.kube.kind import TranslatorOptions
from koord.runtime.cluster import ClusterReader
from koord.runtime.snapshot import ClusterSnapshot

if TYPE_CHECKING:
    from koord.core.engine.state import ClusterState


def take(**values: Any) -> ClusterSnapshot:
    kinds = {PODS: values.get("pods", ()), NODES: values.get("nodes", ())}
    kinds[POD_GROUPS] = values.get("groups", ())
    return ClusterSnapshot(make_cluster_state, cast("Any", kinds), {}, (), 7.0)


def look_at(state: ClusterState) -> object:
    state.refresh()
    table = state.table
    used = {node.name: state.used_on(node.name) for node in table.nodes if node is not None}
    return used, [unit.key for unit in find_pending(state)], sorted(state.pods)


def test_it_is_the_same_cluster_and_changes_of_one_do_not_reach_the_other() -> None:
    nodes = [make_node(f"n{at}").gpu(8) for at in range(2)]
    pods = [make_pod("a").gpu(3).released("n0", "p").running("n0")]
    pods += [make_pod(f"g-{at}").gpu(2).gang("default/g") for at in range(2)]
    groups = [make_pod_group("default/g", 2)]
    first = make_cluster().nodes(*nodes).pod_groups(*groups).pods(*pods).state
    snapshot = take(
        pods=[pod.build() for pod in pods],
        nodes=[node.build() for node in nodes],
        groups=[group.build() for group in groups],
    )
    second = snapshot.build()
    assert look_at(second) == look_at(first)
    assert second.now == 7.0
    second.remove_node("n0")
    assert look_at(second) != look_at(first)


@pytest.mark.isolates
def test_an_object_that_cannot_be_applied_counts_as_not_there() -> None:
    node = make_node("n0").gpu(8).build()
    state = take(pods=[cast("Any", 3)], nodes=[node]).build()
    assert state.table.row_of == {"n0": 0}


def test_what_is_polled_is_in_it() -> None:
    state = make_cluster_state()
    reader = ClusterReader(cast("Any", None), (), make_cluster_state, TranslatorOptions())
    report = NodeLoad("n0", LoadSource.METRICS_API, updated=5.0, usage={"cpu": 7})
    state.plugin(Loads).upsert(report)
    reader.polled[NODE_METRICS] = lambda: state.plugin(Loads).of_source(LoadSource.METRICS_API)
    assert reader.take_snapshot().build().plugin(Loads).of("n0") == report
