"""Node selectors, node affinity and taints, each operator once."""

import pytest
from tests.builders import make_node, make_pod
from tests.cluster import FakeCluster, make_cluster

from koord.core.pods import Pod
from koord.core.selectors import Operator, Requirement, SelectorTerm


def make_nodes() -> FakeCluster:
    cluster = make_cluster()
    cluster.nodes(make_node("a").label("zone", "z1").label("gen", "7"))
    cluster.nodes(make_node("b").label("zone", "z2").label("gen", "12"))
    cluster.nodes(make_node("c").label("gen", "old"))
    return cluster


def admitted(cluster: FakeCluster, pod: Pod) -> str:
    return cluster.feasible(pod).replace(" ", "")


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
    assert admitted(make_nodes(), pod) == expected


def test_terms_are_ored_and_empty_ones_match_nothing() -> None:
    cluster = make_nodes()
    by_name = SelectorTerm(fields=(Requirement("metadata.name", Operator.IN, ("c",)),))
    by_zone = SelectorTerm((Requirement("zone", Operator.IN, ("z1",)),))
    assert admitted(cluster, make_pod("p").terms(by_name, by_zone).build()) == "ac"
    assert admitted(cluster, make_pod("p").terms(SelectorTerm()).build()) == ""
    assert admitted(cluster, make_pod("p").terms().build()) == ""
    not_c = SelectorTerm(fields=(Requirement("metadata.name", Operator.NOT_IN, ("c",)),))
    assert admitted(cluster, make_pod("p").terms(not_c).build()) == "ab"


def test_labels_may_change() -> None:
    cluster = make_nodes()
    pod = make_pod("p").select("zone", "z1").build()
    assert admitted(cluster, pod) == "a"
    cluster.nodes(make_node("a"))
    cluster.nodes(make_node("c").label("zone", "z1"))
    assert admitted(cluster, pod) == "c"
    cluster.state.remove_node("c")
    assert admitted(cluster, pod) == ""


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
    cluster = make_cluster()
    cluster.nodes(make_node("a").taint("team", "x"))
    cluster.nodes(make_node("b").unschedulable())
    cluster.nodes(make_node("c").taint("soft", "", "PreferNoSchedule"))
    pod = make_pod("p").tolerates(**toleration) if toleration else make_pod("p")
    assert admitted(cluster, pod.build()) == expected


def test_host_ports_conflict_per_node() -> None:
    cluster = make_nodes()
    cluster.pods(make_pod("web").host_port(80).running("a"))
    assert admitted(cluster, make_pod("p").host_port(80).build()) == "bc"
    assert admitted(cluster, make_pod("p").host_port(80, "UDP").build()) == "abc"
    cluster.state.remove_pod("uid-default-web")
    assert admitted(cluster, make_pod("p").host_port(80).build()) == "abc"


def test_table_grows_beyond_its_first_size() -> None:
    cluster = make_cluster()
    for at in range(200):
        cluster.nodes(make_node(f"n{at:03}").label("odd", str(at % 2)))
    pod = make_pod("p").select("odd", "1").build()
    assert len(cluster.feasible(pod).split()) == 100
