"""Gangs of which a member can be placed by kube-scheduler alone: they never start in part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from koord.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

THEIRS = "default-scheduler"
HOSTNAME = "kubernetes.io/hostname"
LATE = "WaitForFirstConsumer"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
VOLUMES = "/api/v1/persistentvolumes"


@pytest.fixture
def storage(cluster: Cluster) -> Iterator[Cluster]:
    """Remove what a test makes outside its namespace."""
    yield cluster
    client, space = cluster.box.client, cluster.namespace
    for path in (CLASSES, VOLUMES):
        for one in client.get(path)["items"]:
            if one["metadata"]["name"].startswith(space):
                client.delete(f"{path}/{one['metadata']['name']}")


def add_class(cluster: Cluster, provisioner: str, mode: str = LATE, **more: Any) -> None:
    name = {"metadata": {"name": cluster.namespace}}
    body = {**name, "provisioner": provisioner, "volumeBindingMode": mode, **more}
    cluster.box.client.create(CLASSES, body)


def add_claim(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """Create a claim, and return the volumes of a pod that uses it."""
    spec = {
        "storageClassName": cluster.namespace,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Gi"}},
    }
    path = f"/api/v1/namespaces/{cluster.namespace}/persistentvolumeclaims"
    cluster.box.client.create(path, {"metadata": {"name": name}, "spec": spec})
    return [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]


def add_volume(cluster: Cluster, node: str) -> None:
    terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}]
    spec = {
        "storageClassName": cluster.namespace,
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "10Gi"},
        "local": {"path": "/d"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    body = {"metadata": {"name": f"{cluster.namespace}-{node}"}, "spec": spec}
    cluster.box.client.create(VOLUMES, body)


def start(cluster: Cluster, **of_the_first: Any) -> None:
    """Create a gang of two, and a pod that is placed after it."""
    cluster.pod_group("g", 2)
    cluster.pod("g-0", group="g", scheduler=THEIRS, **of_the_first)
    cluster.pod("g-1", group="g", scheduler=THEIRS)


def expect_held(cluster: Cluster) -> None:
    """Both wait behind their gates, and stay there while another pod is placed."""
    cluster.expect_pod("g-0", "PlacementUnknown")
    cluster.expect_group("g", "PlacementUnknown")
    cluster.pod("after")
    cluster.expect_bound("after")
    for name in ("g-0", "g-1"):
        assert cluster.get_pod(name)["spec"]["schedulingGates"], name


def koord(cluster: Cluster, *words: str) -> str:
    options = ["--kubeconfig", str(cluster.box.kubeconfig), "-n", cluster.namespace]
    return CliRunner().invoke(app, [*words, *options]).stdout


def test_a_gang_waits_while_a_volume_is_bound_late(storage: Cluster) -> None:
    nodes = storage.add_nodes(4)
    add_class(storage, "kubernetes.io/no-provisioner")
    add_volume(storage, nodes[3])
    start(storage, volumes=add_claim(storage, "c"))
    expect_held(storage)
    shown = " ".join(koord(storage, "explain", "pg/g").split())
    assert f"{storage.namespace}/c of StorageClass {storage.namespace}" in shown
    assert "Let a pod of its own use" in shown
    # The way out: another pod uses the claim, and kube-scheduler binds it.
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    storage.pod("first", scheduler=THEIRS, gated=False, volumes=volumes, gpus=0)
    storage.expect_bound("g-0", "g-1")
    assert storage.bound()["g-0"] == nodes[3]


def test_a_gang_waits_where_a_volume_may_have_to_be_made(storage: Cluster) -> None:
    nodes = storage.add_nodes(4)
    labels = [{"key": HOSTNAME, "values": [nodes[3]]}]
    topologies = [{"matchLabelExpressions": labels}]
    add_class(storage, "example.com/none", allowedTopologies=topologies)
    start(storage, volumes=add_claim(storage, "c"))
    expect_held(storage)


def add_resource_claim(cluster: Cluster, of_class: str = "gpu") -> list[dict[str, Any]]:
    """Create a claim for a device that no driver has, and return the claims of a pod with it."""
    body = {
        "metadata": {"name": "c"},
        "spec": {
            "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": of_class}}]},
        },
    }
    path = f"/apis/resource.k8s.io/v1/namespaces/{cluster.namespace}/resourceclaims"
    cluster.box.client.create(path, body)
    return [{"name": "gpu", "resourceClaimName": "c"}]


def test_a_gang_waits_with_a_resource_claim(cluster: Cluster) -> None:
    cluster.add_nodes(3)
    start(cluster, resourceClaims=add_resource_claim(cluster))
    expect_held(cluster)


def test_a_single_pod_goes_where_its_volume_may_be(storage: Cluster) -> None:
    nodes = storage.add_nodes(4)
    add_class(storage, "kubernetes.io/no-provisioner")
    volumes = add_claim(storage, "c")
    storage.pod("p", scheduler=THEIRS, volumes=volumes)
    storage.expect_pod("p", "InsufficientNodes")
    add_volume(storage, nodes[3])
    storage.expect_bound("p")
    assert storage.bound()["p"] == nodes[3]


def test_a_single_pod_goes_where_its_resource_claim_can_be_served(cluster: Cluster) -> None:
    """Only kube-scheduler knows the node, so the pod is released without one."""
    client, api = cluster.box.client, "/apis/resource.k8s.io/v1"
    node = cluster.add_nodes(4)[2]
    name = cluster.namespace
    client.create(f"{api}/deviceclasses", {"metadata": {"name": name}, "spec": {}})
    slices = {
        "driver": "example.com",
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d0"}],
    }
    client.create(f"{api}/resourceslices", {"metadata": {"name": name}, "spec": slices})
    try:
        claims = add_resource_claim(cluster, name)
        cluster.pod("p", scheduler=THEIRS, resourceClaims=claims)
        cluster.expect_bound("p")
        assert cluster.bound()["p"] == node
    finally:
        client.delete(f"{api}/resourceslices/{name}")
        client.delete(f"{api}/deviceclasses/{name}")


def test_what_kube_scheduler_says_of_a_released_pod_is_shown(cluster: Cluster) -> None:
    """A gang that has started replaces one member, and nothing else starts with it."""
    cluster.add_nodes(3)
    cluster.gang("g", 2, scheduler=THEIRS)
    cluster.expect_bound("g-0", "g-1")
    cluster.delete_pod("g-0")
    claims = add_resource_claim(cluster)
    cluster.pod("g-0", group="g", scheduler=THEIRS, resourceClaims=claims)
    said = "nodes are available"
    cluster.expect(lambda: said in cluster.group_message("g", "Degraded"), "the gang tells it")
    for target in ("pod/g-0", "pg/g"):
        shown = " ".join(koord(cluster, "explain", target).split())
        assert "its scheduler does not bind it" in shown, shown
        assert said in shown, shown
    answer = json.loads(koord(cluster, "explain", "pod/g-0", "-o", "json"))
    assert answer["reason"]["code"] == "RefusedByScheduler"
