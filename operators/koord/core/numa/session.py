"""NUMA nodes and CPUs in one planning cycle: filters nodes, aligns pods, gives them CPUs."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from typing_extensions import override

from koord.core.engine.arrays import NO_LIMIT, Ints, Rows, combine
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Draft, FilterReach, Session, Unschedulable
from koord.core.model.pods import Allocation, Handling, Pod, PodShape, holder_of
from koord.core.model.reasons import Reason
from koord.core.model.units import CPU
from koord.core.numa.bounds import Bounds
from koord.core.numa.cpus import AMPLIFIED, INSUFFICIENT
from koord.core.numa.explain import describe_detail, explain_zones
from koord.core.numa.held import NumaHoldTerms, left_of, names_of
from koord.core.numa.model import (
    NAME,
    NumaAllocation,
    allocation_hints_of,
    find_own,
)
from koord.core.numa.reasons import InvalidNumaAnnotation
from koord.core.numa.states import (
    FREE_CHOICE,
    NumaCause,
    NumaChoice,
    NumaDemand,
    StateId,
)

if TYPE_CHECKING:
    from koord.core.numa.plugin import Numa

T = TypeVar("T")
NOTHING_HELD: Final = NumaAllocation("")


class NumaSession(Session):
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
        self._bounds: dict[PodShape, Bounds] = {}
        self._aligned = FREE_CHOICE
        """What the pod gets that is being placed."""
        self._given: dict[str, NumaAllocation | None] = {}
        """Pod uid -> what this cycle has given it; None if it was taken back."""
        self._held: dict[str, NumaAllocation] = {}
        """Pod uid -> what is held under it, as this cycle has changed it."""
        self._holders: dict[str, str] = {}
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
        asked = shape.ask_of(NAME)
        if not isinstance(asked, NumaDemand):
            return
        every = np.arange(self._state_of.size)[rows]
        bounds = self._bounds.get(shape)
        if bounds is None:
            bounds = self._bounds[shape] = Bounds(self._state_of.size)
        columns = self._columns(shape, every)
        changed = bounds.changed(every, columns)
        if changed.size:
            self._read(
                bounds, shape, asked, every[changed], [column[changed] for column in columns]
            )
        for number, cause in enumerate(bounds.causes):
            limits = np.where(bounds.cause[every] == number, bounds.most[every], NO_LIMIT)
            if (limits < NO_LIMIT).any():
                yield cause, limits
        cost = bounds.cost[every]
        if cost.any():
            table, used = self._cycle.table, self._cycle.used
            left = np.maximum(table.allocatable[self._cpu, every] - used[self._cpu, every], 0)
            yield AMPLIFIED, np.where(cost > 0, left // np.maximum(cost, 1), NO_LIMIT)

    def _read(
        self,
        bounds: Bounds,
        shape: PodShape,
        asked: NumaDemand,
        rows: Ints,
        columns: Sequence[Ints],
    ) -> None:
        """Read how many pods fit on rows, once for rows that answer alike."""
        _, first, at = np.unique(combine(columns), return_index=True, return_inverse=True)
        found = [self._choose(asked, shape, row) for row in rows[first].tolist()]
        most = [
            numa_choice.most if isinstance(numa_choice, NumaChoice) else 0 for numa_choice in found
        ]
        causes = [INSUFFICIENT if isinstance(one, NumaChoice) else one.cause for one in found]
        bounds.most[rows] = np.array(most, dtype=np.int64)[at]
        costs = [
            numa_choice.cost if isinstance(numa_choice, NumaChoice) else 0 for numa_choice in found
        ]
        bounds.cost[rows] = np.array(costs, dtype=np.int64)[at]
        bounds.cause[rows] = np.array([bounds.number(cause) for cause in causes])[at]

    def _columns(self, shape: PodShape, rows: Ints) -> list[Ints]:
        """Return what the answer for a row depends on: its state, and the hints of others."""
        return [self._numbers(rows), *self._cycle.hint_signatures(shape, rows)]

    @override
    def most_when_empty(self, shape: PodShape) -> Ints | int:
        asked = shape.ask_of(NAME)
        if not isinstance(asked, NumaDemand):
            return NO_LIMIT
        found, at = np.unique(self._state_of, return_inverse=True)
        counts = [self._states.most_when_empty(number, asked) for number in found.tolist()]
        return np.array(counts, dtype=np.int64)[at]

    @override
    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:
        found = self._refusal(cause, shape, row)
        return "" if found is None else describe_detail(found)

    @override
    def explain(self, cause: Cause, shape: PodShape, row: int) -> str:
        asked, found = shape.ask_of(NAME), self._refusal(cause, shape, row)
        if found is None or not isinstance(asked, NumaDemand):
            return ""
        problems = self._plugin.problems_of(self._cycle.table.node_at(row).name)
        return explain_zones(self._states.state(int(self._state_of[row])), asked, found, problems)

    @override
    def signature(self, shape: PodShape, rows: Ints) -> Ints:
        return combine(self._columns(shape, rows))

    @override
    def align(self, draft: Draft) -> int | Unschedulable | None:
        asked = draft.shape.ask_of(NAME)
        if not isinstance(asked, NumaDemand):
            return None
        numa_choice = self._choose(asked, draft.shape, draft.row)
        if not isinstance(numa_choice, NumaChoice):
            return Unschedulable(numa_choice)
        self._aligned = numa_choice
        return numa_choice.zones

    @override
    def reserve(self, draft: Draft) -> Allocation | Unschedulable | None:
        asked = draft.shape.ask_of(NAME)
        if not isinstance(asked, NumaDemand):
            return None
        # As aligned just now: the hints of others change when they reserve.
        numa_choice = self._aligned
        if not numa_choice.cpus and not numa_choice.shares:
            return None
        exclusive = asked.wishes.cpu_exclusive if numa_choice.cpus else None
        given = NumaAllocation(draft.pod.uid, numa_choice.cpus, numa_choice.shares, exclusive)
        held = self._terms(draft.row) is not None
        self._move(given, draft.row, draft.holds[0].uid if held else "", 1)
        return given

    @override
    def adopt(self, pod: Pod, row: int, allocations: Sequence[Allocation]) -> Unschedulable | None:
        given = find_own(allocations)
        if given is None:
            return None
        if pod.handling is Handling.RESERVE:
            self._change(self._held, pod.uid, given)
        self._move(given, row, holder_of(allocations), 1)
        after = int(self._state_of[row])
        # What was there before may exceed what the node has: that may have become less.
        if after != self._before.get(pod.uid) and self._states.state(after).is_overused:
            return Unschedulable(INSUFFICIENT)
        return None

    @override
    def release(self, pod: Pod, row: int) -> Sequence[Allocation]:
        given = self._given.get(pod.uid, self._plugin.given_to(pod.uid))
        own = self._held_of(pod.uid)
        if own is not None:
            given = own
        if given is None:
            return ()
        before = int(self._state_of[row])
        holder = self._holders.get(pod.uid) or self._plugin.holders.get(pod.uid, "")
        self._move(given, row, holder, -1)
        if own is not None:
            self._change(self._held, pod.uid, NOTHING_HELD)
        self._before[pod.uid] = before
        return (given,)

    # --- what is held ----------------------------------------------------------------------------

    def _held_of(self, uid: str) -> NumaAllocation | None:
        """Return what is held under a pod; None for nothing."""
        numa_allocation = self._held.get(uid) or self._plugin.held.get(uid)
        return (
            numa_allocation
            if numa_allocation and (numa_allocation.cpus or numa_allocation.shares)
            else None
        )

    def _terms(self, row: int) -> NumaHoldTerms | None:
        """Return what pods may use of held room of a row; None for nothing."""
        holders = self._cycle.lifted.get(row, ())
        held = [
            (holder, numa_allocation)
            for holder in holders
            if (numa_allocation := self._held_of(holder.uid)) is not None
        ]
        if not held:
            return None
        layout = self._states.state(int(self._state_of[row])).layout
        strict = frozenset.intersection(
            *(names_of(numa_allocation) & holder.strict for holder, numa_allocation in held)
        )
        names = frozenset[str]().union(*(names_of(numa_allocation) for _, numa_allocation in held))
        return NumaHoldTerms(
            tuple(left_of(numa_allocation, layout) for _, numa_allocation in held), names, strict
        )

    def _move(self, given: NumaAllocation, row: int, holder: str, count: int) -> None:
        """Give a pod what it gets (1), or take it back (-1), and what it uses of a holder."""
        state = int(self._state_of[row])
        layout = self._states.state(state).layout
        held = self._held_of(holder)
        if held is not None:
            users = list(held.users)
            if count > 0:
                users.append(given)
            elif given in users:
                users.remove(given)
            after = replace(held, users=tuple(users))
            state = self._states.after(state, left_of(held, layout), -1)
            state = self._states.after(state, left_of(after, layout), 1)
            self._change(self._held, holder, after)
            self._change(self._holders, given.pod, holder)
        self._set(row, self._states.after(state, left_of(given, layout), count))
        self._change(self._given, given.pod, given if count > 0 else None)

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

    def _choose(self, asked: NumaDemand, shape: PodShape, row: int) -> NumaChoice | NumaCause:
        others = self._cycle.hints(shape, row)
        return self._states.choose(int(self._state_of[row]), asked, others, self._terms(row))

    def _refusal(self, cause: Cause, shape: PodShape, row: int) -> NumaCause | None:
        asked = shape.ask_of(NAME)
        if not isinstance(asked, NumaDemand):
            return None
        found = self._choose(asked, shape, row)
        return found if not isinstance(found, NumaChoice) and found.cause is cause else None

    def _set(self, row: int, state: StateId) -> None:
        before, after = self._states.state(int(self._state_of[row])), self._states.state(state)
        if after.extra != before.extra:
            self._cycle.charge(row, self._cpu, after.extra - before.extra)
        self._cycle.undo.push(self._state_of.__setitem__, row, int(self._state_of[row]))
        self._state_of[row] = state

    def _change(self, values: dict[str, T], uid: str, value: T) -> None:
        if uid in values:
            self._cycle.undo.push(values.__setitem__, uid, values[uid])
        else:
            self._cycle.undo.push(values.__delitem__, uid)
        values[uid] = value
