"""What is kept of reservations is compared with their pods; only defects are differences."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import make_pod
from tests.reservation.make import make_reservation
from tests.reservation.test_devices import GpuCluster, owner
from tests.reservation.test_planning import cluster, plan, web

from koord.core.device.plugin import Devices
from koord.core.device.session import DeviceSession
from koord.core.device.status import find_drift as find_device_drift
from koord.core.model.pods import Handling, RecordedPlan
from koord.core.reservation.metrics import EXACT, find_drift
from koord.core.reservation.model import ReservationUse
from koord.core.reservation.plugin import Reservations


def test_a_pod_that_was_just_observed_is_no_drift() -> None:
    made = cluster(make_reservation())
    plan(made, web("a"))
    pod = replace(made.pod("a"), node="n1")
    made.pods(pod)
    assert find_drift(made.state) == []
    made.state.remove_pod(pod.uid)
    assert find_drift(made.state) == []


def test_a_record_that_somebody_removes_from_a_running_pod_is_no_drift() -> None:
    made = GpuCluster()
    made.reserve()
    made.put(owner("a"))
    made.pods(replace(made.pod("a"), allocations=()))
    made.state.refresh()
    assert made.state.plugin(Reservations).users_of("uid-r"), "it stays an owner"
    assert find_drift(made.state) == []


def test_devices_of_an_owner_stay_its_own_whoever_removes_their_record() -> None:
    made = GpuCluster()
    made.reserve()
    made.put(owner("a"))
    made.pods(replace(made.pod("a"), allocations=()))
    assert made.held() == [1, 2, 3]


def test_a_pinned_pod_that_others_will_bind_is_no_drift() -> None:
    made = cluster(make_reservation())
    use = ReservationUse("a", "r", "uid-r")
    pod = replace(web("a").build(), pinned=True, is_gated=False, allocations=(use,))
    made.pods(replace(pod, handling=Handling.NOT_OURS, recorded=RecordedPlan("n1", "p", "a", 1)))
    made.state.refresh()
    assert made.state.plugin(Reservations).users_of("uid-r")
    assert find_drift(made.state) == []


def test_held_devices_are_compared_too() -> None:
    made = GpuCluster()
    made.reserve()
    made.put(owner("a"), make_pod("x").gpu(2))
    devices = made.state.plugin(Devices)
    assert (find_drift(made.state), find_device_drift(made.state, ["n1"])) == ([], [])
    row = made.state.table.row_of["n1"]
    before = int(devices.state_of[row])
    devices.state_of[row] = devices.states.after(before, devices.shares_of[made.pod("x").uid], 1)
    assert find_device_drift(made.state, ["n1"]) == ["n1"]
    devices.state_of[row] = before
    held = made.state.pods["uid-r"]
    made.state.pods["uid-r"] = replace(held, allocations=())
    assert [drift.resource for drift in find_drift(made.state)] == [EXACT]
    assert find_device_drift(made.state, ["n1"]) == ["n1"]


def test_devices_of_an_owner_without_a_record_return_to_its_reservation() -> None:
    made = GpuCluster()
    made.reserve()
    made.put(owner("a"))
    states = []
    for allocations in (made.pod("a").allocations, ()):
        made.pods(replace(made.pod("a"), allocations=allocations))
        cycle = made.open_cycle()
        cycle.remove([made.pod("a")])
        session = cycle.session(DeviceSession)
        states.append(made.state.plugin(Devices).states.ledger(int(session._state_of[0])).used)
    assert states[0] == states[1], "a victim of preemption frees nothing for others"
