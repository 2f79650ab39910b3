"""A low-priority gang that has lost a member does not keep its room from one of high priority."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.test_everyday import explain_text, koord

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

HI, LO = "case-hi", "case-lo"


@pytest.fixture
def broken(cluster: Cluster) -> Cluster:
    """Four nodes, and a gang of low priority that has lost one of its two members."""
    cluster.priority_class(HI, 1_000_000)
    cluster.priority_class(LO, 1000)
    cluster.add_nodes(4)
    cluster.gang("kg", 2, priorityClassName=LO)
    cluster.expect_bound("kg-0", "kg-1")
    cluster.expect(lambda: cluster.running("kg") == 2, "both run")
    cluster.delete_pod("kg-1")
    cluster.expect_group("kg", "BelowMin", "Degraded")
    return cluster


def dry_run(cluster: Cluster, name: str) -> dict[str, Any]:
    done = koord(
        cluster, "preempt", f"pg/{name}", "--dry-run", "-n", cluster.namespace, "-o", "json"
    )
    return dict(json.loads(done.stdout))


def test_gang_of_higher_priority_takes_the_room_and_nobody_is_evicted(broken: Cluster) -> None:
    broken.gang("hh", 3, priorityClassName=HI)
    broken.expect_bound("hh-0", "hh-1", "hh-2")
    assert "kg-0" in broken.bound()
    broken.pod("kg-2", group="kg", priorityClassName=LO)
    broken.expect_pod("kg-2", "InsufficientNodes")


def test_gang_of_higher_priority_preempts_what_is_left_if_it_needs_that_too(
    broken: Cluster,
) -> None:
    broken.gang("hh", 4, priorityClassName=HI)
    broken.expect_bound("hh-0", "hh-1", "hh-2", "hh-3")
    assert "kg-0" not in broken.bound()


def test_operators_and_dry_run_agree_where_the_room_is_kept(broken: Cluster) -> None:
    broken.gang("same", 3, priorityClassName=LO)
    broken.expect_pod("same-0", "KeptForReplacements")
    answer = dry_run(broken, "same")
    assert not answer["preempts"], answer
    assert "operators do so" not in explain_text(broken, "same")
    broken.gang("hh", 2, priorityClassName=HI)
    broken.expect_bound("hh-0", "hh-1")


def test_gang_that_must_not_be_evicted_keeps_its_room(cluster: Cluster) -> None:
    cluster.priority_class(HI, 1_000_000)
    cluster.add_nodes(3)
    allow = "operators.koordinator.sh/allow-disable-preemptible=true"
    cluster.box.kubectl("label", "namespace", cluster.namespace, allow)
    protected = {"scheduling.koordinator.sh/disable-preemptible": "true"}
    cluster.gang("kg", 2, labels=protected)
    cluster.expect_bound("kg-0", "kg-1")
    cluster.expect(lambda: cluster.running("kg") == 2, "both run")
    cluster.delete_pod("kg-1")
    cluster.expect_group("kg", "BelowMin", "Degraded")
    cluster.gang("hh", 2, priorityClassName=HI)
    cluster.expect_pod("hh-0", "KeptForReplacements")
    assert not dry_run(cluster, "hh")["preempts"]
    cluster.pod("kg-2", group="kg", labels=protected)
    cluster.expect_bound("kg-2")
