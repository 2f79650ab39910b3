"""Reservations go first, and the pods that use them may still take their time."""

from __future__ import annotations

from dataclasses import replace

from tests.controllers.test_reclaim import Stage
from tests.core.test_reclaim_reservations import HeldScene


def make_stage() -> Stage:
    stage = Stage(HeldScene(a=8, b=8))
    assert isinstance(stage.scene, HeldScene)
    for at in (1, 2):
        stage.scene.hold(f"r{at}", f"n{at}")
        stage.scene.use(f"r{at}", f"n{at}")
    stage.scene.want(8)
    return stage


def test_no_more_goes_than_one_reservation_with_its_pod() -> None:
    stage = make_stage()
    stage.wait_and_look()
    assert len(stage.evicted) == 2
    assert stage.evicted[1] == stage.evicted[0].replace("in-", "reservation:")
    stage.wait_and_look()
    assert len(stage.evicted) == 2


def test_a_pod_that_wants_time_gets_it_and_its_reservation_goes_at_once() -> None:
    stage = make_stage()
    for name in ("in-r1", "in-r2"):
        pod = stage.scene.state.pod_by_key(f"default/{name}")
        assert pod is not None
        stage.scene.state.remove_pod(pod.uid)
        stage.scene.state.upsert_pod(replace(pod, soft_eviction=200.0))
    stage.wait_and_look()
    (held,) = stage.evicted
    assert held.startswith("reservation:r")
    stage.look(199)
    assert stage.evicted == [held]
    stage.look(2)
    assert stage.evicted == [held.replace("reservation:", "in-"), held]
