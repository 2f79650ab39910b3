"""Over-use that reservations hold comes back as well, as long as no pod uses them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import GPU, make_pod, make_pod_group, make_quota
from tests.core.test_reclaim import Scene
from tests.objects import upsert_namespace, upsert_pod_group, upsert_quota
from tests.reservation.make import make_reservation

from koord.core.eviction.model import Exempt
from koord.core.eviction.protection import ALLOWED_IN
from koord.core.eviction.reclaim import find_reach, plan_reclaim, write_plan
from koord.core.reservation.lifecycle import PriorityClass
from koord.core.reservation.model import ReservationUse
from koord.core.reservation.plugin import Reservations


class HeldScene(Scene):
    """Reservations of quota ``a`` hold 8 GPUs each, one on each node."""

    def hold(self, name: str, node: str, priority_class: str = "", **fields: Any) -> None:
        one = make_reservation(name, node, reserved={GPU: 8}, priority_class=priority_class)
        assert one.pod is not None
        self.reservations.upsert(replace(one, pod=replace(one.pod, quota="a", **fields)))

    def use(self, name: str, node: str, gpus: int = 4, gang: str = "", **more: bool) -> None:
        pod = make_pod(f"in-{name}").gpu(gpus).quota("a", **more)
        placed = (pod.gang(gang) if gang else pod).released(node, "p").running(node).build()
        use = ReservationUse(placed.uid, name, f"uid-{name}")
        self.put(replace(placed, allocations=(use,)))

    @property
    def reservations(self) -> Reservations:
        return self.state.plugin(Reservations)


def test_a_reservation_that_nobody_uses_gives_its_room_up() -> None:
    scene = HeldScene()
    scene.hold("r1", "n1")
    scene.hold("r2", "n2")
    scene.want(8)
    assert scene.chosen() == [["reservation:r1"]]


def test_one_that_pods_use_goes_with_them_but_after_one_that_nobody_uses() -> None:
    scene = HeldScene(a=0, b=16)
    scene.started = 100.0
    scene.hold("r1", "n1")
    scene.use("r1", "n1")
    scene.hold("r2", "n2")
    scene.want(8)
    assert scene.chosen() == [["reservation:r2"]]
    scene.use("r2", "n2", 8)
    (chosen,) = scene.chosen()
    assert chosen in (["in-r1", "reservation:r1"], ["in-r2", "reservation:r2"])


def test_a_gang_takes_the_reservations_that_its_members_use_with_it() -> None:
    scene = HeldScene(a=0, b=16)
    upsert_pod_group(scene.state, make_pod_group("default/g", 2).build())
    for at in (1, 2):
        scene.hold(f"r{at}", f"n{at}")
        scene.use(f"r{at}", f"n{at}", 4, "default/g")
    scene.want(8)
    assert scene.chosen() == [["in-r1", "in-r2", "reservation:r1", "reservation:r2"]]


def test_what_is_evicted_already_counts_as_gone() -> None:
    scene = HeldScene(a=8, b=8)
    for at in (1, 2):
        scene.hold(f"r{at}", f"n{at}")
        scene.use(f"r{at}", f"n{at}", 4)
    scene.want(8)
    (chosen,) = scene.chosen()
    uids = {pod.uid for pod in scene.state.pods.values() if pod.name in chosen}
    assert len(uids) == 2
    assert scene.chosen(exempt=Exempt(terminating=uids)) == []


@pytest.mark.parametrize(("is_allowed", "count"), [(True, 0), (False, 1)])
def test_a_label_protects_where_the_namespace_allows_it(is_allowed: bool, count: int) -> None:  # noqa: FBT001
    scene = HeldScene()
    upsert_namespace(scene.state, "default", {ALLOWED_IN: str(is_allowed).lower()})
    scene.hold("r1", "n1", is_protected=True)
    scene.hold("r2", "n2", is_protected=True)
    scene.want(8)
    assert len(scene.chosen()) == count


def test_a_label_protects_as_far_as_the_guarantee_pays_for_it() -> None:
    """Anybody who may edit a reservation can add the label at any time."""
    scene = HeldScene()
    scene.hold("r1", "n1", is_non_preemptible=True)
    scene.hold("r2", "n2")
    scene.want(8)
    assert scene.chosen() == [["reservation:r2"]]
    scene.hold("r2", "n2", is_non_preemptible=True)
    assert len(scene.chosen()) == 1


def test_a_class_of_the_system_in_a_template_protects_nothing() -> None:
    scene = HeldScene()
    scene.reservations.classes["system-node-critical"] = PriorityClass("s", 2_000_001_000)
    for at in (1, 2):
        scene.hold(f"r{at}", f"n{at}", "system-node-critical")
    scene.want(8)
    assert len(scene.chosen()) == 1


def test_what_nobody_uses_goes_before_what_runs() -> None:
    scene = HeldScene()
    scene.started = 100.0
    scene.single("w-a", gpus=8)
    scene.hold("r2", "n2")
    scene.want(8)
    assert scene.chosen() == [["reservation:r2"]]


def test_it_is_called_by_its_name() -> None:
    scene = HeldScene()
    scene.hold("r1", "n1")
    scene.hold("r2", "n2")
    scene.want(8)
    chosen = plan_reclaim(scene.state, scene.state.open_ledger(), "a", scene.blocked)
    told = write_plan(chosen, "", is_dry=True, compat=False)
    assert told.startswith("would evict (dry run) reservation/r1 (1 reservation): quota a uses 16")


def test_nobody_is_evicted_out_of_a_reservation_that_keeps_the_room() -> None:
    """A pod that stays keeps its reservation, and so the room of the others in it."""
    scene = HeldScene(a=0, b=16)
    for at in (1, 2):
        scene.hold(f"r{at}", f"n{at}")
        scene.use(f"r{at}", f"n{at}", 4, is_non_preemptible=True)
        pod = make_pod(f"other-{at}").gpu(4).quota("a").running(f"n{at}").build()
        use = ReservationUse(pod.uid, f"r{at}", f"uid-r{at}")
        scene.put(replace(pod, allocations=(use,)))
    scene.want(8)
    ledger = scene.state.open_ledger()
    assert scene.chosen() == []
    assert find_reach(scene.state, ledger, "a", GPU).text(GPU) == (
        "Nothing of it can be reclaimed: it uses 16 labelled as not preemptible."
    )
    upsert_quota(scene.state, make_quota("a", min={GPU: 0}, max={GPU: 8}))
    assert scene.chosen() == [], "not even above its max: it would not use less"


def test_reservations_that_pods_of_other_quotas_use_stay() -> None:
    scene = HeldScene(a=0, b=16)
    for at in (1, 2):
        scene.hold(f"r{at}", f"n{at}")
        pod = make_pod(f"other-{at}").gpu(4).running(f"n{at}").build()
        use = ReservationUse(pod.uid, f"r{at}", f"uid-r{at}")
        scene.put(replace(pod, allocations=(use,)))
    scene.want(8)
    assert scene.chosen() == []
    found = find_reach(scene.state, scene.state.open_ledger(), "a", GPU)
    assert found.text(GPU) == (
        "Nothing of it can be reclaimed: it uses 8 in reservations that pods use."
    )


def test_what_can_be_reclaimed_is_told_apart_from_what_stays() -> None:
    scene = HeldScene()
    scene.single("w-a", gpus=4, is_non_preemptible=True)
    scene.single("w-b", gpus=4)
    scene.hold("r2", "n2")
    scene.use("r2", "n2", 2)
    scene.want(8)
    ledger = scene.state.open_ledger()
    found = find_reach(scene.state, ledger, "a", GPU)
    assert (found.movable, dict(found.kept)) == (12, {"labelled as not preemptible": 4})
