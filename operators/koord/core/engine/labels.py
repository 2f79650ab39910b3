"""Node labels, names and taints as arrays: which nodes their specs make feasible for a pod.

Does not know resources or other pods.
"""

import numpy as np

from koord.core.engine.arrays import Ids, Ints, Mask
from koord.core.engine.columns import ABSENT, Column, Columns
from koord.core.model.nodes import Node, Taint
from koord.core.model.pods import PodShape, Toleration
from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm

_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


class _TaintSets:
    """Taints with some effects; each distinct set of taints on a node has a number."""

    def __init__(self, rows: int, effects: frozenset[str]) -> None:
        self._effects = effects
        self._ids: Ids = np.full(rows, ABSENT, dtype=np.int32)
        self._numbers: dict[tuple[Taint, ...], int] = {}

    @property
    def is_in_use(self) -> bool:
        """Whether any node has or had such a taint."""
        return any(self._numbers)

    def write(self, row: int, taints: tuple[Taint, ...]) -> None:
        ours = tuple(taint for taint in taints if taint.effect in self._effects)
        self._ids[row] = self._numbers.setdefault(ours, len(self._numbers))

    def clear(self, row: int) -> None:
        self._ids[row] = ABSENT

    def grow(self, rows: int) -> None:
        more = np.full(rows - len(self._ids), ABSENT, dtype=np.int32)
        self._ids = np.concatenate([self._ids, more])

    def count(self, tolerations: tuple[Toleration, ...]) -> Ints:
        """Count, per row, the taints that are not tolerated; rows without a node have one."""
        counts = np.ones(len(self._numbers) + 1, dtype=np.int64)
        for taints, number in self._numbers.items():
            counts[number] = sum(not is_tolerated(taint, tolerations) for taint in taints)
        return counts[self._ids]


class LabelColumns:
    """Labels and taints of all rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._nodes: dict[int, Node] = {}
        self._columns = Columns(rows)
        self._names: dict[str, int] = {}
        self._no_schedule = _TaintSets(rows, frozenset({"NoSchedule", "NoExecute"}))
        self._prefer_no_schedule = _TaintSets(rows, frozenset({"PreferNoSchedule"}))
        self._is_open: Mask = np.zeros(rows, dtype=np.bool_)
        self._is_cordoned: Mask = np.zeros(rows, dtype=np.bool_)

    def write(self, row: int, node: Node) -> None:
        self.clear(row)
        self._nodes[row] = node
        self._names[node.name] = row
        self._columns.write(row, node.labels)
        self._no_schedule.write(row, node.taints)
        self._prefer_no_schedule.write(row, node.taints)
        self._is_open[row] = not node.is_terminating
        self._is_cordoned[row] = node.is_unschedulable

    def clear(self, row: int) -> None:
        node = self._nodes.pop(row, None)
        if node is None:
            return
        self._names.pop(node.name, None)
        self._columns.clear(row)
        self._no_schedule.clear(row)
        self._prefer_no_schedule.clear(row)
        self._is_open[row] = self._is_cordoned[row] = False

    def grow(self, rows: int) -> None:
        self._columns.grow(rows)
        self._no_schedule.grow(rows)
        self._prefer_no_schedule.grow(rows)
        flags = np.zeros(rows - self.rows, dtype=np.bool_)
        self._is_open = np.concatenate([self._is_open, flags])
        self._is_cordoned = np.concatenate([self._is_cordoned, flags])
        self.rows = rows

    def check(self, shape: PodShape) -> tuple[Mask, Mask, Mask]:
        """Return the rows that are open, tolerated and selected for a pod."""
        return (
            self.open_rows(shape.tolerations),
            self.tolerated_rows(shape.tolerations),
            self.selected_rows(shape.node_selector, shape.terms),
        )

    def open_rows(self, tolerations: tuple[Toleration, ...]) -> Mask:
        """Return the rows that are not terminating, nor cordoned unless that is tolerated."""
        if is_tolerated(_UNSCHEDULABLE, tolerations):
            return self._is_open.copy()
        return self._is_open & ~self._is_cordoned

    def tolerated_rows(self, tolerations: tuple[Toleration, ...]) -> Mask:
        """Return the rows without untolerated NoSchedule and NoExecute taints."""
        return np.equal(self._no_schedule.count(tolerations), 0)

    def selected_rows(
        self,
        selector: tuple[tuple[str, str], ...],
        terms: tuple[SelectorTerm, ...] | None,
    ) -> Mask:
        """Return the rows that match both a node selector and required terms."""
        mask = np.ones(self.rows, dtype=np.bool_)
        for key, value in selector:
            mask &= self._columns.matching(Requirement(key, SelectorOperator.IN, (value,)))
        if terms is not None:
            mask &= self.rows_of_any(terms)
        return mask

    def rows_of_any(self, terms: tuple[SelectorTerm, ...]) -> Mask:
        """Return the rows that at least one node selector term selects."""
        mask = np.zeros(self.rows, dtype=np.bool_)
        for term in terms:
            if not term.expressions and not term.fields:
                continue
            matching = self._columns.selected(term.expressions)
            for requirement in term.fields:
                matching &= self._named(requirement)
            mask |= matching
        return mask

    def _named(self, requirement: Requirement) -> Mask:
        mask = np.zeros(self.rows, dtype=np.bool_)
        if requirement.key != "metadata.name":
            return mask
        for name in requirement.values:
            row = self._names.get(name)
            if row is not None:
                mask[row] = True
        return mask if requirement.operator is SelectorOperator.IN else ~mask

    def preferred(self, preferences: tuple[tuple[int, SelectorTerm], ...]) -> Ints:
        """Return, per row, the sum of the weights of the terms that select it."""
        total = np.zeros(self.rows, dtype=np.int64)
        for weight, term in preferences:
            total += weight * self.rows_of_any((term,))
        return total

    def discouraging_taints(self, tolerations: tuple[Toleration, ...]) -> Ints | None:
        """Count, per row, untolerated PreferNoSchedule taints; None if there are no such taints."""
        return (
            self._prefer_no_schedule.count(tolerations)
            if self._prefer_no_schedule.is_in_use
            else None
        )

    def column(self, key: str) -> Column:
        return self._columns.column(key)


def is_tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Whether any toleration matches the taint, as ``core/v1`` defines it."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    return toleration.key == taint.key and toleration.value == taint.value
