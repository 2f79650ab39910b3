"""A tenant with hundreds of objects of every kind, and operators that start beside them.

One story: what the objects cost is looked at in the pods of another namespace, before and after the
operators start anew.
"""

from __future__ import annotations

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import Cluster, make_pod, read_lease
from tests.support.namespaces import empty

if TYPE_CHECKING:
    from collections.abc import Iterator

    from koord_sandbox import Sandbox

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
GROUPS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/podgroups"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/elasticquotas"
VERSION = "scheduling.sigs.k8s.io/v1alpha1"
PODS = "/api/v1/namespaces/{}/pods"
GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
GANG_GROUPS = "gang.scheduling.koordinator.sh/groups"
QUOTA = "quota.scheduling.koordinator.sh/name"
TREE = "quota.scheduling.koordinator.sh/tree-id"
POOLS = 3
ALLOWED = 2


class Flood:
    """Objects of a namespace of its own, made side by side; ``victims`` is that of others."""

    def __init__(self, box: Sandbox, victims: str) -> None:
        self.box, self.victims = box, victims
        self.name = f"flood-{secrets.token_hex(3)}"
        box.create_namespace(self.name)

    def make(self, path: str, bodies: Iterator[dict[str, Any]]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: self.box.client.create(path.format(self.name), one), bodies))

    def claims(self, count: int) -> None:
        """Claims that nobody fulfils, and pods that name fifty each, also some that are not."""
        device = {"name": "r", "exactly": {"deviceClassName": "none.example.com"}}
        spec = {"devices": {"requests": [device]}}
        self.make(CLAIMS, ({"metadata": {"name": f"c{i}"}, "spec": spec} for i in range(count)))
        for i in range(count // 10):
            named = [
                {"name": f"n{at}", "resourceClaimName": f"c{(i * 50 + at) % (count + 50)}"}
                for at in range(50)
            ]
            pod = make_pod(self.name, f"claims-{i}", gpus=1, resourceClaims=named)
            self.box.client.create(PODS.format(self.name), pod)

    def lists_of_gangs(self, count: int) -> None:
        """Gangs that list each other in circles, and all gangs of the others."""
        theirs = [f"{self.victims}/job-{i}" for i in range(200)]
        for i in range(count):
            listed = [*theirs, *(f"{self.name}/l{(i + at) % count}" for at in range(40))]
            meta = {"name": f"l{i}", "annotations": {GANG_GROUPS: json.dumps(listed)}}
            body = {"apiVersion": VERSION, "kind": "PodGroup", "metadata": meta}
            self.make(GROUPS, iter([body | {"spec": {"minMember": 1}}]))
            pod = make_pod(self.name, f"l{i}", group=f"l{i}", gpus=1)
            self.box.client.create(PODS.format(self.name), pod)

    def suspended_jobs(self, count: int) -> None:
        def make(i: int) -> dict[str, Any]:
            pod = {
                "metadata": {"labels": {GROUP_LABEL: f"j{i}"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
            }
            return {"metadata": {"name": f"j{i}"}, "spec": {"suspend": True, "template": pod}}

        self.make(JOBS, map(make, range(count)))

    def pools(self) -> None:
        """Quotas in several trees, which allow few pods."""
        for i in range(POOLS):
            amount, labels = {"cpu": ALLOWED}, {TREE: f"{self.name}-{i}"}
            meta = {"name": f"{self.name}-{i}", "labels": labels}
            body = {"apiVersion": VERSION, "kind": "ElasticQuota", "metadata": meta}
            self.make(QUOTAS, iter([body | {"spec": {"min": amount, "max": amount}}]))

    def has_known_pools(self) -> bool:
        """Whether the operators have seen the quotas: they apply from then on."""
        quotas = self.box.client.get(QUOTAS.format(self.name))["items"]
        return all("status" in quota for quota in quotas)

    def pods_of_pools(self, count: int) -> None:
        """Pods of these quotas, and of quotas that are not there."""

        def make(i: int) -> dict[str, Any]:
            named = f"{self.name}-{i % POOLS}" if i % 2 else f"none-{i}"
            labels = {QUOTA: named, TREE: f"{self.name}-{i % POOLS}"}
            return make_pod(self.victims, f"q{i}", resources={"cpu": "1"}, labels=labels)

        bodies = map(make, range(count))
        self.make(
            PODS,
            ({**one, "metadata": one["metadata"] | {"namespace": self.name}} for one in bodies),
        )

    def count_started(self) -> int:
        """Count the pods of pools that have a node."""
        pods = self.box.client.get(PODS.format(self.name))["items"]
        named = [one for one in pods if one["metadata"]["name"].startswith("q")]
        return sum("nodeName" in one["spec"] for one in named)


@pytest.fixture
def flood(cluster: Cluster) -> Iterator[Flood]:
    made = Flood(cluster.box, cluster.namespace)
    yield made
    empty(cluster.box.client, made.name)


def test_hundreds_of_objects_cost_others_nothing(cluster: Cluster, flood: Flood) -> None:
    cluster.add_nodes(3)
    cluster.expect(lambda: bool(read_lease(cluster.box).get("holderIdentity")), "a leader")
    holder = read_lease(cluster.box)["holderIdentity"]
    said = len(cluster.operators.log.read_text())
    flood.pools()
    cluster.expect(flood.has_known_pools, "the quotas are known")
    flood.pods_of_pools(120)
    flood.claims(200)
    flood.lists_of_gangs(40)
    flood.suspended_jobs(100)
    cluster.gang("job-0", 2)
    cluster.expect_bound("job-0-0", "job-0-1")
    assert read_lease(cluster.box)["holderIdentity"] == holder
    cluster.operators.kill()
    cluster.operators.start()
    cluster.gang("job-1", 1)
    cluster.expect_bound("job-1-0")
    assert flood.count_started() <= POOLS * ALLOWED
    log = cluster.operators.log.read_text()[said:]
    assert "Traceback" not in log
    assert "level=error" not in log
