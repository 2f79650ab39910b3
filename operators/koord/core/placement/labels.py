"""Node labels and taints as columns of small integers, so that a selector is one array operation.

A column is made for a label key when a selector first asks for it. Values are numbered on sight.
Knows nothing of resources or pods.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from koord.core.nodes import Node, Taint
from koord.core.pods import Operator, Requirement, SelectorTerm, Toleration

Mask: TypeAlias = npt.NDArray[np.bool_]
Ids: TypeAlias = npt.NDArray[np.int32]

_ABSENT = -1
_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_REPELLING = frozenset({"NoSchedule", "NoExecute"})


class _Column:
    """One label key: row -> number of its value, or ``_ABSENT``."""

    __slots__ = ("ids", "numbers", "values")

    def __init__(self, rows: int) -> None:
        self.ids: Ids = np.full(rows, _ABSENT, dtype=np.int32)
        self.numbers: dict[str, int] = {}
        self.values: list[str] = []

    def write(self, row: int, value: str | None) -> None:
        if value is None:
            self.ids[row] = _ABSENT
            return
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self.values)
            self.values.append(value)
        self.ids[row] = number

    def grow(self, rows: int) -> None:
        self.ids = np.concatenate(
            [self.ids, np.full(rows - len(self.ids), _ABSENT, dtype=np.int32)],
        )


class LabelColumns:
    """Which rows carry which labels and taints."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._nodes: dict[int, Node] = {}
        self._columns: dict[str, _Column] = {}
        self._names: dict[str, int] = {}
        self._taint_ids: Ids = np.full(rows, _ABSENT, dtype=np.int32)
        self._taint_numbers: dict[tuple[Taint, ...], int] = {}
        self._is_open: Mask = np.zeros(rows, dtype=np.bool_)
        self._is_cordoned: Mask = np.zeros(rows, dtype=np.bool_)

    def write(self, row: int, node: Node) -> None:
        """Set the labels and taints of a row."""
        self.clear(row)
        self._nodes[row] = node
        self._names[node.name] = row
        for key, column in self._columns.items():
            column.write(row, node.labels.get(key))
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
        for column in self._columns.values():
            column.write(row, None)
        self._taint_ids[row] = _ABSENT
        self._is_open[row] = self._is_cordoned[row] = False

    def grow(self, rows: int) -> None:
        """Make room for rows up to ``rows``."""
        for column in self._columns.values():
            column.grow(rows)
        more = np.full(rows - self._rows, _ABSENT, dtype=np.int32)
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
            mask &= self._matching(Requirement(key, Operator.IN, (value,)))
        if terms is not None:
            mask &= self._any_of(terms)
        return mask

    def _any_of(self, terms: tuple[SelectorTerm, ...]) -> Mask:
        mask = np.zeros(self._rows, dtype=np.bool_)
        for term in terms:
            if not term.expressions and not term.fields:
                continue
            matching = np.ones(self._rows, dtype=np.bool_)
            for requirement in term.expressions:
                matching &= self._matching(requirement)
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

    def _matching(self, requirement: Requirement) -> Mask:
        column = self._column(requirement.key)
        match requirement.operator:
            case Operator.EXISTS:
                return np.not_equal(column.ids, _ABSENT)
            case Operator.DOES_NOT_EXIST:
                return np.equal(column.ids, _ABSENT)
            case Operator.IN:
                return _verdicts_of(column, set(requirement.values))[column.ids]
            case Operator.NOT_IN:
                return ~_verdicts_of(column, set(requirement.values))[column.ids]
            case Operator.GT | Operator.LT:
                return _compared(column, requirement)[column.ids]

    def _column(self, key: str) -> _Column:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _Column(self._rows)
            for row, node in self._nodes.items():
                column.write(row, node.labels.get(key))
        return column


def _verdicts_of(column: _Column, values: set[str]) -> Mask:
    # One more entry than values, and always False: it is what an absent label (-1) looks up.
    verdicts = np.zeros(len(column.values) + 1, dtype=np.bool_)
    for value in values:
        number = column.numbers.get(value)
        if number is not None:
            verdicts[number] = True
    return verdicts


def _compared(column: _Column, requirement: Requirement) -> Mask:
    verdicts = np.zeros(len(column.values) + 1, dtype=np.bool_)
    bound = _parse_integer(requirement.values[0]) if len(requirement.values) == 1 else None
    if bound is None:
        return verdicts
    for number, value in enumerate(column.values):
        parsed = _parse_integer(value)
        if parsed is not None:
            above = requirement.operator is Operator.GT
            verdicts[number] = parsed > bound if above else parsed < bound
    return verdicts


def _parse_integer(text: str) -> int | None:
    # Label values are at most 63 characters, so this never sees a number of absurd length.
    try:
        return int(text)
    except ValueError:
        return None


def is_tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Whether any toleration matches the taint, as ``core/v1`` defines it."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    return toleration.key == taint.key and toleration.value == taint.value
