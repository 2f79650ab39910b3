"""What a tenant, who may edit one namespace, can do to quotas: nothing beyond its own."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from tests.manifests.someone import MERGE, Someone, create_account
from tests.operators.conftest import GROUP_LABEL, make_pod
from tests.operators.test_quotas import GPU, PREFIX, Quotas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

NAME = f"{PREFIX}name"
SHARED_WITH = "operators.koordinator.sh/shared-with"


class Tenant:
    """A ServiceAccount with the built-in role ``edit`` in the namespace of a test."""

    def __init__(self, cluster: Cluster) -> None:
        create_account(cluster.box, cluster.namespace, "tenant", ["edit"])
        self._cluster = cluster
        self._as = Someone(cluster.box, cluster.namespace, "tenant")
        self.close = self._as.close

    def pod(self, name: str, quota: str = "", group: str = "", **options: Any) -> None:
        labels = {NAME: quota} if quota else {}
        pod = make_pod(self._cluster.namespace, name, group=group, labels=labels, **options)
        answer = self._as.send("POST", self._as.pods, pod)
        assert answer.status == 201, answer.message

    def relabel(self, name: str, quota: str | None) -> None:
        body = {"metadata": {"labels": {NAME: quota}}}
        answer = self._as.send("PATCH", f"{self._as.pods}/{name}", body, MERGE)
        assert answer.status == 200, answer.message

    def delete(self, name: str) -> None:
        assert self._as.send("DELETE", f"{self._as.pods}/{name}").status == 200


@pytest.fixture
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    """The tenant of the cluster's namespace."""
    made = Tenant(cluster)
    yield made
    made.close()


@pytest.fixture
def others(cluster: Cluster) -> Iterator[str]:
    """A namespace of another team."""
    name = f"other-{secrets.token_hex(3)}"
    cluster.box.create_namespace(name)
    yield name
    cluster.box.client.delete(f"/api/v1/namespaces/{name}")


def make_quota(cluster: Cluster, namespace: str, name: str, most: int) -> str:
    """Make a quota in a namespace; return its path."""
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/elasticquotas"
    body = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"min": {GPU: 0}, "max": {GPU: most}},
    }
    cluster.box.client.create(path, body)
    return f"{path}/{name}"


def test_a_label_opens_no_other_quota(cluster: Cluster, tenant: Tenant, others: str) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 0, 8, namespaces=[cluster.namespace])
    path = make_quota(cluster, others, f"{others}-team", 16)
    cluster.add_nodes(3)
    tenant.pod("own")
    cluster.expect_bound("own")
    refused = {
        "system": "koordinator-system-quota",
        "default": "koordinator-default-quota",
        "root": "koordinator-root-quota",
        "theirs": f"{others}-team",
    }
    for name, quota in refused.items():
        tenant.pod(name, quota)
    tenant.pod("unknown", "nobody")
    tenant.pod("none")
    for name in refused:
        cluster.expect_pod(name, "QuotaNotAllowed")
    cluster.expect_pod("unknown", "QuotaUnknown")
    cluster.expect_pod("none", "InsufficientMax")
    message = cluster.condition(cluster.get_pod("theirs"), "operators.koordinator.sh/Placed")[2]
    command = message.partition("have its owner share it: kubectl ")[2]
    assert command == (
        f"annotate elasticquota -n {others} {others}-team "
        f"""--overwrite {SHARED_WITH}='["{cluster.namespace}"]'"""
    )
    assert set(cluster.bound()) == {"own"}
    used = cluster.box.client.get(path).get("status", {}).get("used", {})
    assert used.get(GPU, "0") == "0"
    # What the message says helps.
    cluster.box.kubectl(*command.replace("'", "").split())
    cluster.expect_bound("theirs")
    cluster.expect(
        lambda: cluster.box.client.get(path).get("status", {}).get("used") == {GPU: "8"},
        "it counts where it was allowed",
    )
    cluster.expect_pod("system", "QuotaNotAllowed")


def test_a_gang_with_one_such_member_waits_as_a_whole(
    cluster: Cluster, tenant: Tenant, others: str
) -> None:
    make_quota(cluster, others, f"{others}-team", 16)
    cluster.add_nodes(2)
    cluster.pod_group("g", 2)
    tenant.pod("g-0", group="g")
    tenant.pod("g-1", f"{others}-team", group="g")
    cluster.expect_group("g", "QuotaNotAllowed")
    cluster.expect_pod("g-0", "QuotaNotAllowed")
    assert not cluster.bound()
    tenant.relabel("g-1", None)
    cluster.expect_bound("g-0", "g-1")
    assert GROUP_LABEL in cluster.get_pod("g-1")["metadata"]["labels"]


def test_relabelling_a_running_pod_frees_nothing(cluster: Cluster, tenant: Tenant) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 0, 16, namespaces=[cluster.namespace])
    quotas.create("spare", 0, 16)
    cluster.add_nodes(4)
    tenant.pod("ours", gpus=8)
    tenant.pod("foreign", gpus=8, gated=False, scheduler="default-scheduler")
    cluster.expect_bound("ours", "foreign")
    cluster.expect(lambda: quotas.status("team").get("used") == {GPU: "16"}, "both count")
    for label in (quotas.name("spare"), "nobody", "koordinator-system-quota"):
        tenant.relabel("ours", label)
        tenant.relabel("foreign", label)
        tenant.pod(f"more-{label[-5:]}")
    for label in ("spare", "obody", "quota"):
        cluster.expect_pod(f"more-{label}", "InsufficientMax")
    plan = cluster.get_pod("ours")["metadata"]["annotations"]["operators.koordinator.sh/plan"]
    assert json.loads(plan)["quota"] == quotas.name("team")
    cluster.operators.kill()
    cluster.operators.start()
    tenant.pod("last")
    cluster.expect_pod("last", "InsufficientMax")
    assert set(cluster.bound()) == {"ours", "foreign"}
    assert quotas.status("team")["used"] == {GPU: "16"}
    assert "used" not in quotas.status("spare")
