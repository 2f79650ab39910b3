"""Topology constraints on a real API server, valid and invalid."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import make_node

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

WISH = "gang.scheduling.koordinator.sh/network-topology-spec"
CHOICE = "operators.koordinator.sh/network-topology"
TOPOLOGIES = "/apis/scheduling.koordinator.sh/v1alpha1/clusternetworktopologies"


@pytest.fixture
def topology(cluster: Cluster) -> Iterator[str]:
    """Create a topology of racks for the nodes of this test; return its name."""
    name = cluster.namespace
    layers = [
        {"topologyLayer": "RackLayer", "labelKey": [f"{name}/rack"]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "RackLayer"},
    ]
    body = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "metadata": {"name": name},
        "spec": {"networkTopologySpec": layers},
    }
    cluster.box.client.create(TOPOLOGIES, body)
    for at, node in enumerate(cluster.add_nodes(4)):
        label(cluster, node, f"r{at // 2}")
    yield name
    try:
        cluster.box.client.delete(f"{TOPOLOGIES}/{name}")
    except SandboxApiError as error:
        assert error.status == 404  # noqa: PT017 - the test may have deleted it


def label(cluster: Cluster, node: str, rack: str | None) -> None:
    labels = {f"{cluster.namespace}/rack": rack}
    cluster.box.client.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})


def ask(cluster: Cluster, name: str, count: int, wish: Any, topology: str) -> None:
    text = wish if isinstance(wish, str) else json.dumps({"gatherStrategy": wish})
    cluster.pod_group(name, count, **{WISH: text, CHOICE: topology})
    for at in range(count):
        cluster.pod(f"{name}-{at}", group=name)


def place_of(cluster: Cluster, name: str) -> dict[str, Any]:
    place: dict[str, Any] = cluster.get_group(name).get("status", {}).get("placement", {})
    return place


def rack(strategy: str = "MustGather", multiple: int = 0) -> list[dict[str, Any]]:
    return [{"layer": "RackLayer", "strategy": strategy, "podCountMultiple": multiple}]


def test_gang_goes_to_one_rack_that_its_status_names(cluster: Cluster, topology: str) -> None:
    ask(cluster, "a", 2, rack(), topology)
    cluster.expect_bound("a-0", "a-1")
    cluster.expect(lambda: "layer" in place_of(cluster, "a"), "it says where")
    place = place_of(cluster, "a")
    assert (place["layer"], place["optimal"]) == ("RackLayer", True)
    assert place["domain"] in {"r0", "r1"}
    assert place["domainsPerLayer"] == {"RackLayer": 1, "NodeTopologyLayer": 2}


def test_gang_is_placed_once_node_labels_make_a_domain_large_enough(
    cluster: Cluster, topology: str
) -> None:
    ask(cluster, "a", 3, rack(), topology)
    cluster.expect_group("a", "NoDomainFits")
    assert "r0: 2" in cluster.group_message("a", "Placed")
    label(cluster, f"{cluster.namespace}-2", "r0")
    cluster.expect_bound("a-0", "a-1", "a-2")


@pytest.mark.parametrize(
    ("count", "wish", "reason"),
    [
        (2, [{"layer": "racklayer", "strategy": "MustGather"}], "UnknownLayer"),
        (2, rack("PreferGather", 8), "MultipleNotMet"),
        (5, rack("PreferGather"), "NoDomainFits"),
    ],
)
def test_unsatisfiable_topology_constraint_is_reported(
    cluster: Cluster, topology: str, count: int, wish: Any, reason: str
) -> None:
    ask(cluster, "a", count, wish, topology)
    cluster.expect_group("a", reason)
    cluster.gang("plain", 2)
    cluster.expect_bound("plain-0", "plain-1")


@pytest.mark.parametrize("text", ["{", "[]", '{"gatherStrategy":[{"layer":"RackLayer"}]}'])
def test_unreadable_topology_constraint_is_reported_and_ignored(
    cluster: Cluster, topology: str, text: str
) -> None:
    ask(cluster, "a", 2, text, topology)
    cluster.expect_bound("a-0", "a-1")
    cluster.expect_group("a", "InvalidAnnotation", "SpecValid")
    assert WISH in cluster.group_message("a", "SpecValid")


def test_gang_waits_for_a_missing_topology(cluster: Cluster, topology: str) -> None:
    cluster.box.client.delete(f"{TOPOLOGIES}/{topology}")
    ask(cluster, "a", 2, rack(), topology)
    cluster.expect_group("a", "MissingTopology")
    assert topology in cluster.group_message("a", "Placed")


HEALED_WITHIN_SECONDS = 5.0


def add_node(cluster: Cluster, name: str, rack: str) -> str:
    """Add a node that has its rack label from the start."""
    node = make_node(f"{cluster.namespace}-{name}", cluster.namespace, 8)
    node["metadata"]["labels"][f"{cluster.namespace}/rack"] = rack
    cluster.box.client.create("/api/v1/nodes", node)
    made: str = node["metadata"]["name"]
    return made


def rack_of(cluster: Cluster, node: str) -> str:
    labels = cluster.box.client.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]
    found: str = labels[f"{cluster.namespace}/rack"]
    return found


def test_lost_member_is_replaced_in_its_rack_before_others_get_the_room(
    cluster: Cluster, topology: str
) -> None:
    ask(cluster, "a", 2, rack(), topology)
    cluster.expect_bound("a-0", "a-1")
    home = rack_of(cluster, cluster.bound()["a-0"])
    away = "r1" if home == "r0" else "r0"
    for name in ("filler-0", "filler-1"):
        cluster.pod(name)
    cluster.expect_bound("filler-0", "filler-1")
    cluster.gang("b", 1)
    cluster.expect_pod("b-0", "InsufficientNodes")
    cluster.box.client.delete(f"/api/v1/nodes/{cluster.bound()['a-1']}")
    cluster.delete_pod("a-1")
    cluster.expect_group("a", "BelowMin", "Degraded")
    cluster.pod("a-2", group="a")
    cluster.expect_pod("a-2", "NoDomainFits")

    # Room in another rack is not kept for the replacement.
    elsewhere = add_node(cluster, "elsewhere", away)
    cluster.expect_bound("b-0")
    assert cluster.bound()["b-0"] == elsewhere
    cluster.gang("c", 1)
    cluster.expect_pod("c-0", "InsufficientNodes")
    spare = add_node(cluster, "spare", home)
    began = time.monotonic()
    cluster.expect_bound("a-2")
    assert time.monotonic() - began < HEALED_WITHIN_SECONDS
    assert cluster.bound()["a-2"] == spare
    assert "c-0" not in cluster.bound()
    cluster.delete_pod("filler-0")
    cluster.expect_bound("c-0")


def test_room_in_the_rack_is_kept_until_the_replacement_exists(
    cluster: Cluster, topology: str
) -> None:
    ask(cluster, "a", 2, rack(), topology)
    cluster.expect_bound("a-0", "a-1")
    home = rack_of(cluster, cluster.bound()["a-0"])
    for name in ("filler-0", "filler-1"):
        cluster.pod(name)
    cluster.expect_bound("filler-0", "filler-1")
    cluster.box.client.delete(f"/api/v1/nodes/{cluster.bound()['a-1']}")
    cluster.delete_pod("a-1")
    cluster.expect_group("a", "BelowMin", "Degraded")
    cluster.gang("b", 1)
    spare = add_node(cluster, "spare", home)
    cluster.expect_pod("b-0", "KeptForReplacements")
    cluster.pod("a-2", group="a")
    began = time.monotonic()
    cluster.expect_bound("a-2")
    assert time.monotonic() - began < HEALED_WITHIN_SECONDS
    assert cluster.bound()["a-2"] == spare
    assert "b-0" not in cluster.bound()


def make_layers(cluster: Cluster, *layers: tuple[str, str]) -> list[dict[str, Any]]:
    key = f"{cluster.namespace}/rack"
    return [
        {"topologyLayer": name, "labelKey": [key], **({"parentTopologyLayer": up} if up else {})}
        for name, up in layers
    ]


def write_layers(cluster: Cluster, topology: str, *layers: tuple[str, str]) -> None:
    body = {"spec": {"networkTopologySpec": make_layers(cluster, *layers)}}
    cluster.box.client.patch(f"{TOPOLOGIES}/{topology}", body)


NODES, RACKS = ("NodeTopologyLayer", "RackLayer"), ("RackLayer", "")


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((NODES, ("RackLayer", ""), ("HallLayer", "")), "one chain"),
        ((NODES, ("RackLayer", "NodeTopologyLayer")), "one chain"),
        ((NODES, RACKS, RACKS), "Duplicate"),
        ((NODES, ("RackLayer", "HallLayer")), "must be listed"),
    ],
    ids=["two roots", "circle", "twice", "unknown parent"],
)
def test_layers_that_form_no_chain_are_rejected_by_the_server(
    cluster: Cluster, topology: str, layers: tuple[tuple[str, str], ...], words: str
) -> None:
    with pytest.raises(SandboxApiError, match=words) as refused:
        write_layers(cluster, topology, *layers)
    assert refused.value.status == 422
    ask(cluster, "a", 2, rack(), topology)
    cluster.expect_bound("a-0", "a-1")


def test_cycle_of_layers_is_reported_and_the_previous_layers_stay_active(
    cluster: Cluster, topology: str
) -> None:
    def ready() -> tuple[str, str, str]:
        return cluster.condition(cluster.box.client.get(f"{TOPOLOGIES}/{topology}"), "Ready")

    cluster.expect(lambda: ready()[1] == "Built", "there is a tree")
    write_layers(cluster, topology, NODES, RACKS, ("A", "B"), ("B", "A"))
    cluster.expect(lambda: ready()[:2] == ("False", "InvalidLayers"), "the cycle is named")
    assert "cycle" in ready()[2]
    ask(cluster, "a", 2, rack(), topology)
    cluster.gang("plain", 2)
    cluster.expect_bound("a-0", "a-1", "plain-0", "plain-1")


def test_sub_groups_get_one_rack_each_and_start_together(cluster: Cluster, topology: str) -> None:
    groups = [{"name": f"g{at}", "minMember": 2, "layer": "RackLayer"} for at in range(2)]
    key = "operators.koordinator.sh/sub-group"
    cluster.pod_group("a", 4, **{f"{key}s": json.dumps({"groups": groups}), CHOICE: topology})
    for at in range(3):
        cluster.pod(f"a-{at}", group="a", annotations={key: f"g{at % 2}"})
    cluster.expect_pod("a-0", "MissingMembers")
    cluster.pod("a-3", group="a", annotations={key: "g1"})
    cluster.expect_bound("a-0", "a-1", "a-2", "a-3")
    racks = {name: rack_of(cluster, node) for name, node in cluster.bound().items()}
    assert racks["a-0"] == racks["a-2"]
    assert racks["a-1"] == racks["a-3"]
    assert racks["a-0"] != racks["a-1"]


def test_sub_groups_that_form_no_tree_are_reported_and_ignored(
    cluster: Cluster, topology: str
) -> None:
    groups = [{"name": "g", "parent": "nobody"}]
    key = "operators.koordinator.sh/sub-groups"
    cluster.pod_group("a", 1, **{key: json.dumps({"groups": groups}), CHOICE: topology})
    cluster.pod("a-0", group="a")
    cluster.expect_bound("a-0")
    cluster.expect_group("a", "InvalidAnnotation", "SpecValid")
    assert "nobody" in cluster.group_message("a", "SpecValid")
