"""Gangs whose members end at different times: what is left of them goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import make_pod
from tests.operators.test_everyday import explain_text

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

SUB_GROUPS = "operators.koordinator.sh/sub-groups"
SUB_GROUP = "operators.koordinator.sh/sub-group"
RUN_SECONDS = "operators.koordinator.sh/demo-run-seconds"
ON_FAILURE = "operators.koordinator.sh/on-member-failure"
MATCH_POLICY = "gang.scheduling.koordinator.sh/match-policy"
GROUPS = "gang.scheduling.koordinator.sh/groups"
INDEX = "batch.kubernetes.io/job-completion-index"
SLOW_SECONDS = 100.0
"""A Job waits for ten seconds before it makes a pod again."""


def make_job(
    cluster: Cluster,
    name: str,
    pods: int,
    *,
    group: str = "",
    completions: int = 0,
    run: str = "",
    **more: Any,
) -> None:
    """Create an Indexed Job whose pods are members of a gang, of the same name by default."""
    pod = make_pod(cluster.namespace, "", gpus=1, group=group or name)
    annotations = {RUN_SECONDS: run} if run else {}
    metadata = {"labels": pod["metadata"]["labels"], "annotations": annotations}
    spec = {
        "parallelism": pods,
        "completions": completions or pods,
        "completionMode": "Indexed",
        "backoffLimit": 9,
        **more,
        "template": {"metadata": metadata, "spec": {**pod["spec"], "restartPolicy": "Never"}},
    }
    path = f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs"
    cluster.box.client.create(path, {"metadata": {"name": name}, "spec": spec})


def members(cluster: Cluster, group: str, phase: str = "Running") -> dict[int, str]:
    """Return the members in a phase: index -> name."""
    return {
        int(pod["metadata"]["labels"].get(INDEX, 0)): name
        for name, pod in cluster.pods().items()
        if pod["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io"] == group
        and pod["status"].get("phase") == phase
    }


def expect_running(cluster: Cluster, group: str, *indexes: int) -> None:
    wanted = set(indexes)
    cluster.expect(lambda: set(members(cluster, group)) == wanted, f"{group}: {indexes} run")


def end(cluster: Cluster, name: str, phase: str = "Succeeded") -> None:
    path = f"{cluster.pods_path}/{name}/status"
    cluster.box.client.patch(path, {"status": {"phase": phase}})
    cluster.expect(lambda: cluster.get_pod(name)["status"]["phase"] == phase, f"{name} {phase}")


def end_members(cluster: Cluster, group: str, phase: str, *indexes: int) -> None:
    names = members(cluster, group)
    for index in indexes:
        end(cluster, names[index], phase)


def expect_quorum(cluster: Cluster, group: str, words: str = "") -> None:
    """Wait until the status says that the quorum is reached, in these words."""
    cluster.expect_group(group, "Reached", "QuorumReached")
    cluster.expect(lambda: words in cluster.group_message(group, "QuorumReached"), words)


@pytest.fixture
def slow(cluster: Cluster) -> Cluster:
    cluster.patience = SLOW_SECONDS
    cluster.add_nodes(1)
    return cluster


@pytest.mark.parametrize("policy", ["once-satisfied", "waiting-and-running", "only-waiting"])
def test_index_is_retried_after_the_others_have_succeeded(slow: Cluster, policy: str) -> None:
    slow.pod_group("tail", 3, **{MATCH_POLICY: policy})
    make_job(slow, "tail", 3)
    expect_running(slow, "tail", 0, 1, 2)
    end_members(slow, "tail", "Succeeded", 0, 1)
    end_members(slow, "tail", "Failed", 2)
    expect_running(slow, "tail", 2)
    expect_quorum(slow, "tail", f"3 of 3 members of {slow.namespace}/tail present (2 succeeded)")
    assert "Create" not in explain_text(slow, "tail")
    end_members(slow, "tail", "Succeeded", 2)
    slow.expect(
        lambda: slow.get_group("tail").get("status", {}).get("phase") == "Finished",
        "it is finished",
    )


def test_last_wave_is_smaller_than_the_minimum(slow: Cluster) -> None:
    slow.pod_group("waves", 4)
    make_job(slow, "waves", 4, completions=5, run="4")
    slow.expect(lambda: len(members(slow, "waves", "Succeeded")) == 5, "the Job is complete")


@pytest.mark.parametrize("policy", ["once-satisfied", "waiting-and-running", "only-waiting"])
def test_gang_restarts_without_the_member_that_is_done(slow: Cluster, policy: str) -> None:
    slow.pod_group("restart", 3, **{ON_FAILURE: "RestartGang", MATCH_POLICY: policy})
    make_job(slow, "restart", 3)
    expect_running(slow, "restart", 0, 1, 2)
    healthy = members(slow, "restart")[2]
    end_members(slow, "restart", "Succeeded", 0)
    end_members(slow, "restart", "Failed", 1)
    slow.expect(lambda: healthy not in slow.pods(), "what is left restarts as a whole")
    expect_running(slow, "restart", 1, 2)
    expect_quorum(slow, "restart")


def test_member_that_was_preempted_starts_again_beside_those_that_are_done(slow: Cluster) -> None:
    """A driver and a worker of different Jobs; nothing is left of the worker that was evicted."""
    slow.pod_group("pair", 2)
    make_job(slow, "driver", 1, group="pair")
    make_job(slow, "worker", 1, group="pair")
    slow.expect(lambda: len(slow.bound()) == 2, "both run")
    names = {name.split("-")[0]: name for name in slow.bound()}
    slow.expect(lambda: slow.running("pair") == 2, "both run")
    end(slow, names["driver"])
    slow.delete_pod(names["worker"])
    slow.expect(lambda: len(slow.bound()) == 2 and names["worker"] not in slow.bound(), "again")


def test_member_whose_job_is_removed_when_it_is_done_is_not_lost(slow: Cluster) -> None:
    """A driver beside a worker that goes on; the worker is made again later, by its own Job."""
    slow.pod_group("pair", 2, **{ON_FAILURE: "RestartGang"})
    make_job(slow, "driver", 1, group="pair", ttlSecondsAfterFinished=3)
    make_job(slow, "worker", 1, group="pair")
    slow.expect(lambda: slow.running("pair") == 2, "both run")
    driver, worker = sorted(slow.bound())
    end(slow, driver)
    slow.expect(lambda: driver not in slow.pods(), "the Job of the driver is removed")
    slow.expect(
        lambda: slow.get_group("pair").get("status", {}).get("succeeded") == 0,
        "the operators see it",
    )
    expect_quorum(slow, "pair", "(1 succeeded)")
    assert slow.group_reason("pair", "Degraded") == "AtStrength"
    assert set(slow.bound()) == {worker}, "it is not evicted for a restart that cannot be whole"
    slow.operators.kill()
    slow.delete_pod(worker)
    slow.operators.start()
    slow.expect(lambda: len(slow.bound()) == 1 and worker not in slow.bound(), "again, alone")


@pytest.mark.parametrize("ttl", [None, 3], ids=["kept", "removed"])
def test_group_does_not_wait_for_a_gang_that_is_done(slow: Cluster, ttl: int | None) -> None:
    """All of the other gang is lost, so that nothing of the group lives any more."""
    listing = "[" + ",".join(f'"{slow.namespace}/{name}"' for name in ("prepare", "train")) + "]"
    for name in ("prepare", "train"):
        slow.pod_group(name, 2, **{GROUPS: listing})
        make_job(slow, name, 2, ttlSecondsAfterFinished=ttl)
    for name in ("prepare", "train"):
        expect_running(slow, name, 0, 1)
    slow.expect(lambda: "runs" in slow.get_group("train").get("status", {}), "it is remembered")
    end_members(slow, "prepare", "Succeeded", 0, 1)
    if ttl is not None:
        slow.expect(lambda: len(slow.pods()) == 2, "the Job is removed with its pods")
    lost = members(slow, "train")
    for name in lost.values():
        slow.delete_pod(name)
    slow.expect(
        lambda: len(members(slow, "train")) == 2 and not set(lost.values()) & set(slow.pods()),
        "the rest of the group runs again",
    )
    expect_quorum(slow, "train")


def test_member_of_a_sub_group_starts_again_beside_those_that_are_done(slow: Cluster) -> None:
    groups = [{"name": name, "minMember": 2} for name in "xy"]
    slow.pod_group("halves", 4, **{SUB_GROUPS: json.dumps({"groups": groups})})
    options: dict[str, Any] = {"gpus": 1, "group": "halves"}
    for name in ("x-0", "x-1", "y-0", "y-1"):
        slow.pod(name, annotations={SUB_GROUP: name[0]}, **options)
    slow.expect(lambda: slow.running("halves") == 4, "all run")
    for name in ("x-0", "y-0", "y-1"):
        end(slow, name)
    end(slow, "x-1", "Failed")
    slow.pod("x-2", annotations={SUB_GROUP: "x"}, **options)
    slow.expect_bound("x-2")


def test_answers_are_the_same_after_a_restart_of_the_operators(slow: Cluster) -> None:
    slow.pod_group("tail", 3)
    make_job(slow, "tail", 3)
    expect_running(slow, "tail", 0, 1, 2)
    end_members(slow, "tail", "Succeeded", 0, 1)
    slow.operators.kill()
    end_members(slow, "tail", "Failed", 2)
    slow.operators.start()
    expect_running(slow, "tail", 2)


def test_another_job_under_the_same_group_waits_for_its_minimum(slow: Cluster) -> None:
    slow.pod_group("again", 3)
    make_job(slow, "first", 3, group="again")
    expect_running(slow, "again", 0, 1, 2)
    end_members(slow, "again", "Succeeded", 0, 1, 2)
    make_job(slow, "second", 2, group="again")
    slow.expect_group("again", "MissingMembers")
    assert "2 of 3 members" in slow.group_message("again")
    make_job(slow, "third", 1, group="again")
    slow.expect(lambda: len(slow.bound()) == 6, "three start together")


def test_pods_that_nobody_ran_are_not_done(slow: Cluster) -> None:
    """Who can write a status cannot start a gang below its minimum."""
    slow.pod_group("liar", 3)
    held: dict[str, Any] = {"gpus": 1, "group": "liar", "gates": ("example.com/never",)}
    slow.pod("pretends", **held)
    end(slow, "pretends")
    for name in ("a", "b"):
        slow.pod(name, gpus=1, group="liar")
    slow.expect_group("liar", "MissingMembers")
    assert "2 of 3 members" in slow.group_message("liar")
    assert not slow.bound()
