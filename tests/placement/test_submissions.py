"""How much may wait and run in a quota together: what is beyond that waits, and takes no share."""

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


def test_what_came_first_is_within_the_limit() -> None:
    cluster = make_teams(4, LIMITED)
    submit(cluster, "a", "b", "c", "d")
    assert sorted(cluster.step()) == ["a", "b"]
    reasons = {one.unit.key: one.reason for one in cluster.queue.blocked.values()}
    short = (QuotaShortage(GPU, limit=16, used=16, asked=8),)
    assert set(reasons.values()) == {SubmissionExceeded("q/t", short)}
    assert len(reasons) == 2


def test_the_next_ones_are_let_in_when_pods_end_and_when_the_limit_is_raised() -> None:
    cluster = make_teams(4, LIMITED)
    submit(cluster, "a", "b", "c", "d")
    cluster.step()
    cluster.delete_pods("a")
    assert ready(cluster) == 1
    assert cluster.step() == ["c"]
    cluster.quotas(replace(LIMITED, admission={GPU: 24}))
    assert cluster.step() == ["d"]


def test_what_runs_is_within_the_limit_whatever_came_first() -> None:
    cluster = make_teams(4, LIMITED)
    submit(cluster, "early")
    cluster.pods(*(worker(name, "t").created(9.0).running("n0").build() for name in ("x", "y")))
    assert cluster.step() == []
    assert used(cluster, "t") == 16


def test_a_gang_that_is_beyond_in_part_waits_whole() -> None:
    cluster = make_teams(4, LIMITED)
    cluster.pod_groups(make_pod_group("default/g", min_member=3))
    cluster.pods(*gang("g", "t", 3))
    assert cluster.step() == []
    assert isinstance(cluster.reason(), SubmissionExceeded)


def test_what_is_beyond_takes_no_share_from_others() -> None:
    cluster = make_teams(4, replace(LIMITED, admission={GPU: 8}), team("other", most=64))
    submit(cluster, *"abcdefgh")
    submit(cluster, *"uvwx", quota="other")
    ledger = cluster.state.open_ledger()
    assert (ledger.account("t").share[GPU], ledger.account("other").share[GPU]) == (8, 24)


def test_the_limit_holds_when_another_quota_has_come_or_gone() -> None:
    """Pods that have not changed since are counted all the same."""
    cluster = make_teams(4, LIMITED)
    submit(cluster, "a", "b")
    assert sorted(cluster.step()) == ["a", "b"]
    cluster.quotas(team("other", most=64))
    cluster.step()
    submit(cluster, "c")
    assert cluster.step() == []
    assert isinstance(cluster.reason(), SubmissionExceeded)
