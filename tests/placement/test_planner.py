"""The planner: a unit is placed as a whole, or refused with the shortage."""

from tests.builders import GPU, make_node, make_pod
from tests.cluster import make_cluster, make_unit, nodes_of

from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.kube_scheduler_reasons import NeedsKubeScheduler
from koord.core.model.plan import Demand, Unit
from koord.core.model.pods import Handling
from koord.core.model.reasons import PinnedNodeUnfit
from koord.core.plugins.causes import NodeCause


def make_gang(name: str, count: int, gpus: int, required: int | None = None) -> Unit:
    pods = tuple(make_pod(f"{name}-{at}").gpu(gpus).build() for at in range(count))
    return make_unit(name, pods, required)


def test_gang_that_fits_is_placed_whole() -> None:
    outcome = make_cluster(4).plan(make_gang("a", 4, 8))
    assert nodes_of(outcome) == {"a-0": "n0", "a-1": "n1", "a-2": "n2", "a-3": "n3"}
    assert not outcome.refusals


def test_gang_that_does_not_fit_uses_nothing_and_names_the_shortage() -> None:
    outcome = make_cluster(4).plan(make_gang("a", 8, 8), make_gang("b", 4, 8))
    assert [placement.unit for placement in outcome.placements] == ["b"]
    reason = outcome.refusals[0].reason
    assert isinstance(reason, InsufficientNodes)
    assert (reason.want, reason.fit, reason.nodes, reason.more_nodes) == (8, 4, 4, 4)
    assert (reason.resource, reason.request, reason.first) == (GPU, 8, "default/a-4")
    assert [(r.cause, r.nodes) for r in reason.refused] == [(NodeCause.RESOURCE, 4)]


def test_surplus_is_placed_when_there_is_room_and_refused_by_name_when_not() -> None:
    outcome = make_cluster(3).plan(make_gang("a", 4, 8, required=2))
    assert sorted(nodes_of(outcome)) == ["a-0", "a-1", "a-2"]
    assert [pod.name for pod in outcome.refusals[0].pods] == ["a-3"]


def test_smaller_members_may_form_the_quorum() -> None:
    large = tuple(make_pod(f"large-{at}").gpu(8).build() for at in range(2))
    small = tuple(make_pod(f"small-{at}").gpu(1).build() for at in range(2))
    outcome = make_cluster(1, gpus=4).plan(make_unit("mixed", large + small, required=2))
    assert sorted(nodes_of(outcome)) == ["small-0", "small-1"]


def test_pods_with_few_feasible_nodes_are_placed_first() -> None:
    cluster = make_cluster(1)
    cluster.nodes(make_node("ssd").gpu(8).label("disk", "ssd"))
    easy = make_pod("easy").gpu(8).build()
    picky = make_pod("picky").gpu(8).select("disk", "ssd").build()
    assert nodes_of(cluster.plan(make_unit("u", (easy, picky)))) == {"easy": "n0", "picky": "ssd"}


def test_group_is_placed_with_all_its_gangs_or_not_at_all() -> None:
    def group_of(workers: int) -> Unit:
        head = (make_pod("head-0").gpu(8).build(),)
        rest = tuple(make_pod(f"worker-{at}").gpu(8).build() for at in range(workers))
        return Unit("g", (Demand("head", head, 1), Demand("worker", rest, workers)), "g")

    assert len(make_cluster(4).plan(group_of(3)).placements[0].assignments) == 4
    refused = make_cluster(3).plan(group_of(3))
    assert not refused.placements
    assert len(refused.refusals[0].pods) == 4


def test_pods_that_need_kube_scheduler_are_refused_unless_it_binds_them() -> None:
    ours = make_pod("p").needs_kube_scheduler("spec.resourceClaims").build()
    outcome = make_cluster(1).plan(make_unit("u", (ours,)))
    expected = NeedsKubeScheduler("default/p", ("spec.resourceClaims",))
    assert outcome.refusals[0].reason == expected
    theirs = make_pod("p").handling(Handling.RELEASE_PINNED).needs_kube_scheduler("x").build()
    assert make_cluster(1).plan(make_unit("u", (theirs,))).placements


def test_released_pod_keeps_its_recorded_node_while_it_fits() -> None:
    promised = make_pod("p").gpu(8).released("n2", "plan").build()
    cluster = make_cluster(3)
    assert nodes_of(cluster.plan(make_unit("u", (promised,)))) == {"p": "n2"}
    cluster.pods(make_pod("other").gpu(1).running("n2"))
    assert nodes_of(cluster.plan(make_unit("u", (promised,)))) == {"p": "n0"}


def test_pinned_pod_keeps_its_node_and_the_room_on_it() -> None:
    pinned = make_pod("p").gpu(8).released("n0", "plan").pinned().build()
    cluster = make_cluster(1)
    cluster.pods(pinned)
    assert nodes_of(cluster.plan(make_unit("u", (pinned,)))) == {"p": "n0"}
    assert not cluster.plan(make_gang("other", 1, 1)).placements
    unfit = PinnedNodeUnfit("default/p", "n0")
    cluster.pods(make_pod("intruder").not_ours().gpu(1).running("n0"))
    assert cluster.plan(make_unit("u", (pinned,))).refusals[0].reason == unfit
    cluster.state.remove_node("n0")
    assert cluster.plan(make_unit("u", (pinned,))).refusals[0].reason == unfit


def test_refusals_are_cached_until_something_is_placed() -> None:
    cluster = make_cluster(1)
    singles = [make_unit(f"s{at}", (make_pod(f"s{at}").gpu(9).build(),)) for at in range(3)]
    outcome = cluster.plan(singles[0], make_gang("fits", 1, 8), *singles[1:])
    firsts = [refusal.reason.first for refusal in outcome.refusals]  # type: ignore[union-attr]
    assert firsts == ["default/s0", "default/s1", "default/s2"]


def test_nodes_are_counted_under_the_first_check_they_fail() -> None:
    cluster = make_cluster(0)
    cluster.nodes(make_node("cordoned").gpu(8).unschedulable().taint("a"))
    cluster.nodes(make_node("tainted").gpu(8).taint("team", "x"))
    cluster.nodes(make_node("other").gpu(8))
    cluster.nodes(make_node("full").gpu(8).label("zone", "a"))
    cluster.pods(make_pod("r").gpu(4).requests(cpu=63_500).running("full"))
    pod = make_pod("p").gpu(5).requests(cpu=1000).select("zone", "a").build()
    reason = cluster.plan(make_unit("u", (pod,))).refusals[0].reason
    assert isinstance(reason, InsufficientNodes)
    counted = [(one.cause, one.resource or one.detail, one.nodes) for one in reason.refused]
    assert counted == [
        ("Insufficient", "cpu", 1),
        ("Insufficient", GPU, 1),
        ("NodeAffinity", "", 1),
        ("NodeUnschedulable", "", 1),
        ("UntoleratedTaint", "team: x", 1),
    ]
