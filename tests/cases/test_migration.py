"""A pod of a ReplicaSet is moved: reserved, evicted, and replaced on the reserved node."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import GROUP_LABEL, Cluster, Operators, make_pod
from tests.operators.test_everyday import ask

from koord.api.keys.migration import GROUP, GROUP_SIZE
from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOBS = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
SETTINGS = "migration: {enabled: true, namespaces: {exclude: [kube-system]}}\n"


class Moves:
    """Two replicas of 4 GPUs, and jobs that move them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self._client = cluster, cluster.box.client
        self._jobs: list[str] = []

    def replicas(self, count: int, gpus: int = 4, group: str = "") -> list[str]:
        """Create a ReplicaSet; return the names of its pods once they run."""
        labels = {"app": "web"} | ({GROUP_LABEL: group} if group else {})
        pod = make_pod(self.cluster.namespace, "web", gpus=gpus, labels=labels)
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": count,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
            },
        }
        path = f"/apis/apps/v1/namespaces/{self.cluster.namespace}/replicasets"
        self._client.create(path, body)
        self.cluster.expect(lambda: len(self.cluster.bound()) == count, "the replicas run")
        return sorted(self.cluster.bound())

    def move(self, pod: str, group: tuple[str, int] = ("", 0), **spec: Any) -> str:
        name = f"{self.cluster.namespace}-{len(self._jobs)}"
        reference = {"namespace": self.cluster.namespace, "name": pod}
        body = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "PodMigrationJob",
            "metadata": {
                "name": name,
                "labels": {GROUP: group[0]} if group[0] else {},
                "annotations": {GROUP_SIZE: str(group[1])} if group[0] else {},
            },
            "spec": {"ttl": "5m", "podRef": reference, **spec},
        }
        self._client.create(JOBS, body)
        self._jobs.append(name)
        return name

    def get(self, job: str) -> dict[str, Any]:
        return self._client.get(f"{JOBS}/{job}")

    def expect(self, job: str, phase: str) -> dict[str, Any]:
        def status() -> dict[str, Any]:
            return self.get(job).get("status") or {}

        self.cluster.expect(lambda: status().get("phase") == phase, f"{job} is {phase}")
        return status()

    def reservation_of(self, job: str) -> dict[str, Any] | None:
        with suppress(SandboxApiError):
            return self._client.get(f"{RESERVATIONS}/{self.get(job)['metadata']['uid']}")
        return None

    def close(self) -> None:
        for name in self._jobs:
            with suppress(SandboxApiError):
                self._client.delete(f"{JOBS}/{name}")
        path = f"/apis/apps/v1/namespaces/{self.cluster.namespace}/replicasets/web"
        with suppress(SandboxApiError):
            self._client.delete(path)


@pytest.fixture
def moves(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Moves]:
    running = Operators(quiet_cluster.box, tmp_path, settings=SETTINGS)
    cluster = Cluster(quiet_cluster.box, running, quiet_cluster.namespace)
    running.start()
    try:
        with closing(Moves(cluster)) as made:
            yield made
        for pod in cluster.pods():
            with suppress(SandboxApiError):  # it may have gone with its owner by now
                cluster.delete_pod(pod)
        assert running.is_running(), running.log.read_text()[-3000:]
    finally:
        cluster.remove_nodes()
        running.stop()


def test_a_pod_is_moved_to_a_place_that_was_reserved_for_it(moves: Moves) -> None:
    moves.cluster.add_nodes(2)
    first, second = moves.replicas(2)
    before = moves.cluster.bound()
    status = moves.expect(moves.move(first), "Succeeded")
    new = status["podRef"]["name"]
    bound = moves.cluster.bound()
    assert status["nodeName"] == bound[new] != before[first]
    assert bound[second] == before[second]
    assert {one["type"]: one["status"] for one in status["conditions"]} == {
        "Accepted": "True",
        "ReservationCreated": "True",
        "ReservationScheduled": "True",
        "Eviction": "True",
        "PodBoundReservation": "True",
        "ReservationBound": "True",
        "BoundPodReady": "True",
    }


def test_without_a_place_the_pod_stays_and_nothing_is_left(moves: Moves) -> None:
    moves.cluster.add_nodes(1)
    first, _ = moves.replicas(2)
    job = moves.move(first)
    status = moves.expect(job, "Failed")
    assert status["reason"] == "Unschedulable"
    assert first in moves.cluster.bound()
    moves.cluster.expect(lambda: moves.reservation_of(job) is None, "its place is given up")


def test_a_rule_that_protects_the_pod_is_named(moves: Moves) -> None:
    moves.cluster.add_nodes(2)
    (only,) = moves.replicas(1)
    status = moves.expect(moves.move(only), "Failed")
    assert status["reason"] == "ForbiddenMigratePod"
    assert "rule 11 (ExpectedReplicas): ReplicaSet web has 1 replicas" in status["message"]
    answer = ask(moves.cluster, "explain", "pmj", f"{moves.cluster.namespace}-0")
    assert answer["stage"] == "Failed"
    assert "rule 11 (ExpectedReplicas)" in answer["message"]


def test_a_gang_is_moved_as_a_whole_or_not_at_all(moves: Moves) -> None:
    nodes = moves.cluster.add_nodes(4)
    for node in nodes[2:]:
        moves.cluster.box.kubectl("cordon", node)
    moves.cluster.pod_group("train", 2)
    members = moves.replicas(2, gpus=8, group="train")
    alone = moves.expect(moves.move(members[0]), "Failed")
    assert "moves as a whole or not at all" in alone["message"]
    assert sorted(moves.cluster.bound().values()) == nodes[:2]
    for node in nodes[2:]:
        moves.cluster.box.kubectl("uncordon", node)
    jobs = [moves.move(member, group=("train", 2)) for member in members]
    statuses = [moves.expect(job, "Succeeded") for job in jobs]
    assert {status["nodeName"] for status in statuses} == set(nodes[2:])
    bound = moves.cluster.bound()
    assert sorted(bound.values()) == nodes[2:]
    assert set(bound).isdisjoint(members)
    moves.cluster.expect(
        lambda: all(
            (place := moves.reservation_of(job)) is None or place["status"]["phase"] == "Succeeded"
            for job in jobs
        ),
        "no place is left over",
    )
