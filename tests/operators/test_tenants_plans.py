"""What a tenant, who may edit one namespace, achieves with forged plans: nothing.

Each attack runs with the policies of the base, which refuse to write plans at all, and without
them, where only the signature shows that a plan is none.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.manifests.someone import MERGE, Someone, create_account
from tests.operators.conftest import Cluster, Operators, make_pod, open_cluster
from tests.operators.test_quotas import Quotas
from tests.support.namespaces import empty

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.sandbox

PREFIX = "operators.koordinator.sh/"
PLAN, SIGNATURE = f"{PREFIX}plan", f"{PREFIX}plan-signature"
PLANS = "koord-protect"


class Tenant:
    """A ServiceAccount with the built-in role ``edit`` in the namespace of a test."""

    def __init__(self, cluster: Cluster, *, is_protected: bool) -> None:
        create_account(cluster.box, cluster.namespace, "tenant", ["edit"])
        self.cluster = cluster
        self.is_protected = is_protected
        someone = Someone(cluster.box, cluster.namespace, "tenant")
        self.send, self.close = someone.send, someone.close
        self.pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
        self.others = f"other-{secrets.token_hex(3)}"
        cluster.box.create_namespace(self.others)

    def create(self, name: str, annotations: dict[str, str], **options: Any) -> None:
        """Create a pod with forged annotations; where that is refused, without them."""
        for values in (annotations, {}):
            body = make_pod(self.cluster.namespace, name, annotations=values, **options)
            answer = self.send("POST", self.pods, body)
            if not self._is_refused(answer):
                return
        raise AssertionError(answer)

    def annotate(self, name: str, annotations: dict[str, str]) -> None:
        body = {"metadata": {"annotations": annotations}}
        self._is_refused(self.send("PATCH", f"{self.pods}/{name}", body, MERGE))

    def _is_refused(self, answer: Any) -> bool:
        if self.is_protected and answer.status == 403:
            assert PLANS in answer.message, answer
            return True
        assert answer.status in {200, 201}, answer
        return False

    def expect_event(self, name: str) -> None:
        """Wait for the one event on a pod, where the annotation was accepted."""
        if self.is_protected:
            return
        self.cluster.expect(lambda: len(self._events(name)) == 1, f"one event on {name}")
        assert "is ignored" in self._events(name)[0]["note"]

    def expect_no_more_events(self) -> None:
        names = [one["regarding"]["name"] for one in self._events()]
        assert len(names) == len(set(names))

    def _events(self, name: str = "") -> list[dict[str, Any]]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.cluster.namespace}/events"
        return [
            one
            for one in self.cluster.box.client.get(path)["items"]
            if one["reason"] == "PlanIgnored" and name in {"", one["regarding"]["name"]}
        ]

    def other_pod(self, name: str, **options: Any) -> None:
        """Create a pod of another team that uses the same nodes."""
        body = make_pod(self.others, name, **options)
        body["spec"]["nodeSelector"] = {"test": self.cluster.namespace}
        self.cluster.box.client.create(f"/api/v1/namespaces/{self.others}/pods", body)

    def expect_others(self, *names: str) -> None:
        path = f"/api/v1/namespaces/{self.others}/pods"
        self.cluster.expect(
            lambda: all(
                "nodeName" in self.cluster.box.client.get(f"{path}/{name}")["spec"]
                for name in names
            ),
            f"pods of others are bound: {names}",
        )


@pytest.fixture(params=["with policies", "without policies"])
def tenant(request: pytest.FixtureRequest) -> Iterator[Tenant]:
    is_protected = request.param == "with policies"
    operators: Operators = request.getfixturevalue("operators" if is_protected else "unprotected")
    if not operators.is_running():
        operators.start()
    with open_cluster(operators.box, operators) as cluster:
        made = Tenant(cluster, is_protected=is_protected)
        yield made
        made.close()
        made.expect_no_more_events()
        empty(operators.box.client, made.others)


def forge(node: str, group: str = "", strength: int = 0) -> dict[str, str]:
    plan = {"node": node, "plan": "x", "group": group, "members": 4, "strength": strength}
    return {PLAN: json.dumps(plan), SIGNATURE: f"{secrets.token_hex(4)}.{secrets.token_hex(16)}"}


def pin(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_strength_that_was_not_reached_keeps_no_room(tenant: Tenant) -> None:
    cluster = tenant.cluster
    cluster.add_nodes(4)
    cluster.pod_group("g", 1)
    tenant.create("g-0", {}, group="g")
    cluster.expect_bound("g-0")
    node, group = cluster.bound()["g-0"], f"{cluster.namespace}/g"
    tenant.annotate("g-0", forge(node, group, strength=4))
    path = f"{cluster.groups_path}/g"
    answer = tenant.send("PATCH", path, {"spec": {"minMember": 4}}, MERGE)
    assert answer.status == 200, answer
    tenant.expect_event("g-0")
    for at in range(3):
        tenant.other_pod(f"p-{at}")
    tenant.expect_others("p-0", "p-1", "p-2")


def test_forged_plan_opens_no_quota(tenant: Tenant) -> None:
    cluster, quotas = tenant.cluster, Quotas(tenant.cluster)
    nodes = cluster.add_nodes(2)
    quotas.create("team", 0, 8, namespaces=[cluster.namespace])
    labels = quotas.label("team")
    tenant.create("first", {}, labels=labels)
    cluster.expect_bound("first")
    free = next(node for node in nodes if node != cluster.bound()["first"])
    tenant.create("second", forge(free), labels=labels, gated=False)
    tenant.create("third", forge(free), labels=labels, gated=False, affinity=pin(free))
    for name in ("second", "third"):
        tenant.expect_event(name)
        cluster.expect_pod(name, "InsufficientMax")
    assert set(cluster.bound()) == {"first"}


def test_forged_plan_with_pinned_affinity_jumps_no_queue(tenant: Tenant) -> None:
    cluster = tenant.cluster
    (node,) = cluster.add_nodes(1)
    tenant.create("first", {})
    cluster.expect_bound("first")
    tenant.other_pod("early")
    time.sleep(1.1)  # the older one comes first, and times of creation are whole seconds
    for name, scheduler in (("late", "koord-scheduler"), ("later", "default-scheduler")):
        options = {"gated": False, "scheduler": scheduler, "affinity": pin(node)}
        tenant.create(name, forge(node), **options)
        tenant.expect_event(name)
    cluster.delete_pod("later")  # kube-scheduler would bind it, as any pod without our gate
    cluster.delete_pod("first")
    tenant.expect_others("early")
    assert "late" not in cluster.bound()


def test_plan_of_another_pod_or_of_an_earlier_one_does_not_count(tenant: Tenant) -> None:
    cluster, quotas = tenant.cluster, Quotas(tenant.cluster)
    cluster.add_nodes(3)
    quotas.create("team", 0, 8, namespaces=[cluster.namespace])
    labels = quotas.label("team")
    tenant.create("real", {}, labels=labels)
    cluster.expect_bound("real")
    kept = cluster.get_pod("real")["metadata"]["annotations"]
    genuine = {key: kept[key] for key in (PLAN, SIGNATURE)}
    tenant.create("copy", genuine, labels=labels, gated=False)
    tenant.expect_event("copy")
    cluster.expect_pod("copy", "InsufficientMax")
    cluster.delete_pod("real")
    cluster.expect_bound("copy")
    tenant.create("real", genuine, labels=labels, gated=False)
    tenant.expect_event("real")
    cluster.expect_pod("real", "InsufficientMax")


def test_plan_on_a_gated_pod_is_replaced(tenant: Tenant) -> None:
    cluster = tenant.cluster
    nodes = cluster.add_nodes(1)
    forged = forge("nowhere", f"{cluster.namespace}/g", strength=2)
    tenant.create("p", forged, gates=("example.com/other",))
    tenant.expect_event("p")
    body = {"spec": {"schedulingGates": [{"name": f"{PREFIX}placement"}]}}
    assert tenant.send("PATCH", f"{tenant.pods}/p", body, MERGE).status == 200
    cluster.expect_bound("p")
    plan = json.loads(cluster.get_pod("p")["metadata"]["annotations"][PLAN])
    assert (plan["node"], plan.get("group", "")) == (nodes[0], "")


def test_forged_records_of_a_gang_start_no_gang(tenant: Tenant) -> None:
    cluster = tenant.cluster
    (node,) = cluster.add_nodes(1)
    cluster.pod_group("g", 2)
    group = f"{cluster.namespace}/g"
    prefixes = ("internal.scheduling.koordinator.sh/", "scheduling.koordinator.sh/")
    record = {f"{one}bind-gang-group-id": group for one in prefixes}
    record |= {f"{one}bind-gang-member-count": "2" for one in prefixes}
    tenant.create("g-0", record, group="g", gpus=1)
    tenant.create("g-1", record | forge(node, group, 2), group="g", gpus=1, gated=False)
    cluster.expect_bound("g-0", "g-1")  # both are there, so it may start
    cluster.pod_group("h", 2)
    group = f"{cluster.namespace}/h"
    tenant.create("h-0", record | forge(node, group, 2), group="h", gpus=1, gated=False)
    tenant.expect_event("h-0")
    cluster.expect_pod("h-0", "MissingMembers")
    assert "h-0" not in cluster.bound()


def test_tenants_bind_no_pods(tenant: Tenant) -> None:
    cluster = tenant.cluster
    (node,) = cluster.add_nodes(1)
    tenant.create("p", {}, gated=False, gpus=16)
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}}
    assert tenant.send("POST", f"{tenant.pods}/p/binding", binding).status == 403
    assert cluster.bound() == {}


def test_tenants_reach_no_key(tenant: Tenant) -> None:
    path = "/api/v1/namespaces/koord-system/secrets/koord-plan-key"
    assert tenant.send("GET", path).status == 403
    assert tenant.cluster.box.client.get(path)["data"], "it is there"
