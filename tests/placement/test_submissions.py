"""The submission limit: pods above it stay pending and take no share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.builders import GPU, make_pod_group
from tests.cluster import FakeCluster
from tests.placement.test_quotas import gang, make_teams, ready, team, used, worker

from koord.core.quota.reasons import QuotaShortage, SubmissionExceeded

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

LIMITED = team("t", most=64, admission={GPU: 16})


def submit(cluster: FakeCluster, *names: str, quota: str = "t") -> None:
    for at, name in enumerate(names):
        cluster.pods(worker(name, quota).created(float(at)).build())


def test_older_pods_are_within_the_submission_limit() -> None:
    cluster = make_teams(4, LIMITED)
    submit(cluster, "a", "b", "c", "d")
    assert sorted(cluster.step()) == ["a", "b"]
    reasons = {one.unit.key: one.reason for one in cluster.queue.blocked.values()}
    short = (QuotaShortage(GPU, limit=16, used=16, requested=8),)
    assert set(reasons.values()) == {SubmissionExceeded("q/t", short)}
    assert len(reasons) == 2


def test_pods_are_admitted_when_others_end_or_the_limit_is_raised() -> None:
    cluster = make_teams(4, LIMITED)
    submit(cluster, "a", "b", "c", "d")
    cluster.step()
    cluster.delete_pods("a")
    assert ready(cluster) == 1
    assert cluster.step() == ["c"]
    cluster.quotas(replace(LIMITED, admission={GPU: 24}))
    assert cluster.step() == ["d"]


def test_running_pods_are_within_the_limit_before_older_pending_ones() -> None:
    cluster = make_teams(4, LIMITED)
    submit(cluster, "early")
    cluster.pods(*(worker(name, "t").created(9.0).running("n0").build() for name in ("x", "y")))
    assert cluster.step() == []
    assert used(cluster, "t") == 16


def test_a_gang_partly_above_the_limit_stays_pending() -> None:
    cluster = make_teams(4, LIMITED)
    cluster.pod_groups(make_pod_group("default/g", min_member=3))
    cluster.pods(*gang("g", "t", 3))
    assert cluster.step() == []
    assert isinstance(cluster.reason(), SubmissionExceeded)


def test_pods_above_the_limit_take_no_share_from_others() -> None:
    cluster = make_teams(4, replace(LIMITED, admission={GPU: 8}), team("other", most=64))
    submit(cluster, *"abcdefgh")
    submit(cluster, *"uvwx", quota="other")
    ledger = cluster.state.open_ledger()
    assert (ledger.account("t").share[GPU], ledger.account("other").share[GPU]) == (8, 24)


def test_the_limit_holds_when_another_quota_is_created_or_deleted() -> None:
    """Pods that have not changed since are counted all the same."""
    cluster = make_teams(4, LIMITED)
    submit(cluster, "a", "b")
    assert sorted(cluster.step()) == ["a", "b"]
    cluster.quotas(team("other", most=64))
    cluster.step()
    submit(cluster, "c")
    assert cluster.step() == []
    assert isinstance(cluster.reason(), SubmissionExceeded)
