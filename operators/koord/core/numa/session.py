"""NUMA nodes and CPUs in one planning cycle: filters nodes, aligns pods, gives them CPUs."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from typing_extensions import override

from koord.core.engine.allocations import CycleChanges
from koord.core.engine.arrays import NO_LIMIT, Ints, Rows, combine
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Aligned, Draft, FilterReach, Unschedulable
from koord.core.model.pods import Allocation, Handling, Pod, PodShape, hold_owner_of
from koord.core.model.reasons import Reason
from koord.core.model.units import CPU
from koord.core.numa.cpus import AMPLIFIED, INSUFFICIENT
from koord.core.numa.holds import NumaHoldTerms, left_of, names_of
from koord.core.numa.model import (
    NAME,
    NumaAllocation,
    allocation_hints_of,
    find_own,
)
from koord.core.numa.reasons import (
    InvalidNumaAnnotation,
    describe_cost,
    describe_detail,
    explain_zones,
)
from koord.core.numa.states import (
    FREE_CHOICE,
    NumaCause,
    NumaChoice,
    NumaDemand,
    StateId,
)

if TYPE_CHECKING:
    from koord.core.numa.plugin import Numa

NO_HOLD: Final = NumaAllocation("")
PER_FILTER: Final = 60
"""Array operations of :meth:`NumaSession.filter`, in the unit of :class:`Steps`."""


class _Bounds:
    """How many pods of a shape fit on each row, and why not more, as last read in this cycle.

    Valid for rows where ``columns`` are as they were then: only the others are read again. What the
    numbers mean is not known here.
    """

    def __init__(self, size: int) -> None:
        self.columns: list[Ints] = []
        self.most: Ints = np.zeros(size, dtype=np.int64)
        self.cost: Ints = np.zeros(size, dtype=np.int64)
        """Of the CPUs of one pod, where they are amplified."""
        self.cause = np.zeros(size, dtype=np.int16)
        self.causes: list[Cause] = []

    def number(self, cause: Cause) -> int:
        if cause not in self.causes:
            self.causes.append(cause)
        return self.causes.index(cause)

    def changed(self, rows: Ints, columns: Sequence[Ints]) -> Ints:
        """Return the positions in ``rows`` that have to be read again, and note ``columns``."""
        if not self.columns:
            self.columns = [np.full(self.most.size, -1, dtype=np.int64) for _ in columns]
        is_changed = np.zeros(rows.size, dtype=np.bool_)
        for before, now in zip(self.columns, columns, strict=True):
            is_changed |= before[rows] != now
            before[rows] = now
        return np.flatnonzero(is_changed)


class NumaSession(Aligned):
    """NUMA nodes and CPUs in one cycle."""

    name = NAME
    reach = FilterReach.ROW

    def __init__(self, plugin: "Numa", cycle: Cycle) -> None:
        self._plugin = plugin
        self._states = plugin.states
        self._cycle = cycle
        self._is_demanded = plugin.demands
        self._cpu = cycle.table.column(CPU)
        for row, extra in plugin.extra.items():
            cycle.used[self._cpu, row] += extra
        self._bounds: dict[PodShape, _Bounds] = {}
        self._aligned = FREE_CHOICE
        """What the pod gets that is being placed."""
        self._allocations = CycleChanges[NumaAllocation | None](cycle.undo)
        """Pod uid -> what this cycle has given it; None if it was taken back."""
        self._holds = CycleChanges[NumaAllocation](cycle.undo)
        """Pod uid -> the hold under it, as this cycle has changed it."""
        self._hold_used_by = CycleChanges[str](cycle.undo)
        """Pod uid -> the pod whose held room it uses, by this cycle."""
        self._lifted: dict[tuple[StateId, NumaHoldTerms], int] = {}
        """States with held room that a pod may use -> negative numbers, unlike all states."""
        self._before: dict[str, StateId] = {}
        """Uid of a pod that was taken from its row -> the state of the row with it."""

    @cached_property
    def _state_of(self) -> Ints:
        """The state of each row, as this cycle has changed it."""
        states = np.zeros(len(self._cycle.table.nodes), dtype=np.int64)
        states[: self._plugin.state_of.size] = self._plugin.state_of
        return states

    @override
    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        return self._plugin.request_of(pod, is_demanded=self._is_demanded)

    @override
    def ask_all(self, pods: Sequence[Pod]) -> Sequence[Hashable | None] | None:
        if not self._is_demanded and not self._cycle.with_extensions(pods):
            return None
        return [self.ask(pod, pod.shape) for pod in pods]

    @override
    def blocking_reasons(self, pods: Sequence[Pod]) -> Mapping[str, Reason]:
        return {
            pod.uid: InvalidNumaAnnotation(pod.key, problems)
            for pod in self._cycle.with_extensions(pods)
            if (problems := allocation_hints_of(pod).problems)
        }

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        demand = shape.ask_of(NAME)
        if not isinstance(demand, NumaDemand):
            return
        row_numbers = np.arange(self._state_of.size)[rows]
        self._cycle.steps.spend(row_numbers.size, PER_FILTER)
        bounds = self._bounds.get(shape)
        if bounds is None:
            bounds = self._bounds[shape] = _Bounds(self._state_of.size)
        columns = self._columns(shape, row_numbers)
        changed = bounds.changed(row_numbers, columns)
        if changed.size:
            self._read(
                bounds, shape, demand, row_numbers[changed], [column[changed] for column in columns]
            )
        for number, cause in enumerate(bounds.causes):
            limits = np.where(
                bounds.cause[row_numbers] == number, bounds.most[row_numbers], NO_LIMIT
            )
            if (limits < NO_LIMIT).any():
                yield cause, limits
        cost = bounds.cost[row_numbers]
        if cost.any():
            table, used = self._cycle.table, self._cycle.used
            left = np.maximum(
                table.allocatable[self._cpu, row_numbers] - used[self._cpu, row_numbers], 0
            )
            yield AMPLIFIED, np.where(cost > 0, left // np.maximum(cost, 1), NO_LIMIT)

    def _read(
        self,
        bounds: _Bounds,
        shape: PodShape,
        demand: NumaDemand,
        rows: Ints,
        columns: Sequence[Ints],
    ) -> None:
        """Read how many pods fit on rows, once for rows that answer alike."""
        alike = combine(columns)
        if (alike == alike[0]).all():  # as on empty nodes: sorting them costs more than this
            sample_positions, at = np.zeros(1, np.int64), np.zeros(alike.size, np.int64)
        else:
            _, sample_positions, at = np.unique(alike, return_index=True, return_inverse=True)
        answers = [self._choose(demand, shape, row) for row in rows[sample_positions].tolist()]
        most = [answer.most if isinstance(answer, NumaChoice) else 0 for answer in answers]
        causes = [
            INSUFFICIENT if isinstance(answer, NumaChoice) else answer.cause for answer in answers
        ]
        bounds.most[rows] = np.array(most, dtype=np.int64)[at]
        costs = [answer.cost if isinstance(answer, NumaChoice) else 0 for answer in answers]
        bounds.cost[rows] = np.array(costs, dtype=np.int64)[at]
        bounds.cause[rows] = np.array([bounds.number(cause) for cause in causes])[at]

    def _columns(self, shape: PodShape, rows: Ints) -> list[Ints]:
        """Return what the answer for a row depends on: its state, and the hints of others."""
        return [self._numbers(rows), *self._cycle.hint_signatures(shape, rows)]

    @override
    def most_when_empty(self, shape: PodShape) -> Ints | int:
        demand = shape.ask_of(NAME)
        if not isinstance(demand, NumaDemand):
            return NO_LIMIT
        distinct_states, at = np.unique(self._state_of, return_inverse=True)
        counts = [
            self._states.most_when_empty(number, demand) for number in distinct_states.tolist()
        ]
        return np.array(counts, dtype=np.int64)[at]

    @override
    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:
        numa_cause = self._find_cause(cause, shape, row)
        return "" if numa_cause is None else describe_detail(numa_cause)

    @override
    def explain(self, cause: Cause, shape: PodShape, row: int) -> str:
        demand, numa_cause = shape.ask_of(NAME), self._find_cause(cause, shape, row)
        if cause is AMPLIFIED and isinstance(demand, NumaDemand):
            return self._explain_cost(demand, shape, row)
        if numa_cause is None or not isinstance(demand, NumaDemand):
            return ""
        problems = self._plugin.problems_of(self._cycle.table.node_at(row).name)
        return explain_zones(
            self._states.state(int(self._state_of[row])), demand, numa_cause, problems
        )

    def _explain_cost(self, demand: NumaDemand, shape: PodShape, row: int) -> str:
        """Return what pinned CPUs cost on a row, and what is left there of what it offers."""
        answer = self._choose(demand, shape, row)
        if not isinstance(answer, NumaChoice):
            return ""
        offered = int(self._cycle.table.allocatable[self._cpu, row])
        left = max(0, offered - int(self._cycle.used[self._cpu, row]))
        return describe_cost(answer.cpus.bit_count(), answer.cost, left, offered)

    @override
    def signature(self, shape: PodShape, rows: Ints) -> Ints:
        return combine(self._columns(shape, rows))

    @override
    def align(self, draft: Draft) -> int | Unschedulable | None:
        demand = draft.shape.ask_of(NAME)
        if not isinstance(demand, NumaDemand):
            return None
        numa_choice = self._choose(demand, draft.shape, draft.row)
        if not isinstance(numa_choice, NumaChoice):
            return Unschedulable(numa_choice)
        self._aligned = numa_choice
        return numa_choice.zones

    @override
    def reserve(self, draft: Draft) -> Allocation | Unschedulable | None:
        demand = draft.shape.ask_of(NAME)
        if not isinstance(demand, NumaDemand):
            return None
        # As aligned just now: the hints of others change when they reserve.
        numa_choice = self._aligned
        if not numa_choice.cpus and not numa_choice.shares:
            return None
        exclusive = demand.allocation_hints.cpu_exclusive if numa_choice.cpus else None
        allocation = NumaAllocation(draft.pod.uid, numa_choice.cpus, numa_choice.shares, exclusive)
        uses_hold = self._terms(draft.row) is not None
        self._move(allocation, draft.row, draft.holds[0].uid if uses_hold else "", 1)
        return allocation

    @override
    def adopt(self, pod: Pod, row: int, allocations: Sequence[Allocation]) -> Unschedulable | None:
        allocation = find_own(allocations)
        if allocation is None:
            return None
        if pod.handling is Handling.RESERVE:
            self._holds.change(pod.uid, allocation)
        self._move(allocation, row, hold_owner_of(allocations), 1)
        after = int(self._state_of[row])
        # What was there before may exceed what the node has: that may have become less.
        if after != self._before.get(pod.uid) and self._states.state(after).is_overused:
            return Unschedulable(INSUFFICIENT)
        return None

    @override
    def release(self, pod: Pod, row: int) -> Sequence[Allocation]:
        allocation = self._allocations.get(pod.uid, self._plugin.given_to(pod.uid))
        own = self._hold_under(pod.uid)
        if own is not None:
            allocation = own
        if allocation is None:
            return ()
        before = int(self._state_of[row])
        holder = self._hold_used_by.get(pod.uid) or self._plugin.holder_of(pod.uid)
        self._move(allocation, row, holder, -1)
        if own is not None:
            self._holds.change(pod.uid, NO_HOLD)
        self._before[pod.uid] = before
        return (allocation,)

    # --- holds -----------------------------------------------------------------------------------

    def _hold_under(self, uid: str) -> NumaAllocation | None:
        """Return the hold under a pod; None for nothing."""
        allocation = self._holds.get(uid) or self._plugin.holds.get(uid)
        return allocation if allocation and (allocation.cpus or allocation.shares) else None

    def _terms(self, row: int) -> NumaHoldTerms | None:
        """Return what pods may use of held room of a row; None for nothing."""
        lifted_holds = self._cycle.lifted.get(row, ())
        holds = [
            (hold, allocation)
            for hold in lifted_holds
            if (allocation := self._hold_under(hold.uid)) is not None
        ]
        if not holds:
            return None
        layout = self._states.state(int(self._state_of[row])).layout
        strict = frozenset.intersection(
            *(names_of(allocation) & hold.strict for hold, allocation in holds)
        )
        names = frozenset[str]().union(*(names_of(allocation) for _, allocation in holds))
        return NumaHoldTerms(
            tuple(left_of(allocation, layout) for _, allocation in holds), names, strict
        )

    def _move(self, allocation: NumaAllocation, row: int, holder: str, count: int) -> None:
        """Give a pod what it gets (1), or take it back (-1), and what it uses of a hold."""
        state = int(self._state_of[row])
        layout = self._states.state(state).layout
        hold = self._hold_under(holder)
        if hold is not None:
            users = list(hold.users)
            if count > 0:
                users.append(allocation)
            elif allocation in users:
                users.remove(allocation)
            after = replace(hold, users=tuple(users))
            state = self._states.after(state, left_of(hold, layout), -1)
            state = self._states.after(state, left_of(after, layout), 1)
            self._holds.change(holder, after)
            self._hold_used_by.change(allocation.pod, holder)
        self._set(row, self._states.after(state, left_of(allocation, layout), count))
        self._allocations.change(allocation.pod, allocation if count > 0 else None)

    def _numbers(self, rows: Ints) -> Ints:
        """Return the states that rows are in; other numbers where held room may be used."""
        states, lifted = self._state_of[rows], self._cycle.lifted
        if not lifted:
            return states
        states = states.copy()
        for index, row in enumerate(rows.tolist()):
            terms = self._terms(row) if row in lifted else None
            if terms is not None:
                key = (int(states[index]), terms)
                states[index] = self._lifted.setdefault(key, -1 - len(self._lifted))
        return states

    # --- states ----------------------------------------------------------------------------------

    def _choose(self, demand: NumaDemand, shape: PodShape, row: int) -> NumaChoice | NumaCause:
        other_hints = self._cycle.hints(shape, row)
        self._states.steps = self._cycle.steps
        return self._states.choose(int(self._state_of[row]), demand, other_hints, self._terms(row))

    def _find_cause(self, cause: Cause, shape: PodShape, row: int) -> NumaCause | None:
        demand = shape.ask_of(NAME)
        if not isinstance(demand, NumaDemand):
            return None
        answer = self._choose(demand, shape, row)
        return answer if not isinstance(answer, NumaChoice) and answer.cause is cause else None

    def _set(self, row: int, state: StateId) -> None:
        before, after = self._states.state(int(self._state_of[row])), self._states.state(state)
        if after.extra != before.extra:
            self._cycle.charge(row, self._cpu, after.extra - before.extra)
        self._cycle.undo.push(self._state_of.__setitem__, row, int(self._state_of[row]))
        self._state_of[row] = state
