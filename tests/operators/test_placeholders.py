"""Placeholders on a real API server, next to the real kube-scheduler."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import ROOT, make_pod, skip_without_prompt_retries
from tests.operators.test_reservations import GPU, Reservations

from koord.kube.placeholders import make_guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

PODS = "/api/v1/namespaces/koord-placeholders/pods"
PROTECTION = "operators.koordinator.sh/protection"
FOREIGN = 12


class Protected(Reservations):
    """Reservations with placeholders."""

    def make(self, short: str, gpus: int = 4, labels: Any = None, **spec: Any) -> dict[str, Any]:
        body = super().make(short, gpus, labels, **spec)
        body["metadata"]["annotations"] = {PROTECTION: "Placeholder"}
        return body

    def expect_protected(self, short: str, reason: str = "Placeholder") -> None:
        self._cluster.expect(
            lambda: self._cluster.condition(self.get(short), "Protected")[1] == reason,
            f"Protected says {reason}",
        )

    def requested(self) -> list[int]:
        """Return what the placeholders of the test request."""
        pods = self._client.get(PODS)["items"]
        mine = [pod for pod in pods if pod["spec"]["nodeName"].startswith(self._namespace)]
        resources = (pod["spec"]["containers"][0].get("resources") or {} for pod in mine)
        return sorted(int((one.get("requests") or {}).get(GPU, 0)) for one in resources)

    def expect_requested(self, *amounts: int) -> None:
        self._cluster.expect(
            lambda: self.requested() == sorted(amounts), f"placeholders request {amounts}"
        )


@pytest.fixture
def reservations(cluster: Cluster) -> Iterator[Protected]:
    cluster.box.kubectl("apply", "-k", str(ROOT / "manifests/overlays/placeholders"))
    with closing(Protected(cluster)) as made:
        yield made


def create_foreign(cluster: Cluster, count: int = FOREIGN, gpus: int = 1) -> None:
    for at in range(count):
        body = make_pod(
            cluster.namespace,
            f"foreign-{at}",
            gpus=gpus,
            gated=False,
            scheduler="default-scheduler",
        )
        cluster.box.client.create(cluster.pods_path, body)


def bound_foreign(cluster: Cluster) -> list[str]:
    return sorted(name for name in cluster.bound() if name.startswith("foreign"))


def test_others_take_only_what_is_not_held(cluster: Cluster, reservations: Protected) -> None:
    (node,) = cluster.add_nodes(1)
    reservations.create("r", 6)
    reservations.expect_protected("r")
    reservations.expect_requested(6)
    create_foreign(cluster)
    cluster.expect(lambda: len(bound_foreign(cluster)) == 2, "two are not held")
    for at in range(6):
        cluster.pod(f"owner-{at}", gpus=1, labels={"app": "a"})
        cluster.expect_bound(f"owner-{at}")
    reservations.expect_requested()
    assert len(bound_foreign(cluster)) == 2
    assert set(cluster.bound().values()) == {node}
    reservations.expect_protected("r")


def test_a_gang_gets_its_room_at_once(cluster: Cluster, reservations: Protected) -> None:
    cluster.add_nodes(1)
    reservations.create("r", 8)
    reservations.expect_protected("r")
    create_foreign(cluster)
    cluster.gang("job", 4, gpus=1, labels={"app": "a"})
    cluster.expect_bound(*(f"job-{at}" for at in range(4)))
    reservations.expect_requested(4)
    assert bound_foreign(cluster) == []


def test_at_its_end_others_get_the_room(cluster: Cluster, reservations: Protected) -> None:
    cluster.add_nodes(1)
    reservations.create("r", 8)
    reservations.expect_protected("r")
    create_foreign(cluster, 1, 8)
    cluster.expect(lambda: len(reservations.requested()) == 1, "it is there")
    assert bound_foreign(cluster) == []
    reservations.delete("r")
    cluster.expect(lambda: bound_foreign(cluster) == ["foreign-0"], "the room is free")
    assert reservations.requested() == []


def test_after_a_crash_all_is_put_right(cluster: Cluster, reservations: Protected) -> None:
    """The process ended in a hand-over, after it had deleted the placeholder."""
    skip_without_prompt_retries()
    (node,) = cluster.add_nodes(1)
    reservations.create("r", 6)
    reservations.expect_protected("r")
    cluster.operators.kill()
    guard = make_guard(node)
    cluster.box.client.create(PODS, guard)
    for pod in cluster.box.client.get(PODS)["items"]:
        if pod["metadata"]["name"] != guard["metadata"]["name"]:
            cluster.box.client.delete(f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
    create_foreign(cluster)
    cluster.operators.start()
    reservations.expect_requested(6)
    cluster.expect(lambda: len(bound_foreign(cluster)) == 2, "the guard is gone")


def test_room_that_was_taken_before_is_named(cluster: Cluster, reservations: Protected) -> None:
    cluster.add_nodes(1)
    reservations.create("r", 6)
    reservations.expect_protected("r")
    intruder = make_pod(cluster.namespace, "intruder", gpus=4, gated=False)
    intruder["spec"]["nodeName"] = reservations.status("r")["nodeName"]
    cluster.box.client.create(cluster.pods_path, intruder)
    reservations.expect_protected("r", "CapacityStolen")
    message = cluster.condition(reservations.get("r"), "Protected")[2]
    assert f"{GPU} 2" in message
    cluster.delete_pod("intruder")
    reservations.expect_protected("r")


def test_without_the_right_to_create_them_it_says_so(
    cluster: Cluster, reservations: Protected
) -> None:
    cluster.add_nodes(1)
    binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/koord-placeholders/rolebindings"
    cluster.box.client.delete(f"{binding}/koord-placeholders")
    reservations.create("r", 6)
    reservations.expect_protected("r", "PlaceholderMissing")
    cluster.pod("owner", gpus=2, labels={"app": "a"})
    cluster.expect_bound("owner")
    cluster.box.kubectl("apply", "-k", str(ROOT / "manifests/overlays/placeholders"))
    reservations.expect_protected("r")
    reservations.expect_requested(4)


def test_a_word_that_is_no_protection_is_named(cluster: Cluster, reservations: Protected) -> None:
    cluster.add_nodes(1)
    body = reservations.make("r")
    body["metadata"]["annotations"][PROTECTION] = "Fence"
    reservations.post(body)
    cluster.expect(
        lambda: cluster.condition(reservations.get("r"), "SpecValid")[1] == "InvalidSpec",
        "it is named",
    )
    message = cluster.condition(reservations.get("r"), "SpecValid")[2]
    assert f"metadata.annotations[{PROTECTION}] must be one of Ledger" in message
