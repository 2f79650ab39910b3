"""Quotas in planning: admission, charges and queueing hints."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import SCORING, FakeCluster, make_cluster, plan_in
from tests.objects import remove_quota

from koord.answers.explain import PlacementState, explain_pod
from koord.answers.quota_view import view_quotas
from koord.core.engine.queue import unit_of
from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.reasons import InternalError
from koord.core.quota import cache, session
from koord.core.quota.reasons import (
    AncestorInsufficient,
    InsufficientEntitlement,
    InsufficientMax,
    NonPreemptibleOverMin,
    QuotaGone,
    QuotaIsParent,
    QuotaNotInForce,
    QuotaShortage,
)
from koord.core.quota.session import QuotaSession
from koord.core.quota.solve import solve
from koord.core.quota.spec_errors import QuotaProblem

if TYPE_CHECKING:
    import pytest

    from koord.core.model.pods import Pod
    from koord.core.quota.leftovers import Leftovers
    from koord.core.quota.model import QuotaSpec
    from koord.core.quota.solve import ShareInput, Solution


def make_teams(nodes: int, *quotas: QuotaSpec) -> FakeCluster:
    """Make nodes of 8 GPUs and quotas."""
    return make_cluster(nodes).quotas(*quotas)


def used(cluster: FakeCluster, quota: str) -> int:
    ledger = cluster.state.open_ledger()
    return ledger.account(quota).used.get(GPU, 0)


def ready(cluster: FakeCluster) -> int:
    """Return how many units are due."""
    return len(cluster.absorb())


def team(
    name: str, parent: str = "", minimum: int = 0, most: int = 64, **more: object
) -> QuotaSpec:
    above = {"parent": parent} if parent else {}
    spec = make_quota(name, namespace="q", min={GPU: minimum}, max={GPU: most}, **above)
    return replace(spec, **more)  # type: ignore[arg-type]


def worker(name: str, quota: str, gpus: int = 8, **more: bool):
    return make_pod(name).gpu(gpus).quota(quota, **more)


def gang(name: str, quota: str, count: int, since: float = 0.0) -> list[Pod]:
    return [
        worker(f"{name}-{at}", quota).gang(f"default/{name}").created(since).build()
        for at in range(count)
    ]


def test_without_quotas_everything_is_admitted() -> None:
    cluster = make_teams(1)
    cluster.pods(worker("a", "nobody").build())
    assert cluster.open_cycle().find_session(QuotaSession) is None
    assert cluster.step() == ["a"]


def test_a_gang_is_charged_completely_or_not_at_all() -> None:
    cluster = make_teams(4, team("t", most=16))
    cluster.pod_groups(make_pod_group("default/g", min_member=3))
    cluster.pods(*gang("g", "t", 3))
    assert cluster.step() == []
    reason = cluster.reason()
    assert isinstance(reason, InsufficientMax)
    assert reason.shortages == (QuotaShortage(GPU, limit=16, used=0, requested=24),)
    assert used(cluster, "t") == 0


def test_placed_pods_count_at_once_in_the_quota_and_its_ancestors() -> None:
    cluster = make_teams(4, team("org", is_parent=True), team("t", "org"))
    cluster.pods(worker("a", "t").build())
    assert cluster.step() == ["a"]
    assert (used(cluster, "t"), used(cluster, "org")) == (8, 8)


def test_a_gang_without_nodes_charges_nothing() -> None:
    cluster = make_teams(3, team("t", most=32))
    cluster.pod_groups(make_pod_group("default/g", min_member=4))
    large = [worker(f"g-{at}", "t", 6).gang("default/g").build() for at in range(4)]
    cluster.pods(*large, worker("a", "t").priority(-1).build())
    assert cluster.step() == ["a"]
    assert isinstance(cluster.reason(), InsufficientNodes)
    assert used(cluster, "t") == 8


def test_surplus_is_placed_up_to_the_limit_of_the_quota() -> None:
    cluster = make_teams(4, team("t", most=24))
    cluster.pod_groups(make_pod_group("default/g", min_member=2))
    cluster.pods(*gang("g", "t", 4))
    assert cluster.step() == ["g-0", "g-1", "g-2"]
    cluster.step()
    assert isinstance(cluster.reason(), InsufficientMax)
    assert used(cluster, "t") == 24


def test_surplus_over_quota_never_displaces_required_members_of_the_group() -> None:
    # As many surplus pods are refused as the other gang has members.
    cluster = make_teams(6, team("t", most=32))
    keys = ("default/a", "default/b")
    cluster.pod_groups(*(make_pod_group(key, min_member=2).group(*keys) for key in keys))
    cluster.pods(*gang("a", "t", 2), *gang("b", "t", 4))
    assert cluster.step() == ["a-0", "a-1", "b-0", "b-1"]


def test_an_incomplete_gang_takes_no_share_from_others() -> None:
    cluster = make_teams(2, team("t"), team("u"))
    cluster.pod_groups(make_pod_group("default/g", min_member=3))
    cluster.pods(*gang("g", "t", 2), worker("a", "u").build(), worker("b", "u").build())
    assert cluster.step() == ["a", "b"]
    usage = cluster.state.quotas.usage.of("t")
    assert (usage.submitted[GPU], usage.demand.get(GPU, 0)) == (16, 0)


def test_a_completed_gang_becomes_demand() -> None:
    cluster = make_teams(2, team("t"), team("u"))
    cluster.pod_groups(make_pod_group("default/g", min_member=2))
    members = gang("g", "t", 2)
    cluster.pods(members[0])
    cluster.step()
    cluster.pods(members[1])
    cluster.step()
    assert cluster.state.quotas.usage.of("t").demand[GPU] == 16


def test_pods_of_other_schedulers_count_as_used() -> None:
    cluster = make_teams(2, team("t", most=8))
    cluster.pods(worker("theirs", "t").not_ours().running("n0").build(), worker("a", "t").build())
    assert cluster.step() == []
    assert used(cluster, "t") == 8


def test_pods_outside_quotas_reduce_the_capacity() -> None:
    cluster = make_teams(2, team("t"))
    cluster.pods(make_pod("free").gpu(4).not_ours().running("n0").build())
    cluster.pods(*(worker(name, "t").build() for name in ("a", "b")))
    assert cluster.step() == ["a"]
    assert isinstance(cluster.reason(), InsufficientEntitlement)
    assert cluster.reason().shortages == (
        QuotaShortage(GPU, limit=12, used=8, requested=8, offered=12),
    )


def test_non_preemptible_pods_stay_within_min() -> None:
    cluster = make_teams(2, team("t", minimum=8))
    cluster.pods(*(worker(name, "t", is_non_preemptible=True).build() for name in ("a", "b")))
    assert cluster.step() == ["a"]
    assert isinstance(cluster.reason(), NonPreemptibleOverMin)


def test_an_ancestor_may_refuse() -> None:
    cluster = make_teams(4, team("org", is_parent=True, most=8), team("t", "org", most=64))
    cluster.pods(worker("old", "t").running("n0").build(), worker("a", "t").build())
    cluster.step()
    cluster.quotas(team("t", "org", most=64, minimum=0, weight={GPU: 2}))
    assert isinstance(cluster.reason(), InsufficientEntitlement | AncestorInsufficient)


def test_pods_by_namespace_and_of_parents_and_of_invalid_quotas() -> None:
    broken = team("broken", "gone")
    cluster = make_teams(2, team("org", is_parent=True), team("t", namespaces=("default",)), broken)
    cluster.pods(
        make_pod("by-namespace").gpu(8).build(),
        worker("in-parent", "org").build(),
        worker("in-broken", "broken").build(),
    )
    assert cluster.step() == ["by-namespace"]
    assert used(cluster, "t") == 8
    reasons = {one.pods[0].name: one.reason for one in cluster.queue.blocked.values()}
    assert reasons["in-parent"] == QuotaIsParent("org")
    found = reasons["in-broken"]
    assert isinstance(found, QuotaNotInForce)
    assert found.problem.rule is QuotaProblem.PARENT_NOT_FOUND
    cluster.quotas(team("gone", is_parent=True))
    assert cluster.step() == ["in-broken"]


def test_a_new_quota_takes_over_its_pods() -> None:
    cluster = make_teams(2, team("other"))
    cluster.pods(worker("a", "t").running("n0").build(), worker("b", "t").build())
    assert cluster.step() == ["b"]
    cluster.quotas(team("t", most=8))
    assert used(cluster, "t") == 16


class TestWakeUp:
    """What a quota has refused is tried again when, and only when, it has more room."""

    def full(self, **options: bool) -> FakeCluster:
        quotas = (team("t", most=8), team("u", most=8))
        cluster = make_cluster(4, **options).quotas(*quotas)
        cluster.pods(*(worker(name, "t").build() for name in ("a", "b")))
        cluster.pods(worker("other", "u").build())
        assert cluster.step() == ["a", "other"]
        return cluster

    def test_not_when_nodes_have_more_room(self) -> None:
        cluster = self.full()
        cluster.nodes(make_node("new").gpu(8))
        cluster.delete_pods("other")
        assert ready(cluster) == 0

    def test_when_a_pod_of_the_quota_ends(self) -> None:
        cluster = self.full()
        cluster.delete_pods("a")
        assert cluster.step() == ["b"]

    def test_when_max_is_raised(self) -> None:
        cluster = self.full()
        cluster.quotas(team("t", most=16))
        assert cluster.step() == ["b"]

    def test_when_the_quota_moves_away_from_the_one_that_is_full(self) -> None:
        full = team("full", most=8, minimum=4, is_parent=True)
        rich = team("rich", minimum=4, is_parent=True)
        cluster = make_teams(4, full, rich, team("t", "full", minimum=4), team("u", "full"))
        cluster.pods(worker("old", "u").running("n0").build(), worker("a", "t", 4).build())
        assert cluster.step() == []
        assert isinstance(cluster.reason(), AncestorInsufficient)
        cluster.quotas(team("t", "rich", minimum=4))
        assert cluster.step() == ["a"]

    def test_to_say_what_the_limit_is_now_when_it_is_lowered(self) -> None:
        cluster = self.full()
        cluster.quotas(team("t", most=4))
        assert cluster.step() == []
        reason = cluster.reason()
        assert isinstance(reason, InsufficientMax)
        assert dict(reason.limit) == {GPU: 4}
        assert ready(cluster) == 0

    def test_when_all_quotas_are_gone(self) -> None:
        cluster = self.full()
        remove_quota(cluster.state, "q/t")
        remove_quota(cluster.state, "q/u")
        assert cluster.step() == []
        assert cluster.reason() == QuotaGone("t")
        cluster.state.quotas.catalog.note_missing(is_missing=False, is_final=True)
        assert cluster.step() == ["b"]

    def test_when_all_quotas_are_gone_as_koordinator_has_it(self) -> None:
        cluster = self.full(compat=True)
        remove_quota(cluster.state, "q/t")
        remove_quota(cluster.state, "q/u")
        assert cluster.step() == ["b"]

    def test_when_a_sibling_wants_less_or_a_node_comes(self) -> None:
        cluster = make_teams(2, team("t"), team("u"))
        cluster.pods(*(worker(f"{name}-{at}", name).build() for name in "tu" for at in (1, 2)))
        assert sorted(cluster.step()) == ["t-1", "u-1"]
        assert ready(cluster) == 0
        cluster.delete_pods("u-2")
        assert cluster.step() == []  # entitled to both now, but there is no node
        cluster.nodes(make_node("new").gpu(8))
        assert cluster.step() == ["t-2"]


class TestLeftovers:
    """Two teams of equal weight and one gang of all nodes each: one runs after the other."""

    def test_one_after_the_other(self) -> None:
        cluster = make_teams(2, team("t"), team("u"))
        for name in ("g", "h", "i"):
            cluster.pod_groups(make_pod_group(f"default/{name}", min_member=2))
        cluster.pods(*gang("g", "t", 2, since=1), *gang("h", "t", 2, since=2))
        cluster.pods(*gang("i", "u", 2, since=3))
        assert cluster.step() == ["g-0", "g-1"]
        assert cluster.step() == []
        cluster.delete_pods("g-0", "g-1")
        assert cluster.step() == ["i-0", "i-1"]
        cluster.delete_pods("i-0", "i-1")
        assert cluster.step() == ["h-0", "h-1"]


def test_a_tree_of_its_own_has_its_own_capacity() -> None:
    root = team("pool", minimum=8, is_parent=True, tree_id="t", is_tree_root=True, total={GPU: 8})
    cluster = make_teams(4, root, team("in-pool", "pool"), team("t"))
    names = {f"in-pool-{at}": "in-pool" for at in range(2)} | {f"t-{at}": "t" for at in range(4)}
    cluster.pods(*(worker(name, quota).build() for name, quota in names.items()))
    assert sorted(cluster.step()) == ["in-pool-0", "t-0", "t-1", "t-2"]
    short = {one.pods[0].name: one.reason.shortages[0] for one in cluster.queue.blocked.values()}
    assert (short["in-pool-1"].limit, short["t-3"].limit) == (8, 24)


def test_a_tree_that_cannot_be_solved_blocks_only_its_own_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail_on_pool(snapshot: ShareInput, before: Solution | None) -> Solution:
        if "pool" in snapshot.tree.layout.row_of:
            raise ZeroDivisionError
        return solve(snapshot, before)

    monkeypatch.setattr(cache, "solve", fail_on_pool)
    root = team("pool", minimum=8, is_parent=True, tree_id="t", is_tree_root=True, total={GPU: 8})
    cluster = make_teams(4, root, team("in-pool", "pool"), team("t"))
    cluster.pods(worker("in-pool", "in-pool").build(), worker("in-t", "t").build())
    cluster.pods(worker("in-none", "").build())
    assert sorted(cluster.step()) == ["in-none", "in-t"]
    assert cluster.reason() == InternalError("ZeroDivisionError", "in-pool")
    assert ready(cluster) == 0
    assert [one.summary.name for one in view_quotas(cluster.state).quotas] == ["t"]
    monkeypatch.setattr(cache, "solve", solve)
    assert cluster.step() == ["in-pool"]


def test_planning_continues_when_a_queueing_hint_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> Leftovers:
        raise ZeroDivisionError

    cluster = make_teams(1, team("a", minimum=8), team("b"))
    cluster.pods(worker("running", "a").running("n0").build(), worker("b", "b").build())
    assert cluster.step() == []
    monkeypatch.setattr(session, "grant_leftovers", fail)
    cluster.quotas(team("c"))
    assert ready(cluster) == 1


def test_surplus_does_not_start_in_a_quota_that_is_not_in_force() -> None:
    cluster = make_teams(4, team("t"), team("broken", "gone"))
    cluster.pod_groups(make_pod_group("default/g", min_member=1))
    cluster.pods(
        worker("g-0", "t").gang("default/g").build(),
        worker("g-1", "broken").gang("default/g").build(),
    )
    assert cluster.step() == ["g-0"]
    assert isinstance(cluster.reason(), QuotaNotInForce)


def test_explain_gives_the_reason_of_the_planner() -> None:
    cluster = make_teams(4, team("t", most=8))
    cluster.pods(*(worker(name, "t").build() for name in ("a", "b")))
    cluster.step()
    pod = cluster.pod("b")
    found = explain_pod(cluster.state, pod, SCORING)
    assert (found.standing, found.reason) == (PlacementState.WAITING, cluster.reason())


def test_a_released_pod_is_not_charged_twice() -> None:
    cluster = make_teams(2, team("t", most=8))
    cluster.pods(worker("a", "t").released("n0", "plan").build())
    assert cluster.step() == ["a"]
    assert used(cluster, "t") == 8


def test_a_rollback_of_the_cycle_undoes_charges_of_quotas() -> None:
    cluster = make_teams(1, team("t", most=8))
    pod = worker("a", "t").build()
    cluster.pods(pod)
    cycle = cluster.open_cycle()
    for _ in range(2):
        mark = cycle.checkpoint()
        assert plan_in(cycle, [unit_of(pod)]).placements
        cycle.rollback(mark)
