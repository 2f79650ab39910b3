"""How many pods of one shape fit on each node, remembered while a cycle goes on.

Only rows whose state has changed since are read again. What the numbers mean is not known here.
"""

from collections.abc import Sequence

import numpy as np

from koord.core.engine.arrays import Ints
from koord.core.engine.cause import Cause


class Bounds:
    """How many pods of a shape fit on each row, and why not more, as last read.

    Valid for rows where ``columns`` are as they were then.
    """

    def __init__(self, size: int) -> None:
        self.columns: list[Ints] = []
        self.most: Ints = np.zeros(size, dtype=np.int64)
        self.cost: Ints = np.zeros(size, dtype=np.int64)
        """Of the CPUs of one pod, where they are amplified."""
        self.cause: Ints = np.zeros(size, dtype=np.int64)
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
