"""Labels as columns of small integers, so that a selector is one array operation over all rows.

A column is made for a label key when somebody first asks for it, and values are numbered on sight.
What a row stands for (a node, a kind of pods) is not known here.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from koord.core.framework.arrays import Ids, Mask
from koord.core.selectors import LabelSelector, Operator, Requirement, is_beyond

ABSENT: Final = -1
MAX_COLUMNS: Final = 256
"""Columns are dropped and made anew when there are more: keys come from users and go with them."""


class Column:
    """One label key: row -> number of its value, or ``ABSENT``."""

    __slots__ = ("ids", "numbers", "values")

    def __init__(self, rows: int) -> None:
        self.ids: Ids = np.full(rows, ABSENT, dtype=np.int32)
        self.numbers: dict[str, int] = {}
        self.values: list[str] = []

    def write(self, row: int, value: str | None) -> None:
        """Set the value of a row."""
        if value is None:
            self.ids[row] = ABSENT
            return
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self.values)
            self.values.append(value)
        self.ids[row] = number

    def grow(self, rows: int) -> None:
        """Make room for rows up to ``rows``."""
        more = np.full(rows - len(self.ids), ABSENT, dtype=np.int32)
        self.ids = np.concatenate([self.ids, more])

    def having(self, values: Iterable[str]) -> Mask:
        """Return the rows that have one of the values."""
        # One more entry than values, and always False: it is what an absent label (-1) looks up.
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
        """Set the labels of a row."""
        self._labels[row] = labels
        for key, column in self._columns.items():
            column.write(row, labels.get(key))
        self._drop_worn_out()

    def clear(self, row: int) -> None:
        """Forget a row."""
        if self._labels.pop(row, None) is not None:
            for column in self._columns.values():
                column.ids[row] = ABSENT

    def grow(self, rows: int) -> None:
        """Make room for rows up to ``rows``."""
        for column in self._columns.values():
            column.grow(rows)
        self._rows = rows

    def _drop_worn_out(self) -> None:
        """Drop columns that have seen many more values than there are rows: most are past."""
        most = 4 * self._rows + 64
        for key in [key for key, one in self._columns.items() if len(one.values) > most]:
            del self._columns[key]

    def column(self, key: str) -> Column:
        """Return the column of a label key, made on first sight."""
        column = self._columns.get(key)
        if column is None:
            if len(self._columns) >= MAX_COLUMNS:
                self._columns.clear()
            column = self._columns[key] = Column(self._rows)
            for row, labels in self._labels.items():
                column.write(row, labels.get(key))
        return column

    def selected(self, selector: LabelSelector) -> Mask:
        """Return the rows that a selector selects; rows without labels are rows like any other."""
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
            case Operator.EXISTS:
                return np.not_equal(column.ids, ABSENT)
            case Operator.DOES_NOT_EXIST:
                return np.equal(column.ids, ABSENT)
            case Operator.IN:
                return column.having(requirement.values)
            case Operator.NOT_IN:
                return ~column.having(requirement.values)
            case Operator.GT | Operator.LT:
                return column.having(v for v in column.values if is_beyond(v, requirement))
