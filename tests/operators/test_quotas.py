"""Quotas on a real API server: what they refuse waits, says so, and goes on when there is more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.operators.conftest import Cluster

PREFIX = "quota.scheduling.koordinator.sh/"
GPU = "nvidia.com/gpu"


class Quotas:
    """The quotas of one test; their names carry its namespace, as names are the cluster's."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = cluster.box.client
        self._namespace = cluster.namespace
        self._path = (
            f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{cluster.namespace}/elasticquotas"
        )

    def name(self, short: str) -> str:
        return f"{self._namespace}-{short}"

    def create(
        self,
        short: str,
        minimum: int,
        most: int,
        labels: Mapping[str, str] | None = None,
        **annotations: Any,
    ) -> None:
        body = {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {
                "name": self.name(short),
                "namespace": self._namespace,
                "labels": {f"{PREFIX}{key}": value for key, value in (labels or {}).items()},
                "annotations": {f"{PREFIX}{k}": json.dumps(v) for k, v in annotations.items()},
            },
            "spec": {"min": {GPU: minimum}, "max": {GPU: most}},
        }
        self._client.create(self._path, body)

    def set_max(self, short: str, most: int) -> None:
        self._client.patch(f"{self._path}/{self.name(short)}", {"spec": {"max": {GPU: most}}})

    def get(self, short: str) -> dict[str, Any]:
        return self._client.get(f"{self._path}/{self.name(short)}")

    def status(self, short: str) -> dict[str, Any]:
        return self.get(short).get("status", {})

    def recorded(self, short: str, name: str) -> dict[str, str]:
        annotations = self.get(short)["metadata"].get("annotations", {})
        found: dict[str, str] = json.loads(annotations.get(f"{PREFIX}{name}", "{}"))
        return found

    def label(self, short: str) -> dict[str, str]:
        return {f"{PREFIX}name": self.name(short)}


def test_a_gang_beyond_its_max_waits_whole_until_max_is_raised(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 0, 16, namespaces=[cluster.namespace])
    cluster.add_nodes(3)
    cluster.gang("a", 3)
    cluster.wait_for(lambda: cluster.group_reason("a") == "InsufficientMax", "the gang says so")
    # What was said before the nodes were ready, with smaller numbers, is corrected after a while.
    told = "may use 16 nvidia.com/gpu, uses 0 and is asked for 24"
    cluster.wait_for(lambda: told in cluster.group_message("a"), "the numbers are right")
    cluster.wait_for(lambda: cluster.pod_reason("a-0") == "InsufficientMax", "its pods say so")
    assert not cluster.bound()
    quotas.set_max("team", 24)
    cluster.wait_bound("a-0", "a-1", "a-2")
    cluster.wait_for(lambda: quotas.status("team").get("used") == {GPU: "24"}, "it is told")
    assert quotas.status("team")["runtime"] == {GPU: "24"}
    cluster.wait_for(lambda: quotas.recorded("team", "runtime") == {GPU: "24"}, "and annotated")
    assert quotas.recorded("team", "child-request") == {GPU: "24"}
    assert cluster.condition(quotas.get("team"), "Borrowing")[:2] == ("True", "Borrowing")
    assert cluster.condition(quotas.get("team"), "Accepted")[0] == "True"


def test_what_a_quota_has_no_room_for_goes_on_when_its_pods_end(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("org", 0, 16, {"is-parent": "true"})
    quotas.create("team", 0, 8, {"parent": quotas.name("org")})
    cluster.add_nodes(2)
    cluster.pod("a", labels=quotas.label("team"))
    cluster.wait_bound("a")
    cluster.pod("b", labels=quotas.label("team"))
    cluster.wait_for(lambda: cluster.pod_reason("b") == "InsufficientMax", "there is no room")
    cluster.delete_pod("a")
    cluster.wait_bound("b")


def test_pods_of_a_quota_that_cannot_be_used_wait_for_it(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 0, 8, {"parent": quotas.name("org")})
    cluster.add_nodes(1)
    cluster.pod("a", labels=quotas.label("team"))
    cluster.wait_for(lambda: cluster.pod_reason("a") == "QuotaNotInForce", "it says so")
    cluster.wait_for(lambda: "conditions" in quotas.status("team"), "the quota says so, too")
    cluster.wait_for(
        lambda: cluster.condition(quotas.get("team"), "Ready")[1] == "ParentNotFound", "and why"
    )
    quotas.create("org", 0, 8, {"is-parent": "true"})
    cluster.wait_bound("a")
