"""What a tenant can do with room that is kept for its gangs: only what its quota allows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.manifests.someone import MERGE, Someone, create_account
from tests.operators.conftest import Operators, make_pod
from tests.operators.test_quotas import Quotas

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.operators.conftest import Cluster

KEPT_ROOM = "operators.koordinator.sh/kept-room"
FOR_EVER = 30_000_000
"""Seconds that a gang may ask to wait."""


class Tenant:
    """A ServiceAccount with the built-in role ``edit``, its gangs, and a pod of another team."""

    def __init__(self, cluster: Cluster) -> None:
        create_account(cluster.box, cluster.namespace, "tenant", ["edit"])
        self._cluster = cluster
        self._as = Someone(cluster.box, cluster.namespace, "tenant")
        self.close = self._as.close

    def gang(self, name: str, count: int, **annotations: str) -> None:
        body = self._cluster.make_group(name, count, **annotations)
        body["spec"]["scheduleTimeoutSeconds"] = FOR_EVER
        self.send("POST", self._cluster.groups_path, body)
        for at in range(count):
            self.pod(f"{name}-{at}", group=name)

    def pod(self, name: str, **options: Any) -> None:
        self.send("POST", self._as.pods, make_pod(self._cluster.namespace, name, **options))

    def delete(self, name: str) -> None:
        self.send("DELETE", f"{self._as.pods}/{name}")
        time.sleep(0.3)  # kwok deletes by name; see ``Cluster.delete_pod``

    def annotate_group(self, name: str, **annotations: str) -> None:
        body = {"metadata": {"annotations": annotations}}
        self.send("PATCH", f"{self._cluster.groups_path}/{name}", body, MERGE)

    def send(self, *request: Any) -> None:
        answer = self._as.send(*request)
        assert answer.status in {200, 201}, answer.message


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> Iterator[Tenant]:
    name = "cluster" if "cluster" in request.fixturenames else "quiet_cluster"
    made = Tenant(request.getfixturevalue(name))
    yield made
    made.close()


def test_kept_room_counts_for_the_quota_until_it_is_given_up(
    cluster: Cluster, tenant: Tenant
) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 0, 32, namespaces=[cluster.namespace])
    cluster.add_nodes(8)
    tenant.gang("a", 4)
    cluster.expect_bound(*(f"a-{at}" for at in range(4)))
    for at in (1, 2, 3):
        tenant.delete(f"a-{at}")
    tenant.gang("b", 3)
    cluster.expect_group("b", "KeptForReplacements")
    message = cluster.group_message("b")
    assert (
        f"room for 3 pods is reserved for replacements of lost members of {cluster.namespace}/a"
        in message
    )
    tenant.gang("c", 4)
    cluster.expect_group("c", "InsufficientMax")
    assert "uses 32 (kept for gangs: 24) and needs 32 more" in cluster.group_message("c")
    assert set(cluster.bound()) == {"a-0"}
    tenant.annotate_group("a", **{KEPT_ROOM: "GiveUp"})
    cluster.expect_bound("b-0", "b-1", "b-2")
    # A value that is none gives nothing more, and is reported.
    tenant.annotate_group("b", **{KEPT_ROOM: "ForEver"})
    cluster.expect_group("b", "InvalidAnnotation", "SpecValid")


def test_members_lost_again_and_again_keep_no_room_for_ever(
    quiet_cluster: Cluster, tenant: Tenant, tmp_path: Path
) -> None:
    cluster = quiet_cluster
    operators = Operators(cluster.box, tmp_path, settings="keepRoomSeconds: 6\n")
    cluster.operators = operators
    operators.start()
    try:
        cluster.add_nodes(3)
        tenant.gang("a", 3)
        cluster.expect_bound("a-0", "a-1", "a-2")
        tenant.delete("a-2")
        cluster.pod("other")
        cluster.expect_pod("other", "KeptForReplacements")
        for _ in range(10):
            # The replacement comes before the room is free, and goes at once.
            time.sleep(2.0)
            if "other" in cluster.bound():
                break
            tenant.pod("a-2", group="a")
            cluster.expect(lambda: bool({"a-2", "other"} & set(cluster.bound())), "one is placed")
            tenant.delete("a-2")
        cluster.expect_bound("other")
    finally:
        operators.stop()


def test_non_strict_gangs_keep_no_more_than_their_quota(cluster: Cluster, tenant: Tenant) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 0, 16, namespaces=[cluster.namespace])
    cluster.add_nodes(5)
    mode = {"gang.scheduling.koordinator.sh/mode": "NonStrict"}
    for name in ("a", "b"):
        tenant.gang(name, 3, **mode)
        cluster.expect_group(name, "RequestAboveMax")
    tenant.pod("small", gpus=1)
    cluster.expect_bound("small")
