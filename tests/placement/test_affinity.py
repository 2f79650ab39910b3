"""Inter-pod affinity and anti-affinity with running and with planned pods."""

import pytest
from tests.builders import PodBuilder, make_node, make_pod, select_labels, select_pods
from tests.cluster import FakeCluster, make_cluster, make_unit
from tests.objects import remove_namespace, upsert_namespace

from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.plan import Demand, Plan, Unit
from koord.core.model.pods import Pod
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.core.plugins.causes import NodeCause

ZONES = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "c"}
WEB = select_pods(app="web")
DB = select_pods(app="db")
HOST = "kubernetes.io/hostname"


def make_zones(*pods: Pod) -> FakeCluster:
    """Three zones; ``out`` is a node without a zone."""
    cluster = make_cluster()
    for name, zone in ZONES.items():
        cluster.nodes(make_node(name).label("zone", zone).pods(8))
    cluster.nodes(make_node("out").pods(8))
    for namespace, team in (("default", "x"), ("other", "x"), ("far", "y")):
        upsert_namespace(cluster.state, namespace, {"team": team})
    for pod in pods:
        cluster.pods(pod)
    return cluster


def web(node: str, name: str = "w") -> PodBuilder:
    return make_pod(name).labels(app="web").running(node)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod("p").near(WEB), "a1 a2"),
        (make_pod("p").near(WEB, HOST), "a1"),
        (make_pod("p").near(WEB).near(DB), ""),
        (make_pod("p").near(select_pods("default", "far", app="web")), "a1 a2 c1"),
        (make_pod("p").near(select_pods("far", app="web")), "c1"),
        (make_pod("p").near(select_pods(by_labels=select_labels(team="y"), app="web")), "c1"),
        (make_pod("p").near(select_pods(by_labels=(), app="web")), "a1 a2 c1"),
        (make_pod("p").near(select_pods(by_labels=select_labels(team="z"), app="web")), ""),
        (make_pod("p").near(WEB).select("zone", "b"), ""),
        (make_pod("p").apart(WEB), "b1 b2 c1 out"),
        (make_pod("p").apart(WEB, HOST), "a2 b1 b2 c1 out"),
        (make_pod("p").apart(WEB).apart(DB), "c1 out"),
        (make_pod("p").near(WEB).apart(DB, HOST), "a1 a2"),
        (make_pod("far/p").apart(WEB), "b1 b2 c1 out"),
        (make_pod("p").apart(select_pods(by_labels=(), app="web")), "b1 b2 out"),
    ],
)
def test_affinity_and_anti_affinity_to_running_pods(pod: PodBuilder, expected: str) -> None:
    cluster = make_zones(
        web("a1").build(),
        make_pod("d").labels(app="db").running("b1").build(),
        make_pod("far/w").labels(app="web").running("c1").build(),
    )
    assert cluster.feasible(pod) == expected


def test_one_pod_must_satisfy_all_terms_together() -> None:
    both = make_pod("p").near(WEB).near(select_pods(tier="front"), HOST)
    cluster = make_zones(
        web("a1").build(), make_pod("f").labels(tier="front").running("a1").build()
    )
    assert cluster.feasible(both) == ""
    cluster.pods(web("b1", "w2").labels(tier="front"))
    assert cluster.feasible(both) == "b1"


def test_first_pod_of_a_group_satisfies_its_own_affinity() -> None:
    cluster = make_zones()
    assert cluster.feasible(make_pod("p").labels(app="web").near(WEB)) == "a1 a2 b1 b2 c1"
    assert cluster.feasible(make_pod("p").labels(app="db").near(WEB)) == ""
    both = make_pod("p").labels(app="web").near(WEB).near(DB)
    assert cluster.feasible(both) == ""
    assert cluster.feasible(both.labels(tier="x").near(select_pods(tier="x"))) == ""


def test_pod_on_a_node_without_topology_key_is_not_the_first_of_a_group() -> None:
    cluster = make_zones(web("out").build())
    first = make_pod("p").labels(app="web").near(WEB)
    assert cluster.feasible(first) == "a1 a2 b1 b2 c1"
    cluster.pods(web("b1", "w2"))
    assert cluster.feasible(first) == "b1 b2"


def test_anti_affinity_of_running_pods_excludes_new_pods() -> None:
    cluster = make_zones(
        make_pod("shy").apart(WEB).running("a1").build(),
        make_pod("shyer")
        .apart(select_pods(by_labels=select_labels(team="y")))
        .running("b1")
        .build(),
    )
    assert cluster.feasible(make_pod("p").labels(app="web")) == "b1 b2 c1 out"
    assert cluster.feasible(make_pod("p").labels(app="db")) == "a1 a2 b1 b2 c1 out"
    assert cluster.feasible(make_pod("far/p").labels(app="web")) == "a1 a2 c1 out"
    cluster.state.remove_pod("uid-default-shy")
    assert cluster.feasible(make_pod("p").labels(app="web")) == "a1 a2 b1 b2 c1 out"


def test_terms_of_running_pods_apply_without_an_equality_label() -> None:
    no_role = select_pods()
    odd = Requirement("role", SelectorOperator.DOES_NOT_EXIST)
    shy = make_pod("shy").apart(type(no_role)((odd,), ("default",))).running("a1").build()
    cluster = make_zones(shy)
    assert cluster.feasible(make_pod("p").labels(app="web")) == "b1 b2 c1 out"
    assert cluster.feasible(make_pod("p").labels(role="web")) == "a1 a2 b1 b2 c1 out"


def test_terminating_pods_count_and_terminated_pods_do_not() -> None:
    cluster = make_zones(web("a1").terminating().build())
    pod = make_pod("p").apart(WEB)
    assert cluster.feasible(pod) == "b1 b2 c1 out"
    cluster.state.remove_pod("uid-default-w")
    assert cluster.feasible(pod) == "a1 a2 b1 b2 c1 out"


def test_labels_of_pods_nodes_and_namespaces_may_change() -> None:
    cluster = make_zones(web("a1").build())
    by_team = make_pod("p").apart(select_pods(by_labels=select_labels(team="x"), app="web"))
    assert cluster.feasible(by_team) == "b1 b2 c1 out"
    upsert_namespace(cluster.state, "default", {"team": "z"})
    assert cluster.feasible(by_team) == "a1 a2 b1 b2 c1 out"
    remove_namespace(cluster.state, "default")
    assert cluster.feasible(by_team) == "a1 a2 b1 b2 c1 out"
    pod = make_pod("p").apart(WEB)
    cluster.pods(make_pod("w").labels(app="db").running("a1"))
    assert cluster.feasible(pod) == "a1 a2 b1 b2 c1 out"
    cluster.pods(web("a1"))
    cluster.nodes(make_node("a1").label("zone", "c").pods(8))
    assert cluster.feasible(pod) == "a2 b1 b2 out"


def test_pods_survive_removal_and_return_of_their_node() -> None:
    shy = make_pod("shy").labels(app="web").apart(WEB).running("a1").build()
    cluster = make_zones(shy)
    cluster.state.remove_node("a1")
    assert cluster.feasible(make_pod("p").apart(WEB)) == "a2 b1 b2 c1 out"
    assert cluster.feasible(make_pod("p").labels(app="web")) == "a2 b1 b2 c1 out"
    cluster.nodes(make_node("new").label("zone", "a"))
    cluster.nodes(make_node("a1").label("zone", "a"))
    assert cluster.feasible(make_pod("p").apart(WEB)) == "b1 b2 c1 out"
    assert cluster.feasible(make_pod("p").labels(app="web")) == "b1 b2 c1 out"


def run(cluster: FakeCluster, *pods: PodBuilder, required: int | None = None) -> Plan:
    return cluster.plan(make_unit("g", pods, required))


def zones_of(outcome: Plan) -> list[str]:
    nodes = (one.node for placed in outcome.placements for one in placed.assignments)
    return sorted(ZONES.get(node, node) for node in nodes)


def test_members_with_anti_affinity_get_one_domain_each() -> None:
    gang = [make_pod(f"g-{i}").labels(app="web").apart(WEB) for i in range(5)]
    assert zones_of(run(make_zones(), *gang[:4])) == ["a", "b", "c", "out"]
    per_host = [make_pod(f"g-{i}").labels(app="web").apart(WEB, HOST) for i in range(7)]
    assert len(zones_of(run(make_zones(), *per_host[:6]))) == 6
    refused = run(make_zones(), *per_host).refusals[0].reason
    assert isinstance(refused, InsufficientNodes)
    assert (refused.want, refused.fit, refused.more_nodes) == (7, 6, 1)
    causes = [(one.cause, one.nodes) for one in refused.refused]
    assert causes == [(NodeCause.POD_ANTI_AFFINITY, 6)]


def test_nodes_without_the_key_are_exempt_from_anti_affinity() -> None:
    gang = [make_pod(f"g-{i}").labels(app="web").apart(WEB) for i in range(9)]
    assert zones_of(run(make_zones(), *gang)) == ["a", "b", "c", *["out"] * 6]


def busy(*nodes: str) -> list[Pod]:
    """One small pod per node, so that greed prefers the others."""
    return [make_pod(f"r-{node}").requests(cpu=100).running(node).build() for node in nodes]


def test_members_with_affinity_go_to_a_domain_where_all_fit() -> None:
    crowd = busy("a1", "a2", "b1", "b2", "out")
    cluster = make_zones(*crowd, make_pod("s").requests(cpu=100).running("b1").build())
    gang = [make_pod(f"g-{i}").labels(app="web").near(WEB) for i in range(20)]
    assert zones_of(run(cluster, *gang[:8])) == ["c"] * 8, "greed chooses as long as that goes well"
    assert zones_of(run(cluster, *gang[:13])) == ["b"] * 13, "the tightest domain that will do"
    assert zones_of(run(cluster, *gang[:14])) == ["a"] * 14
    refused = run(make_zones(), *gang).refusals[0].reason
    assert isinstance(refused, InsufficientNodes)
    assert (refused.want, refused.fit, refused.more_nodes) == (20, 16, None)


def test_members_of_different_shapes_share_a_domain() -> None:
    cluster = make_zones(*busy("a1", "a2", "b1", "b2", "out"))
    head = make_pod("head").labels(app="db").requests(cpu=1000)
    greedy = run(cluster, head, make_pod("tail").near(DB).requests(cpu=1000))
    assert zones_of(greedy) == ["c", "c"]
    tails = [make_pod(f"tail-{i}").near(DB).requests(cpu=60_000) for i in range(2)]
    assert zones_of(run(cluster, head, *tails)) == ["a", "a", "a"]
    assert zones_of(run(cluster, head, tails[0], required=2)) == ["c", "c"]


def test_unit_sees_pods_of_units_planned_before() -> None:
    cluster = make_zones()
    first = make_pod("w").labels(app="web").select("zone", "b").build()
    near, away = (make_pod("n").near(WEB).build(), make_pod("f").apart(WEB).build())
    units = [Unit(pod.name, (Demand("", (pod,), 1),)) for pod in (first, near, away)]
    outcome = cluster.plan(*units)
    zones = [ZONES[placed.assignments[0].node] for placed in outcome.placements]
    assert zones[:2] == ["b", "b"]
    assert zones[2] != "b"


def test_refused_unit_leaves_no_changes() -> None:
    cluster = make_zones()
    gang = tuple(make_pod(f"g-{i}").labels(app="web").apart(WEB, HOST).build() for i in range(9))
    other = make_pod("p").labels(app="web").apart(WEB).build()
    units = [Unit("g", (Demand("g", gang, 9),)), Unit("p", (Demand("", (other,), 1),))]
    outcome = cluster.plan(*units)
    assert [placed.unit for placed in outcome.placements] == ["p"]


def test_released_pod_keeps_its_node_only_if_the_rules_allow_it() -> None:
    cluster = make_zones(web("a1").build())
    promised = make_pod("p").apart(WEB).released("a2", "plan")
    assert zones_of(run(cluster, promised)) != ["a"]
    cluster.state.remove_pod("uid-default-w")
    assert zones_of(run(cluster, promised)) == ["a"]


def test_refusal_names_a_cause_per_node() -> None:
    cluster = make_zones(
        web("a1").build(),
        make_pod("shy").apart(select_pods(app="p")).running("b1").build(),
        make_pod("large").requests(cpu=64_000).running("c1").build(),
    )
    pod = make_pod("p").labels(app="p").requests(cpu=1000).apart(WEB).near(DB, HOST)
    reason = run(cluster, pod).refusals[0].reason
    assert isinstance(reason, InsufficientNodes)
    counted = {str(one.cause): one.nodes for one in reason.refused}
    assert counted == {"PodAffinity": 5, "Insufficient": 1}
    pod = make_pod("p").labels(app="p").requests(cpu=1000).apart(WEB).select("zone", "a")
    reason = run(cluster, pod).refusals[0].reason
    assert isinstance(reason, InsufficientNodes)
    counted = {str(one.cause): one.nodes for one in reason.refused}
    assert counted == {"NodeAffinity": 4, "PodAntiAffinity": 2}
    pod = make_pod("p").labels(app="p").requests(cpu=1000).select("zone", "b")
    reason = run(cluster, pod).refusals[0].reason
    assert isinstance(reason, InsufficientNodes)
    counted = {str(one.cause): one.nodes for one in reason.refused}
    assert counted == {"NodeAffinity": 4, "ExistingPodAntiAffinity": 2}


def test_new_nodes_are_not_advised_against_the_anti_affinity_of_others() -> None:
    """A pod of another namespace keeps everybody out of all nodes of a topology."""
    cluster = make_cluster()
    for name in ("m1", "m2"):
        cluster.nodes(make_node(name).label("zone", "z").gpu(8))
    for namespace in ("default", "evil"):
        upsert_namespace(cluster.state, namespace, {})
    cluster.pods(make_pod("evil/wall").apart(select_pods(by_labels=())).running("m1"))
    (refusal,) = run(cluster, make_pod("p").gpu(8)).refusals
    reason = refusal.reason
    assert isinstance(reason, InsufficientNodes)
    assert reason.more_nodes is None
    assert "would be enough" not in reason.text()
    (advice,) = reason.advice()
    assert "CrossNamespacePodAffinity" in advice
    assert "2 nodes" in advice
