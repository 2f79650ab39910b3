"""Units whose pods fail at once wait longer each time, and nobody waits for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster

from koord.core.model.pods import OwnerReference, PodPhase
from koord.core.model.vain_starts import pause_after
from koord.core.queue.plugin import QueueOptions, Queues
from koord.core.queue.reasons import FailsAtOnce

NOW = 1_000_000
JOB = (OwnerReference("train", "Job", "batch/v1", "job", is_controller=True),)


class Scene:
    """A node of 8 GPUs; pods of one Job, or gang, fail on it."""

    def __init__(self, *, gang: str = "", **settings: Any) -> None:
        self.cluster = FakeCluster(queue=QueueOptions(settings or {"protect_after": 0}))
        self.cluster.nodes(make_node("n0").gpu(8))
        self.gang = gang
        if gang:
            self.cluster.pod_groups(make_pod_group(gang, 1))

    def pod(self, name: str, created: int) -> Any:
        pod = make_pod(name).gpu(8).created(created)
        built = (pod.gang(self.gang) if self.gang else pod).build()
        return built if self.gang else replace(built, owners=JOB)

    def ran(self, name: str, start: int, seconds: int, **more: Any) -> None:
        """Have a pod end that ran for so long."""
        times = {"started": float(start), "finished": float(start + seconds), "node": "n0"}
        self.cluster.pods(
            replace(self.pod(name, start), **{"phase": PodPhase.FAILED, **times, **more})
        )

    def wait(self, name: str, now: int) -> None:
        self.cluster.pods(self.pod(name, now))

    def step(self, now: float) -> list[str]:
        self.cluster.state.advance(now)
        return self.cluster.step(now)


@pytest.mark.parametrize("gang", ["", "default/g"])
def test_each_failure_in_a_row_doubles_the_pause(gang: str) -> None:
    scene, now, key = Scene(gang=gang), NOW, gang or "default/job/"
    for failures in range(1, 8):
        scene.ran(f"train-{failures}", now, 5)
        now += 5
        scene.wait("train-x", now)
        assert scene.step(now) == []
        reason = scene.cluster.reason()
        assert reason == FailsAtOnce(failures, now + pause_after(failures, key))
        assert not reason.is_capacity
        due = scene.cluster.state.next_due()
        assert due == now + pause_after(failures, key)
        assert scene.step(due - 1) == []
        assert scene.step(due) == ["train-x"]
        scene.cluster.delete_pods("train-x")
        now = int(due) + 1
    assert 3240 <= pause_after(7, key) <= 3960


@pytest.mark.parametrize(
    "later",
    [
        {"seconds": 600},
        {"seconds": 5, "phase": PodPhase.SUCCEEDED},
    ],
)
def test_what_has_run_begins_anew(later: dict[str, Any]) -> None:
    scene = Scene()
    scene.ran("train-1", NOW, 5)
    scene.ran("train-2", NOW + 100, 5)
    scene.ran("train-3", NOW + 300, **later)
    scene.wait("train-4", NOW + 1000)
    assert scene.step(NOW + 1000) == ["train-4"]
    scene.cluster.delete_pods("train-4")
    scene.ran("train-5", NOW + 1000, 5)
    scene.wait("train-6", NOW + 1005)
    scene.step(NOW + 1005)
    assert isinstance(scene.cluster.reason(), FailsAtOnce)
    assert scene.cluster.reason().failures == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "more",
    [
        {"is_terminating": True},
        {"rejection": "OutOfcpu"},
        {"started": 0.0},
        {"finished": 0.0},
        {"finished": float(NOW + 61)},
        {"is_reclaimed": True},
        {"owners": ()},
    ],
)
def test_what_is_no_fault_of_its_own_keeps_nobody_waiting(more: dict[str, Any]) -> None:
    scene = Scene()
    scene.ran("train-1", NOW, 5, **more)
    scene.wait("train-2", NOW + 5)
    assert scene.step(NOW + 5) == ["train-2"]


def test_members_that_fail_together_are_one_failure() -> None:
    scene = Scene(gang="default/g")
    for member in range(8):
        scene.ran(f"g-{member}", NOW, 5 + member)
    scene.wait("g-x", NOW + 20)
    scene.step(NOW + 20)
    assert scene.cluster.reason() == FailsAtOnce(1, NOW + 5 + pause_after(1, "default/g"))


def test_without_settings_of_queues_nothing_is_counted() -> None:
    scene = Scene(policy="Backfill")
    scene.cluster = FakeCluster().nodes(make_node("n0").gpu(8))
    scene.ran("train-1", NOW, 5)
    scene.wait("train-2", NOW + 5)
    assert scene.step(NOW + 5) == ["train-2"]


def test_who_fails_gives_up_reserved_room_and_keeps_its_place() -> None:
    scene = Scene(gang="default/g")
    scene.cluster.pods(make_pod("run").gpu(8).running("n0"))
    scene.wait("g-0", NOW)
    scene.step(NOW)
    queues = scene.cluster.state.plugin(Queues)
    (unit,) = scene.cluster.queue.pending()
    assert queues._find_head(unit.key)[1] is not None
    scene.ran("g-1", NOW, 5)
    scene.cluster.delete_pods("g-0")
    scene.wait("g-2", NOW)
    scene.step(NOW + 5)
    assert queues._find_head(unit.key) == (None, None)
    assert scene.cluster.queue.pending()[0].since == unit.since
    scene.cluster.delete_pods("run")
    scene.cluster.pods(make_pod("later").gpu(8).created(NOW + 6))
    assert scene.step(NOW + 6) == ["later"]


@given(st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 700)), max_size=8), st.data())
def test_it_is_the_same_after_a_restart_and_in_any_order(
    runs: list[tuple[int, int]], data: st.DataObject
) -> None:
    """What counts is read from pods that exist."""
    until = NOW + 20_000

    def find(order: list[tuple[int, tuple[int, int]]], *, is_stepwise: bool) -> object:
        scene = Scene()
        for number, (start, seconds) in order:
            scene.ran(f"train-{number}", NOW + start, seconds)
            if is_stepwise:
                scene.step(NOW + start + seconds)
        scene.wait("x", until)
        scene.step(until)
        return list(scene.cluster.reasons().values())

    by_end = sorted(enumerate(runs), key=lambda run: (sum(run[1]), f"uid-{run[0]}"))
    shuffled = data.draw(st.permutations(by_end))
    assert find(by_end, is_stepwise=True) == find(list(shuffled), is_stepwise=False)


def test_pods_of_another_namespace_that_name_a_controller_make_none_of_its_pods_wait() -> None:
    scene = Scene()
    for failures in range(3):
        scene.ran(f"evil-{failures}", NOW + 9 * failures, 5, namespace="evil", uid=f"e{failures}")
    scene.wait("train-0", NOW + 30)
    assert scene.step(NOW + 30) == ["train-0"]
