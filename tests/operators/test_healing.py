"""Started gangs that lose members: their room is kept for the replacements."""

import pytest
from tests.operators.conftest import GROUP_LABEL, Cluster
from tests.operators.test_everyday import ask

pytestmark = pytest.mark.sandbox


def test_room_of_a_lost_member_is_kept_from_a_waiting_gang(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.gang("a", 2)
    cluster.expect_bound("a-0", "a-1")
    cluster.gang("b", 1)
    cluster.expect_pod("b-0", "InsufficientNodes")
    lost = cluster.bound()["a-1"]
    cluster.box.client.delete(f"/api/v1/nodes/{lost}")
    cluster.delete_pod("a-1")
    cluster.expect_group("a", "BelowMin", "Degraded")
    (spare,) = cluster.add_nodes(1)
    cluster.expect_pod("b-0", "KeptForReplacements")
    cluster.expect_group("b", "KeptForReplacements")
    assert f"{cluster.namespace}/a" in cluster.group_message("b")
    for asked in ("pod/b-0", "pg/b"):
        answer = ask(cluster, "explain", asked, "-n", cluster.namespace)
        found = (answer["standing"], answer["reason"]["code"], answer["warnings"])
        assert found == ("Waiting", "KeptForReplacements", [])
        assert f"annotate the PodGroups of {cluster.namespace}/a with" in answer["advice"][0]
    (waiting,) = ask(cluster, "queue", "-n", cluster.namespace)["waiting"]
    assert waiting["reason"] == "KeptForReplacements"
    cluster.pod("a-2", group="a")
    cluster.expect_bound("a-2")
    assert cluster.bound()["a-2"] == spare
    assert "b-0" not in cluster.bound()
    cluster.expect_pod("b-0", "InsufficientNodes")
    cluster.add_nodes(1)
    cluster.expect_bound("b-0")


def test_kept_room_is_freed_after_the_wait_time(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.gang("a", 2)
    cluster.expect_bound("a-0", "a-1")
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{cluster.namespace}/podgroups/a"
    cluster.box.client.patch(path, {"spec": {"scheduleTimeoutSeconds": 5}})
    seen = "observedGeneration"
    cluster.expect(lambda: cluster.get_group("a").get("status", {}).get(seen) == 2, "it is seen")
    cluster.delete_pod("a-1")
    cluster.pod("alone")
    cluster.expect_pod("alone", "KeptForReplacements")
    cluster.expect_bound("alone")


def test_deleted_gang_keeps_no_room(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.gang("a", 2)
    cluster.expect_bound("a-0", "a-1")
    cluster.delete_pod("a-1")
    cluster.pod("alone")
    cluster.expect_pod("alone", "KeptForReplacements")
    cluster.delete_pod("a-0")
    cluster.expect_bound("alone")


def test_room_of_a_waiting_non_strict_gang_is_available_to_pods_that_fit(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    mode = {"gang.scheduling.koordinator.sh/mode": "NonStrict"}
    cluster.pod_group("a", 3, **mode)
    for at in range(3):
        cluster.pod(f"a-{at}", group="a")
    cluster.expect_pod("a-0", "InsufficientNodes")
    cluster.pod("alone")
    cluster.expect_bound("alone")
    assert set(cluster.bound()) == {"alone"}
    cluster.add_nodes(2)
    cluster.expect_bound("a-0", "a-1", "a-2")


def test_gang_that_joins_a_started_group_waits_for_its_members(cluster: Cluster) -> None:
    cluster.add_nodes(3)
    key = "gang.scheduling.koordinator.sh/groups"
    both = f'["{cluster.namespace}/a", "{cluster.namespace}/b"]'
    cluster.pod_group("a", 1)
    cluster.pod("a-0", group="a")
    cluster.expect_bound("a-0")
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{cluster.namespace}/podgroups/a"
    cluster.box.client.patch(path, {"metadata": {"annotations": {key: both}}})
    cluster.pod_group("b", 2, **{key: both})
    cluster.pod("b-0", group="b")
    cluster.expect_pod("b-0", "MissingMembers")
    cluster.delete_pod("a-0")
    cluster.pod("a-1", group="a")
    cluster.pod("b-1", group="b")
    cluster.expect_bound("a-1", "b-0", "b-1")


def test_gang_with_restart_policy_is_evicted_and_restarts(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    policy = {"operators.koordinator.sh/on-member-failure": "RestartGang"}
    cluster.pod_group("a", 2, **policy)
    for at in range(2):
        cluster.pod(f"a-{at}", group="a")
    cluster.expect_bound("a-0", "a-1")
    cluster.delete_pod("a-1")
    cluster.expect(lambda: not cluster.pods(), "the survivor goes too")
    assert ("create", "pods", "eviction", "a-0") in cluster.writes()
    cluster.pod("a-2", group="a")
    cluster.expect_pod("a-2", "MissingMembers")
    cluster.pod("a-3", group="a")
    cluster.expect_bound("a-2", "a-3")


def test_budget_blocks_a_gang_restart_until_it_allows_all_evictions(
    cluster: Cluster,
) -> None:
    """A budget that allows one of two evictions keeps both pods."""
    cluster.add_nodes(3)
    path = f"/apis/policy/v1/namespaces/{cluster.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 2, "selector": {"matchLabels": {GROUP_LABEL: "a"}}}
    cluster.box.client.create(path, {"metadata": {"name": "budget"}, "spec": spec})
    cluster.pod_group("a", 3, **{"gang.scheduling.koordinator.sh/match-policy": "only-waiting"})
    for at in range(3):
        cluster.pod(f"a-{at}", group="a")
    cluster.expect(lambda: cluster.running("a") == 3, "it runs")
    cluster.delete_pod("a-2")
    events = f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"

    def reasons() -> set[str]:
        return {one["reason"] for one in cluster.box.client.get(events)["items"]}

    cluster.expect(lambda: "RestartProtected" in reasons(), "the reason is reported")
    assert set(cluster.pods()) == {"a-0", "a-1"}
    assert not any(one[2] == "eviction" for one in cluster.writes())
    cluster.box.client.patch(f"{path}/budget", {"spec": {"minAvailable": 0}})
    cluster.expect(lambda: not cluster.pods(), "both go")
    cluster.expect(lambda: "RestartingGang" in reasons(), "the restart is reported")


def test_ignored_losses_keep_no_room(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.pod_group("a", 2, **{"operators.koordinator.sh/on-member-failure": "Ignore"})
    for at in range(2):
        cluster.pod(f"a-{at}", group="a")
    cluster.expect_bound("a-0", "a-1")
    cluster.delete_pod("a-1")
    cluster.pod("alone")
    cluster.expect_bound("alone")
    assert "a-0" in cluster.bound()
