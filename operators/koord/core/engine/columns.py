"""Labels as columns of small integers, so that a selector is one array operation over all rows.

A column is created on the first use of its label key; values are numbered as they appear. This
module does not know whether a row is a node or a kind of pods.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from koord.core.engine.arrays import Ids, Mask
from koord.core.model.selectors import LabelSelector, Requirement, SelectorOperator, satisfies_bound

ABSENT: Final = -1
MAX_COLUMNS: Final = 256
"""When there are more, all are dropped and created again on use: unused keys must not pile up."""


class Column:
    """One label key: row -> number of its value, or ``ABSENT``."""

    __slots__ = ("ids", "numbers", "values")

    def __init__(self, rows: int) -> None:
        self.ids: Ids = np.full(rows, ABSENT, dtype=np.int32)
        self.numbers: dict[str, int] = {}
        self.values: list[str] = []

    @property
    def is_stale(self) -> bool:
        """Whether there are many more values than rows."""
        return len(self.values) > 4 * len(self.ids) + 64

    def write(self, row: int, value: str | None) -> None:
        if value is None:
            self.ids[row] = ABSENT
            return
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self.values)
            self.values.append(value)
        self.ids[row] = number

    def grow(self, rows: int) -> None:
        more = np.full(rows - len(self.ids), ABSENT, dtype=np.int32)
        self.ids = np.concatenate([self.ids, more])

    def having(self, values: Iterable[str]) -> Mask:
        """Return the rows that have one of the values."""
        # The extra last entry stays False: an absent label (-1) looks it up.
        verdicts = np.zeros(len(self.values) + 1, dtype=np.bool_)
        for value in values:
            number = self.numbers.get(value)
            if number is not None:
                verdicts[number] = True
        return verdicts[self.ids]


class Columns:
    """The labels of all rows, by key."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._labels: dict[int, Mapping[str, str]] = {}
        self._columns: dict[str, Column] = {}

    def write(self, row: int, labels: Mapping[str, str]) -> None:
        self._labels[row] = labels
        for key, column in self._columns.items():
            column.write(row, labels.get(key))
        self._drop_stale_columns()

    def clear(self, row: int) -> None:
        if self._labels.pop(row, None) is not None:
            for column in self._columns.values():
                column.ids[row] = ABSENT

    def grow(self, rows: int) -> None:
        for column in self._columns.values():
            column.grow(rows)
        self._rows = rows

    def _drop_stale_columns(self) -> None:
        """Drop columns most of whose values are no longer in use."""
        for key in [key for key, column in self._columns.items() if column.is_stale]:
            del self._columns[key]

    def column(self, key: str) -> Column:
        """Return the column of a label key; it is created on first use."""
        column = self._columns.get(key)
        if column is None:
            if len(self._columns) >= MAX_COLUMNS:
                self._columns.clear()
            column = self._columns[key] = Column(self._rows)
            for row, labels in self._labels.items():
                column.write(row, labels.get(key))
        return column

    def selected(self, selector: LabelSelector) -> Mask:
        """Return the rows that a selector selects, rows without labels included."""
        if selector is None:
            return np.zeros(self._rows, dtype=np.bool_)
        mask = np.ones(self._rows, dtype=np.bool_)
        for requirement in selector:
            mask &= self.matching(requirement)
        return mask

    def matching(self, requirement: Requirement) -> Mask:
        """Return the rows for which one requirement holds."""
        column = self.column(requirement.key)
        match requirement.operator:
            case SelectorOperator.EXISTS:
                return np.not_equal(column.ids, ABSENT)
            case SelectorOperator.DOES_NOT_EXIST:
                return np.equal(column.ids, ABSENT)
            case SelectorOperator.IN:
                return column.having(requirement.values)
            case SelectorOperator.NOT_IN:
                return ~column.having(requirement.values)
            case SelectorOperator.GT | SelectorOperator.LT:
                return column.having(v for v in column.values if satisfies_bound(v, requirement))
