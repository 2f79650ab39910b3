"""Reservations in one cycle: which pods use them, and what is left of them.

What a reservation holds is charged to its node already. A pod that uses it takes its own requests
and gives back as much of what is held; so rows, quotas and rollback are the framework's arithmetic.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from typing_extensions import override

from koord.core.engine.allocations import CycleChanges
from koord.core.engine.arrays import NO_LIMIT, Ints, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import (
    Admission,
    Admitting,
    Draft,
    FilterReach,
    Hold,
    Holding,
    Reactive,
    Scale,
    Score,
    Unschedulable,
)
from koord.core.model.plan import Unit, Unplaced
from koord.core.model.pods import Allocation, Pod, PodShape
from koord.core.model.reasons import Reason
from koord.core.model.units import Amounts
from koord.core.reservation.choice import SingleUse, nominate, score_nodes
from koord.core.reservation.ledger import Payments, ReservationAccount, add_up, requests_of
from koord.core.reservation.matcher import MatchedReservations, ReservationMatcher, Reserving
from koord.core.reservation.model import (
    NAME,
    AllocatePolicy,
    PreAllocated,
    ReservationUse,
    restricted_names,
)
from koord.core.reservation.pre_allocation import RunningPods
from koord.core.reservation.reasons import (
    NO_CANDIDATE,
    NO_NODE_WITH_CANDIDATES,
    NO_RESERVATION,
    PINNED,
    POLICY_CONFLICT,
    conflicts,
)

if TYPE_CHECKING:
    from koord.core.reservation.plugin import Reservations

WEIGHT: Final = 5000
"""A node with a reservation for a pod comes before all others."""


@dataclass(frozen=True, slots=True)
class _RowHolds:
    """The reservations of a row that take a pod, the one to use first, and what they hold."""

    accounts: Sequence[ReservationAccount]
    amounts: Amounts


class ReservationSession(Reactive, Holding):
    """Accounts as of this cycle."""

    name = NAME
    reach = FilterReach.ROW

    def __init__(self, plugin: "Reservations", cycle: Cycle) -> None:
        self._plugin, self._cycle = plugin, cycle
        self._changed: dict[str, ReservationAccount] = {}
        """Accounts that this cycle has changed."""
        self._given = CycleChanges[ReservationUse | None](cycle.undo)
        """Pod uid -> what this cycle has given it; None if it was taken back."""
        self._taken_in: set[str] = set()
        """Running pods (uid) that reservations have taken in, in this cycle."""
        self._policies: dict[int, list[AllocatePolicy]] = {}
        """Row -> the policies of reservations that this cycle has placed there."""
        self._matcher = ReservationMatcher(plugin, cycle)
        self._rows_of: dict[MatchedReservations, dict[int, list[str]]] = {}
        self._holds_by_shape: dict[PodShape, tuple[int, dict[int, _RowHolds]]] = {}
        """Shape -> the version of the cycle for which it is known what rows hold for it."""
        self._is_probing = False
        self._gone: set[str] = set()
        """Reservations whose room this cycle has taken away."""

    @cached_property
    def _payments(self) -> Payments:
        return Payments(self._plugin.pod_of, self._cycle)

    @cached_property
    def _once(self) -> SingleUse:
        return SingleUse(self._cycle.undo)

    @cached_property
    def _running(self) -> RunningPods:
        plugin = self._plugin
        return RunningPods(self._cycle, plugin.view.pods, plugin.given_to, compat=plugin.compat)

    # --- who may use what ------------------------------------------------------------------------

    @override
    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        return self._matcher.of(pod)

    @override
    def ask_all(self, pods: Sequence[Pod]) -> Sequence[Hashable | None] | None:
        return self._matcher.of_all(pods)

    @override
    def blocking_reasons(self, pods: Sequence[Pod]) -> Mapping[str, Reason]:
        return self._matcher.blocking_reasons(pods)

    # --- which nodes -----------------------------------------------------------------------------

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        reserving = shape.ask_of(NAME)
        if isinstance(reserving, Reserving):
            yield from self._filter_nodes(reserving, rows)
        elif (
            isinstance(reserving, MatchedReservations)
            and reserving.is_required
            and not self._is_probing
        ):
            yield NO_RESERVATION, np.zeros(len(self._cycle.table.nodes), dtype=np.int64)[rows]

    def _filter_nodes(self, reserving: Reserving, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        count, row_of = len(self._cycle.table.nodes), self._cycle.table.row_of
        if reserving.pinned_to:
            limits = np.zeros(count, dtype=np.int64)
            if reserving.pinned_to in row_of:
                limits[row_of[reserving.pinned_to]] = NO_LIMIT
            yield PINNED, limits[rows]
        taken = [
            row
            for node in self._plugin.on_node
            if (row := row_of.get(node)) is not None
            and conflicts(reserving.policy, self._there(row))
        ]
        if taken:
            limits = np.full(count, NO_LIMIT)
            limits[taken] = 0
            yield POLICY_CONFLICT, limits[rows]
        if self._must_take_in(reserving) and not self._is_probing:
            yield NO_NODE_WITH_CANDIDATES, np.zeros(count, dtype=np.int64)[rows]

    def _must_take_in(self, reserving: Reserving) -> bool:
        reservation = self._plugin.reservations.get(reserving.takes_in)
        pre_allocation = reservation.pre_allocation if reservation is not None else None
        return pre_allocation is not None and pre_allocation.is_required

    def _there(self, row: int) -> list[AllocatePolicy]:
        """Return the policies of the reservations on a row that pods may use."""
        uids = self._plugin.on_node.get(self._cycle.table.node_at(row).name, ())
        accounts = (self._account(uid) for uid in uids)
        there = [account.reservation.policy for account in accounts if account.is_matchable]
        return there + self._policies.get(row, [])

    @override
    def most_when_empty(self, shape: PodShape) -> Ints | int | None:
        matched = shape.ask_of(NAME)
        return (
            None if isinstance(matched, MatchedReservations) and matched.is_required else NO_LIMIT
        )

    @override
    def holds(self, shape: PodShape, rows: Ints) -> Mapping[int, Sequence[tuple[Hold, ...]]]:
        reserving = shape.ask_of(NAME)
        if isinstance(reserving, Reserving):
            return self._sets_to_take_in(reserving, shape, rows)
        holds_by_row = self._find_holds(shape, rows)
        if not holds_by_row:
            return {}
        most = self._room_with(shape, holds_by_row)
        return {
            row: [(self._as_hold(account, room),) for account in held.accounts]
            for (row, held), room in zip(holds_by_row.items(), most, strict=True)
            if room > 0
        }

    def _sets_to_take_in(
        self, reserving: Reserving, shape: PodShape, rows: Ints
    ) -> dict[int, list[tuple[Hold, ...]]]:
        """Return, per row, the sets of running pods that a reservation may take in."""
        reservation = self._plugin.reservations.get(reserving.takes_in)
        if reservation is None:
            return {}
        sets_of_row = {
            row: [
                tuple(Hold(running_pod.uid, 1, is_user=True) for running_pod in pods)
                for pods in option.sets
            ]
            for row, option in self._running.options(reservation, rows.tolist()).items()
            if option.sets
        }
        for row, sets in list(sets_of_row.items()):
            if not self._has_room_around(shape, row, sets[0]):
                del sets_of_row[row]
        return sets_of_row

    def _has_room_around(self, shape: PodShape, row: int, users: tuple[Hold, ...]) -> bool:
        """Whether other rules let a reservation take in pods; amounts are checked already."""
        used = self._cycle.used
        before = used[:, row].copy()
        # Beside the undo log: no rollback restores this, so the end of the block has to.
        used[:, row] = 0
        self._is_probing = True
        try:
            with self._cycle.lifting({row: users}):
                return bool(self._cycle.room(shape, np.array([row]))[0] > 0)
        finally:
            self._is_probing = False
            used[:, row] = before

    def _find_holds(self, shape: PodShape, rows: Ints) -> Mapping[int, _RowHolds]:
        """Return, per row, the reservations that take a pod; rows that changed are read again."""
        matched, cycle = shape.ask_of(NAME), self._cycle
        if not isinstance(matched, MatchedReservations) or not matched.uids:
            return {}
        by_row = self._rows_for(matched)
        since, holds_by_row = self._holds_by_shape.get(shape, (-1, {}))
        if since != cycle.version:
            changed = by_row if since < 0 else by_row.keys() & set(cycle.touched(since).tolist())
            for row in changed:
                self._read(holds_by_row, shape, row, by_row[row], is_required=matched.is_required)
            self._holds_by_shape[shape] = (cycle.version, holds_by_row)
        if rows.size >= len(cycle.table.nodes):
            return holds_by_row
        return {row: holds_by_row[row] for row in rows.tolist() if row in holds_by_row}

    def _read(
        self,
        holds_by_row: dict[int, _RowHolds],
        shape: PodShape,
        row: int,
        uids: Iterable[str],
        *,
        is_required: bool,
    ) -> None:
        holds_by_row.pop(row, None)
        requests = requests_of(shape)
        accounts = [self._account(uid) for uid in uids if uid not in self._gone]
        fitting = [
            account
            for account in accounts
            if self._once.takes(account, requests, is_required=is_required)
        ]
        if fitting:
            ordered = nominate(requests, fitting) if len(fitting) > 1 else fitting
            holds_by_row[row] = _RowHolds(ordered, add_up(account.held() for account in fitting))

    def _rows_for(self, matched: MatchedReservations) -> dict[int, list[str]]:
        uids_of_row = self._rows_of.get(matched)
        if uids_of_row is None:
            uids_of_row = self._rows_of[matched] = {}
            for uid in matched.uids:
                node = self._plugin.accounts[uid].reservation.status.node
                uids_of_row.setdefault(self._cycle.table.row_of[node], []).append(uid)
        return uids_of_row

    def _room_with(self, shape: PodShape, holds_by_row: Mapping[int, _RowHolds]) -> list[int]:
        """Return how many pods fit on rows if all that is held for them there is free."""
        rows = np.fromiter(holds_by_row, np.int64, len(holds_by_row))
        used, columns = self._cycle.used, self._cycle.table.columns
        before = used[:, rows]
        # Beside the undo log: no rollback restores this, so the end of the block has to.
        for row, held in holds_by_row.items():
            for name, amount in held.amounts.items():
                if name in columns:
                    used[columns[name], row] -= amount
        ports = self._ports_on(holds_by_row) if shape.host_ports else {}
        self._is_probing = True
        try:
            for row, held_ports in ports.items():
                self._cycle.place(held_ports, row, -1)
            with self._cycle.lifting(self._exact_holds(holds_by_row)):
                room: list[int] = self._cycle.room(shape, rows).tolist()
            return room
        finally:
            for row, held_ports in ports.items():
                self._cycle.place(held_ports, row)
            self._is_probing = False
            used[:, rows] = before

    def _ports_on(self, holds_by_row: Mapping[int, _RowHolds]) -> dict[int, PodShape]:
        """Return, per row, the host ports that are held there for a pod."""
        held = (
            (row, tuple(port for account in held.accounts for port in account.ports))
            for row, held in holds_by_row.items()
        )
        return {row: PodShape((), host_ports=ports) for row, ports in held if ports}

    def _exact_holds(self, holds_by_row: Mapping[int, _RowHolds]) -> dict[int, tuple[Hold, ...]]:
        """Return, per row, those that hold more than amounts."""
        exact = self._plugin.exact
        if not exact:
            return {}
        exact_of_row = (
            (row, [account for account in held.accounts if account.reservation.uid in exact])
            for row, held in holds_by_row.items()
        )
        return {
            row: tuple(self._as_hold(account, 0) for account in accounts)
            for row, accounts in exact_of_row
            if accounts
        }

    def _as_hold(self, account: ReservationAccount, most: int) -> Hold:
        is_strict = account.reservation.policy is AllocatePolicy.RESTRICTED
        return _as_hold(account, most, is_strict and not self._once.is_open(account))

    @override
    def may_fit_later(self, shape: PodShape) -> bool:
        """Whether another pod of the unit may begin to use what this one cannot be the first of."""
        matched = shape.ask_of(NAME)
        if not self._once.is_shared or not isinstance(matched, MatchedReservations):
            return False
        return any(self._plugin.accounts[uid].reservation.is_once for uid in matched.uids)

    @override
    def score(self, shape: PodShape, rows: Ints) -> Iterable[Score]:
        holds_by_row = self._find_holds(shape, rows)
        if not holds_by_row:
            return
        firsts = {row: held.accounts[0] for row, held in holds_by_row.items()}
        points = score_nodes(requests_of(shape), firsts)
        is_ordered = any(first.reservation.order for first in firsts.values())
        values = np.zeros(len(self._cycle.table.nodes), dtype=np.int64)
        values[list(points)] = list(points.values())
        yield Score(values[rows], WEIGHT, Scale.BY_MAX if is_ordered else Scale.ABSOLUTE)

    @override
    def signature(self, shape: PodShape, rows: Ints) -> Ints:
        reserving = shape.ask_of(NAME)
        if isinstance(reserving, Reserving) and reserving.takes_in:
            return rows
        return np.where(np.isin(rows, list(self._find_holds(shape, rows))), rows, -1)

    # --- taking and giving back ------------------------------------------------------------------

    @override
    def reserve(self, draft: Draft) -> Allocation | Unschedulable | None:
        matched = draft.shape.ask_of(NAME)
        if isinstance(matched, Reserving):
            return self._place(matched, draft)
        if not isinstance(matched, MatchedReservations):
            return None
        if not draft.holds:
            is_free = not matched.is_required and self._payments.pay(draft.pod, "", {})
            return None if is_free else Unschedulable(NO_RESERVATION)
        account = self._account(draft.holds[0].uid)
        reservation, requests = account.reservation, requests_of(draft.shape)
        does_take = self._once.takes(account, requests, draft.pod, is_required=True)
        if not does_take or self._is_port_held(draft, account):
            return Unschedulable(NO_RESERVATION, is_optional=True)
        self._once.begin(account, draft.pod)
        given_back = self._use(account, draft.row, draft.shape, 1)
        # Last, when what is given back is known; the cycle rolls all of it back if it fails.
        if not self._payments.pay(draft.pod, reservation.uid, given_back):
            return Unschedulable(NO_RESERVATION, is_optional=True)
        use = ReservationUse(draft.pod.uid, reservation.name, reservation.uid)
        self._given.change(draft.pod.uid, use)
        return use

    @override
    def release(self, pod: Pod, row: int) -> Sequence[Allocation]:
        if pod.uid in self._plugin.accounts and pod.uid not in self._gone:
            self._gone.add(pod.uid)
            self._cycle.undo.push(self._gone.discard, pod.uid)
        use = self._given.get(pod.uid, self._plugin.given_to(pod.uid))
        if use is None:
            return ()
        account = self._find(use.uid, row)
        if account is not None:
            self._use(account, row, pod.shape, -1)
        self._given.change(pod.uid, None)
        return (use,)

    @override
    def adopt(self, pod: Pod, row: int, allocations: Sequence[Allocation]) -> Unschedulable | None:
        if pod.uid in self._gone:
            self._gone.discard(pod.uid)
            self._cycle.undo.push(self._gone.add, pod.uid)
        use = next(
            (allocation for allocation in allocations if isinstance(allocation, ReservationUse)),
            None,
        )
        if use is None:
            return None
        account = self._find(use.uid, row)
        if account is not None:
            self._use(account, row, pod.shape, 1)
        self._given.change(pod.uid, use)
        return None

    def let_reservation_pay(self, pod: Pod) -> Amounts:
        """Charge what a pod took of a reservation to that one's quota again; return it.

        For room that is kept, by the reservation for as long as nobody else uses it.
        """
        return self._payments.take_back(pod)

    def _is_port_held(self, draft: Draft, account: ReservationAccount) -> bool:
        """Whether another reservation of the node holds a host port of a pod."""
        wanted = set(draft.shape.host_ports)
        node, own = account.reservation.status.node, account.reservation.uid
        other_uids = (uid for uid in self._plugin.on_node.get(node, ()) if wanted and uid != own)
        return any(not wanted.isdisjoint(self._account(uid).ports) for uid in other_uids)

    def _use(self, account: ReservationAccount, row: int, shape: PodShape, count: int) -> Amounts:
        """Count a pod that uses a reservation (or not any more); return what is held less."""
        requests = requests_of(shape)
        used = {
            name: account.used.get(name, 0) + count * requests.get(name, 0)
            for name in account.used.keys() | requests.keys()
        }
        ports = account.with_ports(shape.host_ports, is_in=count > 0)
        if moved := tuple(set(account.ports).symmetric_difference(ports)):
            self._cycle.place(PodShape((), host_ports=moved), row, -count)
        after = replace(account, used=used, pods=account.pods + count, ports=ports)
        held, columns = after.held(), self._cycle.table.columns
        less = {name: n - held[name] for name, n in account.held().items() if n != held[name]}
        for name, amount in less.items():
            if name in columns:
                self._cycle.charge(row, columns[name], -amount)
        uid = account.reservation.uid
        self._cycle.undo.push(self._changed.__setitem__, uid, account)
        self._changed[uid] = after
        return less

    def _place(self, reserving: Reserving, draft: Draft) -> PreAllocated | Unschedulable | None:
        row = draft.row
        if conflicts(reserving.policy, self._there(row)):
            return Unschedulable(POLICY_CONFLICT)
        there = self._policies.setdefault(row, [])
        there.append(reserving.policy)
        self._cycle.undo.push(there.pop)
        if not draft.holds:
            return Unschedulable(NO_NODE_WITH_CANDIDATES) if self._must_take_in(reserving) else None
        users = [self._plugin.view.pods[hold.uid] for hold in draft.holds]
        if any(uid in self._taken_in for uid in (user.uid for user in users)):
            return Unschedulable(NO_CANDIDATE, is_optional=True)
        requests, columns = requests_of(draft.shape), self._cycle.table.columns
        for name, amount in add_up(requests_of(user.shape) for user in users).items():
            # What they use already is held no second time.
            if name in columns and (less := min(amount, requests.get(name, 0))):
                self._cycle.charge(row, columns[name], -less)
        for user in users:
            self._taken_in.add(user.uid)
            self._cycle.undo.push(self._taken_in.discard, user.uid)
        name = self._plugin.reservations[draft.pod.uid].name
        return PreAllocated(name, draft.pod.uid, tuple((user.uid, user.key) for user in users))

    def _account(self, uid: str) -> ReservationAccount:
        return self._changed.get(uid) or self._plugin.accounts[uid]

    def _find(self, uid: str, row: int) -> ReservationAccount | None:
        """Return the account of a reservation that holds room on a row."""
        if uid in self._gone:
            return None
        account = self._changed.get(uid) or self._plugin.accounts.get(uid)
        is_there = account is not None and (
            self._cycle.table.row_of.get(account.reservation.status.node) == row
        )
        return account if is_there else None


class PayingSession(ReservationSession, Admitting):
    """The session while there are reservations: pods are charged in place of what they use."""

    @override
    def pre_filter(self, unit: Unit) -> Admission | Unplaced:
        """Let reservations leave their quotas to the pods that may use them, before those pay."""
        if self._once.decide(unit):
            self._holds_by_shape.clear()
        if not self._cycle.is_charging_holds:
            return Admission(unit)
        left: dict[str, dict[str, int]] = {}
        for pod in unit.pods:
            matched = self._matcher.of(pod)
            if isinstance(matched, MatchedReservations) and (pod.recorded is None or pod.is_gated):
                accounts = map(self._account, matched.uids)
                self._payments.leave(pod, requests_of(pod.shape), accounts, left)
        return Admission(unit)

    @override
    def settle(self, unit: Unit, placed: Sequence[Pod]) -> None:
        self._payments.settle(unit, placed)


def _as_hold(account: ReservationAccount, most: int, is_strict: bool) -> Hold:  # noqa: FBT001
    reservation = account.reservation
    names = restricted_names(account.reserved, reservation.options) if is_strict else ()
    strict = frozenset(name for name in names if name not in account.ignored)
    return Hold(reservation.uid, most, strict)
