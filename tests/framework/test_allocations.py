"""The bookkeeping of exact allocations: a toy that numbers seats, and its laws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.cluster import make_cluster, make_unit
from tests.support.laws import examples

from koord.core.engine.allocations import CycleChanges, NodeAllocations
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import UndoLog
from koord.core.engine.plugin import FilterReach, Plugin, Session, Unschedulable
from koord.core.model.pod_charge import charge_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from koord.core.engine.arrays import Ints, Rows
    from koord.core.engine.cycle import Cycle
    from koord.core.engine.plugin import Draft
    from koord.core.model.pod_charge import PodCharge
    from koord.core.model.pods import Allocation, AnnotationWrite, Pod, PodShape

SEATS = 3
NO_SEAT = Cause("NoSeat", 80, "node(s) had no free seat", "Free seats on {nodes}.")


@dataclass(frozen=True)
class Seat:
    number: int

    def writes(self) -> Iterable[AnnotationWrite]:
        return ()


def seat_of(allocations: Iterable[Allocation]) -> Seat | None:
    return next((one for one in allocations if isinstance(one, Seat)), None)


class Seats(Plugin):
    """Each node has SEATS; a pod with the label ``seat`` gets one of its own."""

    name = "seats"

    def __init__(self) -> None:
        self.allocations = NodeAllocations[Seat]()

    def remove_node(self, row: int, name: str) -> None:
        self.allocations.remove_row(row)

    def charge(self, row: int, charge: PodCharge, count: int) -> None:
        seat = self.allocations.find(charge, seat_of(charge.allocations))
        if seat is not None:
            self.allocations.charge(row, charge, count, seat)

    def absorb(self) -> None:
        self.allocations.forget_gone()

    def taken_on(self, row: int) -> dict[str, int]:
        given = self.allocations.given
        return {uid: given[uid].number for uid in self.allocations.on_row(row)}

    def open(self, cycle: Cycle) -> SeatsSession:
        return SeatsSession(self, cycle)


class SeatsSession(Session):
    name = "seats"
    reach = FilterReach.ROW

    def __init__(self, plugin: Seats, cycle: Cycle) -> None:
        self._plugin, self._cycle = plugin, cycle
        self._changed = CycleChanges[tuple[int, Seat] | None](cycle.undo)

    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        return pod.profile.labels.get("seat")

    def taken(self, row: int) -> set[int]:
        before = self._plugin.taken_on(row).items()
        kept = {number for uid, number in before if uid not in self._changed}
        now = (place for place in self._changed.values() if place is not None)
        return kept | {seat.number for at, seat in now if at == row}

    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        if self.concerns(shape):
            every = range(len(self._cycle.table.nodes))
            yield NO_SEAT, np.array([SEATS - len(self.taken(row)) for row in every])[rows]

    def reserve(self, draft: Draft) -> Allocation | Unschedulable:
        free = sorted(set(range(SEATS)) - self.taken(draft.row))
        if not free:
            return Unschedulable(NO_SEAT)
        seat = Seat(free[0])
        self._changed.change(draft.pod.uid, (draft.row, seat))
        return seat

    def release(self, pod: Pod, row: int) -> Sequence[Allocation]:
        place = self._changed.get(pod.uid)
        seat = place[1] if place is not None else self._plugin.allocations.given.get(pod.uid)
        if seat is None:
            return ()
        self._changed.change(pod.uid, None)
        return (seat,)

    def adopt(self, pod: Pod, row: int, allocations: Sequence[Allocation]) -> Unschedulable | None:
        seat = seat_of(allocations)
        if seat is None:
            return None
        if seat.number in self.taken(row):
            return Unschedulable(NO_SEAT)
        self._changed.change(pod.uid, (row, seat))
        return None


def sitting(name: str, number: int, node: str = "n0") -> Pod:
    pod = make_pod(name).labels(seat="yes").requests(cpu=100).running(node).build()
    return replace(pod, allocations=(Seat(number),))


def test_what_a_pod_was_given_first_counts_and_moves_with_its_node() -> None:
    plugin = Seats()
    cluster = make_cluster(2, more_plugins=[plugin]).pods(sitting("p", 1))
    row = cluster.row("n0")
    cluster.pods(replace(sitting("p", 2), priority=7))
    assert plugin.taken_on(row) == {"uid-default-p": 1}, "later annotations are not believed"
    cluster.state.remove_node("n0")
    assert plugin.taken_on(row) == {}
    assert plugin.allocations.given == {"uid-default-p": Seat(1)}
    cluster.delete_pods("p")
    cluster.state.refresh()
    assert plugin.allocations.given == {}


def test_what_if_needs_no_copy_and_restores_the_same_seat() -> None:
    plugin = Seats()
    cluster = make_cluster(1, more_plugins=[plugin])
    cluster.pods(sitting("a", 0), sitting("b", 2))
    cycle = cluster.open_cycle()
    session = cycle.session(SeatsSession)
    removed = cycle.remove([cluster.pod("b")])
    assert session.taken(0 if cluster.row("n0") == 0 else cluster.row("n0")) == {0}
    assert cycle.restore(removed)
    assert session.taken(cluster.row("n0")) == {0, 2}
    assert plugin.taken_on(cluster.row("n0")) == {"uid-default-a": 0, "uid-default-b": 2}
    unit = make_unit("u", [make_pod("c").labels(seat="yes").requests(cpu=100)])
    (placement,) = cluster.plan(unit).placements
    assert placement.assignments[0].allocations == (Seat(1),)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 2), st.integers(0, 9)), max_size=25))
def test_bookkeeping_equals_a_list_of_what_is_where(steps: list[tuple[int, int, int]]) -> None:
    """Pods are charged, moved, discharged and forgotten in any order."""
    book = NodeAllocations[Seat]()
    there: dict[int, tuple[int, PodCharge, Seat]] = {}
    first: dict[int, Seat] = {}
    for pod, row, number in steps:
        if pod in there:
            at, charge, seat = there.pop(pod)
            book.charge(at, charge, -1, seat)
        if number < 7:
            charged = charge_of(sitting(f"p{pod}", number))
            assert charged is not None
            seat = first.setdefault(pod, Seat(number))
            assert book.find(charged, seat_of(charged.allocations)) == seat
            book.charge(row, charged, 1, seat)
            there[pod] = (row, charged, seat)
        elif number == 9:
            book.forget_gone()
            first = {pod: seat for pod, seat in first.items() if pod in there}
        for at in range(3):
            names = {f"uid-default-p{pod}" for pod, (row, _, _) in there.items() if row == at}
            assert set(book.on_row(at)) == names
        assert book.given == {f"uid-default-p{pod}": seat for pod, seat in first.items()}


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=12), st.integers(0, 12)
)
def test_changes_of_a_cycle_are_undone_to_every_mark(steps: list[tuple[str, int]], at: int) -> None:
    undo = UndoLog()
    changes = CycleChanges[int](undo)
    for uid, value in steps[:at]:
        changes.change(uid, value)
    before, mark = dict(changes), undo.checkpoint()
    for uid, value in steps[at:]:
        changes.change(uid, value)
    undo.rollback(mark)
    assert changes == before
