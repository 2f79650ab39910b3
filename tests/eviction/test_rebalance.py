"""Balancing on a cluster: which pods may move, and only where the planner has room for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster

from koord.core.balance.memory import BalancePast
from koord.core.balance.model import MoveCaps, Thresholds
from koord.core.balance.outcome import HAS_JOB
from koord.core.balance.policy import PoolSettings, RebalanceSettings
from koord.core.eviction.model import Moment
from koord.core.eviction.rebalance import BalanceContext, measure_cluster, run_round
from koord.core.load.model import NodeLoad, PodLoad
from koord.core.load.plugin import Loads
from koord.core.model.budgets import Budget
from koord.core.model.pods import OwnerReference, Pod
from koord.core.model.selectors import Requirement, SelectorOperator

if TYPE_CHECKING:
    from koord.core.balance.outcome import RoundOutcome

NOW = 100_000.0
GANG = "default/train"
POOL = PoolSettings("default", Thresholds({"cpu": 30}, {"cpu": 60}), abnormalities=1)
SETTINGS = RebalanceSettings((POOL,), caps=MoveCaps())
CONTEXT = BalanceContext(Moment(NOW))


def owned(pod: Pod, workload: str = "web", kind: str = "ReplicaSet") -> Pod:
    owner = OwnerReference(workload, kind, "apps/v1", f"uid-{workload}", is_controller=True)
    return replace(pod, owners=(owner,))


def web(name: str, node: str = "n0") -> Pod:
    pod = make_pod(name).requests(cpu=1000).labels(app="web").running(node).build()
    return owned(replace(pod, started=NOW - 600))


def make_cluster(nodes: int = 3, cpu: int = 8000) -> FakeCluster:
    cluster = FakeCluster()
    return cluster.nodes(*(make_node(f"n{at}").cpu(cpu).pods(110) for at in range(nodes)))


def report(cluster: FakeCluster, use: int = 900, age: float = 10.0, node: str = "") -> None:
    """Have every pod use so much, and nothing else."""
    for name, _ in cluster.state.table.live_rows():
        pods = {pod.key: PodLoad({"cpu": use}) for pod in cluster.state.pods_on(name)}
        if name == node or not node:
            load = NodeLoad(name, updated=NOW - age, pods=pods, usage={"cpu": use * len(pods)})
            cluster.state.plugin(Loads).upsert(load)


def hot_cluster(*more: Pod) -> FakeCluster:
    """Six pods on the first of three nodes, which use 6 x 900 of 8000 there."""
    cluster = make_cluster().pods(*(web(f"web-{at}") for at in range(6)), *more)
    report(cluster)
    return cluster


def run(
    cluster: FakeCluster,
    settings: RebalanceSettings = SETTINGS,
    context: BalanceContext = CONTEXT,
) -> RoundOutcome:
    measured = measure_cluster(cluster.state, settings.expiration, NOW, {})
    return run_round(cluster.state, settings, measured, BalancePast(), context)


def rules_that_keep(outcome: RoundOutcome) -> set[str]:
    return {stay.refusal.rule for stay in outcome.staying}


def test_a_hot_node_gives_to_one_with_room() -> None:
    outcome = run(hot_cluster())
    assert [(move.pod.name, move.target) for move in outcome.moves] == [("web-0", "n1")]
    assert rules_that_keep(outcome) == set()


def test_nodes_without_a_fresh_report_are_left_out() -> None:
    cluster = hot_cluster()
    report(cluster, age=180, node="n1")
    measured = measure_cluster(cluster.state, 180, NOW, {})
    assert [node.name for node in measured.nodes] == ["n0", "n2"]
    assert measured.unknown == ("n1",)


def test_a_pod_moves_only_where_the_planner_has_room() -> None:
    """The low nodes are full as far as requests go, though little is used."""
    cluster = hot_cluster()
    fillers = (
        replace(make_pod(f"idle-{at}").requests(cpu=7500).running(f"n{at}").build())
        for at in (1, 2)
    )
    cluster.pods(*fillers)
    report(cluster, use=900)
    outcome = run(cluster)
    assert outcome.moves == []
    assert rules_that_keep(outcome) == {"NoTarget"}


def test_room_that_a_move_takes_is_taken_for_the_next() -> None:
    cluster = make_cluster().pods(*(web(f"web-{at}") for at in range(8)))
    cluster.pods(make_pod("idle").requests(cpu=7000).running("n1").build())
    cluster.pods(make_pod("idle-2").requests(cpu=7500).running("n2").build())
    report(cluster)
    outcome = run(cluster)
    assert [(move.pod.name, move.target) for move in outcome.moves] == [("web-0", "n1")]
    assert rules_that_keep(outcome) == {"NoTarget"}


def test_the_state_is_not_changed() -> None:
    cluster = hot_cluster()
    before = dict(cluster.state.pods)
    assert run(cluster).moves
    assert cluster.state.pods == before
    assert run(cluster).moves == run(cluster).moves


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda pod: owned(pod, kind="DaemonSet"), "E-5.4"),
        (lambda pod: replace(pod, owners=()), "E-5.4"),
        (lambda pod: owned(pod, f"alone-{pod.name}"), "E-5.11"),
        (lambda pod: replace(pod, priority=2_000_000_000), "E-5.5"),
        (lambda pod: replace(pod, handling=make_pod("x").not_ours().build().handling), "E-5.5"),
    ],
)
def test_what_must_stay(change: object, rule: str) -> None:
    cluster = make_cluster().pods(*(change(web(f"web-{at}")) for at in range(6)))  # type: ignore[operator]
    report(cluster)
    outcome = run(cluster)
    assert outcome.moves == []
    assert rules_that_keep(outcome) == {rule}


def test_pods_of_another_namespace_are_no_replicas() -> None:
    """Whoever names the controller of others in its pods would have their only pod evicted."""
    alone = [owned(web(f"web-{at}"), f"alone-{at}") for at in range(6)]
    liars = [owned(make_pod(f"evil/l{at}").running("n1").build(), f"alone-{at}") for at in range(6)]
    cluster = make_cluster().pods(*alone, *liars)
    report(cluster)
    outcome = run(cluster)
    assert outcome.moves == []
    assert rules_that_keep(outcome) == {"E-5.11"}


def test_pods_of_another_namespace_use_up_no_cap_and_no_node() -> None:
    """They name the same controller, and are moved first."""
    liar = owned(make_pod("aaa/liar").requests(cpu=1000).running("n0").build())
    liars = [replace(replace(liar, name=f"l{at}", uid=f"l{at}"), started=NOW - 600) for at in "ab"]
    cluster = make_cluster().pods(*(web(f"web-{at}") for at in range(6)), *liars)
    report(cluster)
    settings = replace(SETTINGS, caps=MoveCaps(per_workload=1, per_node=10, total=10))
    moved = {move.pod.namespace for move in run(cluster, settings).moves}
    assert moved == {"aaa", "default"}


def test_pods_on_their_way_count_where_they_go_to() -> None:
    cluster = hot_cluster()
    moving = {"uid-default-web-0": "n1", "default/web-1": "n1", "uid-default-web-2": "", "x": "n2"}
    measured = measure_cluster(cluster.state, 180, NOW, moving)
    used = {node.name: node.measure().get("cpu", 0) for node in measured.nodes}
    pods = {node.name: [pod.name for pod in node.pods] for node in measured.nodes}
    assert pods == {"n0": ["web-3", "web-4", "web-5"], "n1": ["web-1", "web-0"], "n2": []}
    assert used == {"n0": 3 * 900, "n1": 2 * 900, "n2": 0}


def test_a_pod_that_makes_any_node_hot_goes_nowhere() -> None:
    """Others evict such a pod from node to node, round after round."""
    large = owned(replace(make_pod("large").requests(cpu=6000).running("n0").build(), started=1.0))
    mate = owned(replace(make_pod("mate").requests(cpu=100).running("n1").build(), started=1.0))
    cluster = make_cluster().pods(large, mate)
    report(cluster, 5600, node="n0")
    report(cluster, 100, node="n1")
    report(cluster, 0, node="n2")
    outcome = run(cluster)
    assert outcome.moves == []
    assert rules_that_keep(outcome) == {"NoTarget"}


def test_a_cordoned_or_failed_node_takes_nothing_however_little_it_uses() -> None:
    cluster = hot_cluster()
    for name in ("n1", "n2"):
        cluster.nodes(make_node(name).cpu(8000).pods(110).unschedulable())
    assert run(cluster).moves == []


def test_what_the_policy_leaves_out() -> None:
    selector = (Requirement("app", SelectorOperator.IN, ("db",)),)
    for settings in (
        replace(SETTINGS, excluded=frozenset(["default"])),
        replace(SETTINGS, included=frozenset(["other"])),
        replace(SETTINGS, pod_selectors=(selector,)),
    ):
        assert rules_that_keep(run(hot_cluster(), settings)) == {"E-5.1"}
    assert run(hot_cluster(), replace(SETTINGS, included=frozenset(["default"]))).moves


def test_a_pod_with_a_job_is_left_alone() -> None:
    outcome = run(
        hot_cluster(),
        context=replace(CONTEXT, find_refusal=lambda pod: HAS_JOB if pod.name == "web-0" else None),
    )
    assert [move.pod.name for move in outcome.moves] == ["web-1"]


def test_a_pod_within_its_minimum_runtime_stays() -> None:
    outcome = run(hot_cluster(), context=BalanceContext(Moment(NOW, 3600)))
    assert rules_that_keep(outcome) == {"E-5.5"}


def test_budgets_count_all_moves_of_the_round() -> None:
    cluster = make_cluster().pods(*(web(f"web-{at}") for at in range(8)))
    report(cluster)
    selector = (Requirement("app", SelectorOperator.IN, ("web",)),)
    context = replace(CONTEXT, budgets=(Budget("default", selector, 1),))
    assert len(run(cluster).moves) == 3
    outcome = run(cluster, context=context)
    assert len(outcome.moves) == 1
    assert rules_that_keep(outcome) == {"Budget"}


def gang_cluster(minimum: int, kind: str = "Job") -> FakeCluster:
    cluster = make_cluster().pod_groups(make_pod_group(GANG, minimum))
    members = (
        make_pod(f"train-{at}").gang(GANG).requests(cpu=1000).running("n0").index(at).build()
        for at in range(8)
    )
    cluster.pods(*(owned(member, "train", kind) for member in members))
    report(cluster)
    return cluster


@pytest.mark.parametrize(("minimum", "count"), [(8, 0), (7, 1), (6, 2), (1, 3)])
def test_a_gang_never_falls_below_its_minimum(minimum: int, count: int) -> None:
    outcome = run(gang_cluster(minimum))
    assert len(outcome.moves) == count
    assert count == 3 or rules_that_keep(outcome) == {"Gang"}


def test_a_gang_that_would_start_again_as_a_whole_stays() -> None:
    outcome = run(gang_cluster(1, "JobSet"))
    assert rules_that_keep(outcome) == {"Gang"}


def test_pods_of_lower_classes_go_first() -> None:
    batch = (
        owned(replace(web(f"z-{at}"), priority=5500, started=NOW - 600), "batch") for at in range(2)
    )
    cluster = make_cluster().pods(*(web(f"web-{at}") for at in range(5)), *batch)
    report(cluster)
    assert [move.pod.name for move in run(cluster).moves] == ["z-0", "z-1"]
