"""Pods whose device plugin looks for them are bound one after the other on each node."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.builders import PodBuilder, make_node, make_pod
from tests.controllers.scene import Scene
from tests.device.nodes import half, report

from koord.controllers import writes_in_flight
from koord.core.device.allocation import record
from koord.core.device.plugin import Devices
from koord.core.device.vendors import VENDOR_LABEL, Locked
from koord.core.model.device_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koord.core.model.pods import ExceededLimit, Handling, Pod, PodPhase

SERVED_BY = {"cambricon": "cambricon.com/mlu.smlu.vcore", "metax": "metax-tech.com/sgpu"}
ROOM = dict.fromkeys((GPU_CORE, GPU_MEMORY_RATIO, *SERVED_BY.values()), 800) | {
    GPU_MEMORY: 640 << 30
}


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes_in_flight, "_POLL_SECONDS", 0.01)


def make_scene(vendor: str = "cambricon", nodes: int = 1) -> Scene:
    scene = Scene()
    for at in range(nodes):
        node = make_node(f"n{at}").label("name", f"n{at}")
        for name, amount in ROOM.items():
            node.resource(name, amount)
        scene.state.upsert_node(node.build())
        found = report(f"n{at}", labels={VENDOR_LABEL: vendor})
        scene.state.plugin(Devices).upsert(found)
    return scene


def part(name: str, plugin: str = SERVED_BY["cambricon"]) -> PodBuilder:
    pod = make_pod(name).resource(GPU_CORE, 10).resource(GPU_MEMORY, 1 << 30)
    return pod.resource(plugin, 10) if plugin else pod


def run_pod(scene: Scene, name: str) -> None:
    pod = scene.state.pod_by_key(f"default/{name}")
    assert pod is not None
    scene.add(replace(pod, phase=PodPhase.RUNNING))


async def test_the_next_pod_of_a_node_waits_until_the_one_before_runs() -> None:
    scene = make_scene()
    async with scene.running():
        scene.add(part("a").created(1).build(), part("b").created(2).build())
        scene.add(part("c").created(3).build(), part("free", plugin="").created(4).build())
        assert await scene.eventually(lambda: set(scene.writer.bound) == {"a", "free"})
        assert await scene.eventually(
            lambda: scene.reason("b") == scene.reason("c") == "NodeLocked"
        )
        assert scene.operator.flights.pods == 0
        run_pod(scene, "a")
        assert await scene.eventually(lambda: len(scene.writer.bound) == 3)
        (last,) = {"b", "c"} - scene.writer.bound.keys()
        scene.remove(next(iter({"b", "c"} - {last})))
        assert await scene.eventually(lambda: last in scene.writer.bound)


async def test_nodes_have_turns_of_their_own() -> None:
    scene = make_scene(nodes=2)
    async with scene.running():
        scene.add(part("a").select("name", "n0").build(), part("b").select("name", "n1").build())
        assert await scene.eventually(lambda: set(scene.writer.bound) == {"a", "b"})


async def test_a_pod_that_does_not_start_holds_others_up_for_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writes_in_flight, "TURN_SECONDS", 0.3)
    scene = make_scene()
    async with scene.running():
        scene.add(part("a").created(1).build(), part("b").created(2).build())
        assert await scene.eventually(lambda: set(scene.writer.bound) == {"a", "b"})


async def test_pods_that_were_bound_before_a_restart_count() -> None:
    scene = make_scene()
    earlier = part("earlier").bound("n0").build()
    given = record(earlier.uid, [half(0)], {})
    scene.state.upsert_pod(replace(earlier, allocations=(given,)))
    async with scene.running():
        scene.add(part("a").build())
        assert await scene.eventually(lambda: scene.reason("a") == "NodeLocked")
        run_pod(scene, "earlier")
        assert await scene.eventually(lambda: set(scene.writer.bound) == {"a"})


async def test_the_lock_of_the_vendor_is_taken_before_the_binding() -> None:
    scene = make_scene("metax")
    scene.writer.locked = Locked("2026-03-01T12:00:00Z,ns,other", "ns/other")
    async with scene.running():
        scene.add(part("a", SERVED_BY["metax"]).build(), part("b", plugin="").build())
        assert await scene.eventually(lambda: scene.reason("a") == "NodeLocked")
        assert await scene.eventually(lambda: set(scene.writer.bound) == {"b"})
        scene.writer.locked = None
        assert await scene.eventually(lambda: set(scene.writer.bound) == {"a", "b"})
        assert set(scene.writer.taken) == {("n0", "hami.io/mutex.lock", "default/a")}


NEEDED: dict[str, tuple[Callable[[Pod], Pod | None], bool]] = {
    "starts there": (lambda pod: replace(pod, node="n0"), True),
    "is bound by its own scheduler": (lambda pod: pod, True),
    "failed": (lambda pod: replace(pod, node="n0", phase=PodPhase.FAILED), False),
    "succeeded": (lambda pod: replace(pod, node="n0", phase=PodPhase.SUCCEEDED), False),
    "runs": (lambda pod: replace(pod, node="n0", phase=PodPhase.RUNNING), False),
    "is deleted and has a finalizer": (
        lambda pod: replace(pod, node="n0", gone_by=1.0, is_terminating=True, finalizers=("x",)),
        False,
    ),
    "is elsewhere": (lambda pod: replace(pod, node="n1"), False),
    "is another one": (lambda pod: replace(pod, node="n0", created=time.time() + 60), False),
    "was refused by the API server": (lambda pod: replace(pod, handling=Handling.BIND), False),
    "is gone": (lambda _: None, False),
}


@pytest.mark.parametrize("case", NEEDED)
async def test_a_lock_is_free_if_its_pod_cannot_be_served_any_more(case: str) -> None:
    change, is_needed = NEEDED[case]
    scene = make_scene("metax")
    holder = change(make_pod("holder").handling(Handling.NOT_OURS).created(1).build())
    if holder is not None:
        # Too large to be planned.
        limit = ExceededLimit("labels", 2, 1) if holder.handling is Handling.BIND else None
        scene.state.upsert_pod(replace(holder, exceeded_limit=limit))
    scene.writer.held = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ},default,holder"
    async with scene.running():
        scene.add(part("a", SERVED_BY["metax"]).build())
        if is_needed:
            assert await scene.eventually(lambda: scene.reason("a") == "NodeLocked")
            scene.writer.held = None
        assert await scene.eventually(lambda: set(scene.writer.bound) == {"a"})


async def test_a_pod_deleted_before_it_started_has_no_turn() -> None:
    scene = make_scene()
    async with scene.running():
        scene.add(part("a").created(1).build(), part("b").created(2).build())
        assert await scene.eventually(lambda: set(scene.writer.bound) == {"a"})
        first = scene.state.pod_by_key("default/a")
        assert first is not None
        scene.add(replace(first, gone_by=1.0, is_terminating=True, finalizers=("x",)))
        assert await scene.eventually(lambda: set(scene.writer.bound) == {"a", "b"})


async def test_a_pod_that_waits_too_long_gives_its_room_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writes_in_flight, "PATIENCE_SECONDS", 0.05)
    scene = make_scene()
    scene.writer.locked = Locked("?", "")
    async with scene.running():
        scene.add(part("a").build())
        assert await scene.eventually(lambda: "uid-default-a" in scene.operator.failures)
        assert scene.reason("a") == "NodeLocked"


async def test_a_pod_that_is_deleted_waits_no_longer() -> None:
    scene = make_scene()
    scene.writer.locked = Locked("?", "")
    async with scene.running():
        scene.add(part("a").build())
        assert await scene.eventually(lambda: scene.reason("a") == "NodeLocked")
        scene.remove("a")
        assert await scene.eventually(lambda: not scene.operator.flights.held_up())
