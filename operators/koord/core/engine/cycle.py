"""One planning cycle: a transaction on a copy of everything that planning changes.

A cycle copies used amounts and opens one session per domain. All changes are on one undo log, where
every change pushes its inverse, so that :meth:`Cycle.rollback` is complete. The log does not know
what it undoes. A cycle does not choose nodes and knows no domain.

Opening a cycle only reads: it computes nothing that outlives it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.node_table import NodeTable, RequestVector
from koord.core.engine.plugin import Draft, Hold, Holding, Plugin, Session, Unschedulable
from koord.core.engine.view import CycleView
from koord.core.model.plan import Unit
from koord.core.model.pods import Allocation, Pod, PodShape

Mark: TypeAlias = int
"""A point to roll back to: the number of logged changes."""


class UndoLog:
    """Inverses of changes, the newest last."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def push(self, undo: Callable[..., object], *arguments: object) -> None:
        """Log the inverse of a change; it must not log anything itself."""
        self._entries.append((undo, arguments))

    def checkpoint(self) -> Mark:
        return len(self._entries)

    def rollback(self, mark: Mark) -> None:
        """Undo every change since ``mark``, the newest first."""
        entries = self._entries
        while len(entries) > mark:
            # Off the log before it is called: one that fails must not be called again.
            undo, arguments = entries.pop()
            undo(*arguments)

    def clear(self) -> None:
        """Forget the inverses of all changes, which stay."""
        self._entries.clear()


RESERVE_STEPS: Final = 20
"""Array operations that take as long as one trial to reserve."""
_MANY: Final = 8
"""From this many rows on, arithmetic on arrays is faster than row by row."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod is charged, and what it was given there."""

    row: int
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True, slots=True)
class Removed:
    """Pods that were removed from their nodes, to be restored exactly as they were.

    ``used`` are the used amounts of their rows before, by row.
    """

    pods: tuple[tuple[Pod, PodShape, Place], ...]
    used: Mapping[int, Ints]


class Cycle(CycleView):
    """Used amounts and sessions, with one undo log.

    ``version`` grows with every change, rollbacks included: equal versions mean equal results,
    except within :meth:`only`.
    """

    def __init__(  # noqa: PLR0913 - of one transaction
        self,
        table: NodeTable,
        plugins: Iterable[Plugin] = (),
        *,
        now: float = 0.0,
        find_place: Callable[[str], Place | None] = lambda _: None,
        pending: Callable[[], Iterable[Unit]] = tuple,
        is_deciding: bool = False,
    ) -> None:
        super().__init__(table, pending, now)
        self.is_deciding = is_deciding
        """Whether its plans are carried out."""
        self.before_unit: Callable[[Unit], None] | None = None
        """Called before a unit is planned, by whoever wants to see the nodes as it finds them."""
        self.undo = UndoLog()
        self._find_place = find_place
        self._places: dict[str, Place | None] = {}
        """uid -> where this cycle has placed a pod; None: it was removed."""
        self._batches: list[tuple[Sequence[Pod], Sequence[str]]] = []
        """Pods that were placed by count, with their nodes."""
        self._node_of: dict[str, str] = {}
        self._numbered = 0
        """Of so many batches ``_node_of`` has the nodes: it is filled when one is asked for."""
        self._changed: list[int] = []
        opened = (plugin.open(self) for plugin in plugins)
        self._join([session for session in opened if session is not None])

    # --- the transaction -------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return len(self._changed)

    def checkpoint(self) -> Mark:
        return self.undo.checkpoint()

    def rollback(self, mark: Mark) -> None:
        """Undo all changes since ``mark``, in all sessions."""
        self.undo.rollback(mark)

    def close(self) -> None:
        """Release all parts; nothing can be asked or changed any more.

        They refer to each other, and so would stay in memory until garbage is collected.
        """
        self.undo.clear()
        vars(self).clear()

    def touched(self, since: int) -> Ints:
        """Return the rows that changed after a version, including those that were rolled back."""
        return np.unique(np.array(self._changed[since:], dtype=np.int64))

    @contextmanager
    def only(self, rows: Mapping[PodShape, Mask]) -> Iterator[None]:
        """Restrict shapes to some rows for the duration of a ``with`` block."""
        before, self._restricted = self._restricted, rows
        try:
            yield
        finally:
            self._restricted = before

    @contextmanager
    def without_admission(self) -> Iterator[None]:
        """Admit every unit for a ``with`` block: pods that replace others are charged later."""
        before, self.pre_filtering = self.pre_filtering, []
        try:
            yield
        finally:
            self.pre_filtering = before

    def settle(self, unit: Unit, placed: Sequence[Pod]) -> None:
        """Undo the charges for pods of an admitted unit that were not placed."""
        for session in self.pre_filtering:
            session.settle(unit, placed)

    def hold(self, pod: Pod, count: int) -> bool:
        """Charge held room, apart from the amounts on its node; see :meth:`Session.hold`."""
        mark = self.checkpoint()
        if all(session.hold(pod, count) for session in self._charging_holds):
            return True
        self.rollback(mark)
        return False

    # --- placing ---------------------------------------------------------------------------------

    def place(self, shape: PodShape, row: int, count: int = 1) -> None:
        """Place ``count`` pods of a shape on a row, which must have :meth:`room` for them.

        Steps are counted first, with those of a rollback: so the unit is within its budget then.
        """
        self._place(shape, self.vector(shape), self._sessions_of(shape), {row: count})

    def _place(
        self,
        shape: PodShape,
        vector: RequestVector,
        sessions: Sequence[Session],
        counts: Mapping[int, int],
    ) -> None:
        for row, count in counts.items():
            for session in sessions:
                session.spend_apply(shape)
            self.undo.push(self._apply, shape, vector, sessions, row, -count)
            self._apply(shape, vector, sessions, row, count)

    def place_each(self, shape: PodShape, counts: Mapping[int, int]) -> None:
        """Place pods of a shape on many rows; ``counts`` is row -> number of pods."""
        vector, sessions = self.vector(shape), self._sessions_of(shape)
        if len(counts) < _MANY or sessions:
            self._place(shape, vector, sessions, counts)
            return
        rows = np.fromiter(counts.keys(), np.int64, len(counts))
        times = np.fromiter(counts.values(), np.int64, len(counts))
        self._charge_each(shape, rows, times)

    def fill_amounts(self, shape: PodShape, counts: Ints) -> None:
        """Charge the amounts of ``counts`` pods to each row without informing sessions."""
        rows = np.flatnonzero(counts)
        self._charge_each(shape, rows, counts[rows])

    def charge(self, row: int, column: int, amount: int) -> None:
        """Charge an amount of one resource to a row, for a session (negative: release)."""
        self.undo.push(self._charge, row, column, -amount)
        self._charge(row, column, amount)

    def note_places(self, pods: Sequence[Pod], nodes: Sequence[str]) -> None:
        """Record the nodes of pods that were placed by count, in case one is removed."""
        self._batches.append((pods, nodes))
        self.undo.push(self._forget_batch)

    def _forget_batch(self) -> None:
        pods, _ = self._batches.pop()
        if self._numbered > len(self._batches):
            self._numbered -= 1
            for pod in pods:
                self._node_of.pop(pod.uid, None)

    def note_place(self, pod: Pod, place: Place | None) -> None:
        """Record where a pod is charged, for :meth:`remove`; None: nowhere."""
        before = {pod.uid: self._places[pod.uid]} if pod.uid in self._places else {}
        self.undo.push(self._restore_places, (pod.uid,), before)
        self._places[pod.uid] = place

    def reserve(self, pod: Pod, shape: PodShape, row: int) -> Place | Unschedulable:
        """Place one pod on one row, with the first combination of held room that succeeds."""
        self.steps.spend(0, RESERVE_STEPS)
        failure = Unschedulable()
        for holds in self._options(shape, row):
            mark = self.checkpoint()
            draft = Draft(pod, shape, row, holds)
            if holds:
                with self.lifting({row: holds}):
                    failed = self._try(draft)
            else:
                failed = self._try(draft)
            if failed is None:
                place = Place(row, allocations=tuple(draft.allocations))
                self.note_place(pod, place)
                return place
            self.rollback(mark)
            failure = failed
            if not failed.is_optional:
                break
        return failure

    def fit(self, shape: PodShape, like: Pod, rows: Ints, most: int) -> Ints:
        """Return exactly how many pods such as ``like`` fit on each row, up to ``most``.

        Counted by trial, once per group of rows with equal signatures.
        """
        bounds = np.minimum(self.bounds(shape, rows), most)
        if not self.needs_reserve(shape):
            return bounds
        numbers = [self._signature_of(session, shape, rows) for session in self._reserving]
        counts: dict[tuple[int, ...], int] = {}
        for at, row in enumerate(rows.tolist()):
            key = (int(bounds[at]), *(int(number[at]) for number in numbers))
            if key not in counts:
                counts[key] = self._count_fitting(shape, like, row, int(bounds[at]))
            bounds[at] = counts[key]
        return bounds

    def bounds(self, shape: PodShape, rows: Ints) -> Ints:
        """Return :meth:`room`, including room that is held for such pods."""
        bounds = self.room(shape, rows)
        for session in self._holding:
            combinations = self._open_holds(session, shape, rows)
            for at in (
                np.flatnonzero(np.isin(rows, list(combinations))).tolist() if combinations else ()
            ):
                options = combinations[int(rows[at])]
                held = max((sum(holder.most for holder in option) for option in options), default=0)
                bounds[at] = max(bounds[at], held)
        return bounds

    def _count_fitting(self, shape: PodShape, like: Pod, row: int, most: int) -> int:
        mark, count = self.checkpoint(), 0
        while count < most and isinstance(self.reserve(like, shape, row), Place):
            count += 1
        self.rollback(mark)
        return count

    def _signature_of(self, session: Session, shape: PodShape, rows: Ints) -> Ints:
        if not session.concerns(shape):
            return np.zeros_like(rows)
        numbers = session.signature(shape, rows)
        return rows if numbers is None else numbers

    def _options(self, shape: PodShape, row: int) -> Iterator[tuple[Hold, ...]]:
        """Yield the combinations of held room to try on a row; free room alone comes last."""
        rows = np.array([row])
        for session in self._holding:
            yield from self._open_holds(session, shape, rows).get(row, ())
        yield ()

    def _open_holds(
        self, session: Holding, shape: PodShape, rows: Ints
    ) -> Mapping[int, Sequence[tuple[Hold, ...]]]:
        """Return the combinations of held room that pods may use at the time of the cycle."""
        if not session.concerns(shape):
            return {}
        combinations = session.holds(shape, rows)
        if not session.has_windows:
            return combinations
        return {
            row: [option for option in options if all(hold.is_open(self.now) for hold in option)]
            for row, options in combinations.items()
        }

    def _try(self, draft: Draft) -> Unschedulable | None:
        """Place and reserve; amounts are checked at the end, after held room was released."""
        shape, row = draft.shape, draft.row
        self.place(shape, row)
        for aligning in self._aligning:
            if aligning.concerns(shape):
                zones = aligning.align(draft)
                if isinstance(zones, Unschedulable):
                    return zones
                draft.zones = zones
        for session in self._reserving:
            if not session.concerns(shape):
                continue
            outcome = session.reserve(draft)
            if isinstance(outcome, Unschedulable):
                return outcome
            if outcome is not None:
                draft.allocations.append(outcome)
        # Last: until ``reserve`` has released what is held for the pod, it is charged twice.
        columns = self.vector(shape).columns
        fits = (self.used[columns, row] <= self.table.allocatable[columns, row]).all()
        return None if fits else Unschedulable(is_optional=bool(draft.holds))

    def _apply(
        self,
        shape: PodShape,
        vector: RequestVector,
        sessions: Sequence[Session],
        row: int,
        count: int,
    ) -> None:
        """Charge pods."""
        self._changed.append(row)
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            self.used[column, row] += amount * count
        for session in sessions:
            session.apply(shape, row, count)

    def _charge_each(self, shape: PodShape, rows: Ints, times: Ints) -> None:
        self.undo.push(self._add, shape, rows, -times)
        self._add(shape, rows, times)

    def _add(self, shape: PodShape, rows: Ints, times: Ints) -> None:
        self._changed += rows.tolist()
        vector = self.vector(shape)
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            self.used[column, rows] += amount * times

    def _charge(self, row: int, column: int, amount: int) -> None:
        self._changed.append(row)
        self.used[column, row] += amount

    def _restore_places(self, uids: Iterable[str], before: Mapping[str, "Place | None"]) -> None:
        for uid in uids:
            del self._places[uid]
        self._places |= before

    # --- removing --------------------------------------------------------------------------------

    def place_of(self, pod: Pod) -> Place | None:
        """Return where a pod is charged, by this cycle or before it."""
        if pod.uid in self._places:
            return self._places[pod.uid]
        for pods, nodes in self._batches[self._numbered :]:
            self._node_of.update(zip((placed.uid for placed in pods), nodes, strict=True))
        self._numbered = len(self._batches)
        node = self._node_of.get(pod.uid)
        return self._find_place(pod.uid) if node is None else Place(self.table.row_of[node])

    def is_charged(self, uid: str) -> bool:
        """Whether a pod from before the cycle is charged to a node, and was not removed."""
        if uid in self._places:
            return self._places[uid] is not None
        return self._find_place(uid) is not None

    def remove(self, pods: Iterable[Pod]) -> Removed:
        """Remove pods from their nodes, in every session; pods without a node are skipped."""
        removed: list[tuple[Pod, PodShape, Place]] = []
        used: dict[int, Ints] = {}
        for pod in pods:
            place = self.place_of(pod)
            if place is None:
                continue
            used.setdefault(place.row, self.used[:, place.row].copy())
            shape = self.shape_of(pod)
            allocations = tuple(
                allocation
                for session in self._releasing
                for allocation in session.release(pod, place.row)
            )
            self.place(shape, place.row, -1)
            self.note_place(pod, None)
            place = Place(place.row, allocations)
            removed.append((pod, shape, place))
        return Removed(tuple(removed), used)

    def restore(self, removed: Removed) -> bool:
        """Restore pods exactly; False, without any change, if their room is used now."""
        mark = self.checkpoint()
        for pod, shape, place in reversed(removed.pods):
            self.place(shape, place.row, 1)
            self.note_place(pod, place)
            shorts = (
                session.adopt(pod, place.row, place.allocations) for session in self._releasing
            )
            if any(short is not None for short in shorts):
                self.rollback(mark)
                return False
        for row, used in removed.used.items():
            # A row that exceeded its capacity before may exceed it again by the same amount.
            limit = np.maximum(self.table.allocatable[:, row], used)
            if (self.used[:, row] > limit).any():
                self.rollback(mark)
                return False
        return True
