"""The operator that plans keeps room for what was lost, and lets it go in time."""

from dataclasses import replace

from tests.builders import make_node, make_pod, make_pod_group
from tests.controllers.scene import Scene
from tests.objects import upsert_pod_group, upsert_topology

from koord.core.model.gangs import GangMode
from koord.core.model.pods import Pod, PodPhase
from koord.core.model.topology_constraint import GatherStrategy, LayerConstraint, TopologyConstraint
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer

A, B = "default/a", "default/b"


def started(name: str, node: str) -> Pod:
    return make_pod(name).gang(A).gpu(8).released(node, "p", A, 2, 2).running(node).build()


def make_scene(wait: int = 600) -> Scene:
    scene = Scene()
    for index in range(2):
        scene.state.upsert_node(make_node(f"n{index}").gpu(8).build())
    upsert_pod_group(scene.state, make_pod_group(A, 2).wait(wait).build())
    upsert_pod_group(scene.state, make_pod_group(B, 1).build())
    return scene


async def test_a_gang_learns_that_room_is_kept_from_it() -> None:
    scene = make_scene()
    async with scene.running():
        scene.add(started("a-0", "n0"), started("a-1", "n1"))
        scene.add(make_pod("b-0").gang(B).gpu(8).build())
        await scene.settle()
        assert scene.reason("b-0") == "InsufficientNodes"
        scene.noted.clear()
        scene.remove("a-1")
        await scene.settle()
        assert scene.reason("b-0") == "KeptForReplacements"
        assert B in scene.noted, "the gang is reported although none of its own objects changed"
        scene.add(make_pod("a-2").gang(A).gpu(8).build())
        await scene.settle()
        assert scene.writer.bound == {"a-2": "n1"}


async def test_who_waits_for_what_is_kept_has_it_when_the_time_is_over() -> None:
    scene = make_scene(wait=1)
    async with scene.running():
        scene.add(started("a-0", "n0"), started("a-1", "n1"))
        scene.add(make_pod("b-0").gang(B).gpu(8).build())
        await scene.settle()
        scene.remove("a-1")
        await scene.settle()
        assert not scene.writer.bound
        assert await scene.eventually(lambda: scene.writer.bound == {"b-0": "n1"})


async def test_what_was_kept_for_a_gang_that_is_gone_is_free_at_once() -> None:
    scene = make_scene()
    non_strict = make_pod_group("default/c", 3).mode(GangMode.NON_STRICT).build()
    upsert_pod_group(scene.state, non_strict)
    pods = [make_pod(f"c-{i}").gang("default/c").gpu(8).build() for i in range(3)]
    async with scene.running():
        scene.add(*pods)
        await scene.settle()
        assert scene.operator.holds.reserved_pods() == {"default/c": 2}
        scene.remove("c-2")
        await scene.settle()
        assert scene.operator.holds.reserved_pods() == {}


async def test_what_a_plan_no_longer_keeps_is_free_at_once() -> None:
    """A gang that must share a rack from now on keeps no room, as no rack has enough."""
    scene = Scene()
    upsert_topology(scene.state, Topology("default", (Layer("Rack", "", ("rack",)),)))
    for index in range(3):
        scene.state.upsert_node(make_node(f"n{index}").gpu(8).label("rack", f"r{index}").build())
    wide = make_pod_group("default/c", 3).mode(GangMode.NON_STRICT)
    in_pairs = TopologyConstraint((LayerConstraint("Rack", GatherStrategy.PREFER, 2),))
    upsert_pod_group(scene.state, wide.build())
    upsert_pod_group(scene.state, make_pod_group(B, 2).topology(in_pairs).build())
    pods = [make_pod(f"c-{i}").gang("default/c").gpu(8).build() for i in range(3)]
    first = [
        make_pod(name).gang(B).gpu(4).released("n2", "p", B, 2, 2).running("n2").build()
        for name in ("b-0", "b-1")
    ]
    async with scene.running():
        scene.add(*first, *pods)
        await scene.settle()
        assert scene.operator.holds.reserved_pods() == {"default/c": 2}
        scene.add(*(make_pod(name).gang(B).gpu(4).build() for name in ("b-2", "b-3")))
        await scene.settle()
        assert not scene.writer.bound, "surplus does not get what is kept"
        together = TopologyConstraint((LayerConstraint("Rack", GatherStrategy.MUST),))
        upsert_pod_group(scene.state, wide.topology(together).build())
        scene.operator.wake()
        assert await scene.eventually(lambda: {"b-2", "b-3"} == scene.writer.bound.keys())
        assert scene.operator.holds.reserved_pods() == {}


async def test_who_waits_for_a_node_that_rejects_pods_has_it_when_the_back_off_ends() -> None:
    scene = Scene()
    scene.state.upsert_node(make_node("n0").gpu(8).build())
    pod = make_pod("refused").gpu(8).released("n0", "p", "", 1, 1).bound("n0")
    async with scene.running():
        scene.add(pod.build())
        await scene.settle()
        failed = pod.phase(PodPhase.FAILED).build()
        scene.add(replace(failed, rejection="OutOfcpu"), make_pod("again").gpu(8).build())
        await scene.settle()
        reason = scene.operator.reason_for(scene.state.pods["uid-default-again"])
        assert reason is not None
        assert "rejected such pods 1 time" in reason.text()
        assert await scene.eventually(lambda: scene.writer.bound == {"again": "n0"})
