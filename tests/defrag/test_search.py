"""Which moves are planned: each rule once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import (
    GPU,
    make_node,
    make_pod,
    make_pod_group,
    make_quota,
    select_labels,
    select_pods,
)
from tests.cluster import make_cluster, make_unit
from tests.objects import upsert_namespace

from koord.core.defrag.model import MovePlan
from koord.core.defrag.reasons import (
    MovesDoNotApply,
    MovesNotHelpful,
    MovesNotSearched,
    NoRoomToMove,
    NothingMayMove,
)
from koord.core.defrag.search import DefragOptions, plan_moves
from koord.core.eviction.protection import ALLOWED_IN
from koord.core.eviction.search import PreemptionContext
from koord.core.migration.model import NEVER_EVICT, MigrationOptions
from koord.core.model.budgets import Budget
from koord.core.model.pods import Handling, MoveHints, OwnerReference
from koord.core.model.selectors import Requirement, SelectorOperator

if TYPE_CHECKING:
    from tests.builders import PodBuilder
    from tests.cluster import FakeCluster

    from koord.core.model.plan import Unit
    from koord.core.model.reasons import Reason

NOW = 50_000.0
OWNER = OwnerReference("rs", "ReplicaSet", "apps/v1", "uid-rs", is_controller=True)


def runner(name: str, node: str, gpus: int, **fields: Any) -> PodBuilder:
    """Make a running pod that a ReplicaSet would create again."""
    pod = make_pod(name).gpu(gpus).released(node, "p").running(node)
    return pod._set(**{"owners": (OWNER,), "started": NOW - 3600, **fields})


def waiting(gpus: int = 8, count: int = 1, **fields: Any) -> Unit:
    return make_unit("w", [make_pod(f"w{at}").gpu(gpus)._set(**fields) for at in range(count)])


def find(cluster: FakeCluster, unit: Unit | None = None, **options: Any) -> MovePlan | Reason:
    budgets = options.pop("budgets", ())
    context = PreemptionContext(NOW, budgets)
    return plan_moves(cluster.state, unit or waiting(), DefragOptions(**options), context=context)


def moves_of(plan: MovePlan | Reason) -> list[tuple[str, str, str]]:
    assert isinstance(plan, MovePlan), plan
    return [(move.pod.name, move.source, move.target) for move in plan.moves]


def test_the_node_that_needs_fewest_moves_is_emptied_and_its_pods_go_to_the_fullest_with_room() -> (
    None
):
    cluster = make_cluster(4)
    cluster.pods(runner("a", "n0", 2), runner("b", "n1", 1), runner("c", "n1", 1))
    cluster.pods(runner("d", "n2", 5), runner("e", "n3", 6))
    plan = find(cluster)
    assert moves_of(plan) == [("a", "n0", "n3")]
    assert plan.freed == ("n0",)
    assert (plan.proof.is_fewest, plan.proof.is_cheapest, plan.proof.is_minimal) == (True,) * 3


def test_of_equally_many_moves_the_cheapest_are_made() -> None:
    cluster = make_cluster(3)
    cluster.pods(runner("old", "n0", 2), runner("young", "n1", 2, started=NOW - 60))
    cluster.pods(runner("full", "n2", 6))
    assert moves_of(find(cluster)) == [("young", "n1", "n2")]
    cluster.pods(runner("young", "n1", 2, started=NOW - 60, priority=7))
    assert moves_of(find(cluster)) == [("old", "n0", "n2")]


def test_nothing_moves_if_it_fits() -> None:
    plan = find(make_cluster(1))
    assert isinstance(plan, MovePlan)
    assert plan.steps == ()


def test_a_pod_that_finds_no_place_waits_for_another_one_to_leave() -> None:
    """``a`` fits on n1 only once ``b`` has gone to n2: two moves in this order, and no swap."""
    cluster = make_cluster().nodes(make_node("n0").gpu(8), make_node("n1").gpu(6))
    cluster.nodes(make_node("n2").gpu(4))
    cluster.pods(runner("a", "n0", 4), runner("b", "n1", 3))
    cluster.pods(runner("stays", "n2", 1, owners=()))
    assert moves_of(find(cluster)) == [("b", "n1", "n2"), ("a", "n0", "n1")]


def test_pods_cannot_change_places() -> None:
    cluster = make_cluster().nodes(
        make_node("n0").gpu(8).label("kind", "a"), make_node("n1").gpu(4).label("kind", "b")
    )
    cluster.pods(runner("a", "n0", 4), runner("b", "n1", 4))
    answer = find(cluster)
    assert isinstance(answer, NoRoomToMove)
    assert "find no place on other nodes" in answer.text()


def test_several_nodes_are_emptied_for_a_gang() -> None:
    cluster = make_cluster(5)
    cluster.pods(*(runner(f"p{at}", f"n{at}", 1) for at in range(3)))
    cluster.pods(runner("full", "n3", 4), runner("fuller", "n4", 5))
    plan = find(cluster, waiting(8, 3))
    assert len(moves_of(plan)) == 3
    assert plan.freed == ("n0", "n1", "n2")


def test_a_member_above_the_minimum_moves_alone_and_a_gang_as_a_whole() -> None:
    cluster = make_cluster(4)
    cluster.pod_groups(make_pod_group("default/g", 1))
    for at, node in enumerate(("n1", "n0")):
        cluster.pods(runner(f"g-{at}", node, 2).gang("default/g"))
    for name, node, gpus in (("a", "n2", 5), ("b", "n3", 4), ("c", "n1", 3)):
        cluster.pods(runner(name, node, gpus, owners=()))
    assert moves_of(find(cluster)) == [("g-1", "n0", "n1")]
    cluster.pod_groups(make_pod_group("default/g", 2))
    plan = find(cluster)
    assert sorted(name for name, *_ in moves_of(plan)) == ["g-0", "g-1"]
    (step,) = plan.steps
    assert plan.cost.cost.gangs == 1
    assert len(step.moves) == 2


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"owners": ()}, "1 without a controller that would create them again"),
        (
            {"owners": (OwnerReference("d", "DaemonSet", "apps/v1", is_controller=True),)},
            "1 created for their nodes",
        ),
        ({"is_protected": True}, "1 labelled as not preemptible"),
        ({"priority": 2_000_000_000}, "1 of a system-critical priority"),
        ({"handling": Handling.NOT_OURS, "recorded": None}, "1 placed by other schedulers"),
    ],
)
def test_protected_pods_never_move(fields: dict[str, object], text: str) -> None:
    cluster = make_cluster(2)
    upsert_namespace(cluster.state, "default", {ALLOWED_IN: "true"})
    cluster.pods(runner("a", "n0", 2, **fields), runner("b", "n1", 4, **fields))
    answer = find(cluster)
    assert isinstance(answer, NothingMayMove)
    assert text.replace("1", "2") in answer.text()


def test_pods_within_their_minimum_runtime_stay() -> None:
    cluster = make_cluster(2).pods(runner("a", "n0", 2), runner("b", "n1", 3, started=NOW - 60))
    assert moves_of(find(cluster, min_runtime=600)) == [("a", "n0", "n1")]
    assert isinstance(find(cluster, min_runtime=7200), NothingMayMove)


def test_disruption_budgets_are_kept_together() -> None:
    cluster = make_cluster(4)
    for at in range(3):
        cluster.pods(runner(f"p{at}", f"n{at}", 2).labels(app="x"))
    cluster.pods(runner("other", "n3", 4, owners=()))
    for allowed, gpus, count in ((1, 8, 1), (2, 8, 2)):
        budget = Budget("default", select_labels(app="x"), allowed)
        assert len(moves_of(find(cluster, waiting(gpus, count), budgets=(budget,)))) == count
    budget = Budget("default", select_labels(app="x"), 1)
    assert isinstance(find(cluster, waiting(8, 2), budgets=(budget,)), NoRoomToMove)
    none = Budget("default", select_labels(app="x"), 0)
    answer = find(cluster, budgets=(none,))
    assert isinstance(answer, NothingMayMove)
    assert "3 protected by PodDisruptionBudgets" in answer.text()


def test_new_places_keep_all_rules_of_the_pod() -> None:
    cluster = make_cluster(4)
    for at, zone in enumerate("abbc"):
        cluster.nodes(make_node(f"n{at}").gpu(8).label("zone", zone))
    apart = runner("a", "n0", 2).labels(app="x").apart(select_pods(app="x"), "zone")
    cluster.pods(apart, runner("b", "n1", 4).labels(app="x"), runner("c", "n2", 4))
    cluster.pods(runner("d", "n3", 4).host_port(80), runner("e", "n1", 2).host_port(80))
    assert moves_of(find(cluster)) == [("a", "n0", "n3")]
    cluster.pods(runner("f", "n3", 1).labels(app="x"))
    assert "a" not in {name for name, *_ in moves_of(find(cluster))}


def test_quotas_count_a_moved_pod_once_and_the_waiting_one_as_ever() -> None:
    cluster = make_cluster(3)
    cluster.quotas(make_quota("q", max={GPU: 6}, min={GPU: 6}))
    cluster.pods(runner("a", "n0", 2, quota="q"), runner("b", "n1", 4, quota="q"))
    cluster.pods(runner("stays", "n2", 2, owners=()))
    assert moves_of(find(cluster)) == [("a", "n0", "n1")]
    cluster.quotas(make_quota("p", max={GPU: 7}, min={GPU: 7}))
    assert isinstance(find(cluster, waiting(quota="p")), MovesDoNotApply | MovesNotHelpful)


def test_it_says_why_moves_do_not_help() -> None:
    cluster = make_cluster(1).pods(runner("a", "n0", 1), runner("b", "n0", 1))
    answer = find(cluster, waiting(9))
    assert isinstance(answer, MovesNotHelpful)
    assert "even without all 2 pods that may move" in answer.text()
    assert isinstance(find(cluster), NoRoomToMove)
    quota = make_quota("q", max={"nvidia.com/gpu": 1}, min={"nvidia.com/gpu": 1})
    cluster.quotas(quota)
    assert isinstance(find(cluster, waiting(quota="q")), MovesDoNotApply | MovesNotHelpful)


def test_limits_of_moves_and_steps() -> None:
    cluster = make_cluster(3)
    cluster.pods(*(runner(f"p{at}{n}", f"n{at}", 1) for at in range(3) for n in range(2)))
    answer = find(cluster, most_moves=1)
    assert isinstance(answer, NoRoomToMove)
    assert "1 at a time; at least 2 moves" in answer.text()
    assert isinstance(find(cluster, most_steps=1), MovesNotSearched)
    assert len(moves_of(find(cluster))) == 2


def test_terminating_pods_are_not_moved_and_leave_their_room() -> None:
    cluster = make_cluster(3).pods(runner("a", "n0", 2).terminating(), runner("b", "n0", 1))
    cluster.pods(runner("c", "n1", 4), runner("d", "n2", 4))
    assert moves_of(find(cluster)) == [("b", "n0", "n1")]


@pytest.mark.parametrize(
    ("change", "options", "text"),
    [
        (
            {"move_hints": MoveHints(has_local_storage=True)},
            MigrationOptions(evicts_local_storage=True),
            "1 with volumes on their nodes",
        ),
        (
            {"move_hints": MoveHints(eviction_cost=NEVER_EVICT)},
            None,
            "1 whose eviction cost says never",
        ),
        (
            {"owners": (replace(OWNER, uid="uid-alone"),)},
            MigrationOptions(skips_expected_replicas=True),
            "of whose workloads none would remain",
        ),
        (
            {"priority": 900},
            MigrationOptions(),
            "1 that the settings of migration leave out",
        ),
    ],
)
def test_a_plan_moves_only_what_a_job_would_move(
    change: dict[str, Any], options: MigrationOptions | None, text: str
) -> None:
    cluster = make_cluster(2).nodes(make_node("n2").gpu(2))
    cluster.pods(runner("a", "n0", 2, **change), runner("b", "n1", 4, owners=()))
    cluster.pods(runner("like-a", "n2", 2))
    answer = find(cluster, migration=MigrationOptions(priority_threshold=500))
    assert not isinstance(answer, MovePlan)
    assert text in answer.text()
    if options is not None:
        assert moves_of(find(cluster, migration=options)) == [("a", "n0", "n1")]


def test_the_annotation_evict_gives_up_the_protection_of_local_storage() -> None:
    hints = MoveHints(has_local_storage=True, evicts_protected=True)
    cluster = make_cluster(2).pods(runner("a", "n0", 2, move_hints=hints))
    cluster.pods(runner("b", "n1", 4, owners=()))
    assert moves_of(find(cluster)) == [("a", "n0", "n1")]


def test_a_gang_that_moves_as_a_whole_needs_no_replica_that_remains() -> None:
    cluster = make_cluster(4).pods(runner("x", "n2", 4, owners=()), runner("y", "n3", 4, owners=()))
    cluster.pod_groups(make_pod_group("default/g", 2))
    alone = (replace(OWNER, uid="uid-alone"),)
    cluster.pods(*(runner(f"g-{at}", f"n{at}", 2, owners=alone).gang("default/g") for at in (0, 1)))
    assert len(moves_of(find(cluster))) == 2


def test_only_pods_on_nodes_that_the_settings_select_move() -> None:
    cluster = make_cluster().nodes(
        make_node("n0").gpu(8).label("pool", "a"), make_node("n1").gpu(8)
    )
    cluster.pods(runner("a", "n0", 2), runner("b", "n1", 2))
    pool = MigrationOptions(node_selector=(Requirement("pool", SelectorOperator.IN, ("a",)),))
    assert moves_of(find(cluster, migration=pool)) == [("a", "n0", "n1")]
