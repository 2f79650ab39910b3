"""What a tenant, who may edit one namespace, can do to quotas: nothing beyond its own."""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.manifests.someone import MERGE, Someone, create_account
from tests.operators.conftest import GROUP_LABEL, ROOT, Operators, make_pod, open_cluster
from tests.operators.test_quotas import GPU, PREFIX, Quotas
from tests.operators.test_stale_cache import operating
from tests.support.fault_proxy import Do, FaultProxy
from tests.support.namespaces import empty

from koord.kube.client import Client
from koord.kube.config import find_credentials
from koord_sandbox import Sandbox
from koord_sandbox.client import wait_until_served
from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aiohttp import web
    from tests.operators.conftest import Cluster

NAME = f"{PREFIX}name"
IN_USE = "operators.koordinator.sh/in-use"
DEFINITION = "elasticquotas.scheduling.sigs.k8s.io"
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
    with closing(Tenant(cluster)) as made:
        yield made


@pytest.fixture
def others(cluster: Cluster) -> Iterator[str]:
    """A namespace of another team."""
    name = f"other-{secrets.token_hex(3)}"
    cluster.box.create_namespace(name)
    yield name
    empty(cluster.box.client, name)


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
    command = message.partition("ask its owner to share it: kubectl ")[2]
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
    assert quotas.status("spare")["used"] == {GPU: "0"}


def fill_with_waiting_pods(cluster: Cluster, tenant: Tenant) -> Quotas:
    """Make a quota in use, with ten pods of the tenant that wait in it."""
    quotas = Quotas(cluster)
    quotas.create("team", 0, 8)
    cluster.add_nodes(12)
    tenant.pod("runs", quotas.name("team"))
    cluster.expect_bound("runs")
    for at in range(10):
        tenant.pod(f"w{at}", quotas.name("team"))
    cluster.expect_pod("w9", "InsufficientMax")
    return quotas


def expect_none_started(cluster: Cluster, tenant: Tenant, reason: str) -> None:
    """Expect a reason of the ten, and that only a pod outside of quotas starts after that."""
    for at in range(10):
        cluster.expect_pod(f"w{at}", reason)
    before = set(cluster.bound())
    assert count_started(cluster) == 0
    free = f"free-{secrets.token_hex(2)}"
    tenant.pod(free)
    cluster.expect_bound(free)
    assert set(cluster.bound()) == {*before, free}


def count_started(cluster: Cluster) -> int:
    return sum(name.startswith("w") for name in cluster.bound())


def finalizers(quotas: Quotas, short: str) -> list[str]:
    return quotas.get(short)["metadata"].get("finalizers", [])


def test_a_deleted_quota_stays_in_force_for_its_pods(cluster: Cluster, tenant: Tenant) -> None:
    quotas = fill_with_waiting_pods(cluster, tenant)
    cluster.expect(lambda: finalizers(quotas, "team") == [IN_USE], "it has the finalizer")
    quotas.delete("team")
    told = "stays active for its pods (11)"
    cluster.expect(
        lambda: told in cluster.condition(quotas.get("team"), "Terminating")[2], "it says so"
    )
    expect_none_started(cluster, tenant, "InsufficientMax")
    tenant.delete("runs")
    cluster.expect(lambda: len(cluster.bound()) == 2, "one of them starts in its place")
    for at in range(10):
        tenant.delete(f"w{at}")

    def is_gone() -> bool:
        with suppress(SandboxApiError):
            quotas.get("team")
            return False
        return True

    cluster.expect(is_gone, "it goes with its last pod")


def test_an_unused_quota_is_deleted_at_once(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("org", 0, 8, {"is-parent": "true"})
    quotas.create("team", 0, 8, {"parent": quotas.name("org")})
    cluster.expect(lambda: finalizers(quotas, "org") == [IN_USE], "the parent has a child")
    assert not finalizers(quotas, "team")
    quotas.delete("team")
    with pytest.raises(SandboxApiError, match="not found"):
        quotas.get("team")
    cluster.expect(lambda: not finalizers(quotas, "org"), "and then none")


def test_a_namespace_with_a_quota_in_use_can_be_deleted(cluster: Cluster, tenant: Tenant) -> None:
    quotas = fill_with_waiting_pods(cluster, tenant)
    cluster.expect(lambda: finalizers(quotas, "team") == [IN_USE], "it has the finalizer")
    namespace = f"/api/v1/namespaces/{cluster.namespace}"
    cluster.box.client.delete(namespace)

    def is_gone() -> bool:
        with suppress(SandboxApiError):
            cluster.box.client.get(namespace)
            return False
        return True

    cluster.expect(is_gone, "pods first, then the quota, then the namespace")
    cluster.box.create_namespace(cluster.namespace)


def test_a_quota_deleted_by_force_starts_none_of_its_pods(cluster: Cluster, tenant: Tenant) -> None:
    quotas = fill_with_waiting_pods(cluster, tenant)
    cluster.expect(lambda: finalizers(quotas, "team") == [IN_USE], "it has the finalizer")
    quotas.delete_by_force("team")
    expect_none_started(cluster, tenant, "QuotaGone")
    quotas.create("team", 0, 16)
    cluster.expect(lambda: count_started(cluster) == 1, "one starts")


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A namespace of a sandbox whose definitions a test may delete."""
    with Sandbox() as box, ExitStack() as stack:
        box.apply(ROOT / "crds")
        box.kubectl("apply", "-k", str(ROOT / "manifests/base"))
        operators = Operators(box, tmp_path)
        operators.start()
        stack.callback(operators.end)
        yield stack.enter_context(open_cluster(box, operators))


@pytest.mark.sandbox
def test_pods_wait_while_the_definition_of_quotas_is_gone(own_cluster: Cluster) -> None:
    cluster, client = own_cluster, own_cluster.box.client
    with closing(Tenant(cluster)) as tenant:
        quotas = fill_with_waiting_pods(cluster, tenant)
        cluster.expect(lambda: finalizers(quotas, "team") == [IN_USE], "it has the finalizer")
        cluster.box.kubectl("delete", "crd", DEFINITION, "--wait=false")
        cluster.expect(
            lambda: cluster.condition(quotas.get("team"), "Terminating")[0] == "True",
            "the quota is kept, and with it the definition",
        )
        expect_none_started(cluster, tenant, "InsufficientMax")
        quotas.delete_by_force("team")
        expect_none_started(cluster, tenant, "QuotasNotServed")
        cluster.box.apply(ROOT / "crds")
        wait_until_served(client, DEFINITION)
        for at in range(10):
            cluster.expect_pod(f"w{at}", "QuotaGone")
        quotas.create("team", 0, 16)
        cluster.expect(lambda: count_started(cluster) == 1, "the quota is in force again")
    assert cluster.operators.is_running()


def is_about_quotas(request: web.Request) -> bool:
    return request.path.endswith("/elasticquotas")


@pytest.fixture
def quiet_tenant(quiet_cluster: Cluster) -> Iterator[Tenant]:
    with closing(Tenant(quiet_cluster)) as made:
        yield made


async def test_a_list_of_quotas_that_is_not_found_starts_nothing(
    quiet_cluster: Cluster, quiet_tenant: Tenant
) -> None:
    cluster, tenant, here = quiet_cluster, quiet_tenant, asyncio.to_thread
    credentials = find_credentials(
        str(cluster.box.kubeconfig_for("koord-system", "koord-operators"))
    )
    async with (
        FaultProxy(credentials) as proxy,
        Client(proxy.credentials) as client,
        operating(client) as parts,
    ):
        quotas = await here(fill_with_waiting_pods, cluster, tenant)
        not_found = {"times": 1000, "status": 404, "reason": "NotFound"}
        fault = proxy.plan(is_about_quotas, Do.ANSWER, **not_found)
        proxy.drop_streams()
        await here(expect_none_started, cluster, tenant, "QuotasNotServed")
        assert parts.reader.is_synced()
        fault.times = 0
        for at in range(10):
            await here(cluster.expect_pod, f"w{at}", "InsufficientMax")
        await here(quotas.set_max, "team", 16)
        await here(cluster.expect, lambda: count_started(cluster) == 1, "as before")
