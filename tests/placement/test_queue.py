"""The queue: order, sleep and wake-up, back-off, and holding a group while it is committed."""

from typing import TYPE_CHECKING

from tests.builders import (
    PodBuilder,
    make_node,
    make_pod,
    make_pod_group,
    select_labels,
    select_pods,
)

from koord.core.framework.planner import plan
from koord.core.framework.scoring import Scoring
from koord.core.plan import Demand, Refusal, Unit
from koord.core.plugins.volumes import Volume, VolumeClaim
from koord.core.pods import Pod
from koord.core.queue import LONGEST_BACKOFF_SECONDS, News, Queue
from koord.core.reasons import (
    InsufficientNodes,
    MissingMembers,
    QuotaIsParent,
    Reason,
    ReasonCode,
)
from koord.core.state import ClusterState
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer
from koord.core.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)

if TYPE_CHECKING:
    from koord.core.changes import Feed


class Cluster:
    """A state with its queue, stepped by hand."""

    def __init__(self, nodes: int = 0) -> None:
        self.state = ClusterState()
        self.feed: Feed = self.state.feed()
        self.queue = Queue()
        for at in range(nodes):
            self.state.upsert_node(make_node(f"n{at}").gpu(8).build())

    def take(self, now: float = 0.0, most: int = 100) -> list[str]:
        self.queue.absorb(self.feed.drain(), self.state)
        self.units = {unit.key: unit for unit in self.queue.take(now, most)}
        return [unit.pods[0].name for unit in self.units.values()]

    def decide(self) -> list[str]:
        """Plan what was taken and assume it; return the names of pods placed."""
        outcome = plan(self.state.snapshot(), self.units.values(), Scoring())
        for refusal in outcome.refusals:
            self.queue.refuse(self.units[refusal.unit], refusal)
        placed = [one for placement in outcome.placements for one in placement.assignments]
        for one in placed:
            self.state.assume(one.pod.uid, one.node)
        return [one.pod.name for one in placed]


def gang_pod(name: str, gpus: int = 8) -> Pod:
    return make_pod(name).gang("default/g").gpu(gpus).build()


def test_order_is_repair_then_priority_then_age() -> None:
    cluster = Cluster()
    cluster.state.upsert_pod_group(make_pod_group("default/g", 2).build())
    cluster.state.upsert_pod(
        make_pod("g-0").gang("default/g").released("n0", "p", "default/g").running("n0").build(),
    )
    cluster.state.upsert_pod(make_pod("g-1").gang("default/g").created(9).build())
    cluster.state.upsert_pod(make_pod("old").created(1).build())
    cluster.state.upsert_pod(make_pod("young").created(2).build())
    cluster.state.upsert_pod(make_pod("important").created(3).priority(10).build())
    assert cluster.take() == ["g-1", "important", "old", "young"]


def test_budget_counts_pods_but_never_starves_a_large_unit() -> None:
    cluster = Cluster()
    for at in range(5):
        cluster.state.upsert_pod(make_pod(f"p{at}").created(at).build())
    assert cluster.take(most=2) == ["p0", "p1"]
    assert cluster.take(most=0) == ["p2"]
    assert cluster.take() == ["p3", "p4"]


def test_a_refusal_tells_whether_it_is_news() -> None:
    cluster = Cluster(nodes=1)
    cluster.state.upsert_pod(make_pod("p").gpu(16).build())
    (name,) = cluster.take()
    unit = next(iter(cluster.units.values()))

    def refuse(reason: Reason) -> News:
        return cluster.queue.refuse(unit, Refusal(unit.key, unit.pods, reason))

    one = InsufficientNodes(want=1, fit=0, nodes=1, refused=(), first=name)
    other = InsufficientNodes(want=1, fit=0, nodes=2, refused=(), first=name)
    quota = QuotaIsParent("org")
    told = [refuse(reason) for reason in (one, one, other, quota, other)]
    assert told == [News.REASON, News.NOTHING, News.NUMBERS, News.REASON, News.REASON]


def test_refused_unit_sleeps_until_a_node_can_take_one_of_its_pods() -> None:
    cluster = Cluster(nodes=1)
    cluster.state.upsert_pod(make_pod("busy").gpu(8).running("n0").build())
    cluster.state.upsert_pod(make_pod("p").gpu(4).build())
    assert cluster.take() == ["p"]
    assert cluster.decide() == []
    cluster.state.upsert_node(make_node("small").gpu(2).build())
    assert cluster.take() == []
    cluster.state.remove_pod("uid-default-busy")
    assert cluster.take() == ["p"]
    assert cluster.decide() == ["p"]


def test_own_status_and_unrelated_pods_do_not_wake() -> None:
    cluster = Cluster(nodes=1)
    cluster.state.upsert_pod(make_pod("p").gpu(9).build())
    cluster.take()
    cluster.decide()
    cluster.state.upsert_pod(make_pod("p").gpu(9).wait_reason("InsufficientNodes").build())
    cluster.state.upsert_pod(make_pod("other").not_ours().gpu(1).running("n0").build())
    assert cluster.take() == []


def test_gang_waits_for_members_then_makes_one_unit() -> None:
    cluster = Cluster(nodes=2)
    cluster.state.upsert_pod_group(make_pod_group("default/g", 2).build())
    cluster.state.upsert_pod(gang_pod("g-0"))
    assert cluster.take() == []
    reason = cluster.queue.waiting["default/g"]
    assert isinstance(reason, MissingMembers)
    assert reason.code is ReasonCode.MISSING_MEMBERS
    cluster.state.upsert_pod(gang_pod("g-1"))
    assert cluster.take() == ["g-0"]
    assert cluster.decide() == ["g-0", "g-1"]


def test_nothing_more_is_made_of_a_group_that_is_being_committed() -> None:
    cluster = Cluster(nodes=4)
    cluster.state.upsert_pod_group(make_pod_group("default/g", 2).build())
    cluster.state.upsert_pod(gang_pod("g-0"))
    cluster.state.upsert_pod(gang_pod("g-1"))
    cluster.take()
    (unit,) = cluster.units.values()
    cluster.queue.begin(unit)
    cluster.decide()
    cluster.state.upsert_pod(gang_pod("g-2"))
    assert cluster.take() == []
    cluster.queue.end(unit)
    assert cluster.take() == ["g-2"]


def test_a_gang_that_joined_a_group_is_committed_until_both_units_are() -> None:
    cluster = Cluster(nodes=4)
    pods = {name: (gang_pod(f"{name}-0"),) for name in ("g", "h")}
    alone = Unit("default/g", (Demand("default/g", pods["g"], 1),), "default/g")
    both = Unit(
        "default/g,default/h",
        tuple(Demand(f"default/{name}", members, 1) for name, members in pods.items()),
        "default/g,default/h",
    )
    cluster.queue.begin(alone)
    cluster.queue.begin(both)
    cluster.queue.end(alone)
    assert cluster.queue.is_committing("default/g")
    cluster.queue.end(both)
    assert not cluster.queue.is_committing("default/g")


def test_failed_writes_back_off_and_are_forgiven() -> None:
    cluster = Cluster(nodes=1)
    pod = make_pod("p").build()
    cluster.state.upsert_pod(pod)
    delays = []
    for _ in range(8):
        cluster.queue.penalise([pod.uid], now=0.0)
        cluster.queue.absorb(cluster.feed.drain(), cluster.state)
        delays.append(cluster.queue.next_due())
    assert delays[:4] == [0.5, 1.0, 2.0, 4.0]
    assert delays[-1] == LONGEST_BACKOFF_SECONDS
    assert cluster.take(now=4.9) == []
    cluster.queue.forgive([pod.uid])
    assert cluster.take(now=0.0) == ["p"]


def test_deleted_pods_leave_the_queue() -> None:
    cluster = Cluster(nodes=1)
    cluster.state.upsert_pod(make_pod("p").gpu(9).build())
    cluster.take()
    cluster.decide()
    assert cluster.queue.blocked
    cluster.state.remove_pod("uid-default-p")
    assert cluster.take() == []
    assert not cluster.queue.blocked


def test_pinned_pod_wakes_when_its_node_can_hold_it_again() -> None:
    cluster = Cluster(nodes=1)
    full, cordoned = make_node("n0").gpu(8), make_node("n0").gpu(8).unschedulable()
    cluster.state.upsert_node(cordoned.build())
    cluster.state.upsert_pod(make_pod("p").gpu(8).released("n0", "plan").pinned().build())
    cluster.take()
    assert cluster.decide() == []
    assert [one.reason.code for one in cluster.queue.blocked.values()] == [
        ReasonCode.PINNED_NODE_UNFIT,
    ]
    cluster.state.upsert_node(full.build())
    assert cluster.take() == ["p"]
    assert cluster.decide() == ["p"]


def test_back_off_of_members_that_are_gone_is_not_kept() -> None:
    cluster = Cluster(nodes=1)
    cluster.state.upsert_pod(make_pod("g-0").gang("default/g").build())
    cluster.queue.penalise(["uid-default-g-0"], now=0.0)
    cluster.state.remove_pod("uid-default-g-0")
    cluster.take()
    cluster.state.upsert_pod(make_pod("g-0").build())
    assert cluster.take(now=0.0) == ["g-0"]


def test_pod_that_joins_a_gang_is_no_longer_tried_alone() -> None:
    cluster = Cluster()
    pod = make_pod("g-0").build()
    cluster.state.upsert_pod(pod)
    cluster.take()
    cluster.decide()
    assert list(cluster.queue.blocked) == [pod.uid]
    cluster.state.upsert_pod_group(make_pod_group("default/g", 2).build())
    cluster.state.upsert_pod(make_pod("g-0").gang("default/g").build())
    cluster.state.upsert_node(make_node("n0").gpu(8).build())
    assert cluster.take() == []
    assert not cluster.queue.blocked
    assert list(cluster.queue.waiting) == ["default/g"]


def test_what_labels_or_layers_may_mend_is_tried_again_though_nothing_is_free() -> None:
    cluster = Cluster(nodes=1)
    cluster.state.upsert_pod(make_pod("other").gpu(8).running("n0").build())
    wish = TopologyConstraint((LayerConstraint(NODE_LAYER, GatherStrategy.MUST),))
    cluster.state.upsert_pod_group(make_pod_group("default/g", 1).topology(wish).build())
    cluster.state.upsert_pod(gang_pod("g-0"))
    assert cluster.take() == ["g-0"]
    cluster.decide()
    assert cluster.queue.blocked["default/g"].reason.code is ReasonCode.MISSING_TOPOLOGY
    assert cluster.take() == []
    cluster.state.upsert_topology(Topology("default", (Layer(NODE_LAYER),)))
    assert cluster.take() == ["g-0"]
    cluster.decide()
    assert cluster.queue.blocked["default/g"].reason.code is ReasonCode.NO_DOMAIN_FITS


WEB = select_pods(app="web")


def sleeper(*asked: PodBuilder) -> Cluster:
    """Three nodes in two zones, and pods that have not been looked at yet."""
    cluster = Cluster()
    for name, zone in {"a1": "a", "a2": "a", "b1": "b"}.items():
        cluster.state.upsert_node(make_node(name).label("zone", zone).pods(3).build())
    for pod in asked:
        cluster.state.upsert_pod(pod.build())
    return cluster


def refused(cluster: Cluster) -> None:
    cluster.take()
    assert cluster.decide() == []
    assert cluster.take() == []


def fill_up(cluster: Cluster, node: str, count: int) -> None:
    for at in range(count):
        cluster.state.upsert_pod(make_pod(f"full-{node}-{at}").running(node).build())


def test_a_pod_that_arrives_wakes_those_that_want_to_be_near_it() -> None:
    cluster = sleeper(make_pod("p").near(WEB))
    refused(cluster)
    cluster.state.upsert_pod(make_pod("x").labels(app="db").running("a1").build())
    assert cluster.take() == []
    cluster.state.upsert_pod(make_pod("w").labels(app="web").running("a1").build())
    assert cluster.take() == ["p"]


def test_a_pod_that_leaves_wakes_those_that_keep_away_from_all_of_its_domain() -> None:
    cluster = sleeper(make_pod("p").apart(WEB))
    for name, node in {"w": "a1", "v": "b1"}.items():
        cluster.state.upsert_pod(make_pod(name).labels(app="web").running(node).build())
    fill_up(cluster, "a1", 3)
    refused(cluster)
    cluster.state.remove_pod("uid-default-w")
    assert cluster.take() == ["p"], "a1 is full, but a2 has room"


def test_a_pod_that_repels_wakes_those_that_it_repelled_when_it_leaves() -> None:
    cluster = sleeper(make_pod("p").labels(app="web"))
    for at, node in enumerate(("a1", "b1")):
        cluster.state.upsert_pod(make_pod(f"shy-{at}").apart(WEB).running(node).build())
    fill_up(cluster, "a1", 3)
    refused(cluster)
    cluster.state.remove_pod("uid-default-shy-0")
    assert cluster.take() == ["p"]


def test_spread_is_asked_again_when_pods_arrive_and_when_domains_go() -> None:
    def make() -> Cluster:
        asked = make_pod("p").labels(app="web").spread(WEB, honors_affinity=False)
        cluster = sleeper(asked.select("zone", "a"))
        cluster.state.upsert_pod(make_pod("w").labels(app="web").running("a1").build())
        refused(cluster)
        return cluster

    cluster = make()
    cluster.state.upsert_pod(make_pod("v").labels(app="web").running("b1").build())
    assert cluster.take() == ["p"]
    cluster = make()
    cluster.state.remove_node("b1")
    assert cluster.take() == ["p"]


def test_a_claim_wakes_its_pod_when_it_is_bound_and_no_other() -> None:
    cluster = sleeper(make_pod("p").claims("data"))
    refused(cluster)
    cluster.state.upsert_claim(VolumeClaim("default/other", "v", is_bound=True))
    assert cluster.take() == []
    cluster.state.upsert_volume(Volume("v"))
    cluster.state.upsert_claim(VolumeClaim("default/data", "v", is_bound=True))
    assert cluster.take() == ["p"]


def test_an_exclusive_claim_wakes_the_next_when_it_comes_free() -> None:
    cluster = sleeper(make_pod("p").claims("data"))
    cluster.state.upsert_volume(Volume("v"))
    claim = VolumeClaim("default/data", "v", is_bound=True, is_exclusive=True)
    cluster.state.upsert_claim(claim)
    cluster.state.upsert_pod(make_pod("user").claims("data").running("a1").build())
    refused(cluster)
    cluster.state.remove_pod("uid-default-user")
    assert cluster.take() == ["p"]


def test_namespaces_wake_those_that_choose_them_when_their_labels_change() -> None:
    cluster = sleeper(make_pod("p").near(select_pods(by_labels=select_labels(team="x"))))
    cluster.state.upsert_pod(make_pod("other/w").running("a1").build())
    refused(cluster)
    cluster.state.upsert_namespace("other", {"team": "x"})
    assert cluster.take() == ["p"]
