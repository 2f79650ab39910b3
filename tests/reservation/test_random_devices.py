"""Random histories of reservations with devices: ledgers follow from the objects alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.builders import make_pod
from tests.cluster import make_unit
from tests.device.nodes import GPU_TOTAL, report
from tests.objects import remove_reservation, upsert_devices, upsert_reservation
from tests.reservation.make import ALIGNED, RESTRICTED, labelled, make_reservation
from tests.reservation.test_devices import HALF, GpuCluster
from tests.support.laws import examples

from koord.core.device.session import DeviceSession
from koord.core.device.status import find_drift as find_device_drift
from koord.core.model.device_names import (
    GPU,
    GPU_CORE,
    GPU_MEMORY_RATIO,
    NVIDIA_GPU,
    RDMA,
    RDMA_SHARE,
)
from koord.core.model.pods import Handling, PodPhase
from koord.core.reservation.lifecycle import expire
from koord.core.reservation.metrics import find_drift
from koord.core.reservation.model import AllocatePolicy
from koord.core.reservation.plugin import Reservations

if TYPE_CHECKING:
    from koord.core.device.model import DeviceReport
    from koord.core.model.pods import Pod
    from koord.core.reservation.model import ReservationInfo

NODES = 2
picks = st.integers(0, 1 << 16)
apps = st.sampled_from(["a", "b", "none"])
asks: st.SearchStrategy[dict[str, int]] = st.sampled_from(
    [
        {NVIDIA_GPU: 1},
        {NVIDIA_GPU: 2},
        {NVIDIA_GPU: 3},
        HALF,
        {GPU_CORE: 30, GPU_MEMORY_RATIO: 30},
        {GPU_CORE: 200, GPU_MEMORY_RATIO: 200},
        {NVIDIA_GPU: 1, RDMA_SHARE: 50},
        {RDMA_SHARE: 100},
    ]
)
policies = st.sampled_from([RESTRICTED, ALIGNED, AllocatePolicy.DEFAULT])
TOTAL = dict(GPU_TOTAL)
PERCENT = {GPU_CORE, RDMA_SHARE}


class DeviceHistories(RuleBasedStateMachine):
    """What the API server remembers, and operators that plan, crash and start anew."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.pods: dict[str, Pod] = {}
        self.reservations: dict[str, ReservationInfo] = {}
        self.cluster = GpuCluster(NODES)
        self.reports: dict[str, DeviceReport] = {}
        """Node -> what it reports since its devices were numbered anew."""

    def start(self) -> GpuCluster:
        made = GpuCluster(NODES)
        for restored in self.reports.values():
            upsert_devices(made.state, restored)
        for pod in self.pods.values():
            made.pods(pod)
        for restored in self.reservations.values():
            upsert_reservation(made.state, restored)
        return made

    @rule(app=apps, ask=asks, policy=policies, once=st.booleans())
    def reserve(self, app: str, ask: Any, policy: AllocatePolicy, *, once: bool) -> None:
        self.count += 1
        fields = {"policy": policy, "is_once": once, "owners": (labelled(app=app),)}
        waiting = make_reservation(f"r{self.count}", node="", reserved=ask, **fields)
        upsert_reservation(self.cluster.state, waiting)
        pod = self.cluster.state.pods[waiting.uid]
        placements = self.cluster.place(make_unit(waiting.name, [pod])).placements
        if not placements:
            remove_reservation(self.cluster.state, waiting)
            return
        written = self.cluster.write(waiting, placements[0].assignments[0])
        self.reservations[written.uid] = written

    @rule(app=apps, ask=asks, count=st.integers(1, 3))
    def run(self, app: str, ask: dict[str, int], count: int) -> None:
        """A gang arrives; it is bound as a whole or not at all."""
        self.count += 1
        built = []
        for at in range(count):
            pod = make_pod(f"p{self.count}-{at}").labels(app=app)
            for name, amount in ask.items():
                pod.resource(name, amount)
            built.append(pod.build())
        self.cluster.pods(*built)
        placements = self.cluster.place(make_unit(f"u{self.count}", built)).placements
        if not placements:
            for pod in built:
                self.cluster.state.remove_pod(pod.uid)
            return
        for assignment in placements[0].assignments:
            bound = replace(
                assignment.pod, node=assignment.node, allocations=assignment.allocations
            )
            self.pods[bound.uid] = replace(bound, handling=Handling.BIND, is_gated=False)
            self.cluster.pods(self.pods[bound.uid])

    @rule(pick=picks, gpus=st.permutations(range(8)), nics=st.permutations(range(1, 5)))
    def renumber(self, pick: int, gpus: list[int], nics: list[int]) -> None:
        """A node starts anew, and its driver counts otherwise."""
        first = report(f"n{1 + pick % NODES}")
        was = {(GPU, now): (GPU, then) for now, then in enumerate(gpus)}
        was |= {(RDMA, now): (RDMA, then) for now, then in enumerate(nics, 1)}
        names = {key: first.names[was[key]] for key in first.names}
        self.reports[first.node] = replace(first, names=names)
        upsert_devices(self.cluster.state, self.reports[first.node])

    @precondition(lambda self: self.pods)
    @rule(pick=picks)
    def strip_record(self, pick: int) -> None:
        """Somebody removes the record of a running pod, and puts it back."""
        uid = sorted(self.pods)[pick % len(self.pods)]
        before = self.cluster.ledgers()
        self.cluster.pods(replace(self.pods[uid], allocations=()))
        assert self.cluster.ledgers() == before
        self.nothing_drifts()
        self.cluster.pods(self.pods[uid])

    @precondition(lambda self: self.pods)
    @rule(pick=picks, is_done=st.booleans())
    def end_pod(self, pick: int, *, is_done: bool) -> None:
        uid = sorted(self.pods)[pick % len(self.pods)]
        if is_done:
            self.cluster.pods(replace(self.pods[uid], phase=PodPhase.SUCCEEDED))
        else:
            self.cluster.state.remove_pod(uid)
        del self.pods[uid]

    @precondition(lambda self: self.reservations)
    @rule(pick=picks, is_deleted=st.booleans())
    def end_reservation(self, pick: int, *, is_deleted: bool) -> None:
        uid = sorted(self.reservations)[pick % len(self.reservations)]
        reservation = self.reservations.pop(uid)
        if is_deleted:
            remove_reservation(self.cluster.state, reservation)
        else:
            upsert_reservation(
                self.cluster.state, replace(reservation, status=expire(reservation.status))
            )

    @rule()
    def crash(self) -> None:
        self.cluster = self.start()

    @precondition(lambda self: self.pods or self.reservations)
    @rule(data=st.data())
    def remove_and_restore(self, data: st.DataObject) -> None:
        cycle = self.cluster.open_cycle()
        session = cycle.session(DeviceSession)
        before = session._state_of.copy()
        uids = [*self.pods, *self.reservations]
        chosen = data.draw(st.lists(st.sampled_from(uids), unique=True))
        mark = cycle.checkpoint()
        removed = cycle.remove([self.cluster.state.pods[uid] for uid in chosen])
        assert cycle.restore(removed)
        assert (session._state_of == before).all()
        cycle.rollback(mark)
        assert (session._state_of == before).all()

    @invariant()
    def a_restart_changes_no_ledger(self) -> None:
        assert self.cluster.ledgers() == self.start().ledgers()

    @invariant()
    def nothing_drifts(self) -> None:
        state = self.cluster.state
        assert find_drift(state) == []
        assert find_device_drift(state, list(state.table.row_of)) == []

    @invariant()
    def no_device_is_given_twice(self) -> None:
        for used, foreign in self.cluster.ledgers():
            assert not foreign
            for (kind, minor), use in used.items():
                for name, amount in use.amounts:
                    assert amount <= (TOTAL[name] if kind == GPU else 100), (kind, minor)

    @invariant()
    def no_id_is_given_twice(self) -> None:
        sums: Counter[tuple[str, str]] = Counter()
        for pod in self.pods.values():
            for allocation in pod.allocations if pod.phase is not PodPhase.SUCCEEDED else ():
                for share, name in zip(
                    getattr(allocation, "shares", ()), getattr(allocation, "names", ()), strict=True
                ):
                    sums[pod.node, name.id] += max(n for key, n in share.part if key in PERCENT)
        assert all(n <= 100 for n in sums.values()), sums

    @invariant()
    def a_pod_uses_what_its_reservation_lets_it(self) -> None:
        plugin = self.cluster.state.plugin(Reservations)
        for uid, reservation in self.reservations.items():
            users = plugin.users_of(uid)
            gangs = {user.uid.rpartition("-")[0] for user in users}
            assert not reservation.is_once or len(gangs) <= 1
            is_used_up = reservation.is_once and len(users) > 1
            if reservation.policy is not RESTRICTED or reservation.pod is None or is_used_up:
                continue
            mine = held(reservation.pod.allocations)
            for user in users:
                theirs = held(user.allocations)
                assert {key for key in theirs if key[0] in {kind for kind, _ in mine}} <= set(mine)


def held(allocations: Any) -> dict[tuple[str, str], Any]:
    return {
        (share.kind, name.id): share.part
        for allocation in allocations
        for share, name in zip(
            getattr(allocation, "shares", ()), getattr(allocation, "names", ()), strict=True
        )
    }


TestDeviceHistories = DeviceHistories.TestCase
TestDeviceHistories.settings = settings(
    max_examples=examples(5), stateful_step_count=30, deadline=None
)
