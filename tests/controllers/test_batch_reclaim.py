"""RebalancePolicies and batch pods: jobs that evict them at once, and a status that goes on."""

from __future__ import annotations

from typing import Any

from tests.controllers.test_rebalance import Rounds, make_policy
from tests.eviction.test_batch_reclaim import NOW, batch, full_cluster, gang_cluster, report

from koord.controllers.rebalance import RebalanceOptions
from koord.kube.migration_jobs import make_job
from koord.kube.translate.balance import read_rounds

SPEC: dict[str, Any] = {
    "lowThresholds": {"cpu": 30},
    "highThresholds": {"cpu": 99},
    "batchReclaim": {},
}


def reclaim_of(rounds: Rounds) -> dict[str, Any]:
    return dict(rounds.statuses["p"]["batchReclaim"])


async def test_by_default_it_only_says_who_would_leave() -> None:
    rounds = Rounds(full_cluster().state, make_policy(**SPEC))
    assert await rounds.update() == 10
    assert rounds.orders.jobs == {}
    assert [move["pod"] for move in reclaim_of(rounds)["wouldEvict"]] == ["default/b-0"]
    assert reclaim_of(rounds)["shortNodes"] == 1
    ready = rounds.ready["p"]
    assert ready[:2] == (True, "Advising")
    assert ready[2].endswith("; 1 node short of room for prod, 1 batch pod would leave")


async def test_it_orders_an_eviction_without_a_place() -> None:
    rounds = Rounds(full_cluster().state, make_policy(mode="Migrate", **SPEC))
    await rounds.update()
    (order,) = rounds.orders.jobs.values()
    job = make_job(order)
    assert job["spec"]["mode"] == "EvictDirectly"
    assert job["spec"]["podRef"]["name"] == "b-0"
    annotations = job["metadata"]["annotations"]
    assert annotations["koordinator.sh/evict-trigger"] == "BatchReclaim"
    assert annotations["operators.koordinator.sh/migration-group-size"] == "1"
    assert reclaim_of(rounds)["evicted"] == 1
    assert rounds.statuses["p"]["lastMoves"][0]["job"] == order.job_name
    assert rounds.statuses["p"]["moves"] == 1


async def test_all_jobs_of_a_gang_are_one_group() -> None:
    rounds = Rounds(gang_cluster(3).state, make_policy(mode="Evict", **SPEC))
    await rounds.update()
    groups = {(order.group, order.group_size) for order in rounds.orders.jobs.values()}
    assert len(rounds.orders.jobs) == 3
    assert [size for _, size in groups] == [3]


async def test_a_restart_changes_nothing() -> None:
    """The pod that was to leave has left meanwhile, and reports show it for a minute more."""
    cluster = full_cluster(batch("b-2"))
    rounds = Rounds(cluster.state, make_policy(mode="Evict", **SPEC))
    await rounds.update()
    (first,) = rounds.orders.jobs.values()
    cluster.state.remove_pod(first.uid)
    seen: list[list[str]] = []
    for restarts in (False, True):
        if restarts:
            rounds.start()
        await rounds.update(after=10)
        seen.append([order.name for order in rounds.orders.jobs.values()])
    assert seen == [[first.name]] * 2
    past = read_rounds(rounds.statuses["p"]).reclaim
    assert [(each.pod, each.left) for each in past.reclaims] == [
        (f"default/{first.name}", NOW + 10)
    ]
    report(cluster, system=20, now=rounds.now)
    await rounds.update(after=10)
    assert len(rounds.orders.jobs) == 1  # not within 30 s
    await rounds.update(after=10)
    assert len(rounds.orders.jobs) == 2


async def test_without_the_setting_nothing_is_said_of_batch_pods() -> None:
    spec = {name: value for name, value in SPEC.items() if name != "batchReclaim"}
    rounds = Rounds(full_cluster().state, make_policy(mode="Evict", **spec))
    assert await rounds.update() == 120
    assert rounds.orders.jobs == {}
    assert "batchReclaim" not in rounds.statuses["p"]


async def test_what_cannot_be_ordered_is_said() -> None:
    rounds = Rounds(full_cluster().state, make_policy(mode="Evict", **SPEC))
    rounds.orders.fails = True
    await rounds.update()
    assert rounds.ready["p"][:2] == (False, "Failed")
    assert reclaim_of(rounds)["evicted"] == 0


async def test_why_batch_pods_stay_is_in_the_status() -> None:
    cluster = full_cluster()
    cluster.pods(batch("b-0", owners=()))
    rounds = Rounds(cluster.state, make_policy(mode="Evict", **SPEC))
    await rounds.update()
    (held,) = reclaim_of(rounds)["held"]
    assert held.startswith("default/b-0 on n0: E-5: rule 6 (BarePods)")


async def test_placement_must_not_bring_back_what_leaves() -> None:
    rounds = Rounds(full_cluster().state, make_policy(mode="Evict", **SPEC))
    rounds.controller.options = RebalanceOptions(placed_to={"memory": 61})
    await rounds.update()
    assert rounds.orders.jobs == {}
    assert rounds.ready["p"] == (
        False,
        "ThresholdsTooClose",
        (
            "placement fills nodes to 61 % of memory, and from 65 % on batch pods are moved away; "
            "that must be at least 5 points more"
        ),
    )
    rounds.controller.options = RebalanceOptions(placed_to={"memory": 60})
    await rounds.update()
    assert rounds.orders.jobs
