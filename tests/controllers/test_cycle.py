"""The operator that plans: when it plans, and what it says of pods that wait."""

from tests.builders import make_node, make_pod, make_pod_group
from tests.controllers.scene import Scene

from koord.kube.outcomes import Done, Gone, Refused


def make_scene(gpus: int = 8) -> Scene:
    scene = Scene()
    scene.state.upsert_node(make_node("n0").gpu(gpus).build())
    return scene


async def test_nothing_is_planned_while_a_copy_is_known_to_be_old() -> None:
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


async def test_surplus_behind_the_gate_of_somebody_else_is_told_so() -> None:
    scene = make_scene()
    scene.state.upsert_pod_group(make_pod_group("default/g", 1).build())
    async with scene.running():
        late = make_pod("g-1").gang("default/g").foreign_gates("example.com/hold")
        scene.add(make_pod("g-0").gang("default/g").build(), late.build())
        await scene.settle()
        assert set(scene.writer.bound) == {"g-0"}
        assert scene.reason("g-1") == "WaitingForForeignGate"


async def test_a_pod_that_is_gone_is_not_written_to_until_the_watch_says_so() -> None:
    scene = make_scene()
    scene.writer.answers["p"] = Gone()
    async with scene.running():
        scene.add(make_pod("p").gpu(1).build())
        await scene.settle()
        assert scene.writer.writes == {"p": 1}


async def test_a_refused_write_is_not_the_reason_once_there_is_no_room() -> None:
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
