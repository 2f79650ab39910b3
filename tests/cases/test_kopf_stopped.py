"""Without Kopf the operators of custom resources do not work; pods are placed all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.operators.conftest import Operators
from tests.operators.test_devices import make_device
from tests.operators.test_profiles import Profiles
from tests.operators.test_quotas import Quotas
from tests.operators.test_reservations import PATH as RESERVATIONS
from tests.operators.test_reservations import Reservations
from tests.operators.test_topology import TOPOLOGIES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.operators.conftest import Cluster

DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
WITHOUT_KOPF = """
from koord.runtime.kopf_host import KopfHost

KopfHost.operate = lambda self: None
"""
BINDING = "koord-placement"
"""What the binder writes of a reservation: its node."""


def create_one_of_each(cluster: Cluster) -> dict[str, str]:
    """Return kind -> path."""
    first, second = cluster.add_nodes(2)
    name, client = cluster.namespace, cluster.box.client
    layers = [
        {"topologyLayer": "RackLayer", "labelKey": [f"{name}/rack"]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "RackLayer"},
    ]
    topology = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "metadata": {"name": name},
        "spec": {"networkTopologySpec": layers},
    }
    client.create(TOPOLOGIES, topology)
    client.create(DEVICES, make_device(second))
    quotas, reservations = Quotas(cluster), Reservations(cluster)
    quotas.create("q", 8, 8)
    Profiles(cluster).create("p", f"{name}-root", "pool")
    reservations.create("r", 2)
    cluster.gang("g", 2, gpus=1)
    assert first
    return {
        "PodGroup": f"{cluster.groups_path}/g",
        "ElasticQuota": f"{quotas._path}/{quotas.name('q')}",
        "ElasticQuotaProfile": f"{Profiles(cluster)._path}/p",
        "ClusterNetworkTopology": f"{TOPOLOGIES}/{name}",
        "Device": f"{DEVICES}/{second}",
        "Reservation": f"{RESERVATIONS}/{reservations.name('r')}",
    }


def managers_of(obj: dict[str, Any]) -> set[str]:
    """Return who has written its status."""
    entries = obj["metadata"]["managedFields"]
    return {entry["manager"] for entry in entries if entry.get("subresource") == "status"}


def test_without_kopf_pods_are_placed_and_no_operator_works(
    quiet_cluster: Cluster, tmp_path: Path
) -> None:
    cluster = quiet_cluster
    client = cluster.box.client
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_KOPF)
    stopped = Operators(cluster.box, tmp_path)
    stopped.environment = {"PYTHONPATH": str(tmp_path)}
    stopped.start()
    paths: dict[str, str] = {}
    try:
        paths = create_one_of_each(cluster)
        cluster.expect_bound("g-0", "g-1")
        reservation = paths["Reservation"]
        cluster.expect(
            lambda: bool(client.get(reservation).get("status", {}).get("nodeName")),
            "the reservation has a node",
        )
        stopped.stop()
        written = {kind: managers_of(client.get(path)) for kind, path in paths.items()}
        assert written == {kind: ({BINDING} if kind == "Reservation" else set()) for kind in paths}
        assert not client.get(paths["ElasticQuota"])["metadata"].get("finalizers")
        cluster.operators.start()
        expected = {kind: {author_of(kind)} for kind in paths}
        expected["Reservation"].add(BINDING)
        cluster.expect(
            lambda: (
                expected == {kind: managers_of(client.get(path)) for kind, path in paths.items()}
            ),
            "one author has written each status",
        )
    finally:
        stopped.end()
        for kind in ("ClusterNetworkTopology", "Device", "Reservation"):
            client.delete(paths[kind])


def author_of(kind: str) -> str:
    name = kind.removeprefix("Cluster").lower()
    return f"koord-{name}"
