"""The queue: order, requeueing, back-off, and groups being committed."""

from tests.builders import (
    PodBuilder,
    make_node,
    make_pod,
    make_pod_group,
    select_labels,
    select_pods,
)
from tests.cluster import make_cluster
from tests.objects import (
    remove_pod_group,
    upsert_claim,
    upsert_namespace,
    upsert_pod_group,
    upsert_topology,
    upsert_volume,
)

from koord.core.engine.queue import LONGEST_BACKOFF_SECONDS, News
from koord.core.engine.reasons import InsufficientNodes
from koord.core.gang.reasons import MissingMembers
from koord.core.model.plan import Demand, Unit, Unplaced
from koord.core.model.pods import Pod, PodPhase
from koord.core.model.reasons import PinnedNodeUnfit, Reason
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.plugins.volumes import Volume, VolumeClaim
from koord.core.quota.reasons import QuotaIsParent
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer
from koord.core.topology.reasons import MissingTopology, NoDomainFits


class Scene:
    """A cluster whose due units are taken and decided in two steps."""

    def __init__(self, nodes: int = 0) -> None:
        self.cluster = make_cluster(nodes)
        self.state, self.queue = self.cluster.state, self.cluster.queue

    def take(self, now: float = 0.0, most: int = 100) -> list[str]:
        self.units = {unit.key: unit for unit in self.cluster.take(now, most)}
        return [unit.pods[0].name for unit in self.units.values()]

    def decide(self) -> list[str]:
        """Plan what was taken and assume it; return the names of pods placed."""
        return self.cluster.assume(self.cluster.decide(self.units.values()))


def gang_pod(name: str, gpus: int = 8) -> Pod:
    return make_pod(name).gang("default/g").gpu(gpus).build()


def test_order_is_repair_then_priority_then_age() -> None:
    scene = Scene()
    upsert_pod_group(scene.state, make_pod_group("default/g", 2).build())
    scene.state.upsert_pod(
        make_pod("g-0").gang("default/g").released("n0", "p", "default/g").running("n0").build(),
    )
    scene.state.upsert_pod(make_pod("g-1").gang("default/g").created(9).build())
    scene.state.upsert_pod(make_pod("old").created(1).build())
    scene.state.upsert_pod(make_pod("young").created(2).build())
    scene.state.upsert_pod(make_pod("important").created(3).priority(10).build())
    assert scene.take() == ["g-1", "important", "old", "young"]


def test_pod_limit_does_not_starve_a_large_unit() -> None:
    scene = Scene()
    for at in range(5):
        scene.state.upsert_pod(make_pod(f"p{at}").created(at).build())
    assert scene.take(most=2) == ["p0", "p1"]
    assert scene.take(most=0) == ["p2"]
    assert scene.take() == ["p3", "p4"]


def test_refusal_is_compared_with_the_previous_one() -> None:
    scene = Scene(nodes=1)
    scene.state.upsert_pod(make_pod("p").gpu(16).build())
    (name,) = scene.take()
    unit = next(iter(scene.units.values()))

    def refuse(reason: Reason) -> News:
        return scene.queue.refuse(unit, Unplaced(unit.key, unit.pods, reason))

    one = InsufficientNodes(want=1, fit=0, nodes=1, refused=(), first=name)
    other = InsufficientNodes(want=1, fit=0, nodes=2, refused=(), first=name)
    quota = QuotaIsParent("org")
    told = [refuse(reason) for reason in (one, one, other, quota, other)]
    assert told == [News.REASON, News.NOTHING, News.NUMBERS, News.REASON, News.REASON]


def test_refused_unit_is_blocked_until_a_pod_of_it_fits() -> None:
    scene = Scene(nodes=1)
    scene.state.upsert_pod(make_pod("busy").gpu(8).running("n0").build())
    scene.state.upsert_pod(make_pod("p").gpu(4).build())
    assert scene.take() == ["p"]
    assert scene.decide() == []
    scene.state.upsert_node(make_node("small").gpu(2).build())
    assert scene.take() == []
    scene.state.remove_pod("uid-default-busy")
    assert scene.take() == ["p"]
    assert scene.decide() == ["p"]


def test_own_status_and_unrelated_pods_do_not_requeue() -> None:
    scene = Scene(nodes=1)
    scene.state.upsert_pod(make_pod("p").gpu(9).build())
    scene.take()
    scene.decide()
    scene.state.upsert_pod(make_pod("p").gpu(9).wait_reason("InsufficientNodes").build())
    scene.state.upsert_pod(make_pod("other").not_ours().gpu(1).running("n0").build())
    assert scene.take() == []


def test_complete_gang_becomes_one_unit() -> None:
    scene = Scene(nodes=2)
    upsert_pod_group(scene.state, make_pod_group("default/g", 2).build())
    scene.state.upsert_pod(gang_pod("g-0"))
    assert scene.take() == []
    reason = scene.queue.waiting["default/g"]
    assert isinstance(reason, MissingMembers)
    assert reason.code == MissingMembers.code
    scene.state.upsert_pod(gang_pod("g-1"))
    assert scene.take() == ["g-0"]
    assert scene.decide() == ["g-0", "g-1"]


def test_group_being_committed_makes_no_units() -> None:
    scene = Scene(nodes=4)
    upsert_pod_group(scene.state, make_pod_group("default/g", 2).build())
    scene.state.upsert_pod(gang_pod("g-0"))
    scene.state.upsert_pod(gang_pod("g-1"))
    scene.take()
    (unit,) = scene.units.values()
    scene.queue.begin(unit)
    scene.decide()
    scene.state.upsert_pod(gang_pod("g-2"))
    assert scene.take() == []
    scene.queue.end(unit)
    assert scene.take() == ["g-2"]


def test_a_gang_that_joined_a_group_is_committed_until_both_units_are() -> None:
    scene = Scene(nodes=4)
    pods = {name: (gang_pod(f"{name}-0"),) for name in ("g", "h")}
    alone = Unit("default/g", (Demand("default/g", pods["g"], 1),), "default/g")
    both = Unit(
        "default/g,default/h",
        tuple(Demand(f"default/{name}", members, 1) for name, members in pods.items()),
        "default/g,default/h",
    )
    scene.queue.begin(alone)
    scene.queue.begin(both)
    scene.queue.end(alone)
    assert scene.queue.is_committing("default/g")
    scene.queue.end(both)
    assert not scene.queue.is_committing("default/g")


def test_failed_writes_back_off_until_they_succeed() -> None:
    scene = Scene(nodes=1)
    pod = make_pod("p").build()
    scene.state.upsert_pod(pod)
    delays = []
    for _ in range(8):
        scene.queue.penalise([pod.uid], now=0.0)
        scene.cluster.absorb()
        delays.append(scene.queue.next_due())
    assert delays[:4] == [0.5, 1.0, 2.0, 4.0]
    assert delays[-1] == LONGEST_BACKOFF_SECONDS
    assert scene.take(now=4.9) == []
    scene.queue.forgive([pod.uid])
    assert scene.take(now=0.0) == ["p"]


def test_deleted_pods_leave_the_queue() -> None:
    scene = Scene(nodes=1)
    scene.state.upsert_pod(make_pod("p").gpu(9).build())
    scene.take()
    scene.decide()
    assert scene.queue.blocked
    scene.state.remove_pod("uid-default-p")
    assert scene.take() == []
    assert not scene.queue.blocked


def test_pinned_pod_is_requeued_when_its_node_fits_again() -> None:
    scene = Scene(nodes=1)
    full, cordoned = make_node("n0").gpu(8), make_node("n0").gpu(8).unschedulable()
    scene.state.upsert_node(cordoned.build())
    scene.state.upsert_pod(make_pod("p").gpu(8).released("n0", "plan").pinned().build())
    scene.take()
    assert scene.decide() == []
    assert [one.reason.code for one in scene.queue.blocked.values()] == [
        PinnedNodeUnfit.code,
    ]
    scene.state.upsert_node(full.build())
    assert scene.take() == ["p"]
    assert scene.decide() == ["p"]


def test_back_off_of_deleted_members_is_dropped() -> None:
    scene = Scene(nodes=1)
    scene.state.upsert_pod(make_pod("g-0").gang("default/g").build())
    scene.queue.penalise(["uid-default-g-0"], now=0.0)
    scene.state.remove_pod("uid-default-g-0")
    scene.take()
    scene.state.upsert_pod(make_pod("g-0").build())
    assert scene.take(now=0.0) == ["g-0"]


def test_pod_that_joins_a_gang_is_not_planned_alone() -> None:
    scene = Scene()
    pod = make_pod("g-0").build()
    scene.state.upsert_pod(pod)
    scene.take()
    scene.decide()
    assert list(scene.queue.blocked) == [pod.uid]
    upsert_pod_group(scene.state, make_pod_group("default/g", 2).build())
    scene.state.upsert_pod(make_pod("g-0").gang("default/g").build())
    scene.state.upsert_node(make_node("n0").gpu(8).build())
    assert scene.take() == []
    assert not scene.queue.blocked
    assert list(scene.queue.waiting) == ["default/g"]


def test_nothing_is_kept_of_a_gang_that_is_gone() -> None:
    scene = Scene(nodes=1)
    for name in ("default/g", "default/other"):
        upsert_pod_group(scene.state, make_pod_group(name, 2).build())
    scene.state.upsert_pod(gang_pod("g-0"))
    scene.take()
    assert set(scene.queue.waiting) == {"default/g", "default/other"}
    scene.state.remove_pod(gang_pod("g-0").uid)
    for name in ("default/g", "default/other"):
        remove_pod_group(scene.state, name)
    scene.take()
    assert not scene.queue.waiting


def test_a_gang_that_has_done_its_work_is_not_incomplete() -> None:
    scene = Scene(nodes=1)
    upsert_pod_group(scene.state, make_pod_group("default/g", 2).build())
    for at in range(2):
        scene.state.upsert_pod(make_pod(f"g-{at}").gang("default/g").running("n0").build())
    scene.take()
    for at in range(2):
        pod = make_pod(f"g-{at}").gang("default/g").running("n0").phase(PodPhase.SUCCEEDED)
        scene.state.upsert_pod(pod.build())
    scene.take()
    assert not scene.queue.waiting
    scene.state.upsert_pod(gang_pod("again-0"))
    scene.take()
    assert list(scene.queue.waiting) == ["default/g"]


def test_refusals_by_labels_or_layers_are_requeued_without_free_room() -> None:
    scene = Scene(nodes=1)
    scene.state.upsert_pod(make_pod("other").gpu(8).running("n0").build())
    wish = TopologyConstraint((LayerConstraint(NODE_LAYER, GatherStrategy.MUST),))
    upsert_pod_group(scene.state, make_pod_group("default/g", 1).topology(wish).build())
    scene.state.upsert_pod(gang_pod("g-0"))
    assert scene.take() == ["g-0"]
    scene.decide()
    assert scene.queue.blocked["default/g"].reason.code == MissingTopology.code
    assert scene.take() == []
    upsert_topology(scene.state, Topology("default", (Layer(NODE_LAYER),)))
    assert scene.take() == ["g-0"]
    scene.decide()
    assert scene.queue.blocked["default/g"].reason.code == NoDomainFits.code


WEB = select_pods(app="web")


def sleeper(*asked: PodBuilder) -> Scene:
    """Three nodes in two zones, and pods that were not planned yet."""
    scene = Scene()
    for name, zone in {"a1": "a", "a2": "a", "b1": "b"}.items():
        scene.state.upsert_node(make_node(name).label("zone", zone).pods(3).build())
    for pod in asked:
        scene.state.upsert_pod(pod.build())
    return scene


def refused(scene: Scene) -> None:
    scene.take()
    assert scene.decide() == []
    assert scene.take() == []


def fill_up(scene: Scene, node: str, count: int) -> None:
    for at in range(count):
        scene.state.upsert_pod(make_pod(f"full-{node}-{at}").running(node).build())


def test_new_pod_requeues_pods_with_affinity_to_it() -> None:
    scene = sleeper(make_pod("p").near(WEB))
    refused(scene)
    scene.state.upsert_pod(make_pod("x").labels(app="db").running("a1").build())
    assert scene.take() == []
    scene.state.upsert_pod(make_pod("w").labels(app="web").running("a1").build())
    assert scene.take() == ["p"]


def test_removed_pod_requeues_pods_with_anti_affinity_to_it() -> None:
    scene = sleeper(make_pod("p").apart(WEB))
    for name, node in {"w": "a1", "v": "b1"}.items():
        scene.state.upsert_pod(make_pod(name).labels(app="web").running(node).build())
    fill_up(scene, "a1", 3)
    refused(scene)
    scene.state.remove_pod("uid-default-w")
    assert scene.take() == ["p"], "a1 is full, but a2 has room"


def test_removed_pod_requeues_pods_that_its_anti_affinity_excluded() -> None:
    scene = sleeper(make_pod("p").labels(app="web"))
    for at, node in enumerate(("a1", "b1")):
        scene.state.upsert_pod(make_pod(f"shy-{at}").apart(WEB).running(node).build())
    fill_up(scene, "a1", 3)
    refused(scene)
    scene.state.remove_pod("uid-default-shy-0")
    assert scene.take() == ["p"]


def test_spread_is_requeued_when_pods_are_added_or_domains_removed() -> None:
    def make() -> Scene:
        asked = make_pod("p").labels(app="web").spread(WEB, honors_affinity=False)
        scene = sleeper(asked.select("zone", "a"))
        scene.state.upsert_pod(make_pod("w").labels(app="web").running("a1").build())
        refused(scene)
        return scene

    scene = make()
    scene.state.upsert_pod(make_pod("v").labels(app="web").running("b1").build())
    assert scene.take() == ["p"]
    scene = make()
    scene.state.remove_node("b1")
    assert scene.take() == ["p"]


def test_bound_claim_requeues_its_pod_only() -> None:
    scene = sleeper(make_pod("p").claims("data"))
    refused(scene)
    upsert_claim(scene.state, VolumeClaim("default/other", "v", is_bound=True))
    assert scene.take() == []
    upsert_volume(scene.state, Volume("v"))
    upsert_claim(scene.state, VolumeClaim("default/data", "v", is_bound=True))
    assert scene.take() == ["p"]


def test_released_exclusive_claim_requeues_the_next_pod() -> None:
    scene = sleeper(make_pod("p").claims("data"))
    upsert_volume(scene.state, Volume("v"))
    claim = VolumeClaim("default/data", "v", is_bound=True, is_exclusive=True)
    upsert_claim(scene.state, claim)
    scene.state.upsert_pod(make_pod("user").claims("data").running("a1").build())
    refused(scene)
    scene.state.remove_pod("uid-default-user")
    assert scene.take() == ["p"]


def test_namespace_labels_requeue_pods_that_select_them() -> None:
    scene = sleeper(make_pod("p").near(select_pods(by_labels=select_labels(team="x"))))
    scene.state.upsert_pod(make_pod("other/w").running("a1").build())
    refused(scene)
    upsert_namespace(scene.state, "other", {"team": "x"})
    assert scene.take() == ["p"]
