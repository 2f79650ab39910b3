"""Node labels, names and taints as arrays: where a pod may go as far as its node spec decides.

Knows nothing of resources or of other pods.
"""

import numpy as np

from koord.core.nodes import Node, Taint
from koord.core.placement.columns import ABSENT, Column, Columns, Ids, Mask
from koord.core.pods import Toleration
from koord.core.selectors import Operator, Requirement, SelectorTerm

_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_REPELLING = frozenset({"NoSchedule", "NoExecute"})


class LabelColumns:
    """Which rows carry which labels and taints."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._nodes: dict[int, Node] = {}
        self._columns = Columns(rows)
        self._names: dict[str, int] = {}
        self._taint_ids: Ids = np.full(rows, ABSENT, dtype=np.int32)
        self._taint_numbers: dict[tuple[Taint, ...], int] = {}
        self._is_open: Mask = np.zeros(rows, dtype=np.bool_)
        self._is_cordoned: Mask = np.zeros(rows, dtype=np.bool_)

    def write(self, row: int, node: Node) -> None:
        """Set the labels and taints of a row."""
        self.clear(row)
        self._nodes[row] = node
        self._names[node.name] = row
        self._columns.write(row, node.labels)
        taints = tuple(taint for taint in node.taints if taint.effect in _REPELLING)
        number = self._taint_numbers.setdefault(taints, len(self._taint_numbers))
        self._taint_ids[row] = number
        self._is_open[row] = not node.is_terminating
        self._is_cordoned[row] = node.is_unschedulable

    def clear(self, row: int) -> None:
        """Forget a row."""
        node = self._nodes.pop(row, None)
        if node is None:
            return
        self._names.pop(node.name, None)
        self._columns.clear(row)
        self._taint_ids[row] = ABSENT
        self._is_open[row] = self._is_cordoned[row] = False

    def grow(self, rows: int) -> None:
        """Make room for rows up to ``rows``."""
        self._columns.grow(rows)
        more = np.full(rows - self._rows, ABSENT, dtype=np.int32)
        self._taint_ids = np.concatenate([self._taint_ids, more])
        flags = np.zeros(rows - self._rows, dtype=np.bool_)
        self._is_open = np.concatenate([self._is_open, flags])
        self._is_cordoned = np.concatenate([self._is_cordoned, flags])
        self._rows = rows

    def open_rows(self, tolerations: tuple[Toleration, ...]) -> Mask:
        """Return the rows that are neither cordoned nor on their way out, for these tolerations."""
        if is_tolerated(_UNSCHEDULABLE, tolerations):
            return self._is_open.copy()
        return self._is_open & ~self._is_cordoned

    def tolerated_rows(self, tolerations: tuple[Toleration, ...]) -> Mask:
        """Return the rows all of whose repelling taints are tolerated."""
        verdicts = np.zeros(len(self._taint_numbers) + 1, dtype=np.bool_)
        for taints, number in self._taint_numbers.items():
            verdicts[number] = all(is_tolerated(taint, tolerations) for taint in taints)
        return verdicts[self._taint_ids]

    def selected_rows(
        self,
        selector: tuple[tuple[str, str], ...],
        terms: tuple[SelectorTerm, ...] | None,
    ) -> Mask:
        """Return the rows that a node selector and required node affinity both admit."""
        mask = np.ones(self._rows, dtype=np.bool_)
        for key, value in selector:
            mask &= self._columns.matching(Requirement(key, Operator.IN, (value,)))
        if terms is not None:
            mask &= self.rows_of_any(terms)
        return mask

    def rows_of_any(self, terms: tuple[SelectorTerm, ...]) -> Mask:
        """Return the rows that at least one node selector term selects."""
        mask = np.zeros(self._rows, dtype=np.bool_)
        for term in terms:
            if not term.expressions and not term.fields:
                continue
            matching = self._columns.selected(term.expressions)
            for requirement in term.fields:
                matching &= self._named(requirement)
            mask |= matching
        return mask

    def _named(self, requirement: Requirement) -> Mask:
        mask = np.zeros(self._rows, dtype=np.bool_)
        if requirement.key != "metadata.name":
            return mask
        for name in requirement.values:
            row = self._names.get(name)
            if row is not None:
                mask[row] = True
        return mask if requirement.operator is Operator.IN else ~mask

    def column(self, key: str) -> Column:
        """Return the column of a label key."""
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
