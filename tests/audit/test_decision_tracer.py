"""How a decision came about: scores of nodes, refusing nodes, and the lines of the log."""

import json
import logging
import re
import time
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.cluster import SCORING, make_cluster, make_unit, plan_in
from tests.controllers.scene import Scene
from tests.device.test_plugin import gpu_cluster, part, whole
from tests.numa.test_plugin import PINNED, numa_cluster
from tests.numa.test_plugin import pod as numa_pod
from tests.support.laws import examples

from koord.controllers.decision_log import DecisionLog
from koord.controllers.decision_tracer import MOST_LINES, DecisionTracer
from koord.core.audit.ring import Ring
from koord.core.engine.decision_trace import rank_nodes, trace
from koord.runtime.audit import encode_record


@dataclass
class Wishes:
    top_scores: int = 0
    shows_failures: bool = False
    dumps: bool = False


def traced_scene(wishes: Wishes) -> Scene:
    scene = Scene()
    operator = scene.operator
    operator.tracer = DecisionTracer(wishes, operator.scoring, time.time)
    audit = DecisionLog(Ring(1000, 1 << 24), scene.state, operator.queue, time.time, time.monotonic)
    audit.trace_of = operator.tracer.find
    audit.begin_term(1, "leader-a")
    operator.audit = audit
    return scene


def records_of(scene: Scene, kind: str) -> list[dict]:
    audit = scene.operator.audit
    found = [json.loads(encode_record(record)) for record in audit.ring.read(0, 1000)]
    return [each for each in found if each["kind"] == kind]


SIZES = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), min_size=1, max_size=6)


@given(SIZES, st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=examples(60), deadline=None)
def test_the_first_node_of_the_table_is_the_one_that_is_taken(sizes, gpus, pods):
    cluster = make_cluster()
    for at, (cpus, cards) in enumerate(sizes):
        cluster.nodes(make_node(f"n{at}").cpu(1000 * cpus).gpu(cards))
    members = [make_pod(f"p{at}").requests(cpu=500).gpu(gpus).build() for at in range(pods)]
    unit = make_unit("u", members)
    cycle = cluster.open_cycle()
    table = rank_nodes(cycle, members[0], SCORING, 100)
    assert all(sum(node.parts) == node.total for node in table.nodes)
    assert table.feasible == len(table.nodes) == len(cluster.feasible(members[0]).split())
    outcome = plan_in(cluster.open_cycle(), [make_unit("v", members[:1])])
    nodes = [each.node for placed in outcome.placements for each in placed.assignments]
    assert nodes == [node.node for node in table.nodes[:1]]
    watched = cluster.open_cycle()
    seen = []
    watched.before_unit = lambda each: seen.append(
        trace(watched, each, SCORING, scores=9, shows_refusals=True)
    )
    assert plan_in(watched, [unit]) == cluster.plan(unit), "looking changes nothing"
    assert len(seen) == 1


def test_where_allocations_are_exact_there_are_tables_too():
    gpus, cpus = gpu_cluster(3).open_cycle(), numa_cluster(3).open_cycle()
    for cycle, pod in ((gpus, whole("a", 1).build()), (cpus, numa_pod("p", PINNED, cpu=4000))):
        table = rank_nodes(cycle, pod, SCORING, 2)
        assert (table.feasible, len(table.nodes)) == (3, 2)


def test_devices_are_a_scorer():
    cluster = gpu_cluster(2)
    table = rank_nodes(cluster.open_cycle(), part("b", 30).build(), SCORING, 2)
    assert table.scorers[0] == "node-resources-fit"
    assert "device" in table.scorers


async def test_a_table_of_scores_is_logged_and_recorded(caplog):
    scene = traced_scene(Wishes(top_scores=2))
    for at in range(3):
        scene.state.upsert_node(make_node(f"n{at}").gpu(8 - at).build())
    with caplog.at_level(logging.INFO, "koord.controllers.decision_tracer"):
        async with scene.running():
            scene.add(make_pod("p").gpu(4).build())
            assert await scene.eventually(lambda: records_of(scene, "Placed"))
    title, columns, line, *rows = caplog.messages
    assert title == "Top2 scores for Pod: default/p, feasibleNodes: 3, plugins:[NodeResourcesFit]"
    assert columns == "| # | Pod | Node | Score | NodeResourcesFit |"
    assert line == "| --- | --- | --- | --- | --- |"
    assert [row.split(" | ")[:2] for row in rows] == [["| 0", "default/p"], ["| 1", "default/p"]]
    (placed,) = records_of(scene, "Placed")
    assert [score["node"] for score in placed["score"]] == [row.split(" | ")[2] for row in rows]
    assert placed["score"][0]["node"] == placed["nodes"][0]["node"]
    assert placed["score"][0]["parts"] == {"NodeResourcesFit": placed["score"][0]["total"]}


async def test_nothing_is_logged_while_nobody_wants_it(caplog):
    scene = traced_scene(Wishes())
    scene.state.upsert_node(make_node("n1").gpu(8).build())
    with caplog.at_level(logging.INFO, "koord.controllers.decision_tracer"):
        async with scene.running():
            scene.add(make_pod("p").gpu(4).build())
            assert await scene.eventually(lambda: records_of(scene, "Placed"))
    assert caplog.messages == []
    assert records_of(scene, "Placed")[0]["score"] == []


async def test_refusals_are_told_by_node(caplog):
    scene = traced_scene(Wishes(shows_failures=True))
    scene.state.upsert_node(make_node("n1").gpu(2).build())
    scene.state.upsert_node(make_node("n2").gpu(8).unschedulable().build())
    with caplog.at_level(logging.INFO, "koord.controllers.decision_tracer"):
        async with scene.running():
            scene.add(make_pod("p").gpu(4).build())
            assert await scene.eventually(lambda: records_of(scene, "Attempt"))
    told = {record.why: (record.plugin, record.nodes) for record in caplog.records}
    assert told == {
        "Insufficient nvidia.com/gpu": ("NodeResourcesFit", "n1"),
        "node(s) were unschedulable": ("NodeUnschedulable", "n2"),
    }
    causes = records_of(scene, "Attempt")[0]["nodes"]["causes"]
    assert {cause["cause"]: cause["examples"] for cause in causes} == {
        "Insufficient nvidia.com/gpu": ["n1"],
        "node(s) were unschedulable": ["n2"],
    }


async def test_a_dump_has_the_form_that_scripts_look_for(caplog):
    scene = traced_scene(Wishes(dumps=True))
    scene.state.upsert_node(make_node("n1").gpu(2).build())
    scene.state.upsert_node(make_node("n2").gpu(8).unschedulable().build())
    with caplog.at_level(logging.INFO, "koord.controllers.decision_tracer"):
        async with scene.running():
            scene.add(make_pod("p").gpu(4).build())
            assert await scene.eventually(lambda: caplog.messages)
    (line,) = set(caplog.messages[:1])
    form = r"dump diagnosis for (\S+), targetPod: default/p/uid-default-p: (\{.*\})"
    key, text = re.fullmatch(form, line).groups()
    document = json.loads(text)
    assert key == document["questionedKey"] == "default/p"
    assert set(document) == {
        "timestamp",
        "questionedKey",
        "nominatedNode",
        "preFilterMessage",
        "topologyKeyToExplain",
        "isRootCausePod",
        "scheduleDiagnosis",
        "preemptionDiagnosis",
        "suggestion",
    }
    assert document["isRootCausePod"] is True
    assert document["suggestion"] is None
    diagnosis = document["scheduleDiagnosis"]
    assert (diagnosis["alreadyWaitForBound"], diagnosis["nodeOfferSlot"]) == (0, {})
    assert diagnosis["nodeFailedDetails"] == [
        {
            "failedPlugin": "NodeResourcesFit",
            "reason": "Insufficient nvidia.com/gpu",
            "preemptMightHelp": False,
            "failedNodes": ["n1"],
            "failedNodeCount": 1,
        },
        {
            "failedPlugin": "NodeUnschedulable",
            "reason": "node(s) were unschedulable",
            "preemptMightHelp": False,
            "failedNodes": ["n2"],
            "failedNodeCount": 1,
        },
    ]


def test_a_flood_of_decisions_is_counted_and_not_logged(caplog):
    now = [100.0]
    cluster = make_cluster().nodes(make_node("n1").gpu(8))
    wishes = Wishes(top_scores=1)
    tracer = DecisionTracer(wishes, SCORING, lambda: now[0])
    unit = make_unit("u", [make_pod("p").gpu(1).build()])
    with caplog.at_level(logging.INFO, "koord.controllers.decision_tracer"):
        for _ in range(MOST_LINES):
            cycle = cluster.open_cycle()
            tracer.begin(cycle)
            cycle.before_unit(unit)
            tracer.decided(unit, None)
        assert len(caplog.messages) <= MOST_LINES
        now[0] += 1
        tracer.decided(unit, None)
    assert any(message.startswith("Left out decisions") for message in caplog.messages)


def test_a_flag_is_recorded():
    scene = traced_scene(Wishes())
    scene.operator.audit.flag_set("s", "100", "jane" * 200)
    (record,) = records_of(scene, "Flags")
    assert (record["flag"], record["value"], len(record["by"]) <= 256) == ("s", "100", True)
