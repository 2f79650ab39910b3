"""Quotas fail closed: pods whose quota is lost do not start for that."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import GPU, make_pod, make_quota
from tests.cluster import FakeCluster, make_cluster
from tests.objects import remove_quota

from koord.core.quota.model import DEFAULT
from koord.core.quota.reasons import QuotaGone, QuotasNotServed

TEAM = make_quota("team", "q", max={GPU: 8}, shared_with=("default",))
OTHER = make_quota("other", "q", max={GPU: 8})


def make_full() -> FakeCluster:
    """Make a quota with one pod that runs and two that wait."""
    cluster = make_cluster(8).quotas(TEAM, OTHER)
    cluster.pods(*(make_pod(f"p{at}").gpu(8).quota("team").created(at) for at in range(3)))
    assert cluster.step() == ["p0"]
    return cluster


def used(cluster: FakeCluster) -> dict[str, int]:
    cluster.state.refresh()
    usage = cluster.state.quotas.usage.usage()
    return {
        name: usage_of_quota.used[GPU]
        for name, usage_of_quota in usage.items()
        if usage_of_quota.used.get(GPU)
    }


def test_pods_of_a_deleted_quota_wait_until_it_is_back() -> None:
    cluster = make_full()
    remove_quota(cluster.state, "q/team")
    assert cluster.step() == []
    assert cluster.reasons() == {"p1": QuotaGone("team"), "p2": QuotaGone("team")}
    assert used(cluster) == {"team": 8}
    cluster.quotas(replace(TEAM, max={GPU: 16}))
    assert cluster.step() == ["p1"]
    assert used(cluster) == {"team": 16}


def test_pods_of_a_namespace_whose_quota_is_deleted_wait_too() -> None:
    cluster = make_cluster(8).quotas(replace(TEAM, namespaces=("default",)), OTHER)
    cluster.pods(*(make_pod(f"p{at}").gpu(8).created(at) for at in range(3)))
    assert cluster.step() == ["p0"]
    remove_quota(cluster.state, "q/team")
    cluster.pods(make_pod("new").gpu(8))
    assert cluster.step() == []
    assert {reason.code for reason in cluster.reasons().values()} == {"QuotaGone"}
    cluster.pods(make_pod("p1").gpu(8).quota("other"))
    assert cluster.step() == ["p1"]


def test_a_deleted_quota_is_forgotten_with_its_last_pod() -> None:
    cluster = make_full()
    remove_quota(cluster.state, "q/team")
    cluster.step()
    cluster.delete_pods("p0", "p1", "p2")
    cluster.step()
    assert not cluster.state.quotas.catalog.gone
    cluster.pods(make_pod("late").gpu(8).quota("team"))
    assert cluster.step() == ["late"]
    assert used(cluster) == {DEFAULT: 8}


def test_a_quota_without_pods_leaves_nothing_behind() -> None:
    cluster = make_cluster(1).quotas(TEAM)
    cluster.step()
    remove_quota(cluster.state, "q/team")
    cluster.state.refresh()
    assert not cluster.state.quotas.is_in_use


def test_nothing_starts_in_a_quota_while_quotas_are_not_served() -> None:
    cluster = make_full()
    catalog = cluster.state.quotas.catalog
    catalog.note_missing(is_missing=True)
    assert cluster.step() == []
    assert cluster.reasons()["p1"] == QuotasNotServed("team")
    cluster.delete_pods("p0")
    cluster.pods(make_pod("free").gpu(8), make_pod("late").gpu(1).quota("other"))
    assert cluster.step() == ["free"]
    reasons = cluster.reasons()
    assert reasons["p1"] == QuotasNotServed("team")
    assert reasons["late"] == QuotasNotServed("other")
    catalog.note_missing(is_missing=False)
    assert cluster.step() == ["late", "p1"]


def test_a_pod_that_is_released_is_bound_all_the_same() -> None:
    cluster = make_full()
    cluster.pods(make_pod("p0").gpu(8).quota("team").released("n0", "plan"))
    cluster.state.forget("uid-default-p0")
    cluster.state.quotas.catalog.note_missing(is_missing=True)
    assert cluster.step() == ["p0"]


def test_without_the_definition_for_long_there_are_no_quotas() -> None:
    cluster = make_full()
    catalog = cluster.state.quotas.catalog
    remove_quota(cluster.state, "q/other")
    catalog.note_missing(is_missing=True)
    assert cluster.step() == []
    catalog.note_missing(is_missing=False, is_final=True)
    remove_quota(cluster.state, "q/team")
    assert cluster.step() == ["p1", "p2"]
    catalog.note_missing(is_missing=False)
    cluster.quotas(TEAM)
    assert used(cluster) == {"team": 24}
