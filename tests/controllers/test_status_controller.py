"""The loop that keeps statuses current: one bad object stops no other, an old copy stops all."""

import asyncio

import pytest

from koord.controllers.coalescing import Pause
from koord.controllers.status_controller import AGAIN_SECONDS, ChangedInputs, StatusController
from koord.kube.election import LeadershipLost
from koord.kube.errors import ConnectionLost
from koord.kube.status import AFTER_BINDINGS

PAUSE = Pause(0.0, 0.0)


class Policy:
    """Has everything change at every look, and fails for some objects."""

    def __init__(self, failures: dict[str, Exception] | None = None) -> None:
        self.failures = failures or {}
        self.again: dict[str, float] = {}
        self.updated: list[str] = []

    def changed(self) -> list[str]:
        return ["a", "bad", "z"]

    def pause_for(self, _key: str) -> Pause:
        return PAUSE

    async def update(self, key: str) -> float | None:
        if key in self.failures:
            raise self.failures[key]
        self.updated.append(key)
        return self.again.pop(key, None)


@pytest.mark.isolates
async def test_failing_object_stops_no_other_and_is_tried_again_after_a_pause() -> None:
    policy, now = Policy({"bad": ValueError("odd")}), [0.0]
    controller = StatusController(policy, lambda: now[0])
    for _ in range(2):
        controller.look()
        await controller.flush()
    assert policy.updated == ["a", "z"] * 2
    policy.failures.clear()
    now[0] = 2.5
    await controller.flush()
    assert policy.updated[4:] == ["bad"]


async def test_an_object_whose_write_fails_is_no_defect_and_is_tried_again() -> None:
    policy, now = Policy({"bad": ConnectionLost("no answer", sent=True)}), [0.0]
    controller = StatusController(policy, lambda: now[0])
    controller.look()
    await controller.flush()
    policy.failures.clear()
    now[0] = AGAIN_SECONDS
    await controller.flush()
    assert policy.updated == ["a", "z", "bad"]


async def test_loss_of_leadership_is_raised() -> None:
    controller = StatusController(Policy({"bad": LeadershipLost("another leads")}), lambda: 0.0)
    controller.look()
    with pytest.raises(LeadershipLost):
        await controller.flush()


async def test_object_is_updated_again_when_its_policy_says_so() -> None:
    now, policy = [0.0], Policy()
    policy.again = {"z": 5.0}
    controller = StatusController(policy, lambda: now[0])
    controller.look()
    for now[0] in (0.0, 4.9, 5.0, 20.0):
        await controller.flush()
    assert policy.updated == ["a", "bad", "z", "z"]


async def test_updates_give_way_but_not_for_ever() -> None:
    now, is_busy, policy = [0.0], [True], Policy()
    controller = StatusController(
        policy, lambda: now[0], is_busy=lambda: is_busy[0], pace=AFTER_BINDINGS
    )
    controller.look()
    for now[0] in (0.0, 1.5, 3.0):
        await controller.flush()
    assert not policy.updated
    is_busy[0], now[0] = False, 4.5
    await controller.flush()
    assert policy.updated == ["a", "bad", "z"]
    is_busy[0] = True
    controller.look()
    for now[0] in (10.0, 14.0, 17.9):
        await controller.flush()
    assert len(policy.updated) == 3
    now[0] = 19.5
    await controller.flush()
    assert len(policy.updated) == 6


async def test_nothing_is_updated_until_synced() -> None:
    loop, is_synced, policy = asyncio.get_running_loop(), [False], Policy()
    controller = StatusController(policy, loop.time, lambda: is_synced[0])
    running = asyncio.create_task(controller.run())
    controller.wake()
    await asyncio.sleep(0.1)
    assert not policy.updated
    is_synced[0] = True
    controller.wake()
    async with asyncio.timeout(5):
        while not policy.updated:  # noqa: ASYNC110 - filled by the task
            await asyncio.sleep(0.01)
    running.cancel()
    assert policy.updated == ["a", "bad", "z"]


def test_inputs_that_are_new_changed_or_gone_are_found() -> None:
    inputs = ChangedInputs[str]()
    assert inputs.compare("ab", {"a": 1, "b": 1}.get) == ["a", "b"]
    assert inputs.compare("ab", {"a": 1, "b": 1}.get) == []
    assert inputs.compare("bc", {"b": 2, "c": 1}.get) == ["a", "b", "c"]
