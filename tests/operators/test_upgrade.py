"""From the previous release to this one and back, with gangs in flight.

The previous release is kept beside this file: its package, custom resources and manifests. After a
release, replace it:

    git archive TAG operators/koord crds manifests | xz -9e > koord-operators-VERSION.tar.xz

The order is that of docs/operations.md: definitions, roles and policies first, then one process
after the other. The process that ends has released gangs whose pods it cannot bind any more, so
the next one has to finish them from what the other version wrote.
"""

import signal
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.operators.conftest import (
    LEASE,
    ROOT,
    Cluster,
    open_cluster,
)
from tests.operators.judge import find_faults, find_torn_gangs
from tests.operators.load import GPUS, NODES, Load
from tests.operators.replicas import PATIENCE_SECONDS, Pair, Replica
from tests.operators.test_quotas import GPU, PREFIX, Quotas
from tests.support.fault_proxy import Do, ProxyThread, is_method, open_fault_proxy
from typing_extensions import override

from koord.kube.config import find_credentials
from koord_sandbox import Sandbox

# Python before 3.11.4 has no filters; the archive is ours.
_SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
PREVIOUS = Path(__file__).parent / "koord-operators-0.1.0.tar.xz"
QUOTA_GPUS = {"red": 32, "blue": 32}
KINDS: tuple[dict[str, Any], ...] = ({}, {"scheduler": "default-scheduler"}, {"gated": False})


class QuotaLoad(Load):
    """Gangs of eight of every kind, by turns in one of two quotas that they fill."""

    members = 8
    gpus = 2
    full = 32  # all may be in one quota

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.quotas = Quotas(cluster)
        for name, most in QUOTA_GPUS.items():
            self.quotas.create(name, most, most)

    @override
    def pod_options(self, gang: str) -> dict[str, Any]:
        number = int(gang.removeprefix("g"))
        name = list(QUOTA_GPUS)[number % len(QUOTA_GPUS)]
        return {"labels": self.quotas.label(name)} | KINDS[number % len(KINDS)]

    @override
    def _check(self, pods: list[dict[str, Any]]) -> None:
        super()._check(pods)
        for name, used in self.count(pods).items():
            if used > QUOTA_GPUS[name]:
                self.faults.append(f"quota {name} uses {used}")

    def count(self, pods: list[dict[str, Any]]) -> Counter[str]:
        """Return the GPUs of pods with a node, by quota."""
        used: Counter[str] = Counter()
        for pod in pods:
            if "nodeName" in pod["spec"]:
                quota = pod["metadata"]["labels"][f"{PREFIX}name"]
                used[quota.removeprefix(f"{self.quotas.name('')}")] += self.gpus
        return used


class Steady:
    """A gang that runs all the time, and another that waits in the same quota all the time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.patience = PATIENCE_SECONDS
        self._quotas = Quotas(cluster)
        self._quotas.create("steady", 0, 16)
        cluster.add_nodes(4)
        for name in ("runs", "waits"):
            cluster.gang(name, 8, gpus=2, labels=self._quotas.label("steady"))
            if name == "runs":
                cluster.expect_bound(*(f"runs-{at}" for at in range(8)))
        cluster.expect_group("waits", "InsufficientMax")
        self._places = cluster.bound()

    def check(self) -> None:
        assert self.cluster.bound() == self._places
        self.cluster.expect_group("waits", "InsufficientMax")

    def check_repair(self) -> None:
        """The gang is known to have started: one replacement of two starts by itself."""
        for name in ("runs-0", "runs-1"):
            self.cluster.delete_pod(name)
        self.cluster.pod("runs-0", gpus=2, group="runs", labels=self._quotas.label("steady"))
        self.cluster.expect_bound("runs-0")
        assert len(self.cluster.bound()) == 7

    def check_release(self) -> None:
        self._quotas.set_max("steady", 32)
        self.cluster.expect_bound(*(f"waits-{at}" for at in range(8)))
        self.cluster.expect(
            lambda: self._quotas.status("steady").get("used") == {GPU: "30"}, "all are charged"
        )


class Roll(Pair[Replica]):
    """Two replicas of different versions, of which the first runs, behind a proxy."""

    def __init__(
        self, cluster: Cluster, replicas: list[Replica], load: QuotaLoad, thread: ProxyThread
    ) -> None:
        super().__init__(cluster, replicas)
        self.load = load
        self._thread = thread

    def wait_until_it_works(self) -> None:
        before = len(self.load.bound)
        enough = before + 3 * QuotaLoad.members
        self.expect(lambda: len(self.load.bound) >= enough, "gangs start")

    def replace(self, number: signal.Signals) -> None:
        """Start the other version, then end the leader while it cannot finish a gang."""
        other = next(one for one in self.replicas if not one.is_running())
        other.start()
        leader, _ = self.find_leader()
        left = iter([True] * 3)
        is_binding = is_method("POST", "/binding")
        self._thread.do(
            lambda proxy: proxy.plan(
                lambda request: is_binding(request) and not next(left, False), Do.DROP, times=10**6
            )
        )
        self.expect(lambda: self._count_unbound() >= QuotaLoad.members, "released, not bound")
        leader.send(number)
        leader.wait()
        self._thread.do(lambda proxy: proxy.heal())
        if number is signal.SIGKILL:
            # As if it had expired; it says whether its last holder signed plans.
            self.cluster.box.client.patch(LEASE, {"spec": {"holderIdentity": ""}})
        self.expect(lambda: other.leads, "the other version leads")
        self.wait_until_it_works()

    def _count_unbound(self) -> int:
        return sum(
            not pod["spec"].get("schedulingGates") and "nodeName" not in pod["spec"]
            for pod in self.cluster.pods().values()
        )

    def judge(self) -> None:
        """With room for all of them, all that waits starts, whole and once."""
        self.load.settle()
        self.expect(lambda: not find_torn_gangs(self.cluster), "no gang is torn")
        self._expect_charges()
        assert self.load.faults + find_faults(self.cluster) == []
        for name in QUOTA_GPUS:
            self.load.quotas.set_max(name, 10_000)
        self.cluster.add_nodes(24, GPUS)
        pods = self.cluster.pods().values()
        self.expect(lambda: len(self.cluster.bound()) == len(pods), "everything is placed")
        assert find_faults(self.cluster) == []

    def _expect_charges(self) -> None:
        def are_right() -> bool:
            used = self.load.count(list(self.cluster.pods().values()))
            told = {name: self.load.quotas.status(name)["used"].get(GPU) for name in QUOTA_GPUS}
            return told == {name: str(used[name]) for name in QUOTA_GPUS}

        self.expect(are_right, "the quotas' charges are right")


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked previous release."""
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(PREVIOUS) as archive:
        archive.extractall(folder, **_SAFELY)  # noqa: S202 - our own archive
    return folder


@pytest.fixture
def box(previous: Path) -> Iterator[Sandbox]:
    """A sandbox in which the previous release is installed."""
    with Sandbox() as box:
        install(box, previous)
        yield box


def install(box: Sandbox, folder: Path) -> None:
    box.apply(folder / "crds")
    box.kubectl("apply", "-k", str(folder / "manifests/base"))


@pytest.fixture
def roll(box: Sandbox, previous: Path, tmp_path: Path) -> Iterator[Roll]:
    """The previous release leads under load; this one has not started yet."""
    kubeconfig = box.kubeconfig_for("koord-system", "koord-operators")
    with ExitStack() as stack:
        thread = stack.enter_context(open_fault_proxy(find_credentials(str(kubeconfig))))
        replicas = [Replica(box, tmp_path / name, thread.proxy.server) for name in ("old", "new")]
        replicas[0].environment = {"PYTHONPATH": str(previous / "operators")}
        for one in replicas:
            stack.callback(one.end)
        replicas[0].start()
        cluster = stack.enter_context(open_cluster(box, replicas[0]))
        cluster.add_nodes(NODES, GPUS)
        load = QuotaLoad(cluster)
        pair = Roll(cluster, replicas, stack.enter_context(load), thread)
        pair.wait_until_it_works()
        yield pair


@pytest.fixture
def steady(box: Sandbox, roll: Roll) -> Iterator[Steady]:
    with open_cluster(box, roll.replicas[0]) as cluster:
        yield Steady(cluster)


@pytest.mark.sandbox
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_upgrade_and_rollback(
    box: Sandbox, roll: Roll, steady: Steady, number: signal.Signals
) -> None:
    install(box, ROOT)
    roll.wait_until_it_works()  # the previous release, under the new roles and policies
    roll.replace(number)
    steady.check()
    roll.replace(number)
    steady.check()
    roll.replace(number)
    steady.check_repair()
    steady.check_release()
    roll.judge()
