"""Reclaim of over-used quota on a real API server."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import GROUP_LABEL, SERVICE_ACCOUNT, Cluster, Operators
from tests.operators.test_quotas import Quotas
from typer.testing import CliRunner

from koord.api.keys.preemption import SOFT_EVICTION, SOFT_EVICTION_TIME
from koord.cli.main import app
from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = """
elasticQuota:
  delayEvictTime: 1s
  revokePodInterval: 1s
"""
BIND_SECONDS = 5.0
"""For the gang of the owner, once the victims are gone."""
MARK = "operators.koordinator.sh/OverEntitlement"


class Scene:
    """Two quotas that share the GPUs of a cluster, with reclaim enabled."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.quotas = Quotas(cluster)

    def share(self, nodes: int) -> None:
        """Guarantee half of the nodes to each of ``a`` and ``b``."""
        half = 4 * nodes
        tree = {"is-parent": "true", "tree-id": self.cluster.namespace, "is-root": "true"}
        whole = {"nvidia.com/gpu": 2 * half}
        self.quotas.create("org", 2 * half, 2 * half, tree, **{"total-resource": whole})
        for name in ("a", "b"):
            labels = {"parent": self.quotas.name("org"), "tree-id": self.cluster.namespace}
            self.quotas.create(name, half, 2 * half, labels)
        self.cluster.add_nodes(nodes)

    def pod(self, name: str, quota: str, **options: Any) -> None:
        labels = self.quotas.label(quota) | {"app": quota} | options.pop("labels", {})
        self.cluster.pod(name, labels=labels, **options)

    def gang(self, name: str, count: int, quota: str) -> None:
        self.cluster.gang(name, count, labels=self.quotas.label(quota) | {"app": quota})

    def expect_running(self, *names: str) -> None:
        def is_running() -> bool:
            pods = self.cluster.pods()
            return all(pods[name]["status"]["phase"] == "Running" for name in names)

        self.cluster.expect_bound(*names)
        self.cluster.expect(is_running, f"{names} run")

    def expect_left(self, *names: str) -> None:
        """Wait until kwok has deleted all other pods."""
        self.cluster.expect(lambda: set(self.cluster.pods()) == set(names), f"{names} are left")

    def priority_class(self, value: int) -> str:
        """Create a PriorityClass; return its name."""
        name = f"{self.cluster.namespace}-{value}"
        self.cluster.priority_class(name, value)
        return name

    def protect(self, least: int, **labels: str) -> None:
        """Create a PodDisruptionBudget with ``minAvailable``."""
        body = {
            "metadata": {"name": "budget"},
            "spec": {"minAvailable": least, "selector": {"matchLabels": labels}},
        }
        self.cluster.box.client.create(self.budgets, body)
        self.cluster.expect(self._is_counted, "the budget counts its pods")

    def _is_counted(self) -> bool:
        status = self.cluster.box.client.get(f"{self.budgets}/budget").get("status", {})
        return status.get("currentHealthy", 0) > 0

    @property
    def budgets(self) -> str:
        return f"/apis/policy/v1/namespaces/{self.cluster.namespace}/poddisruptionbudgets"

    def set_finalizers(self, name: str, finalizers: list[str] | None) -> None:
        body = {"metadata": {"finalizers": finalizers}}
        self.cluster.box.client.patch(f"{self.cluster.pods_path}/{name}", body)

    def explain(self, pod: str) -> str:
        """Return what ``koord explain`` says of a pod, unwrapped."""
        options = [f"--kubeconfig={self.cluster.box.kubeconfig}", "-n", self.cluster.namespace]
        return CliRunner().invoke(app, ["explain", f"pod/{pod}", *options]).output

    def evictions(self) -> list[str]:
        """Return pods whose eviction was accepted, in order."""
        return [
            write.name
            for write in self.cluster.box.writes(SERVICE_ACCOUNT)
            if write.namespace == self.cluster.namespace
            and write.subresource == "eviction"
            and write.code < 300
        ]

    def notes(self, kind: str, reason: str = "OverEntitlement") -> list[str]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.cluster.namespace}/events"
        events = self.cluster.box.client.get(path)["items"]
        return [
            one["note"]
            for one in events
            if one["reason"] == reason and one["regarding"]["kind"] == kind
        ]


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, quiet_cluster: Cluster, tmp_path: Path
) -> Iterator[Scene]:
    settings = SETTINGS + getattr(request, "param", "")
    running = Operators(quiet_cluster.box, tmp_path, settings=settings)
    cluster = Cluster(quiet_cluster.box, running, quiet_cluster.namespace)
    running.start()
    made = Scene(cluster)
    yield made
    cluster.remove_nodes()
    with suppress(SandboxApiError):
        cluster.box.client.delete(f"{made.budgets}/budget")
    assert running.is_running(), running.log.read_text()[-3000:]
    running.stop()


@pytest.mark.parametrize("scene", ["  guaranteeUsage: true\n"], indirect=True)
def test_idle_min_is_not_lent_where_use_is_guaranteed(scene: Scene) -> None:
    scene.share(2)
    scene.pod("first", "a")
    scene.expect_running("first")
    scene.pod("second", "a")
    scene.cluster.expect_pod("second", "InsufficientEntitlement")
    kept = {"nvidia.com/gpu": "8"}
    for name in ("a", "b"):
        scene.cluster.expect(
            lambda name=name: scene.quotas.status(name).get("guaranteed") == kept, f"of {name}"
        )
    assert "InsufficientEntitlement" in scene.explain("second")


def test_lent_gpus_are_reclaimed_gang_by_gang(scene: Scene) -> None:
    scene.share(2)
    scene.gang("g", 2, "a")
    scene.expect_running("g-0", "g-1")
    for name in ("g-0", "g-1"):
        scene.set_finalizers(name, ["example.com/hold"])
    scene.pod("mine", "b")
    scene.cluster.expect(
        lambda: "; 1 finalizer example.com/hold)." in scene.explain("mine"), "it says who is left"
    )
    assert "Reclaim is under way: 2 evicted pods still terminate (" in scene.explain("mine")
    assert f"For {scene.cluster.namespace}/mine." in scene.explain("g-0")
    for name in ("g-0", "g-1"):
        scene.set_finalizers(name, None)
    scene.cluster.expect_bound("mine")
    scene.expect_left("mine")
    told = f"quota {scene.quotas.name('a')} uses 16 nvidia.com/gpu but is entitled to 8"
    scene.cluster.expect(lambda: told in scene.notes("ElasticQuota"), "the quota says so")
    whom = f"{told}. For {scene.cluster.namespace}/mine."
    scene.cluster.expect(lambda: scene.notes("Pod") == [whom, whom], "the pods say so")
    assert "it was reclaimed" in scene.explain("g-1")


def test_no_more_is_evicted_than_those_need_who_can_start(scene: Scene) -> None:
    scene.share(4)
    names = [f"p{at}" for at in range(4)]
    for name in names:
        scene.pod(name, "a")
    scene.expect_running(*names)
    scene.pod("on-no-node", "b", nodeSelector={"no": "such"})
    scene.pod("mine", "b")
    scene.cluster.expect_bound("mine")
    # The quota stays above its share: two more rounds evict nobody else.
    time.sleep(4)
    assert len(set(scene.evictions())) == 1


def test_the_victims_make_the_room_that_the_gang_of_the_owner_needs(scene: Scene) -> None:
    """Each node is full of small pods, the last ones started on both: one node is emptied."""
    scene.share(2)
    names = [f"p{at}" for at in range(16)]
    for name in names:
        scene.pod(name, "a", gpus=1)
    scene.expect_running(*names)
    scene.gang("mine", 1, "b")
    scene.cluster.expect(lambda: len(scene.cluster.pods()) == 9, "the victims are gone")
    gone = time.monotonic()
    scene.cluster.expect_bound("mine-0")
    assert time.monotonic() - gone < BIND_SECONDS
    time.sleep(4)
    assert len(set(scene.evictions())) == 8


def test_pod_protected_by_a_budget_stays_and_another_is_evicted(scene: Scene) -> None:
    scene.share(2)
    scene.pod("low", "a", labels={"is": "protected"})
    scene.pod("high", "a", priorityClassName=scene.priority_class(1000))
    scene.expect_running("low", "high")
    scene.protect(1, **{"is": "protected"})
    scene.pod("mine", "b")
    scene.cluster.expect_bound("mine")
    scene.expect_left("low", "mine")
    assert set(scene.evictions()) == {"high"}, "a dry run precedes the eviction"
    where = scene.cluster.namespace
    plan = f"evicting {where}/high (1 pod) for {where}/mine: quota {where}-a uses 16 nvidia.com/gpu"
    scene.cluster.expect(
        lambda: plan in "".join(scene.notes("ElasticQuota", "ReclaimPlanned")), "the plan is said"
    )


@pytest.mark.parametrize("scene", ["  reclaimBudgetGrace: 5s\n"], indirect=True)
def test_budget_of_a_gang_delays_and_both_sides_are_told_until_when(scene: Scene) -> None:
    scene.share(2)
    scene.gang("g", 2, "a")
    scene.expect_running("g-0", "g-1")
    scene.protect(1, **{GROUP_LABEL: "g"})
    scene.pod("mine", "b")

    def is_said(pod: str, text: str) -> bool:
        return text in json.dumps(scene.cluster.get_pod(pod).get("status", {}))

    told = "PodDisruptionBudgets protect it until 20"
    scene.cluster.expect(lambda: is_said("g-0", told) and is_said("g-1", told), "the gang is told")
    owner = "PodDisruptionBudgets protect 2 pods from reclaim until 20"
    scene.cluster.expect(lambda: is_said("mine", owner), "so is the owner")
    assert {"g-0", "g-1"} <= set(scene.cluster.bound())
    scene.cluster.expect_bound("mine")
    scene.expect_left("mine")
    assert not scene.evictions(), "no eviction is requested, because the budget forbids one of them"
    assert scene.notes("ElasticQuota", "ProtectedByBudget")


def test_a_victim_that_asks_for_time_gets_it(scene: Scene) -> None:
    scene.share(2)
    scene.pod("low", "a", annotations={SOFT_EVICTION_TIME: "3s"})
    scene.pod("high", "a", priorityClassName=scene.priority_class(1000))
    scene.expect_running("low", "high")
    scene.pod("mine", "b")

    def asked() -> str:
        return scene.cluster.get_pod("low")["metadata"]["annotations"].get(SOFT_EVICTION, "")

    scene.cluster.expect(asked, "it is asked")
    told = json.loads(asked())
    assert told["reason"].startswith(f"quota {scene.quotas.name('a')} uses 16 nvidia.com/gpu")
    begun, deadline = (datetime.fromisoformat(told[key]) for key in ("timestamp", "deadline"))
    assert deadline - begun == timedelta(seconds=3)
    assert "may end by itself within" in scene.explain("low")
    assert "deletionTimestamp" not in scene.cluster.get_pod("low")["metadata"]
    scene.cluster.expect_bound("mine")
    assert datetime.now(UTC) >= deadline
    assert set(scene.evictions()) == {"low"}
    scene.cluster.expect(lambda: scene.notes("Pod", "SoftEviction"), "an event says so")


@pytest.mark.parametrize("scene", ["  immediateIgnoreTerminatingPod: true\n"], indirect=True)
def test_what_ends_does_not_count_where_that_is_chosen(scene: Scene) -> None:
    scene.share(2)
    scene.cluster.add_nodes(1)  # the quota stays what holds the third pod up
    for name in ("first", "second"):
        scene.pod(name, "a")
        scene.set_finalizers(name, ["example.com/slow"])
    scene.expect_running("first", "second")
    scene.pod("third", "a")
    scene.cluster.expect_pod("third", "InsufficientMax")
    scene.cluster.delete_pod("first")
    scene.cluster.expect_bound("third")
    for name in ("first", "second"):
        scene.set_finalizers(name, None)


def test_interrupted_eviction_is_finished_after_a_crash(scene: Scene) -> None:
    scene.share(2)
    scene.gang("g", 2, "a")
    scene.expect_running("g-0", "g-1")
    scene.cluster.operators.kill()
    for name in ("g-0", "g-1"):
        condition = {"type": MARK, "status": "True", "reason": "OverEntitlement"}
        path = f"/api/v1/namespaces/{scene.cluster.namespace}/pods/{name}/status"
        scene.cluster.box.client.patch(path, {"status": {"conditions": [condition]}})
    scene.cluster.delete_pod("g-0")
    scene.cluster.operators.start()
    scene.cluster.expect(lambda: not scene.cluster.pods(), "nothing of the gang is left")
