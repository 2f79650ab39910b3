"""Node selectors, node affinity and taints, each operator once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.cluster import FakeCluster, make_cluster

from koord.core.model.pods import HostPort, Pod
from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm
from koord.core.plugins.host_ports import PortsInUse

ANY_ADDRESS = HostPort(1).ip
ROWS = st.integers(0, 3)
HOST_PORTS = st.builds(
    HostPort,
    st.integers(1, 2),
    st.sampled_from(["TCP", "UDP"]),
    st.sampled_from([ANY_ADDRESS, "10.0.0.1", "10.0.0.2"]),
)


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
        (Requirement("zone", SelectorOperator.IN, ("z1", "zx")), "a"),
        (Requirement("zone", SelectorOperator.NOT_IN, ("z1",)), "bc"),
        (Requirement("zone", SelectorOperator.EXISTS), "ab"),
        (Requirement("zone", SelectorOperator.DOES_NOT_EXIST), "c"),
        (Requirement("gen", SelectorOperator.GT, ("7",)), "b"),
        (Requirement("gen", SelectorOperator.LT, ("12",)), "a"),
        (Requirement("gen", SelectorOperator.GT, ("x",)), ""),
        (Requirement("none", SelectorOperator.IN, ("",)), ""),
    ],
)
def test_operators(requirement: Requirement, expected: str) -> None:
    pod = make_pod("p").terms(SelectorTerm((requirement,))).build()
    assert admitted(make_nodes(), pod) == expected


def test_terms_are_ored_and_empty_ones_match_nothing() -> None:
    cluster = make_nodes()
    by_name = SelectorTerm(fields=(Requirement("metadata.name", SelectorOperator.IN, ("c",)),))
    by_zone = SelectorTerm((Requirement("zone", SelectorOperator.IN, ("z1",)),))
    assert admitted(cluster, make_pod("p").terms(by_name, by_zone).build()) == "ac"
    assert admitted(cluster, make_pod("p").terms(SelectorTerm()).build()) == ""
    assert admitted(cluster, make_pod("p").terms().build()) == ""
    not_c = SelectorTerm(fields=(Requirement("metadata.name", SelectorOperator.NOT_IN, ("c",)),))
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


@pytest.mark.parametrize(
    ("wanted", "expected"), [("10.0.0.1", "bc"), ("10.0.0.2", "abc"), (ANY_ADDRESS, "bc")]
)
def test_host_ports_conflict_per_address(wanted: str, expected: str) -> None:
    in_use = PortsInUse()
    in_use.charge(0, (HostPort(80, ip="10.0.0.1"),), 1)
    conflicts = in_use.rows_in_conflict((HostPort(80, ip=wanted),), 3)
    assert (
        "".join(name for name, taken in zip("abc", conflicts, strict=True) if not taken) == expected
    )


@given(
    held=st.lists(st.tuples(ROWS, HOST_PORTS), max_size=12),
    changes=st.lists(st.tuples(ROWS, HOST_PORTS), max_size=6),
    wanted=st.lists(HOST_PORTS, max_size=4),
)
def test_host_ports_in_a_cycle_equal_a_comparison_of_all_pairs(
    held: list[tuple[int, HostPort]],
    changes: list[tuple[int, HostPort]],
    wanted: list[HostPort],
) -> None:
    below = PortsInUse()
    for row, port in held:
        below.charge(row, (port,), 1)
    before = below.counts()
    in_use = PortsInUse(below)
    for row, port in changes:
        in_use.charge(row, (port,), 1)
    expected = {row for row, port in held + changes if any(is_conflict(port, w) for w in wanted)}
    assert set(in_use.rows_in_conflict(tuple(wanted), 4).nonzero()[0]) == expected
    assert below.counts() == before
    for row, port in changes:
        in_use.charge(row, (port,), -1)
    assert in_use.counts() == before


def is_conflict(first: HostPort, second: HostPort) -> bool:
    is_same = (first.port, first.protocol) == (second.port, second.protocol)
    return is_same and (first.ip == second.ip or ANY_ADDRESS in {first.ip, second.ip})


def test_table_grows_beyond_its_first_size() -> None:
    cluster = make_cluster()
    for at in range(200):
        cluster.nodes(make_node(f"n{at:03}").label("odd", str(at % 2)))
    pod = make_pod("p").select("odd", "1").build()
    assert len(cluster.feasible(pod).split()) == 100
