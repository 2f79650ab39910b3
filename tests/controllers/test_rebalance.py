"""Rounds of RebalancePolicies: jobs for what moves, and a status from which a restart goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.eviction.test_rebalance import NOW, hot_cluster, make_cluster, report, web
from tests.support.authors import FakeAuthor

from koord.controllers.rebalance import RebalanceOptions, RebalancePolicies
from koord.core.balance.plugin import BalancePolicies
from koord.core.engine.policies import ObservedPolicy
from koord.core.migration.model import NEVER_EVICT, MigrationOptions
from koord.core.model.pods import MoveHints
from koord.kube.errors import Forbidden
from koord.kube.migration_jobs import MoveOrder, OrderedMoves, make_job
from koord.kube.translate.balance import translate_settings

if TYPE_CHECKING:
    from koord.core.balance.policy import BalancePolicy
    from koord.core.engine.state import ClusterState

SPEC = {
    "lowThresholds": {"cpu": 30},
    "highThresholds": {"cpu": 60},
    "anomalyCondition": {"consecutiveAbnormalities": 1},
    "nodeMetricExpirationSeconds": 86400,
}


def make_policy(name: str = "p", created: float = 0, **spec: Any) -> BalancePolicy:
    written = SPEC | spec
    settings = translate_settings(json.dumps(written).encode())
    return ObservedPolicy(name, f"uid-{name}", 1, created, settings, written)


class Orders:
    """Stands in for the API server: keeps the jobs that were ordered."""

    def __init__(self) -> None:
        self.jobs: dict[str, MoveOrder] = {}
        self.are_over = True
        self.fails = False

    async def list(self, _creator: str) -> OrderedMoves:
        jobs = {job.uid: job.target for job in self.jobs.values()}
        return OrderedMoves(frozenset(jobs), moving={} if self.are_over else jobs)

    async def create(self, order: MoveOrder) -> bool:
        if self.fails:
            raise Forbidden(403, "no", "Forbidden")
        is_new = order.job_name not in self.jobs
        self.jobs.setdefault(order.job_name, order)
        return is_new


class Budgets:
    async def list_budgets(self) -> tuple[()]:
        return ()


class Rounds:
    """Policies in a cluster, their time, and what was written."""

    def __init__(self, state: ClusterState, *policies: BalancePolicy) -> None:
        self.state = state
        self.orders = Orders()
        self.now = NOW
        self.statuses: dict[str, dict[str, Any]] = {}
        self.ready: dict[str, tuple[bool, str, str]] = {}
        for policy in policies:
            state.plugin(BalancePolicies).upsert(policy)
        self.start()

    def start(self) -> None:
        """Start the operator, as after a crash."""
        self.controller = RebalancePolicies(
            self.state,
            FakeAuthor(self._write),  # type: ignore[arg-type]
            lambda uid: self.statuses.get(uid.removeprefix("uid-")),
            Budgets(),  # type: ignore[arg-type]
            self.orders,  # type: ignore[arg-type]
            lambda: self.now,
        )

    def _write(self, value: Any, fields: Any, conditions: Any) -> None:
        self.statuses[value.name] = json.loads(json.dumps(fields))
        (ready,) = conditions
        self.ready[value.name] = (ready.status, ready.reason, ready.message)

    async def update(self, name: str = "p", after: float = 0.0) -> float | None:
        self.now += after
        return await self.controller.update(name)


async def test_by_default_it_only_says_what_it_would_move() -> None:
    rounds = Rounds(hot_cluster().state, make_policy())
    assert await rounds.update() == 120
    status = rounds.statuses["p"]
    assert rounds.orders.jobs == {}
    assert [move["pod"] for move in status["wouldEvict"]] == ["default/web-0"]
    assert status["wouldEvict"][0]["target"] == "n1"
    assert status["nodes"]["high"] == 1
    assert status["rounds"] == 1
    assert status["lastValidSpec"] == SPEC
    assert rounds.ready["p"][:2] == (True, "Advising")


async def test_it_orders_a_job_for_each_move_and_once() -> None:
    rounds = Rounds(hot_cluster().state, make_policy(mode="Migrate"))
    await rounds.update()
    (job,) = rounds.orders.jobs.values()
    body = make_job(job)
    assert body["spec"]["podRef"]["name"] == "web-0"
    assert body["spec"]["mode"] == "ReservationFirst"
    assert body["spec"]["ttl"] == "600s"
    assert make_job(job, 90)["spec"]["ttl"] == "90s"
    annotations = body["metadata"]["annotations"]
    assert annotations["operators.koordinator.sh/target-node"] == "n1"
    assert annotations["koordinator.sh/evict-reason"] == (
        "node is overutilized, node cpu usage(67.50%)>threshold(60.00%)"
    )
    assert rounds.statuses["p"]["lastMoves"][0]["job"] == job.job_name
    assert await rounds.update(after=30) == 90  # not before the interval is over
    await rounds.update(after=90)
    assert [order.name for order in rounds.orders.jobs.values()] == ["web-0", "web-1"]


async def test_a_node_gives_no_more_while_what_it_gives_is_on_its_way() -> None:
    rounds = Rounds(hot_cluster().state, make_policy(mode="Migrate"))
    rounds.orders.are_over = False
    for _ in range(3):
        await rounds.update(after=120)
    assert [order.name for order in rounds.orders.jobs.values()] == ["web-0"]
    assert rounds.statuses["p"]["nodes"]["high"] == 0
    rounds.orders.are_over = True  # it failed: the pod is there still
    await rounds.update(after=120)
    assert [order.name for order in rounds.orders.jobs.values()] == ["web-0", "web-1"]


async def test_pods_are_evicted_at_once_where_that_is_wanted() -> None:
    rounds = Rounds(hot_cluster().state, make_policy(mode="Evict"))
    await rounds.update()
    (job,) = rounds.orders.jobs.values()
    body = make_job(job)
    assert body["spec"]["mode"] == "EvictDirectly"
    assert "operators.koordinator.sh/target-node" not in body["metadata"]["annotations"]


async def play(crashes: set[int]) -> tuple[list[str], dict[str, Any]]:
    """Play 20 rounds, with restarts after some; return the jobs and the last status."""
    cluster = make_cluster().pods(*(web(f"web-{at}") for at in range(8)))
    report(cluster)
    policy = make_policy(
        mode="Migrate", anomalyCondition={"consecutiveAbnormalities": 3}, caps={"perNode": 1}
    )
    rounds = Rounds(cluster.state, policy)
    for at in range(20):
        if at in crashes:
            rounds.start()
            await rounds.update(after=7.3)  # one more look than planned
            rounds.now -= 7.3
        await rounds.update(after=120)
    return sorted(rounds.orders.jobs), rounds.statuses["p"]


async def test_a_restart_changes_nothing() -> None:
    jobs, status = await play(set())
    assert jobs
    assert await play({0, 2, 3, 5, 11, 12, 19}) == (jobs, status)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (make_policy(mode="Migrate", paused=True), "Paused"),
        (replace(make_policy(), settings=None, kept={}), "Invalid"),
    ],
)
async def test_policies_that_do_nothing(policy: BalancePolicy, reason: str) -> None:
    rounds = Rounds(hot_cluster().state, policy)
    assert await rounds.update() is None
    assert rounds.orders.jobs == {}
    assert rounds.ready["p"][:2] == (False, reason)
    assert "rounds" not in rounds.statuses["p"]


async def test_of_two_policies_that_move_pods_the_older_does() -> None:
    older, younger = make_policy("a", 1, mode="Migrate"), make_policy("b", 2, mode="Migrate")
    rounds = Rounds(hot_cluster().state, younger, older)
    await rounds.update("b")
    assert rounds.orders.jobs == {}
    assert rounds.ready["b"][1] == "OtherPolicy"
    await rounds.update("a")
    assert rounds.orders.jobs
    assert rounds.ready["a"][1] == "Balancing"


async def test_placement_must_not_fill_nodes_up_to_where_pods_leave_them() -> None:
    rounds = Rounds(hot_cluster().state, make_policy(mode="Migrate"))
    rounds.controller.options = RebalanceOptions(placed_to={"cpu": 56})
    assert await rounds.update() is None
    assert rounds.orders.jobs == {}
    assert rounds.ready["p"][:2] == (False, "ThresholdsTooClose")
    rounds.controller.options = RebalanceOptions(placed_to={"cpu": 55, "memory": 95})
    await rounds.update()
    assert rounds.orders.jobs


async def test_pods_that_no_job_would_move_are_passed_over() -> None:
    cluster = hot_cluster()
    hints = (MoveHints(has_local_storage=True), MoveHints(eviction_cost=NEVER_EVICT))
    kept = [cluster.state.pods[f"uid-default-web-{at}"] for at in range(2)]
    cluster.pods(*(replace(pod, move_hints=h) for pod, h in zip(kept, hints, strict=True)))
    rounds = Rounds(cluster.state, make_policy(mode="Migrate"))
    await rounds.update()
    assert [order.name for order in rounds.orders.jobs.values()] == ["web-2"]
    rounds = Rounds(cluster.state, make_policy(mode="Migrate"))
    rounds.controller.options = RebalanceOptions(
        migration=MigrationOptions(evicts_local_storage=True)
    )
    await rounds.update()
    assert [order.name for order in rounds.orders.jobs.values()] == ["web-0"]


async def test_what_cannot_be_ordered_is_said_and_tried_again() -> None:
    rounds = Rounds(hot_cluster().state, make_policy(mode="Migrate"))
    rounds.orders.fails = True
    await rounds.update()
    assert rounds.ready["p"][:2] == (False, "Failed")
    assert rounds.statuses["p"]["moves"] == 0
    rounds.orders.fails = False
    await rounds.update(after=120)
    assert rounds.ready["p"][:2] == (True, "Balancing")
    assert rounds.statuses["p"]["moves"] == 1


async def test_another_policy_of_the_same_name_begins_anew() -> None:
    rounds = Rounds(hot_cluster().state, make_policy(mode="Migrate"))
    await rounds.update()
    rounds.state.plugin(BalancePolicies).upsert(replace(make_policy(), uid="uid-other"))
    await rounds.update()
    assert rounds.statuses["p"]["rounds"] == 1
    assert rounds.statuses["p"]["moves"] == 0
