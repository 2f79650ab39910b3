"""Arrays over the rows of the node table, and the constants that go with them."""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Ids: TypeAlias = npt.NDArray[np.int32]

Rows: TypeAlias = Ints | slice
"""Numbers of rows, or a slice of them."""
ALL: Final = slice(None)

NO_LIMIT: Final = 1 << 40
"""More pods than any node takes."""

HOSTNAME: Final = "kubernetes.io/hostname"
"""The label with a different value on every node."""


def combine(columns: Sequence[Ints]) -> Ints:
    """Return one number per row, equal for rows that are equal in every column; none negative."""
    total, *further = columns
    for column in further:
        pairs = total * (int(column.max(initial=0)) + 1) + column
        total = np.unique(pairs, return_inverse=True)[1]
    return total
