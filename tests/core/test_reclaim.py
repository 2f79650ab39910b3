"""Victims of over-used quotas: only for a beneficiary, and never a part of a gang."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster, make_unit
from tests.objects import upsert_pod_group, upsert_quota

from koord.core.engine.queue import unit_of
from koord.core.engine.reasons import InsufficientNodes
from koord.core.engine.refused_units import Blocked
from koord.core.eviction.model import Exempt, Moment
from koord.core.eviction.reclaim import can_keep_running, plan_reclaim
from koord.core.model.gang_history import Episode

if TYPE_CHECKING:
    from tests.builders import PodBuilder

    from koord.core.model.pods import Pod

WHY = InsufficientNodes(want=1, fit=0, nodes=2, refused=(), first="")
NO_EXEMPTION = Exempt()


class Scene:
    """16 GPUs; team ``a`` has borrowed what team ``b`` is guaranteed."""

    def __init__(self, a: int = 8, b: int = 8, **more: object) -> None:
        cluster = make_cluster().nodes(make_node("n1").gpu(8), make_node("n2").gpu(8))
        for name, least in (("a", a), ("b", b)):
            cluster.quotas(make_quota(name, min={GPU: least}, max={GPU: 16}, **more))
        self.state = cluster.state
        self.blocked: list[Blocked] = []
        self.started = 0.0

    def single(self, name: str, gpus: int = 4, priority: int = 0, **more: bool) -> None:
        pod = make_pod(name).gpu(gpus).quota("a", **more).priority(priority)
        self.put(self.run(pod, gpus))

    def run(self, pod: PodBuilder, gpus: int) -> Pod:
        """Let a pod run on the first node that has room."""
        used = Counter[str]()
        for one in self.state.pods.values():
            used[one.node] += dict(one.shape.requests).get(GPU, 0)
        node = "n1" if used["n1"] + gpus <= 8 else "n2"
        return pod.released(node, "p").running(node).build()

    def gang(self, name: str, count: int, minimum: int, gpus: int = 4) -> None:
        upsert_pod_group(self.state, make_pod_group(f"default/{name}", minimum).build())
        for at in range(count):
            pod = make_pod(f"{name}-{at}").gpu(gpus).quota("a").gang(f"default/{name}")
            group = f"default/{name}"
            placed = self.run(pod, gpus)
            recorded = pod.released(placed.node, "p", group, count, minimum)
            self.put(recorded.running(placed.node).build())

    def put(self, pod: Pod) -> None:
        self.state.upsert_pod(
            replace(pod, started=self.started) if self.started and pod.node else pod
        )

    def want(self, gpus: int, quota: str = "b", name: str = "w") -> None:
        pod = make_pod(name).gpu(gpus).quota(quota).build()
        self.put(pod)
        self.blocked.append(Blocked(unit_of(pod), (pod,), WHY))

    def chosen(self, quota: str = "a", exempt: Exempt = NO_EXEMPTION) -> list[list[str]]:
        ledger = self.state.open_ledger()
        found = plan_reclaim(self.state, ledger, quota, self.blocked, exempt)
        return [sorted(pod.name for pod in one.pods) for one in found]


@pytest.mark.parametrize(
    ("losses", "ran", "gone", "by"),
    [
        (0, 61, "g", ""),
        (0, 59, "h", ""),
        (1, 61, "h", "team-b/w"),
        (2, 239, "h", ""),
        (2, 241, "g", "team-b/w"),
        (2, 61, "g", "default/mine"),  # nobody spares a gang by preempting it
    ],
)
def test_each_loss_of_its_place_doubles_how_long_a_gang_may_run(
    losses: int, ran: int, gone: str, by: str
) -> None:
    now = 100_000.0
    scene = Scene()
    scene.started = now - ran
    scene.gang("g", 2, 2)
    group = scene.state.gangs.pod_group("default/g")
    assert group is not None
    history = tuple(Episode(99_000 + at, "Reclaimed", "over-use", by) for at in range(losses))
    yesterday = Episode(1000, "Reclaimed", "over-use")
    upsert_pod_group(scene.state, replace(group, history=(yesterday, *history)))
    scene.started = now - 1000
    scene.gang("h", 2, 2)
    scene.want(8)
    found = scene.chosen(exempt=Exempt(moment=Moment(now, min_runtime=60)))
    assert [{name.split("-")[0] for name in names} for names in found] == [{gone}]


def test_lowest_priority_is_evicted_for_an_entitled_unit() -> None:
    scene = Scene()
    for at in range(4):
        scene.single(f"p{at}", priority=at)
    scene.want(8)
    assert scene.chosen() == [["p1"], ["p0"]]
    assert scene.chosen("b") == []


def test_nothing_is_evicted_without_a_beneficiary() -> None:
    scene = Scene(a=0, b=16)
    for at in range(4):
        scene.single(f"p{at}")
    scene.want(17)
    assert scene.chosen() == [], "nothing could be made of it"


def test_over_use_of_several_quotas_is_reclaimed_for_one_unit() -> None:
    scene = Scene(a=0, b=16)
    scene.state.remove_node("n2")
    scene.state.upsert_node(make_node("n1").gpu(16).build())
    upsert_quota(scene.state, make_quota("c", max={GPU: 16}))
    for name in ("a", "c"):
        for at in range(2):
            pod = make_pod(f"{name}{at}").gpu(4).quota(name).released("n1", "p").running("n1")
            scene.put(pod.build())
    scene.want(16)
    assert scene.chosen("a") == [["a1"], ["a0"]]
    assert scene.chosen("c") == [["c1"], ["c0"]]


def test_nothing_is_evicted_for_a_unit_that_fits_on_no_node() -> None:
    scene = Scene()
    for at in range(4):
        scene.single(f"p{at}", priority=at)
    for at in range(2):
        scene.state.upsert_node(make_node(f"n{at + 1}").gpu(4).build())
    scene.state.upsert_node(make_node("n3").gpu(4).build())
    scene.state.upsert_node(make_node("n4").gpu(4).build())
    for at in range(4):
        scene.put(replace(scene.state.pods[f"uid-default-p{at}"], node=f"n{at + 1}"))
    scene.want(8)
    assert scene.chosen() == []
    scene.want(4, name="small")
    assert scene.chosen() == [["p0"]]


def test_entitlement_of_a_parent_is_reclaimed_by_its_children_only() -> None:
    scene = Scene(a=0, b=0)
    upsert_quota(scene.state, make_quota("org", is_parent=True, min={GPU: 8}, max={GPU: 16}))
    for name in ("a", "c"):
        upsert_quota(scene.state, make_quota(name, parent="org", max={GPU: 16}))
    upsert_quota(scene.state, make_quota("b", min={GPU: 8}, max={GPU: 16}))
    for at in range(2):
        scene.single(f"p{at}")
    scene.want(8, quota="b")
    scene.put(make_pod("sibling").gpu(4).quota("c").build())
    assert scene.state.open_ledger().account("a").share == {GPU: 4}
    assert scene.chosen() == []
    scene.want(4, quota="c", name="wants")
    assert scene.chosen() == [["p1"]]


def test_nothing_is_evicted_for_a_unit_of_the_same_quota() -> None:
    scene = Scene()
    for at in range(4):
        scene.single(f"p{at}")
    scene.want(1, quota="a")
    scene.want(8, name="x")
    scene.blocked.pop()
    assert scene.chosen() == []


def test_guaranteed_use_is_not_reclaimed() -> None:
    scene = Scene(a=16, b=0)
    for at in range(4):
        scene.single(f"p{at}")
    scene.want(8)
    assert scene.chosen() == []


def test_use_above_max_is_reclaimed_without_a_beneficiary() -> None:
    scene = Scene()
    scene.single("old", priority=1)
    scene.single("new")
    upsert_quota(scene.state, make_quota("a", min={GPU: 0}, max={GPU: 4}))
    assert scene.chosen() == [["new"]]


def test_surplus_of_a_gang_is_evicted_before_the_whole_gang() -> None:
    scene = Scene()
    scene.gang("g", 4, minimum=3)
    scene.want(4)
    assert scene.chosen() == [["g-3"]]
    scene.blocked.clear()
    scene.want(8, name="x")
    assert scene.chosen() == [["g-0", "g-1", "g-2", "g-3"]]


def test_no_more_goes_than_those_need_who_can_start() -> None:
    scene = Scene()
    for at in range(8):
        scene.single(f"p{at}", gpus=2, priority=at)
    scene.want(2, name="first")
    scene.want(6, name="on-no-node")
    for node in ("n1", "n2"):
        scene.state.remove_node(node)
    for node in range(8):
        scene.state.upsert_node(make_node(f"n{node}").gpu(2).build())
    for at in range(8):
        pod = scene.state.pods[f"uid-default-p{at}"]
        scene.put(replace(pod, node=f"n{at}"))
    assert scene.state.open_ledger().account("a").share == {GPU: 8}
    assert scene.chosen() == [["p0"]]
    scene.want(2, name="second")
    assert scene.chosen() == [["p1"], ["p0"]], "all who can start together are served at once"
    assert scene.chosen(exempt=Exempt(terminating={"uid-default-p0"})) == [["p1"]]


class TestOnNodes:
    """Ten nodes of 8 GPUs; ``a`` borrows 40 of its 80 with pods of one GPU on every node."""

    @staticmethod
    def make(owner: int = 8) -> Scene:
        scene = Scene(a=40, b=40)
        for at in range(10):
            scene.state.upsert_node(make_node(f"n{at}").gpu(8).build())
            for slot in range(8):
                pod = make_pod(f"p{at}-{slot}").gpu(1).quota("a").released(f"n{at}", "p")
                # The last ones started are one or two of each node.
                scene.put(pod.running(f"n{at}")._set(started=10.0 + slot).build())
        for name in ("a", "b"):
            upsert_quota(scene.state, make_quota(name, min={GPU: 40}, max={GPU: 80}))
        scene.want(owner)
        return scene

    def test_victims_are_on_one_node_if_the_owner_needs_one(self) -> None:
        found = [name for one in self.make().chosen() for name in one]
        assert len(found) == 8
        assert len({name.split("-")[0] for name in found}) == 1

    def test_a_gang_of_the_owner_gets_the_nodes_it_needs(self) -> None:
        scene = self.make()
        scene.blocked.clear()
        pods = [make_pod(f"w{at}").gpu(8).quota("b").gang("default/w").build() for at in range(3)]
        upsert_pod_group(scene.state, make_pod_group("default/w", 3).build())
        for pod in pods:
            scene.put(pod)
        scene.blocked.append(Blocked(make_unit("default/w", pods), tuple(pods), WHY))
        assert len(scene.chosen()) == 24

    def test_a_small_pod_is_evicted_rather_than_a_gang_of_the_same_quota(self) -> None:
        scene = Scene()
        scene.gang("g", 2, minimum=2)
        for at in range(2):
            scene.single(f"p{at}", priority=1)
        scene.want(4)
        assert scene.chosen() == [["p1"]]


def test_a_gang_is_spared_if_its_surplus_is_enough() -> None:
    scene = Scene(a=4, b=12)
    scene.gang("g", 4, minimum=2)
    scene.want(8)
    scene.want(8, name="not-entitled")
    assert scene.state.open_ledger().account("a").share == {GPU: 4}
    assert scene.chosen() == [["g-2"], ["g-3"]]


def test_surplus_with_the_highest_index_is_evicted_first() -> None:
    scene = Scene()
    scene.gang("g", 12, minimum=1, gpus=1)
    scene.single("p", 4, priority=1)
    for name in ("w", "x", "y"):
        scene.want(1, name=name)
    names = [name for one in scene.chosen() for name in one]
    assert names == ["g-9", "g-10", "g-11"]


def test_gang_is_evicted_with_its_group() -> None:
    scene = Scene()
    group = ("default/g", "default/h")
    scene.gang("g", 2, minimum=2)
    scene.gang("h", 2, minimum=2)
    for key in group:
        upsert_pod_group(scene.state, make_pod_group(key, 2).group(*group).build())
    scene.want(8)
    assert scene.chosen() == [["g-0", "g-1", "h-0", "h-1"]]


def test_non_preemptible_and_foreign_pods_are_not_evicted() -> None:
    scene = Scene()
    scene.single("fixed", is_non_preemptible=True)
    scene.single("a")
    foreign = make_pod("foreign").gpu(4).quota("a").running("n2").not_ours()
    scene.put(foreign.build())
    scene.single("b", priority=1)
    for name in ("w", "x"):
        scene.want(4, name=name)
    assert scene.chosen() == [["b"], ["a"]]
    assert scene.chosen(exempt=Exempt({"uid-default-a"})) == [["b"]]


def put_foreign(scene: Scene, gpus: int, node: str) -> None:
    scene.put(make_pod("foreign").gpu(gpus).quota("a").running(node).not_ours().build())


@pytest.mark.parametrize(
    ("node", "used"), [("n2", 8), ("no-such-node", 0)], ids=["as its node has", "nothing"]
)
def test_a_pod_of_another_scheduler_uses_what_its_node_has_at_most(node: str, used: int) -> None:
    scene = Scene()
    put_foreign(scene, 1_000_000, node)
    assert scene.state.open_ledger().account("a").used.get(GPU, 0) == used
    scene.state.upsert_node(make_node("no-such-node").gpu(4).build())
    assert scene.state.open_ledger().account("a").used[GPU] == (used or 4)


def test_nothing_is_kept_of_pods_of_other_schedulers_that_are_gone() -> None:
    scene = Scene()
    put_foreign(scene, 8, "no-such-node")
    scene.state.open_ledger()
    assert scene.state.quotas._foreign_on
    scene.state.remove_pod("uid-default-foreign")
    scene.state.open_ledger()
    assert not scene.state.quotas._foreign_on


def test_nobody_goes_for_what_another_scheduler_placed_above_max() -> None:
    """Users of one quota: one of them would have the pods of the others evicted."""
    scene = Scene()
    upsert_quota(scene.state, make_quota("a", min={GPU: 8}, max={GPU: 8}))
    scene.single("of-others", gpus=8)
    put_foreign(scene, 8, "n2")
    assert scene.chosen() == []
    scene.single("too-many", gpus=4)
    assert scene.chosen() != []


@pytest.mark.parametrize(("paid", "chosen"), [(1, ["g-0", "g-1", "g-2", "g-3"]), (3, ["g-3"])])
def test_a_gang_loses_surplus_only_if_all_other_members_have_paid(
    paid: int, chosen: list[str]
) -> None:
    """Otherwise one small member would keep the room of all others."""
    scene = Scene(a=12, b=16)
    scene.gang("g", 4, minimum=3)
    for at in range(paid):
        pod = scene.state.pods[f"uid-default-g-{at}"]
        scene.put(replace(pod, is_non_preemptible=True))
    scene.want(8)
    scene.want(4, name="x")
    assert sorted(name for one in scene.chosen() for name in one) == chosen


@pytest.mark.parametrize(
    ("namespace", "chosen"), [("default", [["g-0", "g-1", "stray"]]), ("other", [["g-0", "g-1"]])]
)
def test_a_member_in_another_quota_does_not_keep_a_gang(
    namespace: str, chosen: list[list[str]]
) -> None:
    """Its team has chosen the quota by a label; members of other teams stay, and spare nobody."""
    scene = Scene()
    scene.gang("g", 2, minimum=2, gpus=8)
    keys = ("default/g", f"{namespace}/h")
    for key in keys:
        count = 2 if key.endswith("g") else 1
        upsert_pod_group(scene.state, make_pod_group(key, count).group(*keys).build())
    stray = make_pod(f"{namespace}/stray").gang(keys[1]).requests(cpu=1).quota("b")
    scene.put(stray.released("n1", "p").running("n1").build())
    scene.want(8)
    assert scene.chosen() == chosen


def test_terminating_pods_count_as_evicted() -> None:
    scene = Scene()
    for at in range(4):
        scene.single(f"p{at}", priority=at)
    scene.want(8)
    assert scene.chosen(exempt=Exempt(terminating={"uid-default-p3"})) == [["p2"]]
    scene.put(replace(scene.state.pods["uid-default-p2"], is_terminating=True))
    assert scene.chosen(exempt=Exempt(terminating={"uid-default-p3"})) == []


def test_gang_started_with_leftovers_is_not_evicted() -> None:
    """Two gangs of sixteen, and sixteen GPUs: each is entitled to eight, and one runs."""
    scene = Scene(a=0, b=0)
    scene.gang("g", 4, minimum=4)
    scene.want(16)
    assert scene.chosen() == []


def test_over_use_by_rounding_is_not_reclaimed() -> None:
    """Weights 6, 6 and 2 share 10 as 4, 4, 2, and 11 as 5, 5, 1."""
    state = make_cluster().state
    for name, weight in (("a", 6), ("b", 6), ("c", 2)):
        upsert_quota(state, make_quota(name, max={GPU: 16}, weight={GPU: weight}))
    state.upsert_node(make_node("n").gpu(11).build())
    blocked = []
    for name, running in (("a", 4), ("b", 4), ("c", 2)):
        for at in range(running + 9):
            pod = make_pod(f"{name}{at}").gpu(1).quota(name)
            if at < running:
                pod = pod.released("n", "p").running("n")
            state.upsert_pod(pod.build())
        waits = state.pods[f"uid-default-{name}{running}"]
        blocked.append(Blocked(unit_of(waits), (waits,), WHY))
    ledger = state.open_ledger()
    assert ledger.account("c").share == {GPU: 1}
    assert plan_reclaim(state, ledger, "c", blocked) == ()


def test_marked_pods_keep_running_if_the_gang_has_its_minimum() -> None:
    scene = Scene()
    scene.gang("g", 3, minimum=3)
    for uid in ("g-0", "g-1", "g-2"):
        pod = scene.state.pods[f"uid-default-{uid}"]
        scene.put(replace(pod, is_terminating=True, is_eviction_pending=True))
    marked = [scene.state.pods[uid] for uid in sorted(scene.state.eviction_pending)]
    assert can_keep_running(scene.state.gangs, marked)
    scene.state.remove_pod("uid-default-g-1")
    assert len(scene.state.eviction_pending) == 2
    assert not can_keep_running(
        scene.state.gangs, [scene.state.pods[uid] for uid in scene.state.eviction_pending]
    )


def start(scene: Scene, name: str, started: float) -> None:
    pod = scene.state.pods[f"uid-default-{name}"]
    scene.state.remove_pod(pod.uid)
    scene.put(replace(pod, started=started))


def test_of_equal_units_the_last_started_is_evicted() -> None:
    scene = Scene()
    told = (("first", 3.0, 4.0), ("second", 2.0, 5.0), ("third", 1.0, 9.0), ("not-yet", 0.0, 0.0))
    for name, created, started in told:
        scene.put(scene.run(make_pod(name).gpu(4).quota("a").created(created), 4))
        start(scene, name, started)
    scene.want(8)
    assert scene.chosen() == [["third"], ["not-yet"]]


def test_gang_starts_with_its_first_member() -> None:
    scene = Scene()
    scene.gang("g", 2, minimum=2)
    scene.single("p")
    scene.single("q")
    for name, started in (("g-0", 5.0), ("g-1", 9.0), ("p", 6.0), ("q", 7.0)):
        start(scene, name, started)
    scene.want(8)
    assert scene.chosen() == [["p"], ["q"]]
