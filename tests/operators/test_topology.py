"""Bad input about the network: a clear condition, and everything else goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from koord.sandbox.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

WISH = "gang.scheduling.koordinator.sh/network-topology-spec"
CHOICE = "operators.koordinator.sh/network-topology"
TOPOLOGIES = "/apis/scheduling.koordinator.sh/v1alpha1/clusternetworktopologies"


@pytest.fixture
def topology(cluster: Cluster) -> Iterator[str]:
    """A topology of racks that only this test's nodes are in; its name."""
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
    except ApiError as error:
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


def test_a_gang_goes_to_one_rack_and_its_status_says_which(cluster: Cluster, topology: str) -> None:
    ask(cluster, "a", 2, rack(), topology)
    cluster.wait_bound("a-0", "a-1")
    cluster.wait_for(lambda: "layer" in place_of(cluster, "a"), "it says where")
    place = place_of(cluster, "a")
    assert (place["layer"], place["optimal"]) == ("RackLayer", True)
    assert place["domain"] in {"r0", "r1"}
    assert place["domainsPerLayer"] == {"RackLayer": 1, "NodeTopologyLayer": 2}


def test_a_gang_waits_for_labels_and_goes_on_when_they_come(
    cluster: Cluster, topology: str
) -> None:
    ask(cluster, "a", 3, rack(), topology)
    cluster.wait_for(lambda: cluster.group_reason("a") == "NoDomainFits", "no rack takes it")
    assert "RackLayer/r0: 2" in cluster.group_message("a", "Placed")
    label(cluster, f"{cluster.namespace}-2", "r0")
    cluster.wait_bound("a-0", "a-1", "a-2")


@pytest.mark.parametrize(
    ("count", "wish", "reason"),
    [
        (2, [{"layer": "racklayer", "strategy": "MustGather"}], "UnknownLayer"),
        (2, rack("PreferGather", 8), "MultipleNotMet"),
        (5, rack("PreferGather"), "NoDomainFits"),
    ],
)
def test_a_wish_that_cannot_be_met_is_said_so(
    cluster: Cluster, topology: str, count: int, wish: Any, reason: str
) -> None:
    ask(cluster, "a", count, wish, topology)
    cluster.wait_for(lambda: cluster.group_reason("a") == reason, reason)
    cluster.gang("plain", 2)
    cluster.wait_bound("plain-0", "plain-1")


@pytest.mark.parametrize("text", ["{", "[]", '{"gatherStrategy":[{"layer":"RackLayer"}]}'])
def test_a_wish_that_cannot_be_read_is_named_and_ignored(
    cluster: Cluster, topology: str, text: str
) -> None:
    ask(cluster, "a", 2, text, topology)
    cluster.wait_bound("a-0", "a-1")
    cluster.wait_for(lambda: cluster.group_reason("a", "SpecValid") == "InvalidAnnotation", "so")
    assert WISH in cluster.group_message("a", "SpecValid")


def test_a_topology_that_does_not_exist_is_waited_for(cluster: Cluster, topology: str) -> None:
    cluster.box.client.delete(f"{TOPOLOGIES}/{topology}")
    ask(cluster, "a", 2, rack(), topology)
    cluster.wait_for(lambda: cluster.group_reason("a") == "MissingTopology", "it is missed")
    assert topology in cluster.group_message("a", "Placed")
