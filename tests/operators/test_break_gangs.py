"""Misuse of gangs: none starts in part, and none waits without a reason."""

import json

import pytest
from tests.operators.conftest import GROUP_LABEL, Cluster

GANG = "gang.scheduling.koordinator.sh/"
MAX_ANNOTATIONS = 256 * 1024
"""Limit of the API server for all annotations of an object, in bytes."""


def relabel(cluster: Cluster, pod: str, **labels: str | None) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod}"
    cluster.box.client.patch(path, {"metadata": {"labels": labels}})


def test_waiting_pod_that_joins_a_gang_no_longer_starts_alone(cluster: Cluster) -> None:
    cluster.pod("p")
    cluster.expect_pod("p", "InsufficientNodes")
    cluster.pod_group("a", 2)
    relabel(cluster, "p", **{GROUP_LABEL: "a"})
    cluster.expect_pod("p", "MissingMembers")
    cluster.add_nodes(2)
    cluster.pod("alone", gpus=8)
    cluster.expect_bound("alone")
    assert set(cluster.bound()) == {"alone"}
    cluster.add_nodes(1)
    cluster.pod("q", group="a")
    cluster.expect_bound("p", "q")


def test_bound_pod_that_joins_a_gang_does_not_start_it(cluster: Cluster) -> None:
    cluster.add_nodes(4)
    cluster.pod("p")
    cluster.expect_bound("p")
    cluster.pod_group("a", 3)
    relabel(cluster, "p", **{GROUP_LABEL: "a"})
    cluster.pod("a-0", group="a")
    cluster.expect_pod("a-0", "MissingMembers")
    assert set(cluster.bound()) == {"p"}
    cluster.pod("a-1", group="a")
    cluster.expect_bound("a-0", "a-1")


def test_status_of_a_gang_that_waits_repeatedly(cluster: Cluster) -> None:
    """Two operators write the condition Placed in turn, without conflicts."""
    cluster.gang("a", 2)
    for _ in range(2):
        cluster.expect_group("a", "InsufficientNodes")
        cluster.delete_pod("a-1")
        cluster.expect_group("a", "MissingMembers")
        cluster.pod("a-1", group="a")
        cluster.expect_group("a", "Reached", "QuorumReached")
    cluster.expect_group("a", "InsufficientNodes")
    cluster.add_nodes(2)
    cluster.expect_group("a", "Planned")
    cluster.expect_group("a", "AllBound", "Bound")


def test_member_that_cannot_be_written_is_reported_on_all_members(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.pod_group("a", 2)
    cluster.pod("a-0", group="a")
    cluster.pod("a-1", group="a", annotations={"x/y": "z" * (MAX_ANNOTATIONS - 20)})
    for name in ("a-0", "a-1"):
        cluster.expect_pod(name, "TooLarge")
    cluster.expect_group("a", "TooLarge")
    assert f"{cluster.namespace}/a-1" in cluster.group_message("a")
    assert not cluster.bound()
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/a-1"
    cluster.box.client.patch(path, {"metadata": {"annotations": {"x/y": None}}})
    cluster.expect_bound("a-0", "a-1")


def test_gang_name_with_a_comma_is_refused(cluster: Cluster) -> None:
    groups = json.dumps([f"{cluster.namespace}/{name}" for name in "ab"])
    for name in "ab":
        cluster.pod_group(name, 2, **{f"{GANG}groups": groups})
        cluster.pod(f"{name}-0", group=name, gpus=1)
    evil = {f"{GANG}name": f"a,{cluster.namespace}/b", f"{GANG}min-available": "1"}
    cluster.pod("evil", annotations=evil, gpus=1)
    cluster.expect_pod("evil", "InvalidAnnotation")
    cluster.expect_pod("a-0", "MissingMembers")
    cluster.add_nodes(1)
    for name in "ab":
        cluster.pod(f"{name}-1", group=name, gpus=1)
    cluster.expect_bound("a-0", "a-1", "b-0", "b-1")
    assert "evil" not in cluster.bound()


@pytest.mark.parametrize("text", [r'["\ud800/a"]', r'["ns/\udfff"]'])
def test_lone_surrogate_in_groups_annotation_is_reported(cluster: Cluster, text: str) -> None:
    cluster.pod_group("a", 2, **{f"{GANG}groups": text})
    cluster.pod("a-0", group="a")
    cluster.expect_group("a", "InvalidAnnotation", "SpecValid")
    cluster.expect_pod("a-0", "MissingMembers")


def test_status_of_a_gang_placed_after_a_restart(quiet_cluster: Cluster) -> None:
    """The status of the previous process is removed; otherwise later writes would conflict."""
    cluster = quiet_cluster
    cluster.operators.start()
    cluster.gang("a", 2)
    cluster.expect_group("a", "InsufficientNodes")
    cluster.operators.kill()
    cluster.add_nodes(2)
    cluster.operators.start()
    cluster.expect_group("a", "Planned")
    cluster.expect(lambda: "attempts" not in cluster.get_group("a")["status"], "taken back")
    cluster.delete_pod("a-0")
    cluster.expect_group("a", "BelowMin", "Degraded")
