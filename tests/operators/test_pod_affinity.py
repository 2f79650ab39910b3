"""Pod affinity, topology spread and volumes, as enforced by the operators."""

from collections import Counter
from typing import Any

from tests.operators.conftest import Cluster

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
BY_APP = {"matchLabels": {"app": "web"}}
WEB = {"app": "web"}
APART = {"podAntiAffinity": {REQUIRED: [{"topologyKey": HOSTNAME, "labelSelector": BY_APP}]}}


def put_in_zones(cluster: Cluster, nodes: list[str]) -> dict[str, str]:
    """Label nodes with zones a, b and c in turn; return node -> zone."""
    zones = {name: "abc"[at % 3] for at, name in enumerate(nodes)}
    for name, zone in zones.items():
        body = {"metadata": {"labels": {ZONE: zone}}}
        cluster.box.client.patch(f"/api/v1/nodes/{name}", body)
    return zones


def bind_claim(cluster: Cluster, name: str, node: str) -> list[dict[str, Any]]:
    """Create a claim bound to a local volume of a node; return the volumes of a pod."""
    client, space = cluster.box.client, cluster.namespace
    shared = {"storageClassName": "", "accessModes": ["ReadWriteOnce"]}
    size = {"storage": "1Gi"}
    field = {"key": HOSTNAME, "operator": "In", "values": [node]}
    spec = {
        **shared,
        "capacity": size,
        "local": {"path": "/nowhere"},
        "claimRef": {"namespace": space, "name": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [field]}]}},
    }
    volume = f"{space}-{name}"
    client.create("/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": spec})
    claim = {
        "metadata": {"name": name},
        "spec": {**shared, "resources": {"requests": size}, "volumeName": volume},
    }
    client.create(f"/api/v1/namespaces/{space}/persistentvolumeclaims", claim)
    return [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]


def test_gang_with_pod_anti_affinity_is_placed_whole_or_not_at_all(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.gang("a", 3, gpus=1, labels=WEB, affinity=APART)
    cluster.expect_group("a", "InsufficientNodes")
    text = cluster.group_message("a")
    assert "all 2 nodes didn't match pod anti-affinity rules" in text
    assert "Room for 2 of 3 pods" in text
    assert "1 more empty node as large as the largest one would be enough" in text
    assert cluster.bound() == {}
    cluster.add_nodes(1)
    cluster.expect_bound("a-0", "a-1", "a-2")
    assert len(set(cluster.bound().values())) == 3


def test_existing_anti_affinity_is_respected(cluster: Cluster) -> None:
    first, second = cluster.add_nodes(2)
    pinned = {"test": cluster.namespace, HOSTNAME: first}
    cluster.pod("shy", gpus=1, nodeSelector=pinned, affinity=APART)
    cluster.expect_bound("shy")
    cluster.gang("a", 3, gpus=1, labels=WEB)
    cluster.expect_bound("a-0", "a-1", "a-2")
    assert {cluster.bound()[f"a-{at}"] for at in range(3)} == {second}


def test_members_are_spread_over_zones(cluster: Cluster) -> None:
    zones = put_in_zones(cluster, cluster.add_nodes(4))
    even = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": BY_APP,
    }
    cluster.gang("a", 6, gpus=1, labels=WEB, topologySpreadConstraints=[even])
    cluster.expect_bound(*(f"a-{at}" for at in range(6)))
    assert Counter(zones[node] for node in cluster.bound().values()) == {"a": 2, "b": 2, "c": 2}


def test_pod_goes_to_the_node_of_its_bound_volume(cluster: Cluster) -> None:
    nodes = cluster.add_nodes(3)
    for at, node in enumerate(nodes):
        cluster.pod(f"p{at}", gpus=1, volumes=bind_claim(cluster, f"c{at}", node))
    cluster.expect_bound("p0", "p1", "p2")
    assert cluster.bound() == {f"p{at}": node for at, node in enumerate(nodes)}


def test_claim_with_delayed_binding_needs_kube_scheduler(cluster: Cluster) -> None:
    client, space = cluster.box.client, cluster.namespace
    cluster.add_nodes(1)
    client.create(
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "metadata": {"name": space},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    claim = {
        "metadata": {"name": "late"},
        "spec": {
            "storageClassName": space,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "late"}}]
    cluster.pod("p", gpus=1, volumes=volumes)
    cluster.expect_pod("p", "VolumeNotReady")
    client.create(f"/api/v1/namespaces/{space}/persistentvolumeclaims", claim)
    cluster.expect_pod("p", "NeedsKubeScheduler")
