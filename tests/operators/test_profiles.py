"""ElasticQuotaProfiles: a tree of quotas for the selected nodes, limited by their capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.operators.test_quotas import GPU, PREFIX, Quotas

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster


class Profiles:
    """The profiles of one test; each selects the nodes that carry its name."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client = cluster.box.client
        group = "/apis/quota.koordinator.sh/v1alpha1"
        self._path = f"{group}/namespaces/{cluster.namespace}/elasticquotaprofiles"

    def create(self, name: str, quota: str, *pools: str, **annotations: str) -> None:
        wanted = {"key": "pool", "operator": "In", "values": self.pools(*pools)}
        body = {
            "apiVersion": "quota.koordinator.sh/v1alpha1",
            "kind": "ElasticQuotaProfile",
            "metadata": {
                "name": name,
                "annotations": {
                    f"{PREFIX}resource-keys": f'["cpu","{GPU}"]',
                    **{f"operators.koordinator.sh/{k}": v for k, v in annotations.items()},
                },
            },
            "spec": {
                "quotaName": quota,
                "quotaLabels": {f"{PREFIX}is-parent": "true"},
                "nodeSelector": {"matchExpressions": [wanted]},
            },
        }
        self._client.create(self._path, body)

    def pools(self, *names: str) -> list[str]:
        return [f"{self._cluster.namespace}-{name}" for name in names]

    def put(self, node: str, pool: str) -> None:
        labels = {"pool": self.pools(pool)[0]}
        self._client.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})

    def annotate(self, name: str, **annotations: str) -> None:
        body = {"metadata": {"annotations": {f"{PREFIX}{k}": v for k, v in annotations.items()}}}
        self._client.patch(f"{self._path}/{name}", body)

    def delete(self, name: str) -> None:
        self._client.delete(f"{self._path}/{name}")

    def get(self, name: str) -> dict[str, Any]:
        return self._client.get(f"{self._path}/{name}")

    def condition(self, name: str, kind: str) -> tuple[str, str, str]:
        return self._cluster.condition(self.get(name), kind)

    def wait(self, name: str, kind: str, *expected: str) -> None:
        self._cluster.expect(
            lambda: self.condition(name, kind)[: len(expected)] == expected,
            f"{kind} of {name} is {expected}",
        )


def total_of(quota: dict[str, Any]) -> str:
    return quota["metadata"]["annotations"].get(f"{PREFIX}total-resource", "")


def test_capacity_follows_the_labels_of_nodes(cluster: Cluster) -> None:
    profiles, quotas = Profiles(cluster), Quotas(cluster)
    first, second = cluster.add_nodes(2)
    profiles.put(first, "a")
    profiles.create("a", quotas.name("root"), "a")
    profiles.wait("a", "Ready", "True", "Made")
    made = quotas.get("root")
    assert f'"{GPU}":"8"' in total_of(made)
    assert made["metadata"]["labels"][f"{PREFIX}tree-id"] == profiles.get("a")["status"]["tree"]
    assert made["spec"]["min"] == {"cpu": "64", GPU: "8"}
    quotas.create("team", 0, 100, {"parent": quotas.name("root")})
    cluster.gang("job", 2, labels=quotas.label("team"))
    cluster.expect(lambda: "Insufficient" in cluster.group_reason("job"), "8 are too few")
    assert not cluster.bound()
    name, where = quotas.name("root"), quotas.get("root")["metadata"]["namespace"]

    def show() -> str:
        return cluster.box.kubectl("get", "elasticquotas", name, "-n", where)

    cluster.expect(lambda: "unlimited" in show(), "kubectl says that the max is none")
    assert "9007199254740992" not in show()
    profiles.put(second, "a")
    cluster.expect_bound("job-0", "job-1")
    profiles.put(second, "b")
    cluster.expect(lambda: f'"{GPU}":"8"' in total_of(quotas.get("root")), "it left the tree")
    cluster.expect(lambda: profiles.get("a")["status"]["nodes"] == 1, "the profile says so")


def test_quota_that_the_profile_does_not_own_stays_and_is_reported(cluster: Cluster) -> None:
    profiles, quotas = Profiles(cluster), Quotas(cluster)
    (node,) = cluster.add_nodes(1)
    profiles.put(node, "a")
    quotas.create("mine", 0, 8)
    before = quotas.get("mine")["spec"]
    profiles.create("a", quotas.name("mine"), "a")
    profiles.wait("a", "Ready", "False", "QuotaNotOurs")
    assert quotas.get("mine")["spec"] == before
    profiles.create("b", quotas.name("root"), "a", **{"deletion-policy": "Delete"})
    for name in "ab":
        profiles.wait(name, "NodeOverlap", "True", "NodesShared")
    profiles.wait("b", "Ready", "True", "Made")
    (owner,) = quotas.get("root")["metadata"]["ownerReferences"]
    assert owner["uid"] == profiles.get("b")["metadata"]["uid"], "it goes with its profile"
    profiles.delete("b")
    profiles.wait("a", "NodeOverlap", "False")


def test_manual_changes_of_a_managed_quota_are_reverted(cluster: Cluster) -> None:
    profiles, quotas = Profiles(cluster), Quotas(cluster)
    profiles.put(cluster.add_nodes(1)[0], "a")
    profiles.create("a", quotas.name("root"), "a")
    profiles.wait("a", "Ready", "True", "Made")
    most = quotas.get("root")["spec"]["max"]
    quotas.set_max("root", 100)
    cluster.expect(lambda: quotas.get("root")["spec"]["max"] == most, "max is as it was")


def test_last_valid_spec_stays_active_after_an_invalid_edit_without_operators(
    cluster: Cluster,
) -> None:
    profiles, quotas = Profiles(cluster), Quotas(cluster)
    first, second = cluster.add_nodes(2)
    profiles.put(first, "a")
    profiles.create("a", quotas.name("root"), "a")
    profiles.wait("a", "Ready", "True", "Made")
    cluster.operators.kill()
    profiles.annotate("a", **{"resource-keys": "gpu"})
    cluster.operators.start()
    profiles.wait("a", "Ready", "False", "InvalidSettings")
    text = profiles.condition("a", "Ready")[2]
    assert f"[{PREFIX}resource-keys]: gpu: is not JSON" in text
    assert "the last valid settings stay active" in text
    profiles.put(second, "a")
    cluster.expect(lambda: f'"{GPU}":"16"' in total_of(quotas.get("root")), "it goes on")
    assert quotas.get("root")["spec"]["min"] == {"cpu": "128", GPU: "16"}
    profiles.annotate("a", **{"resource-keys": f'["{GPU}"]'})
    profiles.wait("a", "Ready", "True", "Made")
    cluster.expect(lambda: quotas.get("root")["spec"]["min"] == {GPU: "16"}, "it is corrected")
