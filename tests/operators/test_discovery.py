"""Definitions that are installed, replaced or removed while the operators run, and Koordinator's
scheduler that is started beside them.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.operators import conftest
from tests.operators.conftest import ROOT, Cluster, Operators, open_cluster
from tests.operators.test_topology import CHOICE, TOPOLOGIES, WISH, label
from tests.support.operators import run_operators

from koord_sandbox import Sandbox

pytestmark = pytest.mark.sandbox

DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
DEVICE_CRD = "devices.scheduling.koordinator.sh"
KOORDINATOR = "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest.Cluster, "patience", 60.0)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    """A cluster with all that one process of all operators needs."""
    with Sandbox() as box:
        box.apply(ROOT / "crds")
        box.kubectl("apply", "-k", str(ROOT / "manifests/base"))
        box.create_namespace("koordinator-system")
        yield box


@pytest.fixture
def cluster(box: Sandbox, tmp_path: Path) -> Iterator[Cluster]:
    operators = Operators(box, tmp_path)
    operators.start()
    with open_cluster(box, operators) as view:
        yield view
    assert operators.stop() == 0


def is_accepted(cluster: Cluster, name: str) -> bool:
    device = cluster.box.client.get(f"{DEVICES}/{name}")
    return cluster.condition(device, "Accepted")[0] == "True"


def make_device(cluster: Cluster, name: str) -> None:
    version = "scheduling.koordinator.sh/v1alpha1"
    body = {"apiVersion": version, "kind": "Device", "metadata": {"name": name}, "spec": {}}
    cluster.box.client.create(DEVICES, body)
    cluster.expect(lambda: is_accepted(cluster, name), f"{name} is validated")


def test_replaced_definition_is_watched_again(cluster: Cluster) -> None:
    make_device(cluster, "before")
    cluster.box.kubectl("delete", "crd", DEVICE_CRD, "--timeout=30s")

    def events() -> list[dict[str, Any]]:
        path = "/apis/events.k8s.io/v1/namespaces/koord-system/events"
        items: list[dict[str, Any]] = cluster.box.client.get(path)["items"]
        return [one for one in items if one["reason"] == "DefinitionMissing"]

    cluster.expect(lambda: bool(events()), "an event says so")
    assert DEVICE_CRD in events()[0]["note"]
    cluster.box.apply(ROOT / "crds")
    make_device(cluster, "after")
    cluster.add_nodes(1)
    cluster.pod("a", gpus=1)
    cluster.expect_bound("a")


@contextmanager
def koordinator(box: Sandbox) -> Iterator[None]:
    """Renew the Lease of Koordinator's scheduler while the context is open, then release it."""
    stop = threading.Event()
    lease = {"metadata": {"name": "koord-scheduler"}, "spec": {"leaseDurationSeconds": 15}}
    box.client.create(KOORDINATOR, lease)

    def renew() -> None:
        while not stop.wait(1.0):
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            spec = {"holderIdentity": "host_1", "renewTime": now}
            box.client.patch(f"{KOORDINATOR}/koord-scheduler", {"spec": spec})

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        released = {"spec": {"holderIdentity": ""}}
        box.client.patch(f"{KOORDINATOR}/koord-scheduler", released)


def test_nothing_is_placed_while_koordinators_scheduler_runs(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.pod("before", gpus=1)
    cluster.expect_bound("before")
    log = cluster.operators.log
    with koordinator(cluster.box):
        cluster.expect(lambda: "host_1" in log.read_text(), "it is noticed")
        cluster.pod("meanwhile", gpus=1)
        time.sleep(3.0)
        assert "meanwhile" not in cluster.bound()
    cluster.expect_bound("meanwhile")


@pytest.fixture(scope="module")
def bare_box() -> Iterator[Sandbox]:
    """A cluster with only those definitions that placement requires."""
    with Sandbox() as box:
        for name in ("podgroups", "elasticquotas"):
            box.apply(ROOT / f"crds/scheduling.sigs.k8s.io_{name}.yaml")
        box.kubectl("apply", "-k", str(ROOT / "manifests/base"))
        # Its operator runs as the administrator, whom they would limit.
        box.kubectl("delete", "validatingadmissionpolicybindings", "--all")
        yield box


def make_topology(cluster: Cluster) -> dict[str, Any]:
    layers = [
        {"topologyLayer": "RackLayer", "labelKey": [f"{cluster.namespace}/rack"]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "RackLayer"},
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "metadata": {"name": cluster.namespace},
        "spec": {"networkTopologySpec": layers},
    }


def test_kind_that_is_installed_later_is_read(bare_box: Sandbox, tmp_path: Path) -> None:
    idle = Operators(bare_box, tmp_path)
    idle.log.touch()
    with (
        run_operators(bare_box.kubeconfig, tmp_path, "--operator=placement"),
        open_cluster(bare_box, idle) as cluster,
    ):
        for at, node in enumerate(cluster.add_nodes(4)):
            label(cluster, node, f"r{at // 2}")
        wish = {"gatherStrategy": [{"layer": "RackLayer", "strategy": "MustGather"}]}
        annotations = {WISH: json.dumps(wish), CHOICE: cluster.namespace}
        cluster.pod_group("rack", 2, **annotations)
        for at in range(2):
            cluster.pod(f"rack-{at}", group="rack")
        cluster.expect_pod("rack-0", "MissingTopology")
        bare_box.apply(ROOT / "crds/scheduling.koordinator.sh_clusternetworktopologies.yaml")
        bare_box.client.create(TOPOLOGIES, make_topology(cluster))
        cluster.expect_bound("rack-0", "rack-1")
