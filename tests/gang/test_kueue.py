"""Kueue beside us: whose turn it is, whose topology counts, and what a node that it chose lacks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.builders import PodBuilder, make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster, make_cluster

from koord.api.keys import gang as keys
from koord.api.keys import kueue
from koord.core.engine.reasons import InsufficientNodes
from koord.core.gang.kueue import NOT_USED
from koord.core.gang.reasons import describe_settings
from koord.core.model.gangs import GangMembership, GangSource, SubGroup, SubGroupTree
from koord.core.model.kueue_reasons import KueueAssignmentBlocked
from koord.core.model.reasons import WaitingForForeignGate
from koord.core.model.topology_constraint import (
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.domains.registry import make_pod_translator
from koord.kube.decode import MALFORMED
from koord.kube.wire import WirePod

GANG = "default/train"
HOSTNAME = "kubernetes.io/hostname"
MUST = TopologyConstraint((LayerConstraint("rack", GatherStrategy.MUST),))


def read(annotations: dict[str, str], **spec: Any) -> Any:
    body = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations},
        "spec": {"containers": [], **spec},
    }
    wire = msgspec.json.decode(msgspec.json.encode(body), type=WirePod)
    return make_pod_translator().translate(wire)


def assigned(name: str, node: str, gpus: int = 8) -> PodBuilder:
    return make_pod(name).gang(GANG).gpu(gpus).select(HOSTNAME, node)._set(kueue_node=node)


def make_hosts(*gpus: int) -> FakeCluster:
    cluster = make_cluster()
    for at, count in enumerate(gpus):
        cluster.nodes(make_node(f"n{at}").gpu(count).label(HOSTNAME, f"n{at}"))
    return cluster


# What Kueue writes into pods


@pytest.mark.parametrize(
    "key",
    [
        kueue.REQUIRED_TOPOLOGY,
        kueue.PREFERRED_TOPOLOGY,
        kueue.UNCONSTRAINED_TOPOLOGY,
        kueue.SLICE_TOPOLOGY,
    ],
)
def test_node_that_kueue_chose(key: str) -> None:
    assert read({key: "rack"}, nodeSelector={HOSTNAME: "n1"}).kueue_node == "n1"
    assert read({key: "rack"}, nodeSelector={"rack": "r1"}).kueue_node == ""
    assert read({key: "rack"}).kueue_node == ""


def test_selector_of_the_owner_is_none_of_kueue() -> None:
    assert read({}, nodeSelector={HOSTNAME: "n1"}).kueue_node is None


@pytest.mark.parametrize("selector", ["x", ["a"], {HOSTNAME: 1}])
def test_bad_selector_is_an_invalid_pod(selector: object) -> None:
    with pytest.raises(MALFORMED):
        read({kueue.REQUIRED_TOPOLOGY: "rack"}, nodeSelector=selector)


# Whose turn it is


@pytest.mark.parametrize(
    ("gates", "turns"),
    [
        (
            ("kueue.x-k8s.io/admission",),
            ": it is the turn of Kueue, which has not admitted the job",
        ),
        (
            ("kueue.x-k8s.io/topology",),
            ": it is the turn of Kueue, which has not chosen nodes for the job",
        ),
        (
            ("kueue.x-k8s.io/elastic-job",),
            ": it is the turn of Kueue, which has not admitted the new size",
        ),
        (("example.com/hold",), ""),
    ],
)
def test_reason_names_whose_turn_it_is(gates: tuple[str, ...], turns: str) -> None:
    reason = WaitingForForeignGate("default/p", gates)
    listed = f"default/p has scheduling gates of other controllers: {gates[0]}"
    assert reason.text() == f"{listed}{turns}"
    assert ("workloads.kueue.x-k8s.io" in "".join(reason.advice())) is bool(turns)


def test_gang_starts_once_kueue_has_taken_its_last_gate_off() -> None:
    cluster = make_cluster(2)
    cluster.pod_groups(make_pod_group(GANG, 2))
    cluster.pods(make_pod("w-0").gang(GANG).gpu(8))
    cluster.pods(make_pod("w-1").gang(GANG).gpu(8).foreign_gates("kueue.x-k8s.io/topology"))
    assert not cluster.step()
    cluster.pods(make_pod("w-1").gang(GANG).gpu(8))
    assert len(cluster.step()) == 2


# Places


def test_pods_go_to_the_nodes_that_kueue_chose() -> None:
    cluster = make_hosts(16, 8)
    cluster.pod_groups(make_pod_group(GANG, 3))
    cluster.pods(assigned("w-0", "n0"), assigned("w-1", "n0"), assigned("w-2", "n1"))
    assert len(cluster.step()) == 3
    nodes = {name: cluster.pod(name).planned_node for name in ("w-0", "w-1", "w-2")}
    assert nodes == {"w-0": "n0", "w-1": "n0", "w-2": "n1"}


def test_node_without_room_is_named_with_numbers_and_no_other_one_is_tried() -> None:
    cluster = make_hosts(12, 8, 8)
    cluster.pod_groups(make_pod_group(GANG, 2))
    cluster.pods(assigned("w-0", "n0"), assigned("w-1", "n0"))
    assert not cluster.step()
    reason = cluster.reason()
    assert reason == KueueAssignmentBlocked(
        "default/w-0", "n0", 2, 1, ("nvidia.com/gpu: 4 of 8 free",)
    )
    assert reason.text() == (
        "Kueue assigned 2 pods like default/w-0 to node n0, which has room for 1 "
        "(nvidia.com/gpu: 4 of 8 free); no other node is tried"
    )


def test_node_that_is_gone_is_named() -> None:
    cluster = make_hosts(8)
    cluster.pods(make_pod("p").gpu(8).select(HOSTNAME, "gone")._set(kueue_node="gone"))
    assert not cluster.step()
    reason = cluster.reason()
    assert isinstance(reason, KueueAssignmentBlocked)
    assert "node gone, which does not exist" in reason.text()


def test_node_is_found_by_its_host_name() -> None:
    cluster = make_cluster().nodes(make_node("aws-1").gpu(4).label(HOSTNAME, "ip-1"))
    cluster.pods(make_pod("p").gpu(8).select(HOSTNAME, "ip-1")._set(kueue_node="ip-1"))
    assert not cluster.step()
    reason = cluster.reason()
    assert isinstance(reason, KueueAssignmentBlocked)
    assert (reason.is_there, reason.fit) == (True, 0)


def test_taint_of_the_chosen_node_is_told() -> None:
    node = make_node("n0").gpu(8).label(HOSTNAME, "n0").taint("example.com/broken", "")
    cluster = make_cluster().nodes(node)
    cluster.pods(make_pod("p").gpu(8).select(HOSTNAME, "n0")._set(kueue_node="n0"))
    assert not cluster.step()
    assert "example.com/broken" in cluster.reason().text()


def test_domains_above_nodes_are_ordinary_selectors() -> None:
    cluster = make_cluster()
    for at in range(4):
        cluster.nodes(make_node(f"n{at}").gpu(8).label("rack", f"r{at % 2}"))
    cluster.pods(make_pod("p").gpu(8).select("rack", "r1")._set(kueue_node=""))
    assert cluster.step() == ["p"]
    cluster.pods(make_pod("q").gpu(16).select("rack", "r1")._set(kueue_node=""))
    assert not cluster.step()
    assert isinstance(cluster.reason(), InsufficientNodes)


def test_room_on_the_chosen_node_wakes_the_gang() -> None:
    cluster = make_hosts(8, 8)
    cluster.pods(make_pod("old").gpu(4).running("n0"))
    cluster.pods(assigned("w-0", "n0")._set(gang=None))
    assert not cluster.step()
    cluster.delete_pods("old")
    assert cluster.step() == ["w-0"]


# Two topologies


def test_topology_of_kueue_wins_and_ours_is_told_to_be_ignored() -> None:
    cluster = make_hosts(8, 8)
    cluster.pod_groups(make_pod_group(GANG, 2).topology(MUST))
    cluster.pods(assigned("w-0", "n0"), assigned("w-1", "n1"))
    spec = cluster.state.gangs.spec(GANG)
    assert spec is not None
    assert (spec.topology, spec.bad_values) == (None, (NOT_USED,))
    assert len(cluster.step()) == 2, "there is no such topology, and nobody asks for it"
    cluster.delete_pods("w-0", "w-1")
    assert cluster.state.gangs.spec(GANG).topology == MUST  # type: ignore[union-attr]


def test_gangs_without_a_topology_are_told_nothing() -> None:
    cluster = make_hosts(8)
    cluster.pod_groups(make_pod_group(GANG, 1)).pods(assigned("w-0", "n0"))
    spec = cluster.state.gangs.spec(GANG)
    assert spec is not None
    assert spec.bad_values == ()


def test_layers_of_sub_groups_are_left_out_too() -> None:
    tree = SubGroupTree(SubGroup(""), (SubGroup("a", 1, "rack"),))
    cluster = make_hosts(8)
    group = make_pod_group(GANG, 1)._set_spec(sub_groups=tree).topology(TopologyConstraint(()))
    cluster.pod_groups(group).pods(assigned("w-0", "n0")._set(sub_group="a"))
    spec = cluster.state.gangs.spec(GANG)
    assert spec is not None
    assert spec.sub_groups is not None
    assert [sub_group.layer for sub_group in spec.sub_groups.groups] == [""]
    assert cluster.step() == ["w-0"]


def test_gang_by_annotation_is_told_on_its_pods() -> None:
    annotations = {
        keys.NAME: "train",
        keys.MIN_AVAILABLE: "2",
        keys.NETWORK_TOPOLOGY_SPEC: '{"gatherStrategy":[{"layer":"r","strategy":"MustGather"}]}',
    }
    claim = read(annotations).gang
    assert claim.declared.topology is not None
    claim = read(annotations | {kueue.PREFERRED_TOPOLOGY: "rack"}).gang
    assert claim.declared.topology is None
    assert describe_settings(claim) == (
        "Note: network-topology-spec is not used, because annotations of Kueue say that it "
        "chooses the places of these pods (in force: the topology of Kueue)"
    )


def test_annotation_on_one_pod_changes_no_gang_of_others() -> None:
    cluster = make_hosts(8, 8)
    cluster.pod_groups(make_pod_group(GANG, 2).topology(MUST))
    other = GangMembership("other/train", GangSource.POD_GROUP)
    cluster.pods(make_pod("other/x")._set(gang=other, kueue_node="n0"))
    assert cluster.state.gangs.spec(GANG).topology == MUST  # type: ignore[union-attr]
