"""Tenants who lie with Kueue's labels, annotations, gates and node selectors on their pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster

from koord.api.keys import gang as keys
from koord.api.keys import kueue, operators
from koord.core.gang import cache
from koord.core.gang.kueue import leave_topology
from koord.core.model.gangs import ROOT, SubGroup, SubGroupTree
from koord.core.model.kueue_reasons import KueueAssignmentBlocked
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.layers import Layer
from koord.domains.registry import make_pod_translator
from koord.kube.wire import WirePod

HOSTNAME = "kubernetes.io/hostname"
IN_ONE_ZONE = TopologyConstraint((LayerConstraint("Zone", GatherStrategy.MUST),))
GPU = {"limits": {"nvidia.com/gpu": "4"}, "requests": {"nvidia.com/gpu": "4"}}


def read(name: str, metadata: dict[str, Any], gates: tuple[str, ...] = (), **spec: Any) -> Any:
    gated = [{"name": gate} for gate in (operators.PLACEMENT_GATE, *gates)]
    body = {
        "metadata": {"name": name, "namespace": "evil", "uid": f"uid-{name}", **metadata},
        "spec": {
            "schedulerName": "koord-scheduler",
            "schedulingGates": gated,
            "containers": [{"name": "c", "resources": GPU}],
            **spec,
        },
        "status": {"phase": "Pending"},
    }
    wire = msgspec.json.decode(msgspec.json.encode(body), type=WirePod)
    return make_pod_translator().translate(wire)


def make_zones() -> FakeCluster:
    cluster = FakeCluster()
    cluster.topology(Layer("Zone", "", ("zone",)), Layer(NODE_LAYER, "Zone"))
    for at in range(4):
        labels = {"zone": f"z{at % 2}", HOSTNAME: f"n{at}"}
        node = make_node(f"n{at}").gpu(8)
        for key, value in labels.items():
            node = node.label(key, value)
        cluster.nodes(node)
    return cluster


def test_settings_without_topology_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One annotation of one pod had each event of its gang make thousands of sub-groups anew."""
    calls = 0

    def count(spec: Any) -> Any:
        nonlocal calls
        calls += 1
        return leave(spec)

    leave = leave_topology
    monkeypatch.setattr(cache, "leave_topology", count)
    cluster = FakeCluster()
    group = make_pod_group("default/g", 50).build()
    parts = tuple(SubGroup(f"part{at}", 1, "Zone") for at in range(50))
    tree = SubGroupTree(SubGroup(ROOT), parts)
    cluster.pod_groups(replace(group, spec=replace(group.spec, sub_groups=tree)))
    for at in range(50):
        pod = make_pod(f"g-{at}").gang("default/g").build()
        cluster.pods(replace(pod, sub_group=f"part{at}", kueue_node=""))
    assert calls == 1
    # Other settings are others.
    tree = SubGroupTree(SubGroup(ROOT), parts[:7])
    cluster.pod_groups(replace(group, spec=replace(group.spec, sub_groups=tree)))
    spec = cluster.state.gangs.spec("default/g")
    assert calls == 2
    assert spec is not None
    assert spec.sub_groups is not None
    assert len(spec.sub_groups.groups) == 7
    assert not any(part.layer for part in spec.sub_groups.groups)


def test_hosts_that_do_not_exist_are_looked_up_and_not_searched_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = make_zones()
    monkeypatch.setattr(type(cluster.state.table), "node_at", lambda *_: pytest.fail("a search"))
    lie = {"annotations": {kueue.REQUIRED_TOPOLOGY: "rack"}}
    cluster.pods(read("liar", lie, nodeSelector={HOSTNAME: "nowhere"}))
    assert not cluster.step()
    reason = cluster.reason()
    assert isinstance(reason, KueueAssignmentBlocked)
    assert not reason.is_there


def test_pods_of_a_group_that_kueue_admits_with_its_first_pod_start_one_by_one() -> None:
    """A StatefulSet makes the second pod when the first one runs."""
    cluster = make_zones()
    metadata = {
        "labels": {keys.KUEUE_NAME: "sts"},
        "annotations": {keys.KUEUE_TOTAL: "3", keys.KUEUE_FAST: "true"},
    }
    cluster.pods(read("sts-0", metadata))
    assert cluster.step() == ["sts-0"]
    metadata["annotations"][keys.KUEUE_FAST] = "no"
    cluster.pods(read("other-0", metadata))
    assert not cluster.step()


TEXTS = st.sampled_from(["", "2", "99999999999", "-1", "true", "n0", "z0", "a,b/c#d", "é"])
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            kueue.REQUIRED_TOPOLOGY, kueue.PREFERRED_TOPOLOGY, kueue.UNCONSTRAINED_TOPOLOGY,
            kueue.SLICE_TOPOLOGY, keys.KUEUE_TOTAL, keys.KUEUE_FAST, keys.NETWORK_TOPOLOGY_SPEC,
            "autoscaling.x-k8s.io/consume-provisioning-request",
        ]
    ),
    TEXTS,
)  # fmt: skip
GATES = st.sets(
    st.sampled_from(
        [kueue.ADMISSION_GATE, kueue.TOPOLOGY_GATE, kueue.ELASTIC_GATE, "kueue.x-k8s.io/x"]
    )
)
SELECTORS = st.dictionaries(
    st.sampled_from([HOSTNAME, "zone"]), st.sampled_from(["n0", "n1", "z0", "nowhere", ""])
)
LIES = st.tuples(
    st.dictionaries(st.sampled_from([keys.KUEUE_NAME, "kueue.x-k8s.io/queue-name"]), TEXTS),
    ANNOTATIONS, GATES, SELECTORS,
)  # fmt: skip


@given(lies=st.lists(LIES, min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_whatever_a_tenant_says_for_kueue_others_start_in_one_zone(lies: list[Any]) -> None:
    cluster = make_zones()
    group = make_pod_group("good/g", 4).build()
    cluster.pod_groups(replace(group, spec=replace(group.spec, topology=IN_ONE_ZONE)))
    for at in range(4):
        pod = make_pod(f"g-{at}").gang("good/g").gpu(4).priority(10).build()
        cluster.pods(replace(pod, namespace="good", uid=f"good-{at}"))
    gates_of = {}
    for at, (labels, texts, gates, selector) in enumerate(lies):
        metadata = {"labels": labels, "annotations": texts}
        gates_of[f"liar-{at}"] = gates
        cluster.pods(read(f"liar-{at}", metadata, tuple(sorted(gates)), nodeSelector=selector))
    while cluster.step():
        pass
    nodes = {pod.planned_node for pod in cluster.state.pods.values() if pod.namespace == "good"}
    zones = {node and int(node[1:]) % 2 for node in nodes}
    assert len(zones) == 1
    assert "" not in nodes
    for pod in cluster.state.pods.values():
        if pod.namespace == "evil" and pod.planned_node:
            assert not gates_of[pod.name], "what has a gate of another does not start"
    for blocked in cluster.queue.blocked.values():
        assert len(blocked.reason.text()) < 2000
