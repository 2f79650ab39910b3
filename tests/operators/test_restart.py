"""`koord run` is killed at a write and started again: every gang is bound whole, each pod once.

The process is the shipped one, with its Lease, its fence and its keys. A proxy kills it before or
after a write to a pod reaches the API server; nothing else stands in for the operators.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from aiohttp import web
from tests.operators.conftest import Cluster, delete_lease, read_lease
from tests.operators.judge import count_bindings, find_faults, find_torn_gangs
from tests.operators.replicas import Replica
from tests.support.fault_proxy import Do, FaultProxy, ProxyThread, open_fault_proxy

from koord.kube.config import find_credentials

MEMBERS = 3
ROUNDS = 3
KINDS = {
    "gated": {},
    "ungated": {"gated": False},
    "pinned": {"scheduler": "default-scheduler"},
}


class Killed:
    """The operators behind a proxy that kills them at a write."""

    def __init__(self, cluster: Cluster, thread: ProxyThread, directory: Path) -> None:
        self.cluster = cluster
        self.process = Replica(cluster.box, directory / "replica", thread.proxy.server)
        self._thread = thread

    def run_until_killed(self, writes: int, *, is_before: bool) -> str:
        """Start, and kill at the n-th write to a pod of the test; return who held the Lease."""
        numbers = count(1)

        def is_nth(request: web.Request) -> bool:
            is_write = request.method != "GET" and request.path.startswith(self.cluster.pods_path)
            is_counted = is_write and not request.path.endswith("/status")
            return is_counted and next(numbers) == writes

        def plan(proxy: FaultProxy) -> None:
            do = Do.DROP if is_before else Do.LOSE_REPLY
            proxy.plan(is_nth, do, then=lambda: os.kill(self.process.pid, signal.SIGKILL))

        self._thread.do(plan)
        self.process.start()
        self.cluster.expect(lambda: not self.process.is_running(), f"killed at write {writes}")
        assert self.process.wait() == -signal.SIGKILL, self.process.read_log()
        self._thread.do(FaultProxy.heal)
        return str(read_lease(self.cluster.box)["holderIdentity"])

    def run_to_the_end(self, names: list[str]) -> None:
        """Start, and stop regularly once all pods are bound and nothing is left to write."""
        self.process.start()
        self.cluster.expect_bound(*names)
        self.cluster.expect(lambda: self.process.leads, "it leads")
        assert self.process.stop() == 0, self.process.read_log()
        assert "Traceback" not in self.process.log.read_text()
        assert read_lease(self.cluster.box)["holderIdentity"] == ""

    def judge(self, names: list[str]) -> None:
        cluster = self.cluster
        assert find_faults(cluster) == []
        assert find_torn_gangs(cluster) == []
        assert len({cluster.bound()[name] for name in names}) == MEMBERS


@pytest.fixture
def killed(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Killed]:
    kubeconfig = quiet_cluster.box.kubeconfig_for("koord-system", "koord-operators")
    quiet_cluster.patience = 60.0
    with open_fault_proxy(find_credentials(str(kubeconfig))) as thread:
        killed = Killed(quiet_cluster, thread, tmp_path)
        yield killed
        killed.process.end()
        delete_lease(quiet_cluster.box)


def draw_points(kind: str) -> list[tuple[int, bool]]:
    """Draw writes, and whether the process is killed before or after the server carries them out.

    The model tries every write; here it is a few of them, against the real API server.
    """
    most = MEMBERS if kind == "ungated" else 2 * MEMBERS
    points = [(write, is_before) for write in range(1, most + 1) for is_before in (True, False)]
    return random.Random(kind).sample(points, ROUNDS)  # noqa: S311 - repeatable


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_restart_after_any_write(killed: Killed, kind: str) -> None:
    cluster = killed.cluster
    cluster.add_nodes(MEMBERS * ROUNDS)
    for number, (writes, is_before) in enumerate(draw_points(kind)):
        gang = f"g{number}"
        names = [f"{gang}-{at}" for at in range(MEMBERS)]
        cluster.gang(gang, MEMBERS, **KINDS[kind])
        killed.run_until_killed(writes, is_before=is_before)
        delete_lease(cluster.box)  # its holder is dead, and nobody has to wait until it expires
        killed.run_to_the_end(names)
        killed.judge(names)


@pytest.mark.timeout(120)
def test_a_killed_leader_keeps_its_lease_until_it_expires(killed: Killed) -> None:
    cluster = killed.cluster
    cluster.add_nodes(MEMBERS)
    cluster.gang("a", MEMBERS)
    names = [f"a-{at}" for at in range(MEMBERS)]
    dead = killed.run_until_killed(MEMBERS + 2, is_before=False)
    writes = len(cluster.writes())
    killed.process.start()
    cluster.expect(lambda: killed.process.is_synced, "the new process follows")
    while read_lease(cluster.box)["holderIdentity"] == dead:
        assert len(cluster.writes()) == writes, "written without the Lease"
        time.sleep(0.1)
    cluster.expect_bound(*names)
    killed.judge(names)
    assert count_bindings(cluster) == dict.fromkeys(names, 1)


def test_operators_killed_while_gangs_arrive(cluster: Cluster) -> None:
    cluster.add_nodes(12)
    for at in range(6):
        cluster.gang(f"g{at}", 2)
        time.sleep(0.05 * at)
        cluster.operators.kill()
        cluster.operators.start()
    cluster.expect(lambda: len(cluster.bound()) == 12, "all gangs are bound")
    assert len(set(cluster.bound().values())) == 12


def test_operators_exit_with_zero_after_sigterm(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.gang("a", 2)
    cluster.expect_bound("a-0", "a-1")
    assert cluster.operators.stop() == 0
    cluster.operators.start()
