"""Commits are finished before more is planned."""

import asyncio

import pytest
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster
from tests.controllers.scene import make_evictions

from koord.controllers import placement
from koord.controllers.placement import PlacementController
from koord.controllers.restart import GangRestarts
from koord.controllers.writes_in_flight import BindTurns
from koord.core.engine.scoring import Scoring
from koord.kube.outcomes import Done


class SlowBinder:
    """Accepts every write, and returns when the test allows it."""

    read_release = read_bind = None  # every outcome is known

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = asyncio.Event()

    async def release(self, assignment, _placement) -> Done:
        self.begun.append(assignment.pod.name)
        await self.may_end.wait()
        return Done()

    async def bind(self, _assignment, _placement) -> Done:
        return Done()


class Nobody:
    """Ignores all reports."""

    def __getattr__(self, _name: str):
        return lambda *_arguments, **_options: None


async def test_planning_pauses_at_the_limit_of_pods_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "MOST_PODS_IN_FLIGHT", 2)
    monkeypatch.setattr(placement, "MOST_PODS_PER_CYCLE", 1)
    state = make_cluster().state
    state.upsert_node(make_node("n").gpu(8).build())
    for at in range(4):
        state.upsert_pod(make_pod(f"p{at}").gpu(1).created(at).build())
    binder = SlowBinder()
    controller = PlacementController(
        state=state,
        binder=binder,
        turns=BindTurns(state, Nobody(), asyncio.get_running_loop().time),
        scoring=Scoring(),
        observer=Nobody(),
        reporter=Nobody(),
        restarts=GangRestarts(make_evictions(state), Nobody(), Nobody()),
        is_synced=lambda: True,
        clock=asyncio.get_running_loop().time,
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(controller.run())
        await asyncio.sleep(0.1)
        assert binder.begun == ["p0", "p1"]
        binder.may_end.set()
        await asyncio.sleep(0.1)
        assert binder.begun == ["p0", "p1", "p2", "p3"]
        controller.stop()
        await running
    assert set(state.assumed.values()) == {"n"}
