"""One planning cycle: a transaction on a copy of everything that planning changes.

A cycle copies used amounts, opens one session per domain, and answers how many pods of a shape each
node takes. Whatever changes is on one undo log, so that :meth:`Cycle.rollback` forgets nothing. It
does not choose nodes, and knows no domain.

Opening a cycle only reads: nothing that outlives it is computed, and nobody is called back.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeVar

import numpy as np

from koord.core.framework.arrays import ALL, NO_LIMIT, Ints, Mask, Rows
from koord.core.framework.cause import RESOURCE, Cause
from koord.core.framework.node_table import NodeTable, RequestVector
from koord.core.framework.plugin import Draft, Holder, Plugin, Reach, Score, Session, Short
from koord.core.framework.undo_log import Mark, UndoLog
from koord.core.plan import Allocation, Unit
from koord.core.pods import Pod, PodShape
from koord.core.reasons import Reason

_MANY: Final = 8
"""From this many rows on, arithmetic on arrays is faster than row by row."""

S = TypeVar("S", bound=Session)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod is counted. Pods that others cannot ``see`` yet only take amounts and ports."""

    row: int
    is_seen: bool = True
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True, slots=True)
class Removed:
    """Pods that were taken off their nodes, to be put back exactly as they were.

    ``used`` holds what their rows had in use before, by row.
    """

    pods: tuple[tuple[Pod, PodShape, Place], ...]
    used: Mapping[int, Ints]


class Cycle:
    """Used amounts and sessions, with one undo log.

    ``version`` grows with every change, rollbacks included: equal versions mean equal answers,
    except within :meth:`only`. ``pending`` returns all complete units that wait, in order.
    """

    def __init__(
        self,
        table: NodeTable,
        plugins: Iterable[Plugin] = (),
        *,
        find_place: Callable[[str], Place | None] = lambda _: None,
        pending: Callable[[], Iterable[Unit]] = tuple,
    ) -> None:
        self.table = table
        self.used: Ints = table.used.copy()
        self.pending = pending
        self.undo = UndoLog()
        self._find_place = find_place
        self._places: dict[str, Place | None] = {}
        """uid -> where this cycle has put a pod; None: taken off its node."""
        self._batches: list[tuple[Sequence[Pod], Sequence[str]]] = []
        """Pods that were placed by count, with their nodes."""
        self._restricted: Mapping[PodShape, Mask] = {}
        self._changed: list[int] = []
        self._resolved: dict[tuple[PodShape, tuple[object, ...]], PodShape] = {}
        self._accounting: dict[PodShape, tuple[Session, ...]] = {}
        opened = (plugin.open(self) for plugin in plugins)
        self.sessions = _in_order([one for one in opened if one is not None])
        extends = _extensions(tuple(map(type, self.sessions)))

        def pick(method: str) -> list[Session]:
            return [self.sessions[at] for at in extends[method]]

        self.pre_filtering = pick("pre_filter")
        self.retrying = pick("retry_within")
        self._expecting = pick("expect")
        self._narrowing = pick("narrow")
        self._asking = pick("ask")
        self._filtering = pick("filter")
        self._local = [one for one in self._filtering if one.reach is not Reach.CLUSTER]
        self._global = [one for one in self._filtering if one.reach is Reach.CLUSTER]
        self._following = pick("may_fit_later")
        self._reacting = pick("is_reactive")
        self._blocking = pick("obstacles")
        self._scoring = pick("score")
        self._applying = pick("apply")
        self._reserving = pick("reserve")
        self._holding = pick("holders")
        self._releasing = pick("release")

    # --- the transaction -------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return len(self._changed)

    @property
    def is_restricted(self) -> bool:
        """Whether :meth:`only` is in effect."""
        return bool(self._restricted)

    def find_session(self, kind: type[S]) -> S | None:
        """Return the session of one domain; None where it is not in use."""
        return next((one for one in self.sessions if isinstance(one, kind)), None)

    def session(self, kind: type[S]) -> S:
        """Return the session of a domain that is always in use."""
        found = self.find_session(kind)
        if found is None:
            raise LookupError(f"this cycle was opened without {kind.name}")
        return found

    def checkpoint(self) -> Mark:
        return self.undo.checkpoint()

    def rollback(self, mark: Mark) -> None:
        """Undo everything since ``mark``, in whatever session it happened."""
        self.undo.rollback(mark)

    def touched(self, since: int) -> Ints:
        """Return the rows that changed after a version, also those that were changed back."""
        return np.unique(np.array(self._changed[since:], dtype=np.int64))

    @contextmanager
    def only(self, rows: Mapping[PodShape, Mask]) -> Iterator[None]:
        """Restrict shapes to some rows for the duration of a ``with`` block."""
        before, self._restricted = self._restricted, rows
        try:
            yield
        finally:
            self._restricted = before

    # --- shapes ----------------------------------------------------------------------------------

    def expect(self, pods: Iterable[Pod]) -> None:
        """Announce pods to the sessions before any of them is placed."""
        if self._expecting:
            pods = list(pods)
        for session in self._expecting:
            session.expect(pods)

    def shape_of(self, pod: Pod) -> PodShape:
        """Return the shape of a pod with what domains ask of it; equal ones are identical."""
        shape = pod.shape
        for session in self._narrowing:
            shape = session.narrow(pod, shape)
        asks = tuple(
            (session.name, ask)
            for session in self._asking
            if (ask := session.ask(pod, shape)) is not None
        )
        return self._resolve(shape, asks) if asks else shape

    def shapes_of(self, pods: Sequence[Pod]) -> list[PodShape]:
        """Return :meth:`shape_of` of each pod; the sessions expect them already."""
        if self._narrowing:
            return [self.shape_of(pod) for pod in pods]
        asked = []
        for session in self._asking:
            asks = session.ask_all(pods)
            if asks is not None:
                asked.append((session.name, asks))
        if not asked:
            return [pod.shape for pod in pods]
        found = []
        for at, pod in enumerate(pods):
            own = tuple((name, asks[at]) for name, asks in asked if asks[at] is not None)
            found.append(self._resolve(pod.shape, own) if own else pod.shape)
        return found

    def vector(self, shape: PodShape) -> RequestVector:
        """Return the request vector of a shape, with a column here for each of its resources."""
        vector = self.table.vector(shape)
        missing = len(self.table.allocatable) - len(self.used)
        if missing:  # the shape asked for a resource that was never seen before
            more = np.zeros((missing, self.used.shape[1]), dtype=np.int64)
            self.used = np.vstack([self.used, more])
        return vector

    def _resolve(self, shape: PodShape, asks: tuple[tuple[str, object], ...]) -> PodShape:
        key = (shape, asks)
        resolved = self._resolved.get(key)
        if resolved is None:
            resolved = self._resolved[key] = shape.asking(asks)
        return resolved

    # --- room ------------------------------------------------------------------------------------

    def room(self, shape: PodShape, rows: Rows = ALL) -> Ints:
        """Return, per row, how many more pods of the shape may go there (and nowhere else)."""
        room = self.capacity(shape, rows)
        for _, limits in self.limits(shape, rows):
            np.minimum(room, limits, out=room)
        return room

    def possible_room(self, shape: PodShape) -> Ints:
        """Return :meth:`room` as it may become once other pods of the unit are placed."""
        room = self.capacity(shape)
        for cause, limits in self.limits(shape):
            if not cause.is_transient:
                np.minimum(room, limits, out=room)
        return room

    def capacity(self, shape: PodShape, rows: Rows = ALL) -> Ints:
        """Return :meth:`room` as far as pods on other rows do not matter."""
        copies = self._copies(self.vector(shape), self.used, rows)
        for session in self._local:
            for _, limits in session.filter(shape, rows):
                np.minimum(copies, limits, out=copies)
        allowed = self._restricted.get(shape) if self._restricted else None
        if allowed is not None:
            copies[~allowed[rows]] = 0
        return copies

    def limits(self, shape: PodShape, rows: Rows = ALL) -> Iterator[tuple[Cause, Ints]]:
        """Yield (cause, how many more pods per row) for each rule about pods on other rows."""
        for session in self._global:
            yield from session.filter(shape, rows)

    def room_when_empty(self, shape: PodShape) -> Ints | None:
        """Return, per row, how many pods fit on the node with nothing else on it.

        None if that depends on other pods.
        """
        copies = self._copies(self.vector(shape), None, ALL)
        for session in self.sessions:
            most = session.most_when_empty(shape)
            if most is None:
                return None
            if most is not NO_LIMIT:
                np.minimum(copies, most, out=copies)
        return copies

    def has_room(self, shape: PodShape, row: int) -> bool:
        """Whether one more pod of the shape fits on a row."""
        return bool(self.room(shape, np.array([row]))[0])

    def can_keep(self, shape: PodShape, node: str) -> bool:
        """Whether a node can keep a pod of the shape that already counts as used on it."""
        row = self.table.row_of.get(node)
        if row is None or any(
            not limits[0]
            for session in self._local
            if session.reach is Reach.NOTHING
            for _, limits in session.filter(shape, np.array([row]))
        ):
            return False
        columns = self.vector(shape).columns
        return bool((self.used[columns, row] <= self.table.allocatable[columns, row]).all())

    def checks(self, shape: PodShape) -> list[tuple[Cause, str, Mask]]:
        """Return every check in the order of kube-scheduler: (cause, resource, rows that pass).

        There is one resource check per resource, and a node may fail several of them.
        """
        vector = self.vector(shape)
        checks = [
            (cause, "", limits > 0)
            for session in self._filtering
            for cause, limits in session.filter(shape, ALL)
        ]
        checks += [
            (RESOURCE, name, self.table.allocatable[column] - self.used[column] >= amount)
            for name, column, amount in vector.items()
        ]
        return sorted(checks, key=lambda check: check[0].rank)

    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:
        """Return the obstacle behind a cause that is counted by detail."""
        found = (one.detail(cause, shape, row) for one in self._filtering)
        return next((one for one in found if one), "")

    def obstacles(self, pods: Sequence[Pod]) -> dict[str, Reason]:
        """Return, by uid, what keeps pods from being placed on any node."""
        found: dict[str, Reason] = {}
        for session in self._blocking:
            own = session.obstacles(pods)
            if own:
                found = {**own, **found}
        return found

    def settle(self, unit: Unit, placed: Sequence[Pod]) -> None:
        """Take back charges for pods of an admitted unit that were not placed."""
        for session in self.pre_filtering:
            session.settle(unit, placed)

    def scores(self, shape: PodShape, rows: Ints) -> Iterator[Score]:
        """Yield what sessions score on feasible rows."""
        for session in self._scoring:
            yield from session.score(shape, rows)

    def depends_on_others(self, shape: PodShape) -> bool:
        """Whether a pod without room may find some after other pods of its unit are placed."""
        return any(session.may_fit_later(shape) for session in self._following)

    def is_reactive(self, shape: PodShape) -> bool:
        """Whether a pod of the shape, once placed, changes where the next of them may go."""
        return any(session.is_reactive(shape) for session in self._reacting)

    def is_plain(self, shape: PodShape) -> bool:
        """Whether placing such a pod changes used amounts only, and no session has to know."""
        return not self._sessions_of(shape)

    def _copies(self, vector: RequestVector, used: Ints | None, rows: Rows) -> Ints:
        copies: Ints | None = None
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            free = self.table.allocatable[column][rows]
            if used is not None:
                free = free - used[column][rows]
            fits = free // amount
            copies = fits if copies is None else np.minimum(copies, fits, out=copies)
        if copies is None:
            raise ValueError("a shape asks for at least one pod slot")
        return np.maximum(copies, 0, out=copies)

    # --- placing ---------------------------------------------------------------------------------

    def place(self, shape: PodShape, row: int, count: int = 1) -> None:
        """Put ``count`` pods of a shape on a row. The caller has asked :meth:`room` before."""
        self.undo.push(self._apply, shape, row, -count)
        self._apply(shape, row, count)

    def place_each(self, shape: PodShape, counts: Mapping[int, int]) -> None:
        """Put pods of a shape on many rows, row -> how many."""
        if len(counts) < _MANY or not self.is_plain(shape):
            for row, count in counts.items():
                self.place(shape, row, count)
            return
        rows = np.fromiter(counts.keys(), np.int64, len(counts))
        times = np.fromiter(counts.values(), np.int64, len(counts))
        self.undo.push(self._add, shape, rows, -times)
        self._add(shape, rows, times)

    def fill_amounts(self, shape: PodShape, counts: Ints) -> None:
        """Charge the amounts of ``counts`` pods to each row, as if no session had to know."""
        rows = np.flatnonzero(counts)
        self.undo.push(self._add, shape, rows, -counts[rows])
        self._add(shape, rows, counts[rows])

    def charge(self, row: int, column: int, amount: int) -> None:
        """Count an amount of one resource on a row as used: what a session holds or gives back."""
        self.undo.push(self._charge, row, column, -amount)
        self._charge(row, column, amount)

    def note_places(self, pods: Sequence[Pod], nodes: Sequence[str]) -> None:
        """Note where pods that were placed by count are; looked up only if one is removed."""
        self._batches.append((pods, nodes))
        self.undo.push(self._batches.pop)

    def note_place(self, pod: Pod, place: Place | None) -> None:
        """Note where a pod is counted from now on, for :meth:`remove`; None: nowhere."""
        before = {pod.uid: self._places[pod.uid]} if pod.uid in self._places else {}
        self.undo.push(self._restore_places, (pod.uid,), before)
        self._places[pod.uid] = place

    def reserve(self, pod: Pod, shape: PodShape, row: int) -> Place | Short:
        """Place one pod on one row exactly, in the first combination of held room that does."""
        short = Short()
        for holders in self._options(shape, row):
            mark = self.checkpoint()
            draft = Draft(pod, shape, row, holders)
            failed = self._try(draft)
            if failed is None:
                place = Place(row, allocations=tuple(draft.allocations))
                self.note_place(pod, place)
                return place
            self.rollback(mark)
            short = failed
            if not failed.is_optional:
                break
        return short

    def needs_reserve(self, shape: PodShape) -> bool:
        """Whether pods of the shape are placed one by one with :meth:`reserve`."""
        if not self._reserving and not self._holding:
            return False
        return any(one.concerns(shape) for one in (*self._reserving, *self._holding))

    def fit(self, shape: PodShape, like: Pod, rows: Ints, most: int) -> Ints:
        """Return exactly how many pods such as ``like`` each row takes, up to ``most``.

        Found by trial; rows of equal signature in every session that reserves are tried once.
        """
        bounds = np.minimum(self.bounds(shape, rows), most)
        if not self.needs_reserve(shape):
            return bounds
        numbers = [self._signature_of(one, shape, rows) for one in self._reserving]
        known: dict[tuple[int, ...], int] = {}
        for at, row in enumerate(rows.tolist()):
            key = (int(bounds[at]), *(int(one[at]) for one in numbers))
            if key not in known:
                known[key] = self._count_fitting(shape, like, row, int(bounds[at]))
            bounds[at] = known[key]
        return bounds

    def bounds(self, shape: PodShape, rows: Ints) -> Ints:
        """Return :meth:`room`, together with room that is held for such pods."""
        bounds = self.room(shape, rows)
        for session in self._holding:
            found = session.holders(shape, rows) if session.concerns(shape) else {}
            for at, row in enumerate(rows.tolist()):
                held = max((sum(h.most for h in one) for one in found.get(row, ())), default=0)
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
        found = session.signature(shape, rows)
        return rows if found is None else found

    def _options(self, shape: PodShape, row: int) -> Iterator[tuple[Holder, ...]]:
        """Yield the combinations of held room to try on a row; free room alone comes last."""
        rows = np.array([row])
        for session in self._holding:
            if session.concerns(shape):
                yield from session.holders(shape, rows).get(row, ())
        yield ()

    def _try(self, draft: Draft) -> Short | None:
        """Place and reserve; amounts are checked at the end, when held room was given back."""
        shape, row = draft.shape, draft.row
        self.place(shape, row)
        for session in self._reserving:
            if not session.concerns(shape):
                continue
            found = session.reserve(draft)
            if isinstance(found, Short):
                return found
            if found is not None:
                draft.allocations.append(found)
        columns = self.vector(shape).columns
        fits = (self.used[columns, row] <= self.table.allocatable[columns, row]).all()
        return None if fits else Short(is_optional=bool(draft.holders))

    def _sessions_of(self, shape: PodShape) -> tuple[Session, ...]:
        found = self._accounting.get(shape)
        if found is None:
            found = tuple(one for one in self._applying if one.concerns(shape))
            self._accounting[shape] = found
        return found

    def _apply(self, shape: PodShape, row: int, count: int) -> None:
        self._changed.append(row)
        vector = self.vector(shape)
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            self.used[column, row] += amount * count
        for session in self._sessions_of(shape):
            session.apply(shape, row, count)

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
        """Return where a pod is counted, in this cycle or since before it."""
        if pod.uid in self._places:
            return self._places[pod.uid]
        for pods, nodes in reversed(self._batches):
            for one, node in zip(pods, nodes, strict=True):
                if one.uid == pod.uid:
                    return Place(self.table.row_of[node])
        return self._find_place(pod.uid)

    def remove(self, pods: Iterable[Pod]) -> Removed:
        """Take pods off their nodes, in every session; those without a place are passed over."""
        removed: list[tuple[Pod, PodShape, Place]] = []
        used: dict[int, Ints] = {}
        for pod in pods:
            place = self.place_of(pod)
            if place is None:
                continue
            used.setdefault(place.row, self.used[:, place.row].copy())
            shape = self.shape_of(pod)
            allocations = tuple(
                one for session in self._releasing for one in session.release(pod, place.row)
            )
            self._move(shape, place, -1)
            self.note_place(pod, None)
            place = Place(place.row, is_seen=place.is_seen, allocations=allocations)
            removed.append((pod, shape, place))
        return Removed(tuple(removed), used)

    def restore(self, removed: Removed) -> bool:
        """Put pods back exactly as they were; False, and nothing is changed, if that is taken."""
        mark = self.checkpoint()
        for pod, shape, place in reversed(removed.pods):
            self._move(shape, place, 1)
            self.note_place(pod, place)
            shorts = (one.adopt(pod, place.row, place.allocations) for one in self._releasing)
            if any(short is not None for short in shorts):
                self.rollback(mark)
                return False
        for row, used in removed.used.items():
            # A row that was over its capacity before may be so again, and by no more.
            limit = np.maximum(self.table.allocatable[: len(used), row], used)
            if (self.used[: len(used), row] > limit).any():
                self.rollback(mark)
                return False
        return True

    def _move(self, shape: PodShape, place: Place, count: int) -> None:
        if place.is_seen:
            self.place(shape, place.row, count)
            return
        self.undo.push(self._apply_unseen, shape, place.row, -count)
        self._apply_unseen(shape, place.row, count)

    def _apply_unseen(self, shape: PodShape, row: int, count: int) -> None:
        """Account for pods that are not there yet: their amounts, and what is of the row alone."""
        self._changed.append(row)
        vector = self.vector(shape)
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            self.used[column, row] += amount * count
        for session in self._sessions_of(shape):
            if session.reach is Reach.ROW:
                session.apply(shape, row, count)


@cache
def _extensions(kinds: tuple[type[Session], ...]) -> Mapping[str, tuple[int, ...]]:
    """Return, per method, the positions of the sessions that override it: others are not asked."""
    return {
        method: tuple(at for at, kind in enumerate(kinds) if getattr(kind, method) is not default)
        for method, default in vars(Session).items()
        if callable(default)
    }


def _in_order(sessions: Sequence[Session]) -> tuple[Session, ...]:
    """Return sessions so that each comes after those that it names."""
    ordered: list[Session] = []
    waiting = list(sessions)
    while waiting:
        names = {one.name for one in waiting}
        ready = [one for one in waiting if not names & set(one.after)]
        if not ready:
            raise ValueError(f"sessions wait for each other: {', '.join(sorted(names))}")
        ordered += ready[:1]
        waiting.remove(ready[0])
    return tuple(ordered)
