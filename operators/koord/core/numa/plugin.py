"""Joins NUMA nodes and CPUs to the planner: keeps their use per node, aligns what pods get.

A pod is aligned or pinned because it asks for it, or because its node demands it. The NUMA nodes of
its CPUs, its memory and of what other domains give it are chosen together: the others hint which
ones would do (``hints``), and keep to the choice when they reserve.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from typing_extensions import override

from koord.core.engine.allocations import NodeAllocations
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Plugin
from koord.core.model.amplification import FIELD
from koord.core.model.nodes import Node
from koord.core.model.pod_charge import PodCharge
from koord.core.model.pods import Pod
from koord.core.numa.holds import left_of
from koord.core.numa.model import (
    NAME,
    NumaAllocation,
    NumaAllocationHints,
    NumaLayout,
    NumaReport,
    allocation_hints_of,
    find_own,
    make_layout,
)
from koord.core.numa.session import NumaSession
from koord.core.numa.states import (
    UNKNOWN,
    NumaDemand,
    NumaState,
    NumaStates,
    StateId,
)
from koord.isolation import Isolation

if TYPE_CHECKING:
    from koord.core.engine.arrays import Ints

_MOST_REQUESTS: Final = 1 << 14
_Key: TypeAlias = tuple[tuple[tuple[str, int], ...], NumaAllocationHints]


class Numa(Plugin):
    """The NUMA nodes and CPUs of a cluster and their use.

    Rows that changed are read again when a cycle is opened, not with every pod.
    """

    name = NAME

    def __init__(self) -> None:
        self.states = NumaStates()
        self.reports: dict[str, NumaReport] = {}
        self.state_of: Ints = np.zeros(0, dtype=np.int64)
        """Row -> its state."""
        self.demands = False
        """Whether any node aligns or pins pods that do not ask for it."""
        self.extra: dict[int, int] = {}
        """Row -> the milli-CPU that its pinned CPUs cost beyond what their pods request."""
        self._nodes: dict[int, Node] = {}
        self._row_of: dict[str, int] = {}
        self.allocations = NodeAllocations[NumaAllocation]()
        self.holds: dict[str, NumaAllocation] = {}
        """Pod uid -> the hold under it for other pods."""
        self._stale: set[int] = set()
        """Rows whose state is not that of ``state_of`` any more."""
        self._requests: dict[_Key, NumaDemand] = {}
        self._isolated = Isolation("numa")

    # --- observations ----------------------------------------------------------------------------

    def upsert(self, report: NumaReport) -> None:
        """Apply the report of a node; units that wait for room there are tried again."""
        if self.reports.get(report.node) != report:
            self.reports[report.node] = report
            self._note(report.node)
            self.view.note_freed((report.node,))

    def remove(self, report: NumaReport) -> None:
        self.reports.pop(report.node, None)
        self._note(report.node)
        self.view.note_freed((report.node,))

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        before = self._nodes.get(row)
        self._nodes[row], self._row_of[node.name] = node, row
        if before is None or _differs(before, node):
            self._stale.add(row)

    @override
    def remove_node(self, row: int, name: str) -> None:
        self._nodes.pop(row, None)
        self._row_of.pop(name, None)
        self.allocations.remove_row(row)
        self._stale.discard(row)
        if row < self.state_of.size:
            self.state_of[row] = UNKNOWN

    @override
    def charge(self, row: int, charge: PodCharge, count: int) -> None:
        if not charge.allocations and charge.uid not in self.allocations.given:
            return
        allocation = self.allocations.find(charge, find_own(charge.allocations))
        if allocation is None:
            return
        self.allocations.charge(row, charge, count, allocation)
        if count < 0:
            self.holds.pop(charge.uid, None)
        elif charge.is_held:
            self.holds[charge.uid] = allocation
        if row >= 0:
            self._stale.add(row)

    def _note(self, node: str) -> None:
        row = self._row_of.get(node)
        if row is not None:
            self._stale.add(row)

    def settle(self) -> None:
        """Bring the states of changed rows up to date."""
        if not self._stale:
            return
        size = max(self._stale) + 1 - self.state_of.size
        if size > 0:
            self.state_of = np.concatenate([self.state_of, np.zeros(size, dtype=np.int64)])
        for row in self._stale:
            state_id = self._isolated.call(row, self._read, row)
            self.state_of[row] = UNKNOWN if state_id is None else state_id
        self._stale.clear()
        states = {number: self.states.state(number) for number in np.unique(self.state_of).tolist()}
        self.demands = any(state.layout.demands for state in states.values())
        self.extra = {
            row: state.extra
            for number, state in states.items()
            if state.extra
            for row in np.flatnonzero(self.state_of == number).tolist()
        }

    def _read(self, row: int) -> StateId:
        layout = self.states.intern(self._layout_of(row))
        return self.states.number(self._use_on(row, layout))

    def use_on(self, row: int) -> NumaState:
        """Return what is used of a node by now, also before it was settled; changes nothing."""
        return self._use_on(row, self._layout_of(row))

    def _layout_of(self, row: int) -> NumaLayout:
        node = self._nodes[row]
        return make_layout(self.reports.get(node.name), node)

    def _use_on(self, row: int, layout: NumaLayout) -> NumaState:
        report = self.reports.get(self._nodes[row].name)
        given = self.allocations.given
        pods = {uid: given[uid] for uid in self.allocations.on_row(row)}
        for uid, cpus in report.pinned if report is not None else ():
            allocation = pods.get(uid, NumaAllocation(uid))
            pods[uid] = replace(allocation, cpus=allocation.cpus or cpus)
        state = NumaState(layout)
        for _, allocation in sorted(pods.items()):
            state = state.after(left_of(allocation, layout))
        return state

    # --- cycles ----------------------------------------------------------------------------------

    def problems_of(self, node: str) -> tuple[tuple[str, str], ...]:
        """Return the problems of the report of a node, and of its own ratios."""
        report, row = self.reports.get(node), self._row_of.get(node)
        of_report = report.problems if report is not None else ()
        problem = self._nodes[row].amplification.problem if row is not None else ""
        return (*of_report, (FIELD, problem)) if problem else of_report

    def holder_of(self, uid: str) -> str:
        """Return the pod whose held room a pod uses; empty for none."""
        return self.allocations.hold_used_by.get(uid, "")

    def given_to(self, uid: str) -> NumaAllocation | None:
        return self.allocations.given.get(uid)

    def request_of(self, pod: Pod, *, is_demanded: bool) -> NumaDemand | None:
        """Return what a pod asks for, one value for all pods that ask for the same."""
        allocation_hints = allocation_hints_of(pod)
        if allocation_hints.is_pinned and not self.reports:
            # Nothing could pin its CPUs: no node has an agent.
            allocation_hints = replace(allocation_hints, is_pinned=False)
        if not (is_demanded or allocation_hints.policy or allocation_hints.is_pinned):
            return None
        key = (pod.shape.requests, allocation_hints)
        demand = self._requests.get(key)
        if demand is None:
            if len(self._requests) >= _MOST_REQUESTS:
                self._requests.clear()
            demand = self._requests[key] = NumaDemand(dict(pod.shape.requests), allocation_hints)
        return demand

    @override
    def absorb(self) -> None:
        """Read what changed; forget pods that are gone, and states when there are too many."""
        # Only now, after all changes: a pod that left its node and came back keeps what it was
        # given. And only between cycles: a session keeps numbers of states.
        if self.allocations.discharged:
            self.allocations.forget_gone()
        self.settle()
        if self.states.is_full:
            used, at = np.unique(np.append(self.state_of, UNKNOWN), return_inverse=True)
            self.states.compact([self.states.state(number) for number in used.tolist()[1:]])
            self.state_of = at[:-1]

    @override
    def open(self, cycle: Cycle) -> "NumaSession":
        self.settle()
        return NumaSession(self, cycle)


def _differs(before: Node, node: Node) -> bool:
    return (before.labels, before.reserved, before.amplification) != (
        node.labels,
        node.reserved,
        node.amplification,
    )
