"""Arrays over the rows of the node table: their types and constants, and what they suffice for."""

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

MAX_DOMAINS: Final = 24
"""Domains of one layer, or of one node label, that are tried for one set of pods."""


def combine(columns: Sequence[Ints]) -> Ints:
    """Return one number per row, equal for rows that are equal in every column; none negative."""
    total, *further = columns
    for column in further:
        pairs = total * (int(column.max(initial=0)) + 1) + column
        total = np.unique(pairs, return_inverse=True)[1]
    return total


def choose_tightest(
    fits: Mask,
    room: Ints,
    name_ranks: Ints,
    most: int = MAX_DOMAINS,
    *,
    with_roomiest: bool = False,
) -> tuple[list[int], int]:
    """Return at most ``most`` of the domains that fit, and how many are left out.

    A domain with little room to spare is used up before one that others may need. The number of
    tries is limited, so a placement may be missed. Those with the least room come first, equal ones
    by name. ``with_roomiest``: if some are left
    out, the last is the one with the most room.
    """
    fitting = np.flatnonzero(fits)
    ranked = fitting[np.lexsort((name_ranks[fitting], room[fitting]))].tolist()
    chosen = ranked[:most]
    if with_roomiest and chosen:
        chosen[-1] = ranked[-1]
    return chosen, len(ranked) - len(chosen)
