"""The example of network topology on 1,024 GPUs, and topologies that the server refuses."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support.operators import run_operators

from koord_sandbox import Sandbox
from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.sandbox

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/topology"
TOPOLOGIES = "/apis/scheduling.koordinator.sh/v1alpha1/clusternetworktopologies"
GROUPS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups"
NODE = {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"}
BLOCK = {"topologyLayer": "BlockLayer", "parentTopologyLayer": "SpineLayer", "labelKey": ["b"]}
SPINE = {"topologyLayer": "SpineLayer", "labelKey": ["s"]}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox() as box:
        box.add_nodes(128, "rack-h100x8")
        box.apply(ROOT / "crds")
        box.create_namespace("koord-system")
        with run_operators(box.kubeconfig, tmp_path_factory.mktemp("operators")):
            yield box


def expect(find: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < deadline, f"not seen within {seconds} s"
        time.sleep(0.2)
    return found


def condition_of(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), {})


def place_of(box: Sandbox, name: str) -> dict[str, Any]:
    group = box.client.get(f"{GROUPS}/{name}")
    is_bound = condition_of(group, "Bound").get("status") == "True"
    place: dict[str, Any] = group.get("status", {}).get("placement", {})
    return place if is_bound and "domainsPerLayer" in place else {}


@pytest.mark.timeout(300)
def test_the_example_is_placed_close_together(box: Sandbox) -> None:
    box.kubectl("apply", "-f", str(EXAMPLE / "topology.yaml"))
    ready = expect(
        lambda: condition_of(box.client.get(f"{TOPOLOGIES}/default"), "Ready"),
    )
    assert (ready["status"], ready["reason"]) == ("True", "Built")
    status = box.client.get(f"{TOPOLOGIES}/default")["status"]
    assert status["nodeCount"] == 128
    assert status["leftOut"]["count"] == 0
    assert [one["nodeNum"] for one in status["detailStatus"]].count(4) == 32
    box.kubectl("apply", "-f", str(EXAMPLE))
    job = expect(lambda: place_of(box, "training-job"))
    assert job["domainsPerLayer"] == {"SpineLayer": 1, "BlockLayer": 2, "NodeTopologyLayer": 8}
    assert (job["layer"], job["optimal"]) == ("SpineLayer", True)
    spine = expect(lambda: place_of(box, "one-spine"))
    assert spine["domainsPerLayer"] == {"SpineLayer": 1, "BlockLayer": 4, "NodeTopologyLayer": 16}
    shown = json.loads(box.kubectl("get", "podgroups.scheduling.sigs.k8s.io", "-o", "json"))
    assert len(shown["items"]) == 3
    replicas = expect(lambda: place_of(box, "replicas"))
    assert replicas["domainsPerLayer"]["SpineLayer"] == 1
    assert _blocks_of(box, "replica-0").isdisjoint(_blocks_of(box, "replica-1"))


def _blocks_of(box: Sandbox, job: str) -> set[str]:
    """Return the blocks of the workers of a job, once all have a node."""

    def find() -> set[str]:
        pods = box.client.get("/api/v1/namespaces/default/pods")["items"]
        mine = [pod for pod in pods if pod["metadata"]["labels"].get("job-name") == job]
        nodes = [pod["spec"].get("nodeName") for pod in mine]
        if len(nodes) < 4 or not all(nodes):
            return set()
        labels = [box.client.get(f"/api/v1/nodes/{node}")["metadata"]["labels"] for node in nodes]
        return {one["network.topology.nvidia.com/block"] for one in labels}

    blocks = expect(find)
    assert len(blocks) == 1
    return blocks


@pytest.mark.parametrize(
    ("layers", "text"),
    [
        ([SPINE, BLOCK, BLOCK, NODE], "Duplicate"),
        ([{**SPINE, "parentTopologyLayer": "BlockLayer"}, BLOCK, NODE], "chain"),
        ([SPINE, BLOCK, NODE, {"topologyLayer": "Hall", "labelKey": ["h"]}], "chain"),
        ([SPINE, BLOCK], "NodeTopologyLayer"),
        ([SPINE, NODE], "parentTopologyLayer"),
        ([{**SPINE, "labelKey": []}, BLOCK, NODE], "labelKey"),
        ([], "networkTopologySpec"),
    ],
)
def test_the_server_refuses_layers_that_are_not_a_tree(
    box: Sandbox, layers: list[dict[str, Any]], text: str
) -> None:
    body = yaml.safe_load((EXAMPLE / "topology.yaml").read_text("utf-8"))
    body["metadata"]["name"] = "other"
    body["spec"]["networkTopologySpec"] = layers
    with pytest.raises(SandboxApiError, match=text) as refused:
        box.client.create(TOPOLOGIES, body)
    assert refused.value.status == 422


@pytest.mark.timeout(300)
def test_changed_labels_change_the_topology(box: Sandbox) -> None:
    box.kubectl("apply", "-f", str(EXAMPLE / "topology.yaml"))
    expect(lambda: condition_of(box.client.get(f"{TOPOLOGIES}/default"), "Ready"))
    node = "/api/v1/nodes/rack-h100x8-0127"
    spine = "network.topology.nvidia.com/spine"
    before = box.client.get(node)["metadata"]["labels"][spine]

    def left_out() -> int:
        status = box.client.get(f"{TOPOLOGIES}/default").get("status", {})
        count: int = status.get("leftOut", {}).get("count", -1)
        return count

    box.client.patch(node, {"metadata": {"labels": {spine: None}}})
    expect(lambda: left_out() == 1)
    box.client.patch(node, {"metadata": {"labels": {spine: before}}})
    expect(lambda: left_out() == 0)
