"""Reservations that take in pods which run already: which ones, and that nothing is used twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import make_pod
from tests.cluster import make_unit
from tests.objects import upsert_reservation
from tests.reservation.make import ALIGNED, RESTRICTED, labelled, make_reservation
from tests.reservation.test_devices import GpuCluster, describe

from koord.core.device.allocation import AllocatedDevices
from koord.core.model.device_names import NVIDIA_GPU
from koord.core.model.pods import Handling, RecordedPlan
from koord.core.reservation.metrics import find_drift
from koord.core.reservation.model import (
    NAME,
    PRE_ALLOCATABLE,
    PreAllocated,
    PreAllocation,
    ReservationHints,
    ReservationInfo,
    ReservationUse,
)
from koord.core.reservation.plugin import Reservations

PRIORITY = {"p70": 70, "p90": 90, "p50": 50}


class Running(GpuCluster):
    """Pods that run, and reservations over them, which are written as the operators do."""

    def run(self, name: str, app: str = "web", **requests: int) -> None:
        gpus = requests.pop("gpus", 0)
        made = make_pod(name).requests(**requests).labels(app=app, **{PRE_ALLOCATABLE: "true"})
        if gpus:
            made.gpu(gpus)
        pod = made.build()
        if rank := PRIORITY.get(name, 0):
            pod = replace(pod, extensions=((NAME, ReservationHints(rank=rank)),))
        self.pods(pod)
        (placement,) = self.place(make_unit(pod.uid, [pod])).placements
        (assignment,) = placement.assignments
        plan = RecordedPlan(assignment.node, "plan", "", 1)
        bound = replace(
            pod, node=assignment.node, allocations=assignment.allocations, recorded=plan
        )
        self.pods(replace(bound, handling=Handling.BIND, is_gated=False))

    def take_in(self, name: str = "r", **fields: Any) -> str:
        """Return the pods that a reservation takes in; "-" for none, "" if it fits nowhere."""
        given = {"policy": RESTRICTED, "pre_allocation": PreAllocation(), **fields}
        waiting = make_reservation(name, node="", **given)
        upsert_reservation(self.state, waiting)
        pod = self.state.pods[waiting.uid]
        placements = self.place(make_unit(name, [pod])).placements
        if not placements:
            return ""
        (assignment,) = placements[0].assignments
        taken = [given for given in assignment.allocations if isinstance(given, PreAllocated)]
        for uid, key in taken[0].pods if taken else ():
            running = self.state.pods[uid]
            assert running.key == key
            use = next(iter(write for write in taken[0].writes() if write.uid == uid))
            assert use.of == key
            self.pods(replace(running, allocations=(*running.allocations, use_of(waiting, uid))))
        self.write(waiting, assignment)
        self.state.refresh()
        assert find_drift(self.state) == []
        names = [key.partition("/")[2] for _, key in taken[0].pods] if taken else []
        return " ".join(names) or "-"

    def used(self, resource: str = NVIDIA_GPU) -> int:
        self.state.refresh()
        return self.state.used_on("n1")[resource]


def use_of(reservation: ReservationInfo, pod: str) -> Any:
    return ReservationUse(pod, reservation.name, reservation.uid)


def test_it_is_laid_over_a_running_owner_and_holds_what_that_leaves() -> None:
    made = Running()
    made.run("a", gpus=3)
    made.run("b", gpus=3, app="other")
    assert made.take_in(reserved={NVIDIA_GPU: 5}) == "a"
    assert made.used() == 8, "3 of b, 5 reserved, of which a uses 3"
    assert made.held() == [3, 7]
    made.delete_pods("a")
    assert made.held() == [0, 1, 2, 3, 7]
    assert made.used() == 8


def test_it_contains_all_devices_of_the_pods_that_it_takes_in() -> None:
    made = Running()
    made.run("x", gpus=1, app="other")
    made.run("a", gpus=2)
    made.delete_pods("x")
    assert made.take_in(reserved={NVIDIA_GPU: 4}) == "a"
    (mine,) = (
        allocation
        for allocation in made.state.plugin(Reservations).exact["uid-r"]
        if isinstance(allocation, AllocatedDevices)
    )
    theirs = [
        allocation
        for allocation in made.pod("a").allocations
        if isinstance(allocation, AllocatedDevices)
    ]
    assert {share.minor for share in theirs[0].shares} <= {share.minor for share in mine.shares}
    assert len(mine.shares) == 4


def test_a_pod_larger_than_the_reservation_is_not_taken_in() -> None:
    made = Running()
    made.run("a", gpus=6)
    assert made.take_in(reserved={NVIDIA_GPU: 4}) == ""
    assert made.take_in("s", reserved={NVIDIA_GPU: 2}) == "-", "it fits beside it"


def test_the_fullest_is_taken_in_and_each_pod_once() -> None:
    made = Running()
    made.run("small", gpus=1)
    made.run("large", gpus=3)
    assert made.take_in("r1", reserved={NVIDIA_GPU: 4}) == "large"
    assert made.take_in("r2", reserved={NVIDIA_GPU: 4}) == "small"
    assert made.used() == 8
    assert made.take_in("r3", reserved={NVIDIA_GPU: 1}) == ""


def test_one_that_must_take_in_a_pod_waits_for_one() -> None:
    made = Running()
    must = PreAllocation(is_required=True)
    assert made.take_in(reserved={NVIDIA_GPU: 2}, pre_allocation=must) == ""
    made.run("a", gpus=1)
    assert made.take_in(reserved={NVIDIA_GPU: 2}, pre_allocation=must) == "a"


def test_it_is_tried_again_when_a_candidate_has_started() -> None:
    made = Running()
    must = PreAllocation(is_required=True)
    waiting = make_reservation(
        node="", policy=RESTRICTED, reserved={NVIDIA_GPU: 2}, pre_allocation=must
    )
    upsert_reservation(made.state, waiting)
    (refusal,) = made.decide(made.take()).refusals
    assert "no pod match reservation with pre allocation required" in refusal.reason.text()
    made.run("a", gpus=1)
    made.state.note_freed(made.state.advance(0.0))
    (placement,) = made.decide(made.take()).placements
    assert placement.assignments[0].pod.uid == waiting.uid


@pytest.mark.parametrize("is_clusterwide", [True, False])
def test_several_are_taken_in_until_it_fits(*, is_clusterwide: bool) -> None:
    """The worked example: 1, 5 and 1 GPUs; 4 are asked for, 1 is free; 5 are too many."""
    made = Running()
    for name, gpus in (("p70", 1), ("p90", 5), ("p50", 1)):
        made.run(name, gpus=gpus, app="else" if is_clusterwide else "web")
    many = PreAllocation(is_clusterwide=is_clusterwide, takes_many=True)
    taken = made.take_in(reserved={NVIDIA_GPU: 3}, pre_allocation=many)
    assert taken == ("p70 p50" if is_clusterwide else "p50 p70")
    assert made.used() == 8


def test_owners_come_into_what_it_holds() -> None:
    made = Running()
    made.run("a", gpus=3)
    made.run("b", gpus=4, app="other")
    assert made.take_in(reserved={NVIDIA_GPU: 4}) == "a"
    pod = make_pod("w").labels(app="web").gpu(1).build()
    made.pods(pod)
    (placement,) = made.place(make_unit("w", [pod])).placements
    assert describe(placement.assignments[0]) == "r: 3"


def test_it_needs_the_policy_restricted() -> None:
    reservation = make_reservation(node="", policy=ALIGNED, pre_allocation=PreAllocation())
    assert ("spec.preAllocation", "needs allocatePolicy Restricted") in reservation.find_problems()


def test_pods_of_other_owners_and_namespaces_are_left_alone() -> None:
    made = Running()
    made.run("a", gpus=5)
    other = {"reserved": {NVIDIA_GPU: 5}, "owners": (labelled(app="none"),)}
    assert made.take_in(**other) == ""
    assert made.take_in("s", reserved={NVIDIA_GPU: 5}, namespace="elsewhere") == ""
