"""When the placement operator plans, and the reasons of pending pods."""

from dataclasses import replace

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.controllers.scene import Scene
from tests.objects import upsert_pod_group

from koord.controllers import placement
from koord.core.model.pods import Handling, RecordedPlan
from koord.kube.outcomes import Done, PodGone, Refused


def make_scene(gpus: int = 8) -> Scene:
    scene = Scene()
    scene.state.upsert_node(make_node("n0").gpu(gpus).build())
    return scene


async def test_nothing_is_planned_on_a_stale_cache() -> None:
    scene = make_scene()
    scene.is_synced = False
    async with scene.running():
        scene.add(make_pod("p").gpu(1).build())
        await scene.settle()
        assert not scene.writer.bound
        scene.is_synced = True
        scene.operator.wake()
        await scene.settle()
        assert scene.writer.bound == {"p": "n0"}
        scene.is_synced = False
        scene.add(make_pod("q").gpu(1).build())
        await scene.settle()
        assert set(scene.writer.bound) == {"p"}


async def test_surplus_pod_with_a_foreign_gate_reports_it() -> None:
    scene = make_scene()
    upsert_pod_group(scene.state, make_pod_group("default/g", 1).build())
    async with scene.running():
        late = make_pod("g-1").gang("default/g").foreign_gates("example.com/hold")
        scene.add(make_pod("g-0").gang("default/g").build(), late.build())
        await scene.settle()
        assert set(scene.writer.bound) == {"g-0"}
        assert scene.reason("g-1") == "WaitingForForeignGate"


async def test_deleted_pod_is_not_written_again_before_the_watch_shows_it() -> None:
    scene = make_scene()
    scene.writer.answers["p"] = PodGone()
    async with scene.running():
        scene.add(make_pod("p").gpu(1).build())
        await scene.settle()
        assert scene.writer.writes == {"p": 1}


async def test_released_pod_keeps_its_node_before_the_watch_shows_it() -> None:
    scene = make_scene(gpus=2)
    scene.writer.answers["g-1"] = PodGone()
    scene.writer.is_late = True
    upsert_pod_group(scene.state, make_pod_group("default/g", 2).build())
    members = [make_pod(f"g-{i}").gang("default/g").gpu(1) for i in (0, 1)]
    pinned = [pod.handling(Handling.RELEASE_PINNED).build() for pod in members]
    async with scene.running():
        scene.add(*pinned)
        await scene.settle()
        assert scene.writer.writes == {"g-0": 1, "g-1": 1}
        scene.add(make_pod("large").gpu(2).build(), make_pod("small").gpu(1).build())
        await scene.settle()
        assert set(scene.writer.bound) == {"small"}
        released = replace(pinned[0], is_gated=False, pinned=True)
        scene.add(replace(released, recorded=RecordedPlan("n0", "p", "default/g", 2)))
        await scene.settle()
        assert not scene.state.assumed.keys() & {pinned[0].uid}
        assert set(scene.writer.bound) == {"small"}


async def test_lack_of_resources_replaces_a_refused_write_as_reason() -> None:
    scene = make_scene(gpus=1)
    scene.writer.answers["p"] = Refused(403, "no")
    async with scene.running():
        scene.add(make_pod("p").gpu(1).build())
        await scene.settle()
        assert scene.reason("p") == "BindFailed"
        scene.writer.answers["p"] = Done()
        scene.add(make_pod("other").not_ours().gpu(1).running("n0").build())
        scene.operator.queue.forgive(["uid-default-p"])
        scene.operator.wake()
        await scene.settle()
        assert scene.reason("p") == "InsufficientNodes"


async def test_blocked_units_are_retried_periodically(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "RETRY_ALL_SECONDS", 0.1)
    scene = make_scene(gpus=1)
    async with scene.running():
        scene.add(make_pod("p").gpu(2).build())
        await scene.settle()
        assert scene.reason("p") == "NoSuitableNode"
        # As if the update of the larger node had been lost.
        scene.state.upsert_node(make_node("n0").gpu(2).build())
        scene.operator.queue.absorb = lambda *_: None  # type: ignore[method-assign]
        assert await scene.eventually(lambda: scene.writer.bound == {"p": "n0"})
