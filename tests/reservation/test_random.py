"""Random histories of reservations: whatever happens, in whatever order, all amounts add up.

The API server is what the machine remembers: pods and reservations as they were written last. The
operators under test see it late, crash between any two writes, and start again from it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster
from tests.objects import remove_reservation, upsert_reservation
from tests.reservation.make import ALIGNED, RESTRICTED, labelled, make_reservation
from tests.support.laws import examples

from koord.core.model.pods import Handling, PodPhase
from koord.core.model.units import CPU, PODS
from koord.core.reservation.lifecycle import expire, set_available, succeed
from koord.core.reservation.metrics import find_drift
from koord.core.reservation.model import (
    AllocatePolicy,
    ReservationInfo,
    ReservationState,
    ReservationUse,
)
from koord.core.reservation.plugin import Reservations, find_use

if TYPE_CHECKING:
    from koord.core.model.gangs import ObservedPodGroup
    from koord.core.model.plan import Assignment
    from koord.core.model.pods import Pod

NODES = ("n1", "n2", "n3")
SIZE = 16
apps = st.sampled_from(["a", "b", "none"])
sizes = st.integers(1, 9)
picks = st.integers(0, 1 << 16)


class Histories(RuleBasedStateMachine):
    """Events of users, of the API server, and of operators that see them late or crash."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.nodes = dict.fromkeys(NODES, 1)
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, ObservedPodGroup] = {}
        self.reservations: dict[str, ReservationInfo] = {}
        self.flights: list[Assignment] = []
        self.cluster = FakeCluster()
        self.start()

    def start(self) -> None:
        """Start operators, which read all there is."""
        self.flights = []
        self.cluster = FakeCluster()
        for name in self.nodes:
            self.see_node(name)
        self.cluster.pod_groups(*self.groups.values())
        for pod in self.pods.values():
            self.cluster.pods(pod)
        for reservation in self.reservations.values():
            upsert_reservation(self.cluster.state, reservation)

    def see_node(self, name: str) -> None:
        node = make_node(name).cpu(SIZE).build()
        self.cluster.nodes(replace(node, uid=f"{name}-{self.nodes[name]}"))

    def choose(self, values: list[str], pick: int) -> str:
        return sorted(values)[pick % len(values)]

    def write(self, reservation: ReservationInfo) -> None:
        self.reservations[reservation.uid] = reservation
        upsert_reservation(self.cluster.state, reservation)

    # --- users -----------------------------------------------------------------------------------

    @rule(app=apps, cpu=sizes)
    def create_pod(self, app: str, cpu: int) -> None:
        self.count += 1
        pod = make_pod(f"p{self.count}").requests(cpu=cpu).labels(app=app).build()
        self.pods[pod.uid] = pod
        self.cluster.pods(pod)

    @rule(app=apps, each=st.lists(sizes, min_size=2, max_size=3))
    def create_gang(self, app: str, each: list[int]) -> None:
        """All of its pods start together, and are written one by one."""
        self.count += 1
        key = f"default/g{self.count}"
        self.groups[key] = make_pod_group(key, len(each)).build()
        self.cluster.pod_groups(self.groups[key])
        for at, cpu in enumerate(each):
            pod = make_pod(f"p{self.count}-{at}").requests(cpu=cpu).labels(app=app).gang(key)
            self.pods[pod.build().uid] = pod.build()
            self.cluster.pods(pod)

    @rule(
        app=apps,
        cpu=sizes,
        inner=st.integers(0, 3),
        is_once=st.booleans(),
        policy=st.sampled_from([RESTRICTED, ALIGNED, AllocatePolicy.DEFAULT]),
    )
    def create_reservation(
        self, app: str, cpu: int, inner: int, policy: AllocatePolicy, *, is_once: bool
    ) -> None:
        self.count += 1
        fields = {"policy": policy, "is_once": is_once, "owners": (labelled(app=app),)}
        if inner < cpu:
            fields["inner"] = {CPU: inner}
        self.write(make_reservation(f"r{self.count}", node="", cpu=cpu, **fields))

    @precondition(lambda self: self.pods)
    @rule(pick=picks)
    def delete_pod(self, pick: int) -> None:
        uid = self.choose(list(self.pods), pick)
        del self.pods[uid]
        self.cluster.state.remove_pod(uid)

    @precondition(lambda self: self.pods)
    @rule(pick=picks)
    def finish_pod(self, pick: int) -> None:
        uid = self.choose(list(self.pods), pick)
        if self.pods[uid].node:
            self.pods[uid] = replace(self.pods[uid], phase=PodPhase.SUCCEEDED)
            self.cluster.pods(self.pods[uid])

    @precondition(lambda self: self.reservations)
    @rule(pick=picks)
    def delete_reservation(self, pick: int) -> None:
        reservation = self.reservations.pop(self.choose(list(self.reservations), pick))
        remove_reservation(self.cluster.state, reservation)

    @precondition(lambda self: self.reservations)
    @rule(pick=picks)
    def cordon(self, pick: int) -> None:
        reservation = self.reservations[self.choose(list(self.reservations), pick)]
        self.write(replace(reservation, is_unschedulable=not reservation.is_unschedulable))

    # --- operators -------------------------------------------------------------------------------

    @rule()
    def plan(self) -> None:
        outcome = self.cluster.decide(self.cluster.take())
        for placement in outcome.placements:
            for assignment in placement.assignments:
                self.cluster.state.assume(
                    assignment.pod.uid, assignment.node, assignment.allocations
                )
                self.flights.append(assignment)

    @rule(app=apps, cpu=sizes, more=sizes)
    def fill(self, app: str, cpu: int, more: int) -> None:
        """A reservation and a pod arrive, and all that is planned is written."""
        self.create_reservation(app, cpu, 0, ALIGNED, is_once=more > 5)
        self.plan_and_write()
        self.create_pod(app, more)
        self.plan_and_write()

    @rule()
    def plan_and_write(self) -> None:
        self.plan()
        while self.flights:
            self.end_write(0, is_refused=False)

    @precondition(lambda self: self.flights)
    @rule(pick=picks, is_refused=st.booleans())
    def end_write(self, pick: int, *, is_refused: bool) -> None:
        """A write succeeds, unless the object is gone or somebody refuses it."""
        flight = self.flights.pop(pick % len(self.flights))
        uid = flight.pod.uid
        if flight.pod.handling is Handling.RESERVE:
            there = self.reservations.get(uid)
            is_open = there is not None and not there.status.is_over and not there.status.node
            if there is None or not is_open or is_refused or flight.node not in self.nodes:
                self.cluster.state.forget(uid)
                return
            amounts = {name: n for name, n in flight.pod.shape.requests if name != PODS}
            self.write(
                replace(there, status=set_available(ReservationState(), flight.node, amounts))
            )
            return
        if uid not in self.pods or is_refused or flight.node not in self.nodes:
            self.cluster.state.forget(uid)
            return
        bound = replace(self.pods[uid], node=flight.node, allocations=flight.allocations)
        self.pods[uid] = replace(bound, is_gated=False, phase=PodPhase.RUNNING)
        self.cluster.pods(self.pods[uid])

    @precondition(lambda self: self.reservations)
    @rule(pick=picks)
    def end_reservation(self, pick: int) -> None:
        """It was used up, or has expired."""
        reservation = self.reservations[self.choose(list(self.reservations), pick)]
        if reservation.status.is_over:
            return
        users = [pod for pod in self.pods.values() if self.use_of(pod, reservation)]
        ended = (
            succeed(reservation.status)
            if reservation.is_once and users
            else expire(reservation.status)
        )
        self.write(replace(reservation, status=ended))

    @rule()
    def crash(self) -> None:
        before = self.amounts()
        is_quiet = not self.flights
        self.start()
        assert not is_quiet or self.amounts() == before

    # --- nodes -----------------------------------------------------------------------------------

    @precondition(lambda self: self.nodes)
    @rule(pick=picks, is_back=st.booleans())
    def delete_node(self, pick: int, *, is_back: bool) -> None:
        """A node goes, with its pods and reservations; another one may get its name."""
        name = self.choose(list(self.nodes), pick)
        generation = self.nodes.pop(name)
        self.cluster.state.remove_node(name)
        for uid in [uid for uid, pod in self.pods.items() if pod.node == name]:
            del self.pods[uid]
            self.cluster.state.remove_pod(uid)
        for reservation in list(self.reservations.values()):
            if reservation.status.node == name and not reservation.status.is_over:
                assert reservation.uid in self.cluster.state.plugin(Reservations).homeless
                self.write(replace(reservation, status=expire(reservation.status)))
        if is_back:
            self.nodes[name] = generation + 1
            self.see_node(name)

    # --- what must hold --------------------------------------------------------------------------

    @staticmethod
    def use_of(pod: Pod, reservation: ReservationInfo) -> ReservationUse | None:
        use = find_use(pod.allocations)
        is_used = use is not None and use.uid == reservation.uid and not pod.phase.is_terminal
        return use if is_used else None

    def amounts(self) -> dict[str, int]:
        state = self.cluster.state
        state.refresh()
        return {name: state.used_on(name)[CPU] for name in self.nodes}

    @invariant()
    def no_node_is_overfull(self) -> None:
        for name, used in self.amounts().items():
            assert used <= SIZE, name

    @invariant()
    def nothing_drifts(self) -> None:
        self.cluster.state.refresh()
        assert find_drift(self.cluster.state) == []

    @invariant()
    def what_is_used_once_has_one_owner(self) -> None:
        """A pod, or all pods that start together."""
        for reservation in self.reservations.values():
            users = [pod.name for pod in self.pods.values() if self.use_of(pod, reservation)]
            assert (
                not reservation.is_once or len({name.partition("-")[0] for name in users}) <= 1
            ), users
            if reservation.is_once and len(users) > 1:
                continue
            if reservation.policy is RESTRICTED and reservation.status.is_active:
                used = sum(
                    dict(pod.shape.requests)[CPU]
                    for pod in self.pods.values()
                    if self.use_of(pod, reservation)
                )
                assert used <= reservation.status.allocatable[CPU] - reservation.inner.get(CPU, 0)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)
