"""The API server's response about a pod can be newer than the watch."""

import asyncio
from dataclasses import dataclass, field

import pytest
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster
from tests.controllers.scene import make_evictions

from koord.controllers.placement import PlacementController
from koord.controllers.restart import GangRestarts
from koord.controllers.writes_in_flight import BindTurns
from koord.core.engine.scoring import Scoring
from koord.core.model.plan import Assignment, Placement
from koord.kube.outcomes import BoundElsewhere, Done, Outcome, PodGone


@dataclass
class LateBinder:
    """Finds every pod deleted, or bound elsewhere."""

    answer: Outcome
    asked: int = 0
    bound: list[str] = field(default_factory=list)

    read_release = read_bind = None  # every outcome is known

    async def release(self, _assignment: Assignment, _placement: Placement) -> Outcome:
        self.asked += 1
        return self.answer

    async def bind(self, assignment: Assignment, _placement: Placement) -> Outcome:
        self.bound.append(assignment.pod.name)
        return Done()


class Nobody:
    """Ignores all reports."""

    def __getattr__(self, _name: str):
        return lambda *_arguments, **_options: None


@pytest.mark.parametrize("answer", [PodGone(), BoundElsewhere("other")], ids=["gone", "elsewhere"])
async def test_outdated_pod_is_left_alone_until_the_watch_catches_up(answer: Outcome) -> None:
    state = make_cluster().state
    state.upsert_node(make_node("n").build())
    pod = make_pod("p").build()
    state.upsert_pod(pod)
    binder = LateBinder(answer)
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
        group.create_task(controller.run())
        await asyncio.sleep(0.2)
        assert binder.asked == 1
        assert controller.reason_for(pod) is None
        state.remove_pod(pod.uid)
        state.upsert_pod(make_pod("p").uid("another").handling(pod.handling).build())
        binder.answer = Done()
        controller.wake()
        await asyncio.sleep(0.1)
        assert binder.bound == ["p"]
        controller.stop()
