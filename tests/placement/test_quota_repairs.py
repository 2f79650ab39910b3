"""Lost members of a gang are replaced beyond the share of its quota, up to max."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders import make_pod_group
from tests.cluster import FakeCluster
from tests.placement.test_quotas import gang, make_teams, team, worker

from koord.core.quota.reasons import InsufficientEntitlement, InsufficientMax

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

    from koord.core.model.reasons import Reason
    from koord.core.quota.model import QuotaSpec


def run_short(*quotas: QuotaSpec, lost: int = 1, others: int = 8) -> FakeCluster:
    """A gang of ``a`` has lost members, and another gang of ``b`` wants as much as there is."""
    cluster, members = make_teams(7, *quotas), 4
    cluster.pod_groups(make_pod_group("default/g", members))
    cluster.pods(*gang("g", "a", members)[members - lost :])
    for at in range(members - lost):
        pod = worker(f"g-{at}", "a").gang("default/g")
        pod.released(f"n{at}", "p", "default/g", members, members).running(f"n{at}")
        cluster.pods(pod.build())
    cluster.pod_groups(make_pod_group("default/h", others))
    cluster.pods(*gang("h", "b", others))
    return cluster


def why(cluster: FakeCluster, name: str) -> Reason:
    return next(
        one.reason
        for one in cluster.queue.blocked.values()
        if any(pod.name == name for pod in one.pods)
    )


def test_replacements_of_a_gang_may_exceed_the_share() -> None:
    cluster = run_short(team("a", most=32), team("b"))
    ledger = cluster.state.open_ledger()
    assert ledger.account("a").share["nvidia.com/gpu"] < 32
    assert cluster.step() == ["g-3"]
    assert isinstance(why(cluster, "h-0"), InsufficientEntitlement)


def test_all_lost_members_are_replaced_over_several_cycles() -> None:
    cluster = run_short(team("a", most=32), team("b"), lost=3)
    placed = cluster.step()
    while more := cluster.step():
        placed += more
    assert sorted(placed) == ["g-1", "g-2", "g-3"]


def test_replacements_do_not_exceed_max() -> None:
    cluster = run_short(team("a", most=24), team("b"))
    assert cluster.step() == []
    assert isinstance(why(cluster, "g-3"), InsufficientMax)


def test_surplus_members_do_not_exceed_the_share() -> None:
    cluster = run_short(team("a", most=64), team("b"), lost=0, others=3)
    cluster.pods(worker("g-4", "a").gang("default/g").build())
    assert cluster.step() == ["h-0", "h-1", "h-2"]
    assert isinstance(why(cluster, "g-4"), InsufficientEntitlement)
