"""Plans that take far too long: the Lease is renewed, and probes are answered, meanwhile.

The plan is held up by a quota hook, which is foreign code that runs in the planning loop.
"""

import http.client
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.operators.conftest import Cluster, delete_lease, read_lease
from tests.operators.replicas import Pair, Replica
from tests.operators.test_quotas import Quotas

from koord.kube.election import LEASE_SECONDS

SLOW_SECONDS = LEASE_SECONDS + 5
SILENT_SECONDS = 10
"""Shorter than it is, to save time."""
SLOW_GPUS, ENDLESS_GPUS = 7, 6
"""GPUs of a pod whose check takes long, and of one whose check never ends."""
LEADERSHIP_LOST = 3
HOOK = f"""
import time

from koord.core.quota.hooks import QuotaHook
from koord.runtime import election


class Slow(QuotaHook):
    def __init__(self):
        self.seconds = {{{SLOW_GPUS}: {SLOW_SECONDS}, {ENDLESS_GPUS}: 1e6}}

    def check_unit(self, quota, used, request):
        gpus = request.get("nvidia.com/gpu")
        if gpus == {ENDLESS_GPUS}:
            election.SILENT_SECONDS = {SILENT_SECONDS}
        until = time.monotonic() + self.seconds.pop(gpus, 0)
        while time.monotonic() < until:
            pass
        return ""
"""


class ProbedReplica(Replica):
    """A replica whose probes are asked, as a kubelet does."""

    def probe(self, path: str) -> tuple[int, str]:
        ports = re.findall(r"Serving HTTP .*port=(\d+)", self.read_log())
        connection = http.client.HTTPConnection("127.0.0.1", int(ports[-1]), timeout=1)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture
def pair(
    quiet_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pair[ProbedReplica]]:
    """Two running replicas with the hook, and a quota that it checks."""
    info = tmp_path / "slow-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[koord.quota_hooks]\nslow = slow_hook:Slow\n")
    (tmp_path / "slow_hook.py").write_text(HOOK)
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), before])))
    quiet_cluster.add_nodes(4)
    Quotas(quiet_cluster).create("team", 0, 32)
    box = quiet_cluster.box
    replicas = [ProbedReplica(box, tmp_path / name, box.server) for name in ("first", "second")]
    for replica in replicas:
        replica.start()
    yield Pair(quiet_cluster, replicas)
    for replica in replicas:
        replica.end()
    delete_lease(box)


@pytest.mark.slow
def test_leader_survives_a_slow_plan_but_not_an_endless_one(pair: Pair[ProbedReplica]) -> None:
    cluster, team = pair.cluster, Quotas(pair.cluster).label("team")
    leader, follower = pair.find_leader()
    cluster.pod("first", gpus=1, labels=team)
    cluster.expect_bound("first")
    before = read_lease(cluster.box)

    cluster.pod("slow", gpus=SLOW_GPUS, labels=team)
    until, probes = time.monotonic() + SLOW_SECONDS - 1, []
    while time.monotonic() < until:
        probes += [leader.probe(path)[0] for path in ("/healthz", "/readyz", "/metrics")]
        time.sleep(0.5)
    assert set(probes) == {200}
    assert "slow" not in cluster.bound(), "the plan has not ended"
    cluster.expect_bound("slow")
    after = read_lease(cluster.box)
    assert after["holderIdentity"] == before["holderIdentity"]
    assert after["leaseTransitions"] == before["leaseTransitions"]
    assert leader.is_running()

    cluster.pod("endless", gpus=ENDLESS_GPUS, labels=team)
    pair.expect(lambda: leader.probe("/healthz")[0] == 503, "the probe fails")
    assert leader.wait(60.0) == LEADERSHIP_LOST
    assert "check_unit" in leader.read_log(), "it says where the loop is blocked"
    pair.expect(lambda: follower.leads, "the other one takes over")
