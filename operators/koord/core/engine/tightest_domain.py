"""The order in which domains are tried for pods that must share one: the tightest first.

A domain with little room to spare is used up before one that others may need. The number of tries
is limited, so a placement may be missed.
"""

from typing import Final

import numpy as np

from koord.core.engine.arrays import Ints, Mask

MAX_DOMAINS: Final = 24
"""Domains of one layer, or of one node label, that are tried for one set of pods."""


def choose_tightest(
    fits: Mask,
    room: Ints,
    name_ranks: Ints,
    most: int = MAX_DOMAINS,
    *,
    with_roomiest: bool = False,
) -> tuple[list[int], int]:
    """Return at most ``most`` of the domains that fit, and how many are left out.

    Those with the least room come first, equal ones by name. ``with_roomiest``: if some are left
    out, the last is the one with the most room.
    """
    fitting = np.flatnonzero(fits)
    ranked = fitting[np.lexsort((name_ranks[fitting], room[fitting]))].tolist()
    chosen = ranked[:most]
    if with_roomiest and chosen:
        chosen[-1] = ranked[-1]
    return chosen, len(ranked) - len(chosen)
