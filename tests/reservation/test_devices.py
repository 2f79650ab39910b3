"""Devices inside reservations: held by minor, and given to owners before any others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from tests.builders import PodBuilder, make_node, make_pod
from tests.cluster import SCORING, FakeCluster, make_unit
from tests.device.nodes import a100x8, gpu, report, whole, wish
from tests.device.nodes import make_node as make_inventory
from tests.objects import remove_reservation, upsert_reservation
from tests.reservation.make import ALIGNED, RESTRICTED, make_reservation

from koord.answers.explain import explain_pod
from koord.core.device.allocation import AllocatedDevices
from koord.core.device.holds import DeviceHoldTerms
from koord.core.device.inventory import HOPPER_PARTITIONS
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import PartitionTable
from koord.core.device.plugin import PACKED, Devices
from koord.core.device.session import DeviceSession
from koord.core.device.states import DeviceChoice, DeviceDemand, LedgerStates
from koord.core.engine.cycle import Place
from koord.core.model.device_names import (
    GPU,
    GPU_CORE,
    GPU_MEMORY_RATIO,
    NVIDIA_GPU,
    RDMA,
    RDMA_SHARE,
)
from koord.core.model.pods import Handling
from koord.core.model.units import PODS
from koord.core.reservation.lifecycle import set_available, succeed
from koord.core.reservation.model import NAME, ReservationHints, ReservationState, ReservationUse

if TYPE_CHECKING:
    from koord.core.model.plan import Assignment
    from koord.core.model.pods import Pod
    from koord.core.reservation.model import ReservationInfo

ROOMY = {GPU_CORE: 800, GPU_MEMORY_RATIO: 800, RDMA_SHARE: 400}
HALF = {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}


class GpuCluster(FakeCluster):
    """Nodes with eight GPUs and four NICs, and what the API server would remember."""

    def __init__(self, nodes: int = 1) -> None:
        super().__init__()
        for at in range(1, nodes + 1):
            node = make_node(f"n{at}").gpu(8)
            for name, amount in ROOMY.items():
                node.resource(name, amount)
            self.nodes(node)
            self.state.plugin(Devices).upsert(report(f"n{at}"))

    def reserve(self, name: str = "r", reserved: Any = None, **fields: Any) -> ReservationInfo:
        """Place a reservation and write it, as the operators do."""
        reserved = reserved or {NVIDIA_GPU: 4}
        waiting = make_reservation(name, node="", reserved=reserved, **fields)
        upsert_reservation(self.state, waiting)
        assert waiting.pod is not None
        pod = self.state.pods[waiting.uid]
        (placement,) = self.place(make_unit(name, [pod])).placements
        return self.write(waiting, placement.assignments[0])

    def write(self, waiting: ReservationInfo, assignment: Assignment) -> ReservationInfo:
        assert waiting.pod is not None
        amounts = {name: n for name, n in assignment.pod.shape.requests if name != PODS}
        pod = replace(waiting.pod, allocations=assignment.allocations)
        status = set_available(ReservationState(), assignment.node, amounts)
        written = replace(waiting, status=status, pod=pod)
        upsert_reservation(self.state, written)
        return written

    def put(self, *builders: PodBuilder) -> dict[str, str]:
        """Place pods one after the other, and bind them; return "reservation: GPUs" of each."""
        text_of_pod = {}
        for builder in builders:
            pod = builder.build()
            self.pods(pod)
            plan = self.place(make_unit(pod.uid, [pod]))
            for placement in plan.placements:
                for assignment in placement.assignments:
                    text_of_pod[pod.name] = describe(assignment)
                    bound = replace(pod, node=assignment.node, allocations=assignment.allocations)
                    self.pods(replace(bound, handling=Handling.BIND, is_gated=False))
        return text_of_pod

    def held(self, name: str = "r") -> list[int]:
        """Return the GPUs of which a reservation holds something that nobody uses."""
        self.state.refresh()
        shares = self.state.plugin(Devices).shares_of.get(f"uid-{name}", ())
        return [share.minor for share in shares if share.kind == GPU]

    def ledgers(self) -> list[Any]:
        self.state.refresh()
        devices = self.state.plugin(Devices)
        names = sorted(self.state.table.row_of)
        ledgers = [devices.ledger_of(name) for name in names]
        return [(ledger.used, ledger.foreign) for ledger in ledgers if ledger is not None]


def describe(assignment: Assignment) -> str:
    uses = [use.name for use in assignment.allocations if isinstance(use, ReservationUse)]
    minors = [
        str(share.minor)
        for given in assignment.allocations
        if isinstance(given, AllocatedDevices)
        for share in given.shares
        if share.kind == GPU
    ]
    return f"{uses[0] if uses else '-'}: {' '.join(minors)}"


def owner(name: str, gpus: int = 1, /, **requests: int) -> PodBuilder:
    made = make_pod(name).labels(app="web")
    if gpus:
        made.gpu(gpus)
    for key, amount in requests.items():
        made.resource(key, amount)
    return made


def half_owner(name: str, percent: int = 50) -> PodBuilder:
    return owner(name, 0).resource(GPU_CORE, percent).resource(GPU_MEMORY_RATIO, percent)


def other(name: str, gpus: int = 1) -> PodBuilder:
    return make_pod(name).gpu(gpus)


def test_an_owner_gets_a_held_gpu_on_a_full_node_and_others_do_not() -> None:
    made = GpuCluster()
    made.reserve()
    assert made.held() == [0, 1, 2, 3]
    assert made.put(other("a", 4), other("b")) == {"a": "-: 4 5 6 7"}
    assert made.put(owner("w", 2), owner("x", 2), owner("y")) == {"w": "r: 0 1", "x": "r: 2 3"}
    assert made.held() == []
    made.delete_pods("w")
    assert made.held() == [0, 1]
    assert made.put(other("c")) == {}
    assert made.put(owner("z")) == {"z": "r: 0"}


def test_an_owner_of_more_than_is_held_gets_what_is_held_and_others_besides() -> None:
    made = GpuCluster()
    made.put(other("one"))
    made.reserve(reserved={NVIDIA_GPU: 2}, is_once=False)
    assert made.held() == [2, 3]
    assert made.put(owner("w", 4)) == {"w": "r: 1 2 3 4"}
    assert made.held() == []
    assert made.put(other("by", 3)) == {"by": "-: 5 6 7"}


@given(
    data=st.data(),
    held=st.sets(st.integers(0, 7), min_size=1),
    gpus=st.sampled_from(["a100x8", "no places", "table"]),
)
def test_held_devices_come_first(data: st.DataObject, held: set[int], gpus: str) -> None:
    """As many of them as are asked for, wherever they are: the others may be anywhere."""
    used = data.draw(st.sets(st.sampled_from([n for n in range(8) if n not in held] or [8])))
    inventory = a100x8()
    if gpus == "table":
        inventory = replace(inventory, table=PartitionTable(HOPPER_PARTITIONS))
    elif gpus == "no places":
        inventory = make_inventory(map(gpu, range(8)))
    ledger = DeviceLedger(inventory).with_shares(whole(n) for n in used | held)
    requested = data.draw(st.integers(1, 8 - len(used - {8})))
    state = LedgerStates(PACKED)
    terms = DeviceHoldTerms(tuple(whole(n) for n in sorted(held)))
    request = wish({NVIDIA_GPU: requested})
    move = state.choose(state.number(ledger), DeviceDemand(request), hold_terms=terms)
    assert isinstance(move, DeviceChoice)
    given = {share.minor for share in move.shares}
    assert len(given & held) == min(requested, len(held))
    assert not given & used


def test_a_refusal_names_the_reservation_that_holds_the_devices() -> None:
    made = GpuCluster()
    made.put(other("one"), other("two"))
    made.reserve(reserved={GPU_CORE: 200, GPU_MEMORY_RATIO: 200})
    made.pods(other("by", 5))
    reason = explain_pod(made.state, made.pod("by"), SCORING).reason
    text = reason.text()
    refused = "The node refuses: Insufficient GPU Devices (reservation r, default/one and 1 more)"
    assert refused in text
    (offer,) = explain_pod(made.state, made.pod("by"), SCORING).offers
    assert offer.nodes[0].detail.endswith("; reservation r holds gpu 2, 3")
    made.reserve("s", {NVIDIA_GPU: 4})
    made.pods(other("last"))
    reason = explain_pod(made.state, made.pod("last"), SCORING).reason
    assert "reservation s" in reason.text()


def test_owners_of_one_unit_share_what_is_held() -> None:
    made = GpuCluster()
    made.reserve()
    made.put(other("a", 3))
    pods = [owner(f"w{at}").build() for at in range(6)]
    assert not made.plan(make_unit("job", pods)).placements, "4 are held and 1 is free"
    (placement,) = made.plan(make_unit("job", pods[:5])).placements
    got = sorted(describe(assignment) for assignment in placement.assignments)
    assert got[:4] == ["r: 0", "r: 1", "r: 2", "r: 3"], "those first"
    assert len(set(got)) == 5


def test_restricted_gives_only_what_is_left_of_its_own() -> None:
    """The worked example: GPU 0 is held, 30 % of it used; 50 % fit, 80 % do not."""
    made = GpuCluster()
    made.reserve(reserved={GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, policy=RESTRICTED)
    assert made.held() == [0]
    must = ((NAME, ReservationHints(has_affinity=True)),)
    assert made.put(half_owner("a", 30).says(must)) == {"a": "r: 0"}
    assert made.put(half_owner("b", 80).says(must)) == {}
    assert made.put(half_owner("c", 50).says(must)) == {"c": "r: 0"}
    assert made.put(half_owner("d", 80)) == {"d": "-: 1"}, "it need not use the reservation"


def test_aligned_prefers_its_own_and_takes_others_where_they_do_not_suffice() -> None:
    made = GpuCluster()
    made.reserve(reserved={GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, policy=ALIGNED)
    assert made.put(half_owner("a", 30), half_owner("b", 80)) == {"a": "r: 0", "b": "r: 1"}
    assert made.held() == [0], "what is left of it stays held"


def test_restricted_options_leave_devices_free() -> None:
    made = GpuCluster()
    made.reserve(reserved={NVIDIA_GPU: 1, "cpu": 4000}, policy=RESTRICTED, options=("cpu",))
    assert made.put(owner("a", 2, cpu=1000)) == {"a": "r: 0 1"}


def test_parts_of_gpus_come_out_of_whole_ones_that_are_held() -> None:
    made = GpuCluster()
    made.reserve(reserved={NVIDIA_GPU: 2})
    made.put(other("a", 6))
    assert made.put(half_owner("b"), half_owner("c"), half_owner("d", 60)) == {
        "b": "r: 0",
        "c": "r: 0",
        "d": "r: 1",
    }
    assert made.put(half_owner("e", 60)) == {}
    assert made.put(half_owner("f", 40)) == {"f": "r: 1"}


def test_a_pod_uses_the_devices_of_the_reservation_that_it_is_recorded_in() -> None:
    made = GpuCluster()
    made.put(other("a", 3))
    made.reserve("r1", {NVIDIA_GPU: 1}, policy=RESTRICTED)
    made.reserve("r2", {NVIDIA_GPU: 2}, policy=RESTRICTED)
    assert (made.held("r1"), made.held("r2")) == ([3], [4, 5])
    names = [((NAME, ReservationHints(has_affinity=True, name=name)),) for name in ("r1", "r2")]
    assert made.put(owner("two", 2).says(names[0])) == {}, "r2 is free, but not asked for"
    assert made.put(owner("one").says(names[1]), owner("last").says(names[0])) == {
        "one": "r2: 4",
        "last": "r1: 3",
    }


def test_nics_are_held_with_gpus() -> None:
    made = GpuCluster()
    made.reserve(reserved={NVIDIA_GPU: 2, RDMA_SHARE: 100})
    made.put(other("a", 6))
    assert made.put(make_pod("nics").resource(RDMA_SHARE, 400)) == {}
    pod = owner("b", 2).resource(RDMA_SHARE, 100)
    assert made.put(pod) == {"b": "r: 0 1"}
    kinds = {share.kind for share in made.state.plugin(Devices).shares_of["uid-default-b"]}
    assert kinds == {GPU, RDMA}


def test_what_is_used_once_gives_the_rest_back() -> None:
    made = GpuCluster()
    written = made.reserve(is_once=True)
    assert made.put(owner("w", 1), owner("x", 4)) == {"w": "r: 0", "x": "-: 4 5 6 7"}
    upsert_reservation(made.state, replace(written, status=succeed(written.status)))
    assert made.put(other("y", 3)) == {"y": "-: 1 2 3"}


def test_without_its_record_nobody_knows_which_gpus_it_holds() -> None:
    made = GpuCluster()
    reservation = make_reservation(reserved={NVIDIA_GPU: 4})
    upsert_reservation(made.state, reservation)
    assert made.put(other("a", 5)) == {}
    assert made.put(other("b", 4)) == {"b": "-: 0 1 2 3"}


def test_a_later_record_is_not_believed() -> None:
    made = GpuCluster()
    written = made.reserve()
    assert written.pod is not None
    forged = replace(written, pod=replace(written.pod, allocations=()), order=5)
    upsert_reservation(made.state, forged)
    assert made.held() == [0, 1, 2, 3]


def test_it_is_taken_off_and_put_back_with_its_users() -> None:
    made = GpuCluster()
    made.reserve()
    made.put(owner("w", 2), half_owner("h"), other("o", 4))
    cycle = made.open_cycle()
    session = cycle.session(DeviceSession)
    before = session._state_of.copy()
    held = made.state.pods["uid-r"]
    for users in (["w"], ["h"], ["w", "h"], [], ["o"]):
        pods: list[Pod] = [made.pod(name) for name in users]
        for chosen in (pods, [*pods, held], [held, *pods]):
            mark = cycle.checkpoint()
            assert cycle.restore(cycle.remove(chosen))
            assert (session._state_of == before).all(), users
            cycle.rollback(mark)
    removed = cycle.remove([made.pod("w")])
    two = owner("n", 2).build()
    assert isinstance(cycle.reserve(two, cycle.shape_of(two), 0), Place)
    assert not cycle.restore(removed), "one of its GPUs is in use again"


def test_deleted_reservations_leave_nothing_behind() -> None:
    made = GpuCluster()
    before = made.ledgers()
    written = made.reserve()
    made.put(owner("w", 2))
    remove_reservation(made.state, written)
    assert made.put(other("a", 6)) == {"a": "-: 2 3 4 5 6 7"}
    made.delete_pods("a", "w")
    assert made.ledgers() == before
