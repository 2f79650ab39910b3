"""Started gangs that lose members: nobody else gets the room before the replacement has it."""

import pytest
from tests.operators.conftest import GROUP_LABEL, Cluster

pytestmark = pytest.mark.sandbox


def test_the_room_of_a_lost_member_is_kept_from_a_gang_that_waits_for_it(cluster: Cluster) -> None:
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
    cluster.pod("a-2", group="a")
    cluster.expect_bound("a-2")
    assert cluster.bound()["a-2"] == spare
    assert "b-0" not in cluster.bound()
    cluster.expect_pod("b-0", "InsufficientNodes")
    cluster.add_nodes(1)
    cluster.expect_bound("b-0")


def test_what_is_kept_is_free_when_the_wait_time_is_over(cluster: Cluster) -> None:
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


def test_a_gang_that_is_deleted_keeps_nothing(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.gang("a", 2)
    cluster.expect_bound("a-0", "a-1")
    cluster.delete_pod("a-1")
    cluster.pod("alone")
    cluster.expect_pod("alone", "KeptForReplacements")
    cluster.delete_pod("a-0")
    cluster.expect_bound("alone")


def test_what_fits_of_a_non_strict_gang_is_kept_but_from_nobody_who_fits(cluster: Cluster) -> None:
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


def test_a_gang_that_joins_a_running_group_gathers_first(cluster: Cluster) -> None:
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


def test_a_gang_that_asks_for_it_is_evicted_whole_and_starts_anew(cluster: Cluster) -> None:
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


def test_a_gang_that_is_to_start_anew_goes_whole_or_stays_whole(cluster: Cluster) -> None:
    """A budget that lets one of two go keeps both, until it lets both go."""
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

    cluster.expect(lambda: "RestartProtected" in reasons(), "it is told")
    assert set(cluster.pods()) == {"a-0", "a-1"}
    assert not any(one[2] == "eviction" for one in cluster.writes())
    cluster.box.client.patch(f"{path}/budget", {"spec": {"minAvailable": 0}})
    cluster.expect(lambda: not cluster.pods(), "both go")
    cluster.expect(lambda: "RestartingGang" in reasons(), "that is told, too")


def test_losses_that_are_ignored_keep_no_room(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.pod_group("a", 2, **{"operators.koordinator.sh/on-member-failure": "Ignore"})
    for at in range(2):
        cluster.pod(f"a-{at}", group="a")
    cluster.expect_bound("a-0", "a-1")
    cluster.delete_pod("a-1")
    cluster.pod("alone")
    cluster.expect_bound("alone")
    assert "a-0" in cluster.bound()
