"""Bad input is rejected or explained, and never affects other gangs."""

import json

import pytest
from tests.operators.conftest import Cluster

from koord_sandbox.client import SandboxApiError

GANG = "gang.scheduling.koordinator.sh/"


@pytest.fixture(autouse=True)
def others_go_on(cluster: Cluster):
    """After each test an ordinary gang must still be placed."""
    cluster.add_nodes(2)
    yield
    for name in cluster.pods():
        cluster.delete_pod(name)
    cluster.gang("ordinary", 2)
    cluster.expect_bound("ordinary-0", "ordinary-1")


@pytest.mark.parametrize("minimum", [0, -1, 10**9, "two", 1.5, None])
def test_invalid_minimum_is_rejected_by_the_server(cluster: Cluster, minimum: object) -> None:
    with pytest.raises(SandboxApiError) as refused:
        cluster.pod_group("a", minimum)  # type: ignore[arg-type]
    assert refused.value.status == 422
    assert "minMember" in str(refused.value)


def test_unknown_fields_are_ignored(cluster: Cluster) -> None:
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{cluster.namespace}/podgroups"
    body = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "a"},
        "spec": {"minMember": 1, "minimumMembers": 3},
    }
    with pytest.raises(SandboxApiError, match="minimumMembers"):
        cluster.box.client.create(f"{path}?fieldValidation=Strict", body)
    cluster.box.client.create(path, body)
    cluster.pod("a-0", group="a")
    cluster.expect_bound("a-0")


@pytest.mark.parametrize("groups", ["{", "[1]", '{"a":"b"}', "ns/a,ns/b"])
def test_groups_annotation_without_a_list_is_ignored(cluster: Cluster, groups: str) -> None:
    cluster.pod_group("a", 1, **{f"{GANG}groups": groups})
    cluster.pod("a-0", group="a")
    cluster.expect_bound("a-0")
    cluster.expect_group("a", "InvalidAnnotation", "SpecValid")
    assert f"{GANG}groups" in cluster.condition(cluster.get_group("a"), "SpecValid")[2]


def test_group_with_an_invalid_gang_key_waits_with_a_reason(cluster: Cluster) -> None:
    cluster.pod_group("a", 1, **{f"{GANG}groups": '["no-slash"]'})
    cluster.pod("a-0", group="a")
    cluster.expect_pod("a-0", "MissingGang")
    cluster.expect(lambda: "no-slash" in cluster.group_message("a", "SpecValid"), "and which")


def test_group_waits_for_a_missing_gang_and_names_it(cluster: Cluster) -> None:
    groups = json.dumps([f"{cluster.namespace}/a", f"{cluster.namespace}/ghost"])
    cluster.pod_group("a", 1, **{f"{GANG}groups": groups})
    cluster.pod("a-0", group="a")
    cluster.expect_pod("a-0", "MissingGang")
    cluster.expect(lambda: "ghost" in cluster.group_message("a", "Placed"), "and which")


def test_one_sided_group_blocks_only_the_gang_that_lists_the_other(cluster: Cluster) -> None:
    groups = json.dumps([f"{cluster.namespace}/a", f"{cluster.namespace}/b"])
    cluster.pod_group("a", 1, **{f"{GANG}groups": groups})
    cluster.pod_group("b", 1)
    cluster.pod("a-0", group="a", gpus=1)
    cluster.pod("b-0", group="b", gpus=1)
    cluster.expect_bound("b-0")
    cluster.expect_pod("a-0", "InconsistentGroup")


def test_pods_of_a_missing_pod_group_wait_for_it(cluster: Cluster) -> None:
    cluster.pod("a-0", group="a")
    cluster.expect_pod("a-0", "MissingPodGroup")
    cluster.pod_group("a", 1)
    cluster.expect_bound("a-0")


def test_gang_starts_when_its_minimum_is_lowered(cluster: Cluster) -> None:
    cluster.pod_group("a", 3)
    cluster.pod("a-0", group="a")
    cluster.expect_pod("a-0", "MissingMembers")
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{cluster.namespace}/podgroups/a"
    cluster.box.client.patch(path, {"spec": {"minMember": 1}})
    cluster.expect_bound("a-0")


def test_replacement_waits_when_the_pod_group_was_deleted(cluster: Cluster) -> None:
    cluster.gang("a", 2)
    cluster.expect_bound("a-0", "a-1")
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{cluster.namespace}/podgroups/a"
    cluster.box.client.delete(path)
    cluster.delete_pod("a-0")
    cluster.pod("a-0", group="a")
    cluster.expect_pod("a-0", "MissingPodGroup")
    assert set(cluster.bound()) == {"a-1"}


def test_pods_recreated_under_the_same_names_are_bound(cluster: Cluster) -> None:
    cluster.gang("a", 2)
    for _ in range(3):
        cluster.expect_bound("a-0", "a-1")
        for at in range(2):
            cluster.delete_pod(f"a-{at}")
        for at in range(2):
            cluster.pod(f"a-{at}", group="a")
    cluster.expect_bound("a-0", "a-1")


def test_huge_annotations_do_not_prevent_placement(cluster: Cluster) -> None:
    huge = "x" * 120_000
    cluster.pod("p", annotations={"example.com/huge": huge, f"{GANG}groups": huge})
    cluster.expect_bound("p")
    cluster.pod_group("a", 1, **{f"{GANG}groups": huge})
    cluster.pod("a-0", group="a")
    cluster.expect_bound("a-0")
    with pytest.raises(SandboxApiError):
        cluster.pod("q", annotations={"example.com/huge": "x" * (1 << 20)})


def test_pod_with_an_impossible_request_is_unschedulable(cluster: Cluster) -> None:
    cluster.pod("p", gpus=2**31)
    cluster.expect_pod("p", "NoSuitableNode")


def test_invalid_quota_that_the_server_accepts_is_reported_in_its_status(cluster: Cluster) -> None:
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{cluster.namespace}/elasticquotas"
    quota = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q"},
        "spec": {"min": {"example.com/x": "5"}, "max": {"example.com/x": "3"}},
    }
    cluster.box.client.create(path, quota)

    def accepted() -> tuple[str, str, str]:
        return cluster.condition(cluster.box.client.get(f"{path}/q"), "Accepted")

    cluster.expect(lambda: accepted()[:2] == ("False", "Invalid"), "it is refused")
    assert "example.com/x" in accepted()[2]
    cluster.box.client.patch(f"{path}/q", {"spec": {"max": {"example.com/x": "5"}}})
    cluster.expect(lambda: accepted()[:2] == ("True", "Valid"), "it is accepted")


def test_invalid_topology_annotation_is_reported_on_the_pod_group(cluster: Cluster) -> None:
    cluster.pod_group("a", 2, **{f"{GANG}network-topology-spec": "{"})
    cluster.expect_group("a", "InvalidAnnotation", "SpecValid")
    assert f"{GANG}network-topology-spec" in cluster.group_message("a", "SpecValid")
