"""What becomes of a preemption when the gangs of its victims change while they are marked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import make_pod, make_pod_group
from tests.controllers.test_preemption import Stage
from tests.objects import upsert_pod_group

from koord.core.eviction.model import Outcome
from koord.kube.evictor import Eviction

if TYPE_CHECKING:
    from koord.core.model.pods import Pod, PreemptedBy


def _add_small(stage: Stage, name: str, gang: str, *, is_ours: bool = False) -> None:
    """Add a member that needs no GPU, by default one that another scheduler has placed."""
    pod = make_pod(name).gang(f"default/{gang}")
    pod = pod.released("n1", "p").running("n1") if is_ours else pod.running("n1").not_ours()
    stage.scene.add(pod.build())


@pytest.mark.parametrize("minimum", [2, 3])
async def test_member_of_another_scheduler_keeps_no_gang_that_needs_it(minimum: int) -> None:
    async with Stage().open() as stage:
        upsert_pod_group(stage.state, make_pod_group("default/low", minimum).build())
        stage.running("low-1", "n1", gang="low")
        stage.running("low-2", "n2", gang="low")
        _add_small(stage, "foreign", "low")
        stage.gang("high", 2)
        await stage.expect(lambda: stage.is_deleted("low-1", "low-2"))
        stage.remove("low-1", "low-2")
        await stage.expect(lambda: set(stage.bound) == {"high-0", "high-1"})
        await stage.expect(lambda: stage.ended == {Outcome.BOUND: 1})
        assert "mark foreign" not in stage.server.writes


@pytest.mark.parametrize("lie", ["minimum", "foreign", "another gang", "gone"])
async def test_marks_count_whatever_becomes_of_the_gang_of_a_victim(lie: str) -> None:
    stage = Stage(soft_eviction_limit=0.6)
    async with stage.open():
        upsert_pod_group(stage.state, make_pod_group("default/low", 1).build())
        upsert_pod_group(stage.state, make_pod_group("default/vast", 50).build())
        stage.running("low-1", "n1", gang="low", soft=3600.0)
        stage.running("low-2", "n2", gang="low", soft=3600.0)
        _add_small(stage, "low-0", "low", is_ours=True)
        _add_small(stage, "other", "vast", is_ours=True)
        stage.gang("high", 2)
        await stage.expect(lambda: {"mark low-1", "mark low-2"} <= set(stage.server.writes))
        if lie in {"minimum", "foreign"}:
            upsert_pod_group(stage.state, make_pod_group("default/low", 50).build())
        if lie == "foreign":
            _add_small(stage, "foreign", "low")
        if lie == "gone":
            stage.remove("low-0")
        if lie == "another gang":
            for name in ("low-1", "low-2"):
                seen = stage.state.observed(f"uid-default-{name}")
                assert seen is not None
                moved = make_pod(name).gang("default/vast").build().gang
                stage.state.upsert_pod(replace(seen, gang=moved))
        await stage.expect(lambda: stage.is_deleted("low-1", "low-2"))
        stage.remove("low-1", "low-2")
        await stage.expect(lambda: set(stage.bound) == {"high-0", "high-1"})
        await stage.expect(lambda: stage.ended == {Outcome.BOUND: 1})


async def test_who_joins_a_gang_before_all_is_marked_goes_with_it() -> None:
    async with Stage().open() as stage:
        upsert_pod_group(stage.state, make_pod_group("default/low", 2).build())
        stage.running("low-1", "n1", gang="low")
        stage.running("low-2", "n2", gang="low")
        mark = stage.server.mark_preempted

        async def mark_and_join(pod: Pod, by: PreemptedBy, text: str, *, seconds: float) -> bool:
            if pod.name == "low-1":
                _add_small(stage, "low-3", "low", is_ours=True)
                high = make_pod("boss").gang("default/low").released("n1", "p").priority(99)
                stage.scene.add(high.running("n1").build())
            return await mark(pod, by, text, seconds=seconds)

        stage.server.mark_preempted = mark_and_join  # type: ignore[method-assign]
        stage.gang("high", 2)
        await stage.expect(lambda: stage.is_deleted("low-1", "low-2", "low-3"))
        await stage.expect(lambda: any("low-3: " in one for one in stage.reporter.told))
        stage.remove("low-1", "low-2", "low-3")
        await stage.expect(lambda: set(stage.bound) == {"high-0", "high-1"})
        await stage.expect(lambda: stage.ended == {Outcome.BOUND: 1})
        assert "mark boss" not in stage.server.writes, "its priority is higher"


async def test_preemption_that_deletes_leaves_no_part_of_a_gang_that_needs_others() -> None:
    async with Stage(stuck_after=0.2).open() as stage:
        upsert_pod_group(stage.state, make_pod_group("default/low", 3).build())
        stage.running("low-1", "n1", gang="low")
        stage.running("low-2", "n2", gang="low", finalizers=("example.com/hold",))
        _add_small(stage, "foreign", "low")
        stage.server.answers["low-2"] = Eviction.UNKNOWN
        stage.gang("high", 2)
        await stage.expect(lambda: stage.is_deleted("low-1"))
        stage.remove("low-1", "high-0", "high-1")
        stage.server.answers.clear()
        await stage.expect(lambda: stage.is_deleted("low-2"))
        assert "unmark low-2" not in stage.server.writes
