"""A defect of the planner: a unit that is placed with too few members, again and again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod
from tests.controllers.scene import Observer, Scene

if TYPE_CHECKING:
    import pytest

    from koord.core.engine.state import ClusterState
    from koord.core.model.plan import Unit


class CountingObserver(Observer):
    def __init__(self) -> None:
        self.futile = 0

    def count_futile_plan(self) -> None:
        self.futile += 1


async def test_plan_without_effect_is_counted_logged_once_and_backed_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene, observer = Scene(), CountingObserver()
    scene.operator.observer = observer
    take, attempts = scene.operator.queue.take, 0

    def take_with_too_few(now: float, most: int, state: ClusterState) -> list[Unit]:
        nonlocal attempts
        units = take(now, most, state)
        attempts += len(units)
        return [replace(one, demands=(replace(one.demands[0], required=2),)) for one in units]

    monkeypatch.setattr(scene.operator.queue, "take", take_with_too_few)
    scene.state.upsert_node(make_node("n").gpu(8).build())
    async with scene.running():
        scene.add(make_pod("p").gpu(1).build())
        assert await scene.eventually(lambda: observer.futile > 1)
        assert attempts < 5, "there is a pause between them"
        assert scene.reason("p") == "InternalError"
    assert not scene.writer.writes
    assert sum("without effect" in record.message for record in caplog.records) == 1
