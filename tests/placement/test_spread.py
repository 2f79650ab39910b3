"""Topology spread constraints."""

import pytest
from tests.builders import PodBuilder, make_node, make_pod, select_pods
from tests.cluster import FakeCluster, make_cluster, make_unit

from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.constraints import PodSelector
from koord.core.model.plan import Plan
from koord.core.model.pods import Pod
from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm

ZONES = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "c"}
WEB = select_pods(app="web")
HOST = "kubernetes.io/hostname"
NOT_C = SelectorTerm((Requirement("zone", SelectorOperator.NOT_IN, ("c",)),))


def make_zones(*nodes: str) -> FakeCluster:
    """Start ``app=web`` pods on the nodes named; ``out`` is a node without a zone."""
    cluster = make_cluster()
    for name, zone in ZONES.items():
        cluster.nodes(make_node(name).label("zone", zone).pods(8))
    cluster.nodes(make_node("out").pods(8))
    for at, node in enumerate(nodes):
        cluster.pods(make_pod(f"w{at}").labels(app="web").running(node))
    return cluster


def web(name: str = "p") -> PodBuilder:
    return make_pod(name).labels(app="web")


@pytest.mark.parametrize(
    ("there", "pod", "expected"),
    [
        ("", web().spread(WEB), "a1 a2 b1 b2 c1"),
        ("a1", web().spread(WEB), "b1 b2 c1"),
        ("a1", web().spread(WEB, skew=2), "a1 a2 b1 b2 c1"),
        ("a1 a2 b1", web().spread(WEB), "c1"),
        ("a1 b1 c1", web().spread(WEB), "a1 a2 b1 b2 c1"),
        ("a1 b1", web().spread(WEB, HOST), "a2 b2 c1 out"),
        ("a1", make_pod("p").spread(WEB), "a1 a2 b1 b2 c1"),
        ("a1 a2", make_pod("p").spread(WEB), "b1 b2 c1"),
        ("a1 b1 c1", web().spread(WEB, min_domains=3), "a1 a2 b1 b2 c1"),
        ("a1 b1 c1", web().spread(WEB, min_domains=4), ""),
        ("a1 b1", web().spread(WEB, min_domains=4), "c1"),
        ("a1 b1", web().spread(WEB).terms(NOT_C), "a1 a2 b1 b2"),
        ("a1 b1", web().spread(WEB, honors_affinity=False).terms(NOT_C), ""),
        ("a1 b1", web().spread(WEB).select("zone", "a"), "a1 a2"),
        ("a1 out", web().spread(WEB).spread(WEB, HOST), "b1 b2 c1"),
        ("a1 a2 b1", web().spread(WEB).spread(WEB, "zone", 2), "c1"),
        ("a1", web().spread(select_pods()), "a1 a2 b1 b2 c1"),
        ("a1", web().spread(PodSelector(None, ("default",))), "a1 a2 b1 b2 c1"),
        ("a1", web("other/p").spread(select_pods("other", app="web")), "a1 a2 b1 b2 c1"),
    ],
)
def test_feasible_nodes_under_spread_constraints(
    there: str, pod: PodBuilder, expected: str
) -> None:
    assert make_zones(*there.split()).feasible(pod) == expected


def test_taints_count_only_if_they_are_honored() -> None:
    cluster = make_zones("a1", "b1")
    cluster.nodes(make_node("c1").label("zone", "c").taint("team", "x"))
    assert cluster.feasible(web().spread(WEB)) == ""
    assert cluster.feasible(web().spread(WEB, honors_taints=True)) == "a1 a2 b1 b2"
    tolerant = web().spread(WEB, honors_taints=True).tolerates("team", "x")
    assert cluster.feasible(tolerant) == "c1"


def test_cordoned_nodes_count_and_deleted_nodes_do_not() -> None:
    cluster = make_zones("a1", "b1")
    cluster.nodes(make_node("c1").label("zone", "c").unschedulable())
    assert cluster.feasible(web().spread(WEB)) == ""
    cluster.state.remove_node("c1")
    assert cluster.feasible(web().spread(WEB)) == "a1 a2 b1 b2"


def test_terminating_pods_do_not_count() -> None:
    cluster = make_zones("a1", "a2")
    assert cluster.feasible(web().spread(WEB, skew=2)) == "b1 b2 c1"
    cluster.pods(make_pod("w0").labels(app="web").running("a1").terminating())
    assert cluster.feasible(web().spread(WEB, skew=2)) == "a1 a2 b1 b2 c1"


@pytest.mark.parametrize(
    ("there", "skew", "more", "expected"),
    [
        ("", 1, {}, {"a": 1, "b": 1, "c": 1}),
        ("a1", 2, {}, {"a": 1, "b": 2, "c": 2}),
        ("a1 b1 b2 c1", 1, {}, {"a": 1, "b": 0, "c": 1}),
        ("a1 b1 b2", 1, {"min_domains": 4}, {"a": 0, "b": 0, "c": 1}),
    ],
)
def test_room_counts_pods_that_fit_in_one_domain(
    there: str, skew: int, more: dict[str, object], expected: dict[str, int]
) -> None:
    cluster = make_zones(*there.split())
    copies = cluster.copies(web().spread(WEB, skew=skew, **more))
    found = {zone: copies[name] for name, zone in ZONES.items()}
    assert found == expected


def test_single_domain_has_no_skew() -> None:
    cluster = make_cluster()
    cluster.nodes(make_node("n").label("zone", "a").pods(8))
    assert cluster.copies(web().spread(WEB)) == {"n": 8}


def run(cluster: FakeCluster, *pods: Pod) -> Plan:
    return cluster.plan(make_unit("g", pods))


def spread_of(outcome: Plan) -> dict[str, int]:
    placed = [ZONES.get(one.node, one.node) for one in outcome.placements[0].assignments]
    return {zone: placed.count(zone) for zone in sorted(set(placed))}


def test_members_of_a_gang_are_spread_over_the_domains() -> None:
    gang = [web(f"g-{i}").spread(WEB).build() for i in range(24)]
    assert spread_of(run(make_zones(), *gang[:6])) == {"a": 2, "b": 2, "c": 2}
    assert spread_of(run(make_zones("a1", "a1"), *gang[:4])) == {"b": 2, "c": 2}
    assert spread_of(run(make_zones("a1", "a1"), *gang[:7])) == {"a": 1, "b": 3, "c": 3}
    assert spread_of(run(make_zones(), *gang)) == {"a": 8, "b": 8, "c": 8}


def test_full_domain_limits_the_others() -> None:
    gang = [web(f"g-{i}").spread(WEB).build() for i in range(12)]
    cluster = make_zones()
    cluster.pods(make_pod("r").resource("pods", 6).running("c1"))
    reason = run(cluster, *gang).refusals[0].reason
    assert isinstance(reason, InsufficientNodes)
    assert (reason.want, reason.fit, reason.more_nodes) == (12, 8, None)
    causes = {one.cause: one.nodes for one in reason.refused}
    assert causes == {"Insufficient": 1, "PodTopologySpread": 4, "PodTopologySpreadLabel": 1}
