"""Nodes come for a gang that lacks them: by an autoscaler that reads pods as the real ones do.

``ScalerStandIn`` stands in for them: it reads what both are known to read.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import ROOT, Cluster, Operators

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = "autoscaler: {signal: mark, delaySeconds: 0}\n"
ASKING = "autoscaler: {signal: provisioningRequest, delaySeconds: 0}\n"
STANDING_IN = "autoscaler: {signal: placeholder, delaySeconds: 0}\n"
PLACEHOLDERS = "/api/v1/namespaces/koord-placeholders/pods"
REQUESTS = "provisioningrequests.autoscaling.x-k8s.io"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass
class ScalerStandIn:
    """Adds a node for each eight GPUs that pods lack which no scheduler found a node for."""

    cluster: Cluster
    bought: int = 0

    def asks(self, pod: dict[str, Any]) -> bool:
        """Whether a pod makes it add nodes: neither placed nor nominated, and unschedulable."""
        status = pod["status"]
        if pod["spec"].get("nodeName") or status.get("nominatedNodeName"):
            return False
        found = [each for each in status.get("conditions", ()) if each["type"] == "PodScheduled"]
        return [(each["status"], each["reason"]) for each in found] == [("False", "Unschedulable")]

    def marked(self) -> set[str]:
        return {name for name, pod in self.cluster.pods().items() if self.asks(pod)}

    def act(self, free: int) -> None:
        """Add nodes for the pods that ask and do not fit on ``free`` nodes."""
        lacking = len(self.marked()) - free
        if lacking > 0:
            self.cluster.add_nodes(lacking)
            self.bought += lacking


def run_with(settings: str, quiet: Cluster, folder: Path) -> Iterator[Cluster]:
    running = Operators(quiet.box, folder, settings=settings)
    cluster = Cluster(quiet.box, running, quiet.namespace)
    running.start()
    try:
        yield cluster
        assert running.is_running(), running.log.read_text()[-3000:]
    finally:
        for pod in cluster.pods():
            cluster.delete_pod(pod)
        cluster.remove_nodes()
        running.stop()


@pytest.fixture
def asking(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Operators that write ProvisioningRequests, whose definition takes every field."""
    box, definition = quiet_cluster.box, make_definition()
    overlay = str(ROOT / "manifests/overlays/autoscaler")
    box.kubectl("apply", "-k", overlay)
    box.client.create(DEFINITIONS, definition)
    box.kubectl("wait", "--for=condition=Established", f"crd/{REQUESTS}", "--timeout=30s")
    try:
        yield from run_with(ASKING, quiet_cluster, tmp_path)
    finally:
        box.client.delete(f"{DEFINITIONS}/{REQUESTS}")
        box.kubectl("delete", "-k", overlay)


@pytest.fixture
def standing_in(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Operators that create placeholders, under the policy that limits these."""
    overlay = str(ROOT / "manifests/overlays/placeholders")
    quiet_cluster.box.kubectl("apply", "-k", overlay)
    try:
        yield from run_with(STANDING_IN, quiet_cluster, tmp_path)
    finally:
        quiet_cluster.box.kubectl("delete", "-k", overlay)


def make_definition() -> dict[str, Any]:
    plural, _, group = REQUESTS.partition(".")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    version |= {"schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": REQUESTS,
            # Names below k8s.io are kept for Kubernetes.
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "ProvisioningRequest", "plural": plural},
            "versions": [version],
        },
    }


@pytest.fixture
def elastic(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    yield from run_with(SETTINGS, quiet_cluster, tmp_path)


def test_a_gang_of_eight_gets_the_nodes_that_it_lacks_and_no_more(elastic: Cluster) -> None:
    scaler = ScalerStandIn(elastic)
    elastic.add_nodes(3)
    elastic.gang("train", 8)
    names = [f"train-{at}" for at in range(8)]
    elastic.expect(lambda: scaler.marked() == set(names), "all members are marked")
    scaler.act(free=3)
    elastic.expect_bound(*names)
    scaler.act(free=0)
    assert (scaler.bought, scaler.marked()) == (5, set())
    condition = elastic.condition(elastic.get_pod("train-0"), "PodScheduled")
    assert condition[0] == "True"


def test_a_mark_goes_with_its_reason(elastic: Cluster) -> None:
    scaler = ScalerStandIn(elastic)
    elastic.add_nodes(1)
    elastic.gang("train", 2)
    elastic.expect(lambda: len(scaler.marked()) == 2, "both members are marked")
    elastic.delete_pod("train-1")  # now it is incomplete
    elastic.expect(lambda: not scaler.marked(), "the mark is taken off")
    assert elastic.condition(elastic.get_pod("train-0"), "PodScheduled")[1] == "SchedulingGated"


def test_a_gang_has_one_request_for_all_of_its_members(asking: Cluster) -> None:
    client, namespace = asking.box.client, asking.namespace
    path = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{namespace}/provisioningrequests"
    asking.add_nodes(1)
    asking.gang("train", 2)

    def count() -> int:
        with suppress(SandboxApiError):  # the definition has just been made
            return len(client.get(path)["items"])
        return 0

    asking.expect(lambda: count() == 1, "nodes are asked for")
    (request,) = client.get(path)["items"]
    (pods,) = request["spec"]["podSets"]
    assert pods["count"] == 2
    assert request["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"
    templates = f"/api/v1/namespaces/{namespace}/podtemplates"
    name = pods["podTemplateRef"]["name"]

    def find_template() -> Any:
        with suppress(SandboxApiError):  # it is made after the request, which owns it
            return client.get(f"{templates}/{name}")
        return None

    asking.expect(lambda: find_template() is not None, "its template is there")
    template = find_template()
    assert template["metadata"]["ownerReferences"][0]["uid"] == request["metadata"]["uid"]
    assert "schedulingGates" not in template["template"]["spec"]
    assert asking.condition(asking.get_pod("train-0"), "PodScheduled")[1] == "SchedulingGated"
    asking.add_nodes(1)
    asking.expect_bound("train-0", "train-1")


def test_placeholders_look_unschedulable_in_place_of_members(standing_in: Cluster) -> None:
    cluster, client = standing_in, standing_in.box.client
    scaler = ScalerStandIn(cluster)
    cluster.add_nodes(1)
    cluster.gang("train", 2)

    def asking() -> list[dict[str, Any]]:
        return [pod for pod in client.get(PLACEHOLDERS)["items"] if scaler.asks(pod)]

    cluster.expect(lambda: len(asking()) == 2, "each member has a placeholder")
    assert not scaler.marked(), "the members are as the API server made them"
    requests = asking()[0]["spec"]["containers"][0]["resources"]["requests"]
    assert requests["nvidia.com/gpu"] == "8"
    assert {pod["spec"]["priority"] for pod in asking()} == {-10}
    cluster.add_nodes(1)
    cluster.expect_bound("train-0", "train-1")
    cluster.expect(lambda: not client.get(PLACEHOLDERS)["items"], "they go with their reason")
