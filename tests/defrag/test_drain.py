"""What becomes of the pods of nodes that are emptied, and what is printed of moves."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from tests.builders import make_node, make_pod, make_pod_group, select_labels
from tests.cluster import FakeCluster, make_cluster
from tests.defrag.test_search import NOW, runner

from koord.answers.encoding import encode
from koord.answers.moves import MoveQuestion, ask_drain, ask_moves
from koord.cli.moves_view import make_defrag_parts, make_drain_parts
from koord.core.defrag.drain import DrainPlan, plan_drain
from koord.core.defrag.shapes import GpuShape, count_shapes, make_shape_unit, parse_shape
from koord.core.eviction.search import PreemptionContext
from koord.core.model.budgets import Budget
from koord.core.model.pods import OwnerReference

DAEMON = OwnerReference("ds", "DaemonSet", "apps/v1", "uid-ds", is_controller=True)


def drain(cluster: FakeCluster, *nodes: str, budgets: tuple[Budget, ...] = ()) -> DrainPlan:
    return plan_drain(cluster.state, nodes, context=PreemptionContext(NOW, budgets))


def targets(plan: DrainPlan) -> dict[str, str]:
    return {move.pod.name: move.target for step in plan.steps for move in step.moves}


def written(parts: object) -> str:
    console = Console(width=200, record=True)
    for part in parts:  # type: ignore[attr-defined]
        console.print(part)
    return console.export_text()


def test_every_pod_moves_off_all_drained_nodes_or_it_is_said_why_not() -> None:
    cluster = make_cluster(3).nodes(make_node("n3").gpu(2))
    daemon = make_pod("agent").not_ours().running("n0")._set(owners=(DAEMON,))
    cluster.pods(daemon, runner("a", "n0", 2), runner("b", "n1", 4), runner("c", "n2", 4))
    cluster.pods(runner("bare", "n0", 1, owners=()), runner("guarded", "n1", 1).labels(app="x"))
    cluster.pods(runner("large", "n0", 5))
    budget = Budget("default", select_labels(app="x"), 0)
    plan = drain(cluster, "n0", "n1", "nowhere", budgets=(budget,))
    assert targets(plan) == {"b": "n2", "a": "n3"}
    assert [pod.name for pod in plan.ending] == ["agent"]
    why = {stuck.pod.name: stuck.code for stuck in plan.stuck}
    assert why == {"bare": "Ownerless", "guarded": "Budget", "large": "NoOtherNode"}
    assert plan.unknown == ("nowhere",)
    text = written(make_drain_parts(plan))
    assert "2 pods would move, 3 cannot, 1 end with the node" in text
    assert "without a controller that would create them again" in text
    assert encode(plan)["stuck"][0]["rule"] == "Ownerless"


def test_a_gang_leaves_a_node_as_a_whole() -> None:
    cluster = make_cluster(4)
    cluster.pod_groups(make_pod_group("default/g", 2))
    cluster.pods(*(runner(f"g-{at}", f"n{at}", 8).gang("default/g") for at in range(2)))
    plan = drain(cluster, "n0")
    assert sorted(targets(plan)) == ["g-0", "g-1"]
    assert set(targets(plan).values()) == {"n2", "n3"}
    cluster.pods(runner("x", "n2", 1))
    (stuck,) = drain(cluster, "n0").stuck
    assert stuck.pod.name == "g-0"


def test_shapes_are_read_and_counted() -> None:
    assert parse_shape("8") == GpuShape(1, 8)
    assert parse_shape("4x8") == GpuShape(4, 8)
    for text in ("", "0", "x8", "8x", "4x0", "-1", "8x8x8", "99999", "4 x 8", "٤"):
        assert parse_shape(text) is None
    cluster = make_cluster(3).pods(runner("a", "n0", 4), runner("b", "n1", 4))
    cycle = cluster.open_cycle()
    counts = count_shapes(cluster.state, cycle, (GpuShape(1, 8), GpuShape(2, 8), GpuShape(1, 4)))
    assert [(count.fitting, count.possible) for count in counts] == [(1, 2), (0, 1), (4, 4)]


def test_the_answer_of_koord_defrag() -> None:
    cluster = make_cluster(2).pods(runner("a", "n0", 2), runner("b", "n1", 3))
    question = MoveQuestion(cluster.state, None, (), NOW)
    answer = ask_moves(question, make_shape_unit(cluster.state, GpuShape(1, 8)), "1x8")
    document = encode(answer)
    assert document["steps"] == [
        {
            "kind": "Pod",
            "name": "default/a",
            "moves": [{"pod": "default/a", "from": "n0", "to": "n1"}],
        }
    ]
    assert document["freed"] == ["n0"]
    text = written(make_defrag_parts(answer))
    assert "1x8 fits after 1 move, on 1 node: n0." in text
    assert "No other moves are fewer or cheaper." in text
    none = replace(
        answer,
        outcome=ask_moves(question, make_shape_unit(cluster.state, GpuShape(2, 8)), "2x8").outcome,
    )
    assert encode(none)["fits"] is False
    assert "does not fit, whatever moves" in written(make_defrag_parts(none))
    assert ask_drain(question, ("n0",)).steps
