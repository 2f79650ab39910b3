"""What waits is planned once for units that ask for the same: with the outcome of planning each.

make laws ARGS=tests/cli/test_planned_units.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota, select_pods
from tests.cluster import SCORING, make_cluster
from tests.device.nodes import a100x8
from tests.support.laws import examples

from koord.answers.edits import (
    AddNodes,
    Cordon,
    Delete,
    Drain,
    Edit,
    EditError,
    RemoveNodes,
    SetMinMember,
    SetPriority,
    SetQuota,
    Submit,
    Trial,
    apply_edits,
    is_bound,
    source_of,
)
from koord.answers.encoding import encode
from koord.answers.pending import find_pending, find_queue
from koord.answers.planned_units import plan_waiting
from koord.answers.queue_view import find_incomplete
from koord.answers.reading import Reading
from koord.answers.what_if import ask_what_if
from koord.core.device.model import DeviceReport
from koord.core.device.plugin import Devices
from koord.core.engine.planner import plan
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.quota.plugin import Quotas
from koord.core.topology.layers import Layer

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

    from koord.core.engine.state import ClusterState
    from koord.core.model.plan import Unit

EXAMPLES: Final = settings(max_examples=examples(10))
FEW: Final = settings(max_examples=examples(4))
CORE: Final = "koordinator.sh/gpu-core"
RATIO: Final = "koordinator.sh/gpu-memory-ratio"
BLOCK: Final = TopologyConstraint((LayerConstraint("Block", GatherStrategy.MUST),))


@st.composite
def scenes(draw: st.DrawFn) -> FakeCluster:
    """Nodes of two blocks, some with Devices, what runs there, and what asks for little else."""
    cluster = make_cluster().topology(Layer("Block", "", ("block",)), Layer(NODE_LAYER, "Block"))
    if draw(st.booleans()):
        least, most = draw(st.integers(0, 8)), draw(st.integers(8, 24))
        cluster.quotas(*(make_quota(name, min={GPU: least}, max={GPU: most}) for name in "ab"))
    for at in range(draw(st.integers(1, 4))):
        node = make_node(f"n{at}").gpu(8).cpu(8000).label("block", f"b{at % 2}")
        if draw(st.integers(0, 3)) == 0:
            node = node.resource(CORE, 800).resource(RATIO, 800)
            report = DeviceReport(f"n{at}", a100x8().devices, uid=f"d{at}")
            cluster.state.plugin(Devices).upsert(report)
        cluster.nodes(node)
        for number in range(draw(st.integers(0, 3))):
            pod = make_pod(f"runs-{at}-{number}").owners(f"runs-{at}-{number}")
            pod = pod.gpu(draw(st.integers(1, 3))).quota(draw(st.sampled_from("ab")))
            cluster.pods(pod.released(f"n{at}", "p").running(f"n{at}"))
    for at in range(draw(st.integers(1, 24))):
        wait(cluster, draw, at)
    cluster.state.advance(100.0)
    return cluster


def wait(cluster: FakeCluster, draw: st.DrawFn, at: int) -> None:
    """Add a pod or a gang that waits: most are like many others."""
    kind, gpus, quota = draw(st.integers(0, 9)), draw(st.sampled_from([1, 4, 8])), "ab"[at % 2]
    pod = make_pod(f"w{at}").gpu(gpus).quota(quota).created(at)
    match kind:
        case 0:
            cluster.pods(pod.priority(draw(st.integers(1, 2))))
        case 1:
            web = select_pods("default", app="web")
            cluster.pods(pod.labels(app="web").apart(web, "block"))
        case 2:
            cluster.pods(pod.host_port(80))
        case 3:
            cluster.pods(
                make_pod(f"w{at}").requests(cpu=100).resource(CORE, 50).resource(RATIO, 50)
            )
        case 4 | 5 | 6:
            size, least = draw(st.sampled_from([(2, 2), (3, 2)]))
            group = make_pod_group(f"default/g{at}", least)
            cluster.pod_groups(group.topology(BLOCK) if kind == 6 else group)
            members = (make_pod(f"g{at}-{number}") for number in range(size))
            gang = f"default/g{at}"
            cluster.pods(*(pod.gang(gang).gpu(gpus).quota(quota).created(at) for pod in members))
        case _:
            cluster.pods(pod)


def decide_each(state: ClusterState, units: list[Unit]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return where pods go, and why units are refused, with each of them planned."""
    outcome = plan(state.open_cycle(lambda: units), units, SCORING)
    nodes = {
        assignment.pod.key: assignment.node
        for placement in outcome.placements
        for assignment in placement.assignments
    }
    return nodes, {refusal.unit: refusal.reason for refusal in outcome.refusals}


@EXAMPLES
@given(scenes())
def test_each_unit_has_the_outcome_of_planning_it(cluster: FakeCluster) -> None:
    state = cluster.state
    state.refresh()
    units = find_pending(state)
    nodes, reasons = decide_each(state, units)
    planned = plan_waiting(state.open_cycle(lambda: units), state, units, SCORING)
    assert nodes == {
        assignment.pod.key: assignment.node
        for placement in planned.placements
        for assignment in placement.assignments
    }
    assert {key: reason.code for key, reason in planned.refusals.items()} == {
        key: reason.code for key, reason in reasons.items()
    }
    for unit in units:
        if len(unit.pods) == 1:  # which of equal members is named first depends on what is kept
            assert planned.reason_of(unit) == reasons.get(unit.key)


def test_units_that_ask_for_the_same_are_planned_once() -> None:
    cluster = make_cluster().nodes(make_node("n").gpu(8))
    cluster.pods(*(make_pod(f"w{at:03}").gpu(8).created(at) for at in range(200)))
    state = cluster.state
    state.refresh()
    units = find_pending(state)
    planned = plan_waiting(state.open_cycle(lambda: units), state, units, SCORING)
    assert [placement.unit for placement in planned.placements] == [units[0].key]
    assert len(planned.refusals) == 199
    assert len(planned.alike) > 190
    assert planned.reason_of(units[150]) != planned.reason_of(units[151])


def test_what_there_was_no_time_for_is_left() -> None:
    cluster = make_cluster().nodes(make_node("n").gpu(8))
    cluster.pods(*(make_pod(f"w{at:03}").gpu(8).priority(at).created(at) for at in range(9)))
    state = cluster.state
    state.refresh()
    units, asked = find_pending(state), iter([False, False, False])
    cycle = state.open_cycle(lambda: units)
    planned = plan_waiting(cycle, state, units, SCORING, lambda: next(asked, True))
    decided = {unit.key for unit in units} - planned.left
    assert decided == {*planned.refusals, *planned.count_placed()}
    assert 0 < len(decided) < 9


# What-if


EDITS: Final[list[Edit]] = [
    Drain(("n0",)),
    Cordon(("n0",)),
    RemoveNodes(("n1",)),
    AddNodes("n0", 1),
    AddNodes("n1", 3),
    Delete("default/w0"),
    Delete("default/runs-0-0"),
    Delete("default/g1"),
    SetPriority("default/w2", 9),
    SetPriority("default/g3", 9),
    SetMinMember("default/g2", 1),
    SetQuota(make_quota("a", min={GPU: 8}, max={GPU: 8})),
    SetQuota(make_quota("b", min={GPU: 0}, max={GPU: 64})),
    Submit((make_pod("new").gpu(4).priority(5).build(),)),
    Submit(tuple(make_pod(f"more-{at}").gpu(8).quota("a").build() for at in range(3))),
]


def tell_all(state: ClusterState) -> dict[str, tuple[Any, Any]]:
    """Return how it is with everything, each unit planned: standing and reason by name."""
    state.refresh()
    units = find_pending(state)
    nodes, reasons = decide_each(state, units)
    told: dict[str, tuple[Any, Any]] = {}
    for unit in units:
        placed = sum(pod.key in nodes for pod in unit.pods)
        starts = placed >= max(unit.required, 1)
        names = {demand.gang for demand in unit.demands} - {""} or {unit.pods[0].key}
        reason = None if starts else reasons[unit.key].code
        told |= dict.fromkeys(names, ("Placeable" if starts else "Waiting", reason))
    for source in find_incomplete(state, find_queue(state)):
        told.setdefault(source.name, ("Waiting", source.reason.code))
    for pod in state.pods.values():
        if is_bound(state, source_of(pod)):
            told.setdefault(source_of(pod).key, ("Bound", None))
    return told


@EXAMPLES
@given(scenes(), st.lists(st.sampled_from(EDITS), min_size=1, max_size=4, unique_by=id))
def test_what_if_tells_all_that_differs(cluster: FakeCluster, edits: list[Edit]) -> None:
    state, trial = cluster.state, Trial(cluster.state)
    before = tell_all(state)
    try:
        apply_edits(trial, edits)
    except EditError:
        return
    after = tell_all(state)
    trial.undo()
    answer = encode(ask_what_if(Reading(state), edits))
    gone = (None, None)
    assert {
        f"{change['ref']['namespace']}/{change['ref']['name']}": (
            (change["before"]["standing"], change["before"]["reason"]),
            (change["after"]["standing"], change["after"]["reason"]),
        )
        for change in answer["units"]
    } == {
        name: (before.get(name, gone), after.get(name, gone))
        for name in {*before, *after}
        if before.get(name, gone) != after.get(name, gone)
    }
    order = [f"{ref['namespace']}/{ref['name']}" for ref in answer["order"]]
    assert order == [name for name, (standing, _) in after.items() if standing == "Waiting"]
    assert tell_all(state) == before, "nothing is left of it"


def make_anew(state: ClusterState) -> FakeCluster:
    """Return a cluster of its own that has read the objects of a state, and nothing else."""
    cluster = make_cluster().topology(Layer("Block", "", ("block",)), Layer(NODE_LAYER, "Block"))
    cluster.quotas(*state.plugin(Quotas).cache.catalog.written.values())
    for report in state.plugin(Devices).reports.values():
        cluster.state.plugin(Devices).upsert(report)
    cluster.nodes(*(state.table.node_at(row) for _, row in state.table.live_rows()))
    groups = (state.gangs.pod_group(key) for key in state.gangs.keys())  # noqa: SIM118 - no dict
    cluster.pod_groups(*(group for group in groups if group is not None))
    pods = (state.observed(uid) for uid in list(state.pods))
    cluster.pods(*(pod for pod in pods if pod is not None))
    cluster.state.advance(state.now)
    return cluster


@FEW
@given(scenes(), st.lists(st.sampled_from(EDITS), min_size=1, max_size=4, unique_by=id))
def test_a_cluster_in_which_the_edits_were_made_is_as_was_told(
    cluster: FakeCluster, edits: list[Edit]
) -> None:
    """Nothing is carried over: another process reads the objects as the edits leave them."""
    state, trial = cluster.state, Trial(cluster.state)
    try:
        answer = encode(ask_what_if(Reading(state), edits))
        apply_edits(trial, edits)
    except EditError:
        return
    made = tell_all(make_anew(state).state)
    for change in answer["units"]:
        name = f"{change['ref']['namespace']}/{change['ref']['name']}"
        then = (change["after"]["standing"], change["after"]["reason"])
        assert made.get(name, (None, None)) == then
    order = [f"{ref['namespace']}/{ref['name']}" for ref in answer["order"]]
    assert order == [name for name, (standing, _) in made.items() if standing == "Waiting"]
