"""The first Job of the README is preempted once: it waits, and starts again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.docs.markdown import parse_page

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

README = Path(__file__).parents[2] / "README.md"
MEMBERS = 3
BACKOFF_LIMIT = 2
"""Less than its members, so that one preemption is enough to fail a Job. With more members than the
default limit it takes minutes until a Job makes its pods again."""


def read_documented() -> list[dict[str, Any]]:
    (block,) = (one for one in parse_page(README, "README.md") if one.title == "train.yaml")
    return list(yaml.safe_load_all(block.text))


def create(cluster: Cluster, priority: str, members: int = MEMBERS, **changes: Any) -> None:
    """Create the PodGroup and the Job of the README on the test's nodes."""
    group, job = read_documented()
    assert group["spec"]["minMember"] == job["spec"]["completions"] == MEMBERS
    group["spec"]["minMember"] = members
    cluster.box.client.create(cluster.groups_path, group)
    job["spec"] |= {"parallelism": members, "completions": members, **changes}
    pod = job["spec"]["template"]["spec"]
    pod |= {"nodeSelector": {"test": cluster.namespace}, "priorityClassName": priority}
    pod["terminationGracePeriodSeconds"] = 1
    cluster.box.client.create(jobs_path(cluster), job)


def jobs_path(cluster: Cluster) -> str:
    return f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs"


def has_failed(cluster: Cluster) -> bool:
    job = cluster.box.client.get(f"{jobs_path(cluster)}/train")
    conditions = job.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Failed" and one["status"] == "True" for one in conditions)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("survives", [True, False], ids=["as documented", "without the policy"])
def test_the_documented_job_survives_its_first_preemption(
    cluster: Cluster, *, survives: bool
) -> None:
    cluster.patience = 100.0
    cluster.priority_class("first-low", 100)
    cluster.priority_class("first-high", 1000)
    cluster.add_nodes(1)
    policy = {} if survives else {"podFailurePolicy": None}
    create(cluster, "first-low", backoffLimit=BACKOFF_LIMIT, **policy)
    cluster.expect(lambda: cluster.running("train") == MEMBERS, "it runs")
    cluster.gang("urgent", 1, priorityClassName="first-high")
    cluster.expect_bound("urgent-0")
    if not survives:
        cluster.expect(lambda: has_failed(cluster), "it has failed")
        return
    waits = {"InsufficientNodes", "MissingMembers"}
    cluster.expect(lambda: cluster.group_reason("train") in waits, "it waits")
    cluster.delete_pod("urgent-0")
    cluster.expect(lambda: cluster.running("train") == MEMBERS, "it runs again")
    assert not has_failed(cluster)


@pytest.mark.timeout(300)
def test_the_pods_of_a_large_job_are_made_again_soon_if_failures_count_by_index(
    cluster: Cluster,
) -> None:
    """Otherwise the Job waits twice as long with each pod that was evicted, up to ten minutes."""
    cluster.patience = 100.0
    cluster.priority_class("first-low", 100)
    cluster.priority_class("first-high", 1000)
    cluster.add_nodes(1)
    create(cluster, "first-low", 8, completionMode="Indexed", backoffLimitPerIndex=2)
    cluster.expect(lambda: cluster.running("train") == 8, "it runs")
    cluster.gang("urgent", 1, priorityClassName="first-high")
    cluster.expect_bound("urgent-0")
    cluster.delete_pod("urgent-0")
    cluster.expect(lambda: len(cluster.bound()) == 8, "it runs again")
    assert not has_failed(cluster)
