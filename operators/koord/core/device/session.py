"""Devices in one planning cycle: which nodes have them free, and which ones a pod gets."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from typing_extensions import override

from koord.core.device.allocation import UnrecordedGpus
from koord.core.device.causes import INSUFFICIENT, DeviceCause
from koord.core.device.holds import NO_HOLD, DeviceHold, DeviceHoldTerms, allocate_around
from koord.core.device.ledger import DeviceLedger, UnrecordedUse
from koord.core.device.model import DeviceShare
from koord.core.device.reasons import (
    InvalidDeviceAnnotation,
    InvalidDeviceRequest,
    IsolationAbsent,
    explain_devices,
)
from koord.core.device.request import NO_ALLOCATION_HINTS, DeviceAllocationHints, InvalidRequest
from koord.core.device.states import (
    NOTHING_KNOWN,
    DeviceChoice,
    DeviceDemand,
    Fit,
    StateId,
    knows_devices,
)
from koord.core.engine.allocations import CycleChanges
from koord.core.engine.arrays import NO_LIMIT, Ints, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Aligned, Draft, FilterReach, Hold, Score, Unschedulable
from koord.core.model.device_names import GPU
from koord.core.model.pods import Allocation, Handling, Pod, PodShape, hold_owner_of
from koord.core.model.reasons import Reason
from koord.core.model.zone_hints import Hints

if TYPE_CHECKING:
    from koord.core.device.plugin import Devices

NAME: Final = "device"
_FIRST: Final = np.zeros(1, dtype=np.int64)


class DeviceSession(Aligned):
    """Devices in one cycle; the states of all nodes are copied before the first change."""

    name = NAME
    reach = FilterReach.ROW

    def __init__(self, plugin: "Devices", cycle: Cycle) -> None:
        self._plugin = plugin
        self._states = plugin.states
        self._cycle = cycle
        self._state_of = plugin.state_of
        self._is_copy = False
        self._given = CycleChanges[tuple[DeviceShare, ...]](cycle.undo)
        """Pod uid -> what this cycle has given it; () if it was taken back."""
        self._holds = CycleChanges[DeviceHold](cycle.undo)
        """Pod uid -> the hold under it, as this cycle has changed it."""
        self._hold_used_by = CycleChanges[str](cycle.undo)
        """Pod uid -> the pod whose held devices it uses, by this cycle."""
        self._lifted: list[tuple[StateId, DeviceHoldTerms]] = []
        """States with held devices that a pod may use; their numbers are negative."""
        self._number_of: dict[tuple[StateId, DeviceHoldTerms], int] = {}
        self._without_record = CycleChanges[bool](cycle.undo)
        """Uid of a pod of which no GPUs are recorded -> whether this cycle has taken it away."""
        self._before: dict[str, StateId] = {}
        """Uid of a pod that was taken from its row -> the state of the row with it."""

    @override
    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        demand = self._plugin.request_of(pod)
        return None if isinstance(demand, InvalidRequest) else demand

    @override
    def blocking_reasons(self, pods: Sequence[Pod]) -> Mapping[str, Reason]:
        reasons: dict[str, Reason] = {}
        waits = self._plugin.options.waits_for_isolation
        for pod in pods:
            demand, allocation_hints = self._plugin.request_of(pod), allocation_hints_of(pod)
            if demand is not None and allocation_hints.problems:
                reasons[pod.uid] = InvalidDeviceAnnotation(pod.key, allocation_hints.problems)
            elif isinstance(demand, InvalidRequest):
                reasons[pod.uid] = InvalidDeviceRequest(pod.key, demand)
            elif demand is not None and waits and demand.request.lacks_isolation:
                reasons[pod.uid] = IsolationAbsent(pod.key)
        return reasons

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        demand = shape.ask_of(NAME)
        if not isinstance(demand, DeviceDemand):
            return
        states, at = _distinct(self._numbers(rows))
        fits = [self._fit(state, demand) for state in states]
        counts = np.array([fit.count for fit in fits], dtype=np.int64)
        causes = [fit.device_cause.cause for fit in fits]
        for cause in dict.fromkeys(causes):
            is_cause = np.array([fit_cause is cause for fit_cause in causes])
            limits = np.where(is_cause, counts, NO_LIMIT)[at]
            if (limits < NO_LIMIT).any():
                yield cause, limits

    @override
    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:
        demand = shape.ask_of(NAME)
        if not isinstance(demand, DeviceDemand):
            return ""
        device_cause = self._states.fit(int(self._state_of[row]), demand).device_cause
        return (device_cause.detail or GPU) if device_cause.cause is cause else ""

    @override
    def explain(self, cause: Cause, shape: PodShape, row: int) -> str:
        demand, state = shape.ask_of(NAME), int(self._state_of[row])
        if not isinstance(demand, DeviceDemand):
            return ""
        if self._states.fit(state, demand).device_cause.cause is not cause:
            return ""
        if not knows_devices(state):
            return f"there is no Device {self._cycle.table.node_at(row).name}"
        return explain_devices(self._states.ledger(state), demand.request)

    @override
    def score(self, shape: PodShape, rows: Ints) -> Iterable[Score]:
        demand = shape.ask_of(NAME)
        if not isinstance(demand, DeviceDemand):
            return
        states, at = _distinct(self._state_of[rows])
        points = [self._states.points(state, demand) for state in states]
        yield Score(np.array(points, dtype=np.int64)[at])

    @override
    def signature(self, shape: PodShape, rows: Ints) -> Ints:
        return self._numbers(rows)

    @override
    def hints(self, shape: PodShape, row: int) -> Mapping[str, Hints]:
        demand, state = shape.ask_of(NAME), int(self._state_of[row])
        if not isinstance(demand, DeviceDemand) or not knows_devices(state):
            return {}
        self._states.steps = self._cycle.steps
        return self._states.hints(state, demand, self._terms(row))

    @override
    def reserve(self, draft: Draft) -> Allocation | Unschedulable | None:
        demand = draft.shape.ask_of(NAME)
        state = int(self._state_of[draft.row])
        if not isinstance(demand, DeviceDemand):
            return None
        if not knows_devices(state):
            return (
                Unschedulable(NOTHING_KNOWN)
                if self._states.refuses(state, demand.request)
                else None
            )
        if any(hold.is_user for hold in draft.holds):
            return self._reserve_around(draft, demand, state)
        self._states.steps = self._cycle.steps
        choice = self._states.choose(state, demand, draft.zones, self._terms(draft.row))
        if not isinstance(choice, DeviceChoice):
            return Unschedulable(choice, is_optional=bool(draft.holds))
        self._set(draft.row, choice.after)
        self._note(draft.pod.uid, choice.shares)
        if choice.hold_terms is not None:
            self._use_hold(draft.pod.uid, draft.holds[0].uid, choice.shares, 1)
        return self._plugin.record(draft.pod, draft.row, choice.shares)

    @override
    def adopt(self, pod: Pod, row: int, allocations: Sequence[Allocation]) -> Unschedulable | None:
        node = self._cycle.table.node_at(row).name
        device_hold, holder = self._plugin.make_hold(node, allocations), hold_owner_of(allocations)
        shares = device_hold.left
        state = int(self._state_of[row])
        if not knows_devices(state):
            return None
        for allocation in allocations:
            if isinstance(allocation, UnrecordedGpus):
                return self._adopt_unrecorded(pod, row, allocation.use)
        if not device_hold.shares:
            return None
        if pod.handling is Handling.RESERVE:
            self._holds.change(pod.uid, device_hold)
        before = self._hold_under(holder)
        if before is not None:
            self._use_hold(pod.uid, holder, shares, 1)
            state = self._replace_hold(state, before, self._holds[holder])
        after = self._states.after(state, shares, 1)
        # What was there before may exceed what devices have: they may have become fewer.
        if after != self._before.get(pod.uid):
            unschedulable = _find_overused(self._states.ledger(state), shares)
            if unschedulable is not None:
                return unschedulable
        self._set(row, after)
        self._note(pod.uid, shares)
        return None

    @override
    def release(self, pod: Pod, row: int) -> Sequence[Allocation]:
        own, state = self._hold_under(pod.uid), int(self._state_of[row])
        shares = self._given.get(pod.uid, self._plugin.shares_of.get(pod.uid, ()))
        if own is not None:
            shares = own.left
        if not knows_devices(state):
            return ()
        if not (shares or own):
            return self._release_unrecorded(pod, row)
        before = state
        holder = self._hold_used_by.get(pod.uid) or self._plugin.holder_of(pod.uid)
        if (device_hold := self._hold_under(holder)) is not None:
            self._use_hold(pod.uid, holder, shares, -1)
            state = self._replace_hold(state, device_hold, self._holds[holder])
        self._set(row, self._states.after(state, shares, -1))
        self._note(pod.uid, ())
        self._before[pod.uid] = before
        if own is None:
            return (self._plugin.record(pod, row, shares),)
        self._holds.change(pod.uid, NO_HOLD)
        return (self._record_hold(pod, row, own),)

    def _release_unrecorded(self, pod: Pod, row: int) -> Sequence[Allocation]:
        """Free the GPUs of a pod of which nobody knows which ones they are."""
        use = self._plugin.unrecorded_use_of(row, pod.uid)
        if not any(use) or self._without_record.get(pod.uid):
            return ()
        self._before[pod.uid] = int(self._state_of[row])
        self._without_record.change(pod.uid, True)
        self._set(row, self._count_unrecorded(row, use, -1))
        return (UnrecordedGpus(use),)

    def _adopt_unrecorded(self, pod: Pod, row: int, use: UnrecordedUse) -> Unschedulable | None:
        after = self._count_unrecorded(row, use, 1)
        ledger = self._states.ledger(after)
        unused = len(ledger.inventory.of(GPU)) - ledger.minors_in_use(GPU).bit_count()
        if after != self._before.get(pod.uid) and unused < ledger.foreign:
            return Unschedulable(DeviceCause(INSUFFICIENT, GPU))
        self._without_record.change(pod.uid, False)
        self._set(row, after)
        return None

    def _count_unrecorded(self, row: int, use: UnrecordedUse, count: int) -> StateId:
        ledger = self._states.ledger(int(self._state_of[row]))
        return self._states.number(ledger.with_unrecorded(use, count))

    # --- holds -----------------------------------------------------------------------------------

    def _hold_under(self, uid: str) -> DeviceHold | None:
        """Return the devices that are held under a pod; None if there are none."""
        device_hold = self._holds.get(uid) or self._plugin.holds.get(uid)
        return device_hold if device_hold and device_hold.shares else None

    def _hold_of(self, hold: Hold) -> DeviceHold | None:
        if not hold.is_user:
            return self._hold_under(hold.uid)
        shares = self._given.get(hold.uid, self._plugin.shares_of.get(hold.uid, ()))
        return DeviceHold(shares) if shares else None

    def _reserve_around(
        self, draft: Draft, demand: DeviceDemand, state: StateId
    ) -> Allocation | Unschedulable:
        """Hold the devices of pods that run, and those that a request is for besides."""
        device_holds = [(hold, self._hold_of(hold)) for hold in draft.holds]
        inside = tuple(
            share
            for _, device_hold in device_holds
            if device_hold is not None
            for share in device_hold.shares
        )
        ledger = self._states.ledger(state)
        shares = allocate_around(ledger, demand.request, inside, self._states.settings)
        if isinstance(shares, DeviceCause):
            return Unschedulable(shares, is_optional=True)
        device_hold, uid = DeviceHold(shares, inside), draft.pod.uid
        self._set(draft.row, self._states.after(state, device_hold.left, 1))
        self._note(uid, device_hold.left)
        self._holds.change(uid, device_hold)
        for hold, _ in device_holds:
            self._hold_used_by.change(hold.uid, uid)
        return self._record_hold(draft.pod, draft.row, device_hold)

    def _record_hold(self, pod: Pod, row: int, device_hold: DeviceHold) -> Allocation:
        used = self._plugin.record(pod, row, device_hold.used)
        return self._plugin.record(pod, row, device_hold.shares).shared_with((used,))

    def _terms(self, row: int) -> DeviceHoldTerms | None:
        """Return what pods may use of held devices of a row; None for nothing."""
        hold_used_by = self._cycle.lifted.get(row, ())
        device_holds = [
            (hold, device_hold)
            for hold in hold_used_by
            if (device_hold := self._hold_of(hold)) is not None
        ]
        if not device_holds:
            return None
        strict = [device_hold.strict_types(hold.strict) for hold, device_hold in device_holds]
        left = tuple(share for _, device_hold in device_holds for share in device_hold.left)
        return DeviceHoldTerms(left, frozenset.intersection(*strict))

    def _use_hold(self, pod: str, holder: str, shares: tuple[DeviceShare, ...], count: int) -> None:
        """Count a pod that uses held devices (1), or does so no longer (-1)."""
        device_hold = self._hold_under(holder)
        if device_hold is None:
            return
        self._holds.change(holder, device_hold.with_use(shares, count))
        self._hold_used_by.change(pod, holder)

    def _replace_hold(self, state: StateId, before: DeviceHold, after: DeviceHold) -> StateId:
        state = self._states.after(state, before.left, -1)
        return self._states.after(state, after.left, 1)

    def _numbers(self, rows: Rows) -> Ints:
        """Return the states that rows are in; other numbers where held devices may be used."""
        states, lifted = self._state_of[rows], self._cycle.lifted
        if not lifted:
            return states
        row_numbers = range(self._state_of.size)[rows] if isinstance(rows, slice) else rows.tolist()
        states = states.copy()
        for index, row in enumerate(row_numbers):
            terms = self._terms(row) if row in lifted and knows_devices(states[index]) else None
            if terms is not None:
                states[index] = self._number((int(states[index]), terms))
        return states

    def _number(self, key: tuple[StateId, DeviceHoldTerms]) -> int:
        if key not in self._number_of:
            self._lifted.append(key)
            self._number_of[key] = -len(self._lifted)
        return self._number_of[key]

    def _fit(self, number: int, demand: DeviceDemand) -> Fit:
        self._states.steps = self._cycle.steps
        if number >= 0:
            return self._states.fit(number, demand)
        state, terms = self._lifted[-1 - number]
        return self._states.fit(state, demand, terms)

    # --- states ----------------------------------------------------------------------------------

    def _set(self, row: int, state: StateId) -> None:
        if not self._is_copy:
            self._state_of, self._is_copy = self._state_of.copy(), True
        self._cycle.undo.push(self._write, row, int(self._state_of[row]))
        self._write(row, state)

    def _write(self, row: int, state: StateId) -> None:
        self._state_of[row] = state

    def _note(self, uid: str, shares: tuple[DeviceShare, ...]) -> None:
        self._given.change(uid, shares)


def _distinct(numbers: Ints) -> tuple[list[int], Ints]:
    """Return the distinct numbers, and for each number the position of its equal."""
    if numbers.size == 1:
        return numbers.tolist(), _FIRST
    distinct, at = np.unique(numbers, return_inverse=True)
    return distinct.tolist(), at


def allocation_hints_of(pod: Pod) -> DeviceAllocationHints:
    """Return what the annotations of a pod say about devices."""
    allocation_hints = next(
        (extension for name, extension in pod.extensions if name == NAME), NO_ALLOCATION_HINTS
    )
    return (
        allocation_hints
        if isinstance(allocation_hints, DeviceAllocationHints)
        else NO_ALLOCATION_HINTS
    )


def _find_overused(ledger: DeviceLedger, shares: Sequence[DeviceShare]) -> Unschedulable | None:
    """Return why exactly these shares cannot be given; those it already had are not checked."""
    for share in shares:
        free = ledger.free.get((share.kind, share.minor), {})
        use = ledger.use_of(share.kind, share.minor)
        if any(free.get(key, 0) < amount for key, amount in share.part) or (
            not use.functions.isdisjoint(share.functions)
        ):
            return Unschedulable(DeviceCause(INSUFFICIENT, share.kind, share.minor))
    return None
