"""The queries of a planning cycle: shapes of pods, and how many of them fit on each node.

The read-only part of a cycle. The part that changes used amounts and sessions is in ``cycle``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import numpy as np

from koord.core.engine.arrays import ALL, NO_LIMIT, Ints, Mask, Rows
from koord.core.engine.cause import RESOURCE, Cause
from koord.core.engine.node_table import NodeTable, RequestVector
from koord.core.engine.plugin import (
    CAPABILITIES,
    Admitting,
    Aligned,
    Charging,
    FilterReach,
    Growing,
    Hold,
    Holding,
    Ordering,
    Reactive,
    Relieving,
    Score,
    Session,
    Strategic,
    in_order,
)
from koord.core.engine.reasons import NewNodes
from koord.core.engine.scoring import ScoreTerms
from koord.core.engine.steps import Steps
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod, PodShape
from koord.core.model.reasons import Reason
from koord.core.model.zone_hints import Hints

S = TypeVar("S", bound=Session)


class CycleView:
    """Used amounts and sessions of a cycle.

    ``pending`` returns all complete waiting units, in order. It is ``now`` (seconds since the
    epoch) for the whole cycle.
    """

    def __init__(
        self, table: NodeTable, pending: Callable[[], Iterable[Unit]], now: float = 0.0
    ) -> None:
        self.table = table
        self.now = now
        self.used: Ints = table.used.copy()
        self.pending = pending
        self.steps = Steps()
        self.sessions: tuple[Session, ...] = ()
        self.lifted: Mapping[int, tuple[Hold, ...]] = {}
        """Row -> held room that is the pod's for now; see :meth:`lifting`."""
        self._restricted: Mapping[PodShape, Mask] = {}
        self._resolved: dict[tuple[PodShape, tuple[object, ...]], PodShape] = {}
        self._vectors: dict[PodShape, RequestVector] = {}
        """Those with columns of plugins."""
        self._accounting: dict[PodShape, tuple[Session, ...]] = {}
        self._extended: tuple[Sequence[Pod], Sequence[Pod]] = ((), ())

    def _join(self, sessions: Sequence[Session]) -> None:
        """Add the sessions, and find which of them extend which method."""
        self.sessions = in_order(sessions)
        extends = _extensions(tuple(map(type, self.sessions)))

        def pick(kind: type[S], method: str) -> list[S]:
            sessions = (self.sessions[at] for at in extends[method])
            return [session for session in sessions if isinstance(session, kind)]

        self._asking = pick(Session, "ask")
        self._filtering = pick(Session, "filter")
        self._local = [
            session for session in self._filtering if session.reach is not FilterReach.CLUSTER
        ]
        self._global = [
            session for session in self._filtering if session.reach is FilterReach.CLUSTER
        ]
        self._blocking = pick(Session, "blocking_reasons")
        self._bounding = pick(Session, "most_when_empty")
        self._scoring = pick(Session, "score")
        self._applying = pick(Session, "apply")
        self._reserving = pick(Session, "reserve")
        self._releasing = pick(Session, "release")
        self._admitting = pick(Admitting, "admit")
        self.pre_filtering = pick(Admitting, "pre_filter")
        self._narrowing = pick(Admitting, "narrow")
        self._charging_holds = pick(Admitting, "hold")
        self.ordering = next(iter(pick(Ordering, "in_turn")), None)
        self._demanding = pick(Charging, "demand")
        self._rating = pick(Charging, "score_terms")
        self.relieving = pick(Relieving, "relieve")
        self.retrying = pick(Reactive, "retry_within")
        self._expecting = pick(Reactive, "expect")
        self._following = pick(Reactive, "may_fit_later")
        self._reacting = pick(Reactive, "is_reactive")
        self._hinting = pick(Aligned, "hints")
        self._aligning = pick(Aligned, "align")
        self._growing = pick(Growing, "new_nodes")
        self._holding = pick(Holding, "holds")
        self.strategic = pick(Strategic, "strategy")
        self.room_checking = pick(Strategic, "room_check")

    @contextmanager
    def lifting(self, holds: Mapping[int, tuple[Hold, ...]]) -> Iterator[None]:
        """Have questions answered, for a ``with`` block, for pods that may use held room.

        Sessions with exact allocations take what a holder has for free then, and give it out first.
        """
        before, self.lifted = self.lifted, holds
        try:
            yield
        finally:
            self.lifted = before

    @property
    def is_restricted(self) -> bool:
        """Whether :meth:`only` is in effect."""
        return bool(self._restricted)

    @property
    def is_charging_holds(self) -> bool:
        """Whether any session charges room that is held."""
        return bool(self._charging_holds)

    def find_session(self, kind: type[S]) -> S | None:
        """Return the session of one domain; None if the domain is not in use."""
        return next((session for session in self.sessions if isinstance(session, kind)), None)

    def session(self, kind: type[S]) -> S:
        """Return the session of a domain that is always in use."""
        session = self.find_session(kind)
        if session is None:
            raise LookupError(f"this cycle was opened without {kind.name}")
        return session

    def expect(self, pods: Sequence[Pod]) -> None:
        """Announce pods to the sessions, before any of them is placed."""
        for session in self._expecting:
            session.expect(pods)

    def shape_of(self, pod: Pod) -> PodShape:
        """Return the shape of a pod with the data of all domains; equal shapes are identical."""
        shape = self._narrow(pod)
        asks = tuple(
            (session.name, ask)
            for session in self._asking
            if (ask := session.ask(pod, shape)) is not None
        )
        return self._resolve(shape, asks) if asks else shape

    def _narrow(self, pod: Pod) -> PodShape:
        shape = pod.shape
        for session in self._narrowing:
            shape = session.narrow(pod, shape)
        return shape

    def reaching_of(self, pods: Sequence[Pod]) -> list[Pod]:
        """Return those of some pods that may matter to pods on other nodes than theirs."""
        self.expect(pods)
        answers_of_all = (session.ask_all(pods) for session in self._global)
        asks = [answers for answers in answers_of_all if answers is not None]
        return [
            pod
            for at, pod in enumerate(pods)
            if pod.shape.constraints is not None or any(answers[at] is not None for answers in asks)
        ]

    def shapes_of(self, pods: Sequence[Pod]) -> list[PodShape]:
        """Return :meth:`shape_of` of each pod; :meth:`expect` must have announced them."""
        if self._narrowing and any(self._narrow(pod) is not pod.shape for pod in pods):
            return [self.shape_of(pod) for pod in pods]
        asks_by_session = []
        for session in self._asking:
            asks = session.ask_all(pods)
            if asks is not None:
                asks_by_session.append((session.name, asks))
        if not asks_by_session:
            return [pod.shape for pod in pods]
        shapes = []
        for at, pod in enumerate(pods):
            own = tuple((name, asks[at]) for name, asks in asks_by_session if asks[at] is not None)
            shapes.append(self._resolve(pod.shape, own) if own else pod.shape)
        return shapes

    def with_extensions(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Return those pods that say something to plugins; cached for repeated calls."""
        if self._extended[0] is not pods:
            self._extended = (pods, [pod for pod in pods if pod.extensions])
        return self._extended[1]

    def vector(self, shape: PodShape) -> RequestVector:
        """Return the request vector of a shape, columns of plugins included."""
        if not self._demanding:
            return self.table.vector(shape)
        vector = self._vectors.get(shape)
        if vector is None:
            demands = (session.demand(shape) for session in self._demanding)
            amounts = [amount for demand in demands for amount in demand]
            vector = self._vectors[shape] = self.table.vector(shape).with_amounts(amounts)
        return vector

    def score_terms(self, shape: PodShape) -> tuple[ScoreTerms, ...]:
        """Return the scores of plugins by what is used of their columns."""
        return tuple(terms for session in self._rating for terms in session.score_terms(shape))

    def named_score_terms(self, shape: PodShape) -> Iterator[tuple[str, ScoreTerms]]:
        """Yield :meth:`score_terms`, each with the name of its session."""
        for session in self._rating:
            for terms in session.score_terms(shape):
                yield session.name, terms

    def _resolve(self, shape: PodShape, asks: tuple[tuple[str, object], ...]) -> PodShape:
        key = (shape, asks)
        resolved = self._resolved.get(key)
        if resolved is None:
            resolved = self._resolved[key] = shape.asking(asks)
        return resolved

    def room(self, shape: PodShape, rows: Rows = ALL) -> Ints:
        """Return, per row, how many more pods of the shape fit if all go there."""
        room = self.capacity(shape, rows)
        for _, limits in self.limits(shape, rows):
            np.minimum(room, limits, out=room)
        return room

    def possible_room(self, shape: PodShape) -> Ints:
        """Return an upper bound of :meth:`room` after other pods of the unit are placed."""
        room = self.capacity(shape)
        for cause, limits in self.limits(shape):
            if not cause.is_transient:
                np.minimum(room, limits, out=room)
        return room

    def capacity(self, shape: PodShape, rows: Rows = ALL) -> Ints:
        """Return :meth:`room` without the rules about pods on other rows."""
        vector = self.vector(shape)
        count = self.used.shape[1] if isinstance(rows, slice) else len(rows)
        self.steps.spend(count, len(vector.columns) + len(self._local))
        copies = self._copies(vector, self.used, rows)
        for session in self._local:
            for _, limits in session.filter(shape, rows):
                np.minimum(copies, limits, out=copies)
        allowed = self._restricted.get(shape) if self._restricted else None
        if allowed is not None:
            copies[~allowed[rows]] = 0
        return copies

    def limits(self, shape: PodShape, rows: Rows = ALL) -> Iterator[tuple[Cause, Ints]]:
        """Yield (cause, how many more pods per row) for each rule about pods on other rows."""
        self.steps.check()
        for session in self._global:
            yield from session.filter(shape, rows)

    def room_when_empty(self, shape: PodShape) -> Ints | None:
        """Return, per row, how many pods fit on the empty node; None if other pods matter."""
        copies = self._copies(self.vector(shape), None, ALL)
        for session in self._bounding:
            most = session.most_when_empty(shape)
            if most is None:
                return None
            if most is not NO_LIMIT:
                np.minimum(copies, most, out=copies)
        return copies

    def node_limits(self, shape: PodShape) -> Ints:
        """Return, per row, how many pods of the shape the rules about nodes alone allow."""
        most = np.where(self.table.is_live, NO_LIMIT, 0)
        for session in self._local:
            if session.reach is FilterReach.NOTHING:
                for _, limits in session.filter(shape, ALL):
                    np.minimum(most, limits, out=most)
        return most

    def may_use_held_room(self, shape: PodShape) -> bool:
        """Whether room may be held for pods of the shape, which is not free for others."""
        return any(session.concerns(shape) for session in self._holding)

    def has_room(self, shape: PodShape, row: int) -> bool:
        """Whether one more pod of the shape fits on a row."""
        return bool(self.room(shape, np.array([row]))[0])

    def can_stay(self, shape: PodShape, node: str) -> bool:
        """Whether a node is still feasible for a pod that is charged to it already."""
        row = self.table.row_of.get(node)
        if row is None or any(
            not limits[0]
            for session in self._local
            if session.reach is FilterReach.NOTHING
            for _, limits in session.filter(shape, np.array([row]))
        ):
            return False
        # Only resources: limits of plugins keep pods from coming, none from staying.
        columns = self.table.vector(shape).columns
        return bool((self.used[columns, row] <= self.table.allocatable[columns, row]).all())

    def checks(self, shape: PodShape) -> list[tuple[Cause, str, Mask]]:
        """Return every check in the order of kube-scheduler: (cause, resource, rows that pass).

        There is one resource check per resource, and a node may fail several of them.
        """
        return [check[:3] for check in self.named_checks(shape)]

    def named_checks(self, shape: PodShape) -> list[tuple[Cause, str, Mask, str]]:
        """Return :meth:`checks`, each with the name of its session; empty for amounts."""
        vector = self.vector(shape)
        checks = [
            (cause, "", limits > 0, session.name)
            for session in self._filtering
            for cause, limits in session.filter(shape, ALL)
        ]
        checks += [
            (RESOURCE, name, self.table.allocatable[column] - self.used[column] >= amount, "")
            for name, column, amount in vector.items()
        ]
        checks += [
            (
                self.table.causes[column],
                "",
                self.table.allocatable[column] - self.used[column] >= amount,
                "",
            )
            for column, amount in vector.items_of_plugins()
        ]
        return sorted(checks, key=lambda check: check[0].rank)

    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:
        """Return the detail of a cause that is counted by detail."""
        details = (session.detail(cause, shape, row) for session in self._filtering)
        return next((name for name in details if name), "")

    def new_nodes(self, shape: PodShape) -> NewNodes | None:
        """Return what is known of new nodes for a pod that no node takes even if it is empty."""
        answers = (session.new_nodes(shape) for session in self._growing)
        return next((nodes for nodes in answers if nodes is not None), None)

    def not_now(self, unit: Unit) -> Reason | None:
        """Return why a unit is not to be planned now, of the first session that says so."""
        reasons = (session.admit(unit) for session in self._admitting)
        return next((reason for reason in reasons if reason is not None), None)

    def blocking_reasons(self, pods: Sequence[Pod]) -> dict[str, Reason]:
        """Return, by uid, why pods cannot be placed on any node."""
        reasons: dict[str, Reason] = {}
        for session in self._blocking:
            own = session.blocking_reasons(pods)
            if own:
                reasons = {**own, **reasons}
        return reasons

    def scores(self, shape: PodShape, rows: Ints) -> Iterator[Score]:
        """Yield the scores of all sessions for feasible rows."""
        for session in self._scoring:
            yield from session.score(shape, rows)

    def named_scores(self, shape: PodShape, rows: Ints) -> Iterator[tuple[str, Score]]:
        """Yield :meth:`scores`, each with the name of its session."""
        for session in self._scoring:
            for score in session.score(shape, rows):
                yield session.name, score

    def hints(self, shape: PodShape, row: int) -> tuple[tuple[str, Hints], ...]:
        """Return which zones of a row could serve each resource of a pod, from all sessions."""
        hints_by_resource = (
            session.hints(shape, row) for session in self._hinting if session.concerns(shape)
        )
        return tuple(item for hints in hints_by_resource for item in hints.items())

    def hint_signatures(self, shape: PodShape, rows: Ints) -> list[Ints]:
        """Return arrays over rows: rows with equal numbers in each have equal :meth:`hints`."""
        signatures = (
            session.signature(shape, rows) for session in self._hinting if session.concerns(shape)
        )
        return [numbers for numbers in signatures if numbers is not None]

    def depends_on_others(self, shape: PodShape) -> bool:
        """Whether a pod that does not fit may fit after other pods of its unit are placed."""
        return any(session.may_fit_later(shape) for session in self._following)

    def is_reactive(self, shape: PodShape) -> bool:
        """Whether placing a pod of the shape changes where the next one may go."""
        return any(session.is_reactive(shape) for session in self._reacting)

    def is_plain(self, shape: PodShape) -> bool:
        """Whether placing such a pod changes used amounts only and concerns no session."""
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
            raise ValueError("a shape requests at least one pod slot")
        return np.maximum(copies, 0, out=copies)

    def needs_reserve(self, shape: PodShape) -> bool:
        """Whether pods of the shape are placed one by one with :meth:`reserve`."""
        if not self._reserving and not self._holding:
            return False
        return any(session.concerns(shape) for session in (*self._reserving, *self._holding))

    def _sessions_of(self, shape: PodShape) -> tuple[Session, ...]:
        sessions = self._accounting.get(shape)
        if sessions is None:
            sessions = tuple(session for session in self._applying if session.concerns(shape))
            self._accounting[shape] = sessions
        return sessions


@cache
def _extensions(kinds: tuple[type[Session], ...]) -> Mapping[str, tuple[int, ...]]:
    """Return, per method, the positions of the sessions that override it."""
    extensions: dict[str, tuple[int, ...]] = {}
    for capability in CAPABILITIES:
        for method, default in vars(capability).items():
            if not callable(default) or method.startswith("__"):
                continue
            having = [at for at, kind in enumerate(kinds) if hasattr(kind, method)]
            for at in having:
                if not issubclass(kinds[at], capability):
                    raise TypeError(f"{kinds[at].__name__}.{method} needs {capability.__name__}")
            extensions[method] = tuple(
                at for at in having if getattr(kinds[at], method) is not default
            )
    return extensions
