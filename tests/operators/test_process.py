"""Start and end of the process, while PodGroups are created and deleted."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.operators.conftest import LEASE, Cluster, read_lease
from tests.support.operators import run_operators

from koord.kube.reflector import WatchTimes

LEADERSHIP_LOST = 3
SOON_SECONDS = 5.0
"""It takes less than two seconds; waiting for Kopf would take seven or more."""


@contextmanager
def gangs_coming(cluster: Cluster) -> Iterator[None]:
    """Create gangs until the context ends."""
    stop = threading.Event()

    def create() -> None:
        at = 0
        while not stop.wait(0.1):
            cluster.gang(f"g{at}", 2, gpus=1)
            at += 1

    thread = threading.Thread(target=create)
    thread.start()
    try:
        cluster.expect_bound("g9-0", "g9-1")
        yield
    finally:
        stop.set()
        thread.join()


def test_process_ends_soon_after_sigterm(cluster: Cluster) -> None:
    cluster.add_nodes(8)
    with gangs_coming(cluster):
        assert read_lease(cluster.box)["holderIdentity"]
        cluster.operators.terminate()
        assert cluster.operators.wait(SOON_SECONDS) == 0
        assert not read_lease(cluster.box)["holderIdentity"]
    cluster.operators.start()


def test_process_ends_soon_after_losing_the_lease(cluster: Cluster) -> None:
    cluster.add_nodes(8)
    with gangs_coming(cluster):
        cluster.box.client.patch(LEASE, {"spec": {"holderIdentity": "another"}})
        assert cluster.operators.wait(SOON_SECONDS) == LEADERSHIP_LOST
        assert "lost the leadership" in cluster.operators.log.read_text()
    cluster.box.client.delete(LEASE)
    cluster.operators.start()


def put_flag(port: int, flag: str, value: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("PUT", f"/debug/flags/{flag}", body=value)
        answer = connection.getresponse()
        assert (answer.status, answer.read()[:16]) == (200, b"successfully set")


def test_debug_page_is_served_on_loopback(quiet_cluster: Cluster, tmp_path: Path) -> None:
    cluster = quiet_cluster
    cluster.add_nodes(1)
    cluster.pod("placed", gpus=1)
    cluster.pod("waits", gpus=9)
    kubeconfig = cluster.box.kubeconfig_for("koord-system", "koord-operators")
    settings = "diagnosis: {enabled: true}\n"
    with run_operators(kubeconfig, tmp_path, settings=settings) as operators:
        cluster.expect_bound("placed")
        cluster.expect(lambda: bool(cluster.pod_reason("waits")), "it says why")
        status, text = operators.get("/debug/state")
        node = cluster.get_pod("placed")["spec"]["nodeName"]
        _, diagnosed = operators.get(f"/apis/v1/nodes/{node}")
        assert json.loads(diagnosed)["pods"] == [f"{cluster.namespace}/placed"]
        for flag in ("s", "d"):
            put_flag(operators.port, flag, "1")
        cluster.pod("asked", gpus=9)
        name = f"{cluster.namespace}/asked"
        cluster.expect(lambda: f"dump diagnosis for {name}" in operators.read_log(), "it is dumped")
        assert f"scores for Pod: {name}, feasibleNodes: 0" in operators.read_log()
    state = json.loads(text)
    assert status == 200
    pods = state["reflectors"]["pods"]
    assert pods["synced"]
    assert pods["objects"] == state["pods"] >= 2
    assert pods["silence_seconds"] < WatchTimes().silence
    uid = cluster.get_pod("waits")["metadata"]["uid"]
    assert uid in state["blocked"]
    assert state["held_up"] == {}


def test_it_says_when_it_is_ready_and_nothing_needless(quiet_cluster: Cluster) -> None:
    operators = quiet_cluster.operators
    quiet_cluster.add_nodes(1)
    before = len(operators.log.read_text())
    operators.start()
    quiet_cluster.pod("a", gpus=1)
    quiet_cluster.expect_bound("a")
    operators.stop()
    lines = operators.log.read_text()[before:].splitlines()
    ready = [line for line in lines if "Ready to plan" in line]
    assert len(ready) == 1
    assert "nodes=" in ready[0]
    assert "pods=" in ready[0]
    assert [line for line in lines if "signal" in line] == []
    operators.start()
