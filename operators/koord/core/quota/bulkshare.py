"""The same fair share as in ``share`` and ``scale``, of all levels of one depth and many resources.

Arrays are of 64 bits, and the answer is exact all the same: a product that does not fit is never
needed, only its quotient and its remainder. The quotient is found in floating point and put right
by the remainder, which is exact modulo 2**64 and small. ``Frame.is_exact`` says where that holds;
whoever asks about anything larger has to go by ``share``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koord.core.quota.tree import Layout

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

MOST_AMOUNT: Final = 1 << 52
"""A quotient below it is off by some units at most when it comes from floating point."""
MOST_WEIGHT: Final = 1 << 58
"""The sum of the weights, or amounts, of a level: 63 bits hold it several times."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What is asked about one resource, by row.

    ``largest`` bounds the amounts, ``heaviest`` the amounts and weights of a level, added up.
    """

    minimum: Ints
    guaranteed: Ints | None
    wants: Ints
    weights: Ints
    lends: Flags
    own: Ints
    largest: int
    heaviest: int

    def is_exact(self, total: int | None) -> bool:
        """Whether arrays give the exact answer for a total."""
        return (
            total is not None
            and max(self.largest, abs(total)) < MOST_AMOUNT
            and self.heaviest < MOST_WEIGHT
        )


def make_frame(  # noqa: PLR0913 - a column each
    layout: Layout,
    *,
    minimum: Sequence[int],
    guaranteed: Sequence[int] | None,
    wants: Sequence[int],
    weights: Sequence[int],
    lends: Sequence[bool],
    own: Sequence[int] | None,
) -> Frame:
    """Make arrays of columns; amounts that do not fit make it inexact."""
    asked = [minimum, wants, weights, own or (0,), guaranteed or (0,)]
    is_small = all(min(one) > -MOST_WEIGHT and max(one) < MOST_WEIGHT for one in asked)
    rows = len(minimum)
    widest = max((end - first for _, first, end in layout.levels), default=1)
    largest = max(max(map(abs, one)) for one in (minimum, wants, own or (0,), guaranteed or (0,)))

    def column(amounts: Sequence[int] | None) -> Ints:
        return np.array(amounts if amounts and is_small else [0] * rows, dtype=np.int64)

    return Frame(
        column(minimum),
        None if guaranteed is None else column(guaranteed),
        column(wants),
        column(weights),
        np.array(lends, dtype=np.bool_),
        column(own),
        largest,
        max(largest, *weights) * widest if min(weights) >= 0 else MOST_WEIGHT,
    )


@dataclass(frozen=True, slots=True)
class _Levels:
    """All levels of one depth, of all resources one after the other, as flat arrays.

    ``of`` tells the level of each child, ``starts`` the first child of each level.
    """

    of: Ints
    starts: Ints

    def add_up(self, amounts: Ints) -> Ints:
        return np.add.reduceat(amounts, self.starts)


def share_frames(
    layout: Layout, frames: Sequence[Frame], totals: Sequence[int], *, scales: bool
) -> tuple[list[list[int]], list[list[int]]]:
    """Return guarantees after scaling and shares, per resource and row."""
    minimum, wants, weights, lends, own = (
        np.stack([getattr(frame, name) for frame in frames])
        for name in ("minimum", "wants", "weights", "lends", "own")
    )
    guaranteed = None
    if frames[0].guaranteed is not None:
        guaranteed = np.stack(
            [frame.guaranteed for frame in frames if frame.guaranteed is not None]
        )
    share = np.zeros_like(wants)
    share[:, 0] = totals
    for parents, starts, end in _depths(layout):
        rows = slice(int(starts[0]), end)
        levels = _repeat(starts, end, len(frames))
        total = share[:, parents].ravel()
        least = minimum[:, rows].ravel()
        if scales:
            least = _scale(levels, total, least)
            minimum[:, rows] = least.reshape(len(frames), -1)
        floors = least if guaranteed is None else np.maximum(least, guaranteed[:, rows].ravel())
        wanted = wants[:, rows].ravel()
        granted = np.where((wanted <= floors) & lends[:, rows].ravel(), wanted, floors)
        left = total - levels.add_up(granted) - own[:, parents].ravel()
        _lend(levels, left, granted, wanted, weights[:, rows].ravel())
        share[:, rows] = granted.reshape(len(frames), -1)
    return minimum.tolist(), share.tolist()


def _depths(layout: Layout) -> list[tuple[Ints, Ints, int]]:
    """Return, for each depth, the rows of its parents, their first children, and its end."""
    found: list[tuple[Ints, Ints, int]] = []
    at, levels = 0, layout.levels
    deepest = 1
    while at < len(levels):
        until = at
        while until < len(levels) and levels[until][0] < deepest:
            until += 1
        some = levels[at:until]
        parents = np.array([parent for parent, _, _ in some], dtype=np.int64)
        starts = np.array([first for _, first, _ in some], dtype=np.int64)
        found.append((parents, starts, some[-1][2]))
        at, deepest = until, some[-1][2]
    return found


def _repeat(starts: Ints, end: int, times: int) -> _Levels:
    """Return the levels of one depth, once for each resource."""
    offsets = starts - starts[0]
    width = end - int(starts[0])
    sizes = np.diff(offsets, append=width)
    steps = np.arange(times, dtype=np.int64)[:, None]
    of = np.repeat(np.arange(len(starts)), sizes)
    return _Levels(
        (of + steps * len(starts)).ravel(),
        (offsets + steps * width).ravel(),
    )


def _scale(levels: _Levels, total: Ints, minimum: Ints) -> Ints:
    """Shrink the guarantees of levels that have less than their sum."""
    wanted = levels.add_up(minimum)
    short = total < wanted
    if not short.any():
        return minimum
    at = np.flatnonzero(short[levels.of])
    of = levels.of[at]
    scaled = minimum.copy()
    scaled[at], _ = _divide(minimum[at], np.maximum(total, 0)[of], wanted[of])
    return scaled


def _lend(levels: _Levels, left: Ints, granted: Ints, wants: Ints, weights: Ints) -> None:
    """Give what is left of every level to its borrowers, in rounds."""
    borrowers = np.flatnonzero((wants > granted) & (weights > 0))
    while True:
        borrowers = borrowers[left[levels.of[borrowers]] > 0]
        if not borrowers.size:
            return
        of = levels.of[borrowers]
        starts = np.flatnonzero(np.diff(of, prepend=-1))
        here = of[starts]
        sizes = np.diff(starts, append=len(of))
        lent = left[here]
        weight = weights[borrowers]
        whole = np.repeat(np.add.reduceat(weight, starts), sizes)
        gives, rests = _divide(weight, np.repeat(lent, sizes), whole)
        spare = lent - np.add.reduceat(gives, starts)
        gives += _is_rounded_up(rests, starts, sizes, spare)
        has, most = granted[borrowers] + gives, wants[borrowers]
        granted[borrowers] = np.minimum(has, most)
        left[here] = np.add.reduceat(np.maximum(has - most, 0), starts)
        borrowers = borrowers[has < most]


def _is_rounded_up(rests: Ints, starts: Ints, sizes: Ints, spare: Ints) -> Flags:
    """Tell who gets one of the spare units of its level: the largest rest, the first of equals."""
    widest = int(sizes.max())
    place = np.arange(len(rests)) - np.repeat(starts, sizes)
    if widest * len(starts) <= MOST_PADDING * len(rests):
        level = np.repeat(np.arange(len(starts)), sizes)
        padded = np.ones((len(starts), widest), dtype=np.int64)
        padded[level, place] = -rests
        order = np.argsort(padded, axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(widest)[None, :], axis=1)
        return rank[level, place] < np.repeat(spare, sizes)
    level = np.repeat(np.arange(len(starts)), sizes)
    order = np.lexsort((-rests, level))
    is_up = np.zeros(len(rests), dtype=np.bool_)
    is_up[order[place < np.repeat(spare, sizes)]] = True
    return is_up


MOST_PADDING: Final = 4
"""How much larger the table of all levels may be than what stands in it."""


def _divide(one: Ints, other: Ints, by: Ints) -> tuple[Ints, Ints]:
    """Return quotient and remainder of ``one * other`` by a positive divisor."""
    quotient = (one.astype(np.float64) * other / by).astype(np.int64)
    rest = one * other - quotient * by
    while True:
        off = (rest >= by).astype(np.int64) - (rest < 0)
        if not off.any():
            return quotient, rest
        quotient += off
        rest -= off * by
