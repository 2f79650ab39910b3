"""Node selectors, node affinity and taints, each operator once."""

import pytest
from tests.builders import make_node, make_pod

from koord.core.pods import Pod
from koord.core.selectors import Operator, Requirement, SelectorTerm
from koord.core.state import ClusterState


def make_state() -> ClusterState:
    state = ClusterState()
    state.upsert_node(make_node("a").label("zone", "z1").label("gen", "7").build())
    state.upsert_node(make_node("b").label("zone", "z2").label("gen", "12").build())
    state.upsert_node(make_node("c").label("gen", "old").build())
    return state


def admitted(state: ClusterState, pod: Pod) -> str:
    room = state.snapshot().room(pod.shape)
    return "".join(name for name, row in state.table.live_rows() if room[row])


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (Requirement("zone", Operator.IN, ("z1", "zx")), "a"),
        (Requirement("zone", Operator.NOT_IN, ("z1",)), "bc"),
        (Requirement("zone", Operator.EXISTS), "ab"),
        (Requirement("zone", Operator.DOES_NOT_EXIST), "c"),
        (Requirement("gen", Operator.GT, ("7",)), "b"),
        (Requirement("gen", Operator.LT, ("12",)), "a"),
        (Requirement("gen", Operator.GT, ("x",)), ""),
        (Requirement("none", Operator.IN, ("",)), ""),
    ],
)
def test_operators(requirement: Requirement, expected: str) -> None:
    pod = make_pod("p").terms(SelectorTerm((requirement,))).build()
    assert admitted(make_state(), pod) == expected


def test_terms_are_ored_and_empty_ones_match_nothing() -> None:
    state = make_state()
    by_name = SelectorTerm(fields=(Requirement("metadata.name", Operator.IN, ("c",)),))
    by_zone = SelectorTerm((Requirement("zone", Operator.IN, ("z1",)),))
    assert admitted(state, make_pod("p").terms(by_name, by_zone).build()) == "ac"
    assert admitted(state, make_pod("p").terms(SelectorTerm()).build()) == ""
    assert admitted(state, make_pod("p").terms().build()) == ""
    not_c = SelectorTerm(fields=(Requirement("metadata.name", Operator.NOT_IN, ("c",)),))
    assert admitted(state, make_pod("p").terms(not_c).build()) == "ab"


def test_labels_may_change() -> None:
    state = make_state()
    pod = make_pod("p").select("zone", "z1").build()
    assert admitted(state, pod) == "a"
    state.upsert_node(make_node("a").build())
    state.upsert_node(make_node("c").label("zone", "z1").build())
    assert admitted(state, pod) == "c"
    state.remove_node("c")
    assert admitted(state, pod) == ""


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({}, "c"),
        ({"key": "team", "value": "x"}, "ac"),
        ({"key": "team", "operator": "Exists"}, "ac"),
        ({"key": "team", "value": "x", "effect": "NoExecute"}, "c"),
        ({"operator": "Exists"}, "abc"),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, "bc"),
    ],
)
def test_taints_and_cordons(toleration: dict[str, str], expected: str) -> None:
    state = ClusterState()
    state.upsert_node(make_node("a").taint("team", "x").build())
    state.upsert_node(make_node("b").unschedulable().build())
    state.upsert_node(make_node("c").taint("soft", "", "PreferNoSchedule").build())
    pod = make_pod("p")
    assert admitted(state, (pod.tolerates(**toleration) if toleration else pod).build()) == expected


def test_host_ports_conflict_per_node() -> None:
    state = make_state()
    state.upsert_pod(make_pod("web").host_port(80).running("a").build())
    assert admitted(state, make_pod("p").host_port(80).build()) == "bc"
    assert admitted(state, make_pod("p").host_port(80, "UDP").build()) == "abc"
    state.remove_pod("uid-default-web")
    assert admitted(state, make_pod("p").host_port(80).build()) == "abc"


def test_table_grows_beyond_its_first_size() -> None:
    state = ClusterState()
    for at in range(200):
        state.upsert_node(make_node(f"n{at:03}").label("odd", str(at % 2)).build())
    pod = make_pod("p").select("odd", "1").build()
    assert state.snapshot().room(pod.shape).astype(bool).sum() == 100
