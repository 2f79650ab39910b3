"""The fair share: how the children of each parent divide what the parent has of a resource.

1. Where there is less than the sum of the guarantees, they are scaled down in proportion.
2. Each child that wants more than its guarantee gets its guarantee and borrows. Each other child
   gets what it wants, and all of its guarantee if it does not lend.
3. What is left goes to the borrowers in rounds, by weight, in whole units by largest remainder
   (Hamilton). A child that has what it wants returns the rest and drops out.

All levels of one depth and many resources are divided at once, as flat arrays, one level after the
other. The result is exact: arrays are of int64 where ``fits_int64`` says so, and of Python integers
(dtype object) otherwise, because weights in bytes times amounts in bytes exceed 64 bits. Source:
Koordinator's multi-hierarchy quota management and its runtime quota.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[Any]
"""Integers: of dtype int64, or Python's own in an array of dtype object."""
Flags: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = NDArray[np.int64]

MAX_AMOUNT: Final = float(1 << 55)
MAX_WEIGHT: Final = float(1 << 57)
"""Limits of the int64 arithmetic, see ``_multiply_and_divide``."""
_MAX_PADDING: Final = 4
"""How many times larger the padded table of all levels may be than its content."""
_TRUE: Final = np.ones(1, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Levels:
    """Children of several parents, one level after the other.

    ``of`` is the level of each child, ``starts`` the first child of each level. Within a level,
    children are sorted by name: that order decides between equal remainders.
    """

    of: Rows
    starts: Rows

    def sum(self, amounts: Ints) -> Ints:
        return np.add.reduceat(amounts, self.starts)


@dataclass(frozen=True, slots=True)
class LevelDemands:
    """What the children claim; ``own``, by level, is the demand of the parent's own pods.

    Own pods are served like a child without a guarantee, but before those who borrow.
    """

    minimum: Ints
    guaranteed: Ints | None
    wants: Ints
    weights: Ints
    lends: Flags
    own: Ints


def make_levels(starts: Rows, width: int, times: int = 1) -> Levels:
    """Return levels that start at these places of ``width`` children, repeated per resource."""
    sizes = _sizes(starts, width)
    steps = np.arange(times, dtype=np.int64)[:, None]
    of = np.repeat(np.arange(len(starts)), sizes)
    return Levels((of + steps * len(starts)).ravel(), (starts + steps * width).ravel())


def fits_int64(amounts: float, weights: float) -> bool:
    """Whether int64 is exact, given the sums of all amounts (with the total) and all weights."""
    return amounts < MAX_AMOUNT and weights < MAX_WEIGHT


def divide_levels(
    levels: Levels, total: Ints, demands: LevelDemands, is_scaled: Flags
) -> tuple[Ints, Ints]:
    """Return the guarantees after scaling, and the shares, by child.

    ``total`` and ``is_scaled`` are by level. Guarantees are granted even if they exceed the total;
    what no borrower can take stays undivided.
    """
    minimum = scale_guarantees(levels, total, demands.minimum, is_scaled)
    floors = minimum if demands.guaranteed is None else np.maximum(minimum, demands.guaranteed)
    granted = grant_guarantees(floors, demands.wants, demands.lends)
    left = total - levels.sum(granted) - demands.own
    _lend(levels, left, granted, demands.wants, demands.weights)
    return minimum, granted


def scale_guarantees(levels: Levels, total: Ints, minimum: Ints, is_scaled: Flags) -> Ints:
    """Scale the guarantees of levels that have less than their sum; rounded down."""
    wanted, there = levels.sum(minimum), np.maximum(total, 0)
    is_short = is_scaled & (there < wanted)
    if not is_short.any():
        return minimum
    at = np.flatnonzero(is_short[levels.of])
    of = levels.of[at]
    scaled = minimum.copy()
    scaled[at], _ = _multiply_and_divide(minimum[at], there[of], wanted[of])
    return scaled


def grant_guarantees(floors: Ints, wants: Ints, lends: Flags) -> Ints:
    """Return what each child has before anything is lent."""
    granted: Ints = np.where((wants <= floors) & lends, wants, floors)
    return granted


def effective_min(minimum: int, scaled: int, want: int, share: int) -> int:
    """Return a guarantee after scaling; unscaled where the quota has all that it wants anyway.

    A parent that asks for little gets little, and the guarantees of its children are scaled to that
    although no child lacks anything: then nothing was taken from them.
    """
    return minimum if share >= min(minimum, want) else scaled


def _lend(levels: Levels, left: Ints, granted: Ints, wants: Ints, weights: Ints) -> None:
    """Give what is left of every level to its borrowers, in rounds; changes both arrays."""
    borrowers = np.flatnonzero((wants > granted) & (weights > 0))
    while True:
        borrowers = borrowers[left[levels.of[borrowers]] > 0]
        if not borrowers.size:
            return
        of = levels.of[borrowers]
        starts = np.flatnonzero(np.concatenate((_TRUE, of[1:] != of[:-1])))
        here = of[starts]
        sizes = _sizes(starts, len(of))
        lent = left[here]
        weight = weights[borrowers]
        whole = np.repeat(np.add.reduceat(weight, starts), sizes)
        gives, rests = _multiply_and_divide(weight, np.repeat(lent, sizes), whole)
        spare = lent - np.add.reduceat(gives, starts)
        gives += _is_rounded_up(rests, starts, sizes, spare)
        has, most = granted[borrowers] + gives, wants[borrowers]
        granted[borrowers] = np.minimum(has, most)
        left[here] = np.add.reduceat(np.maximum(has - most, 0), starts)
        borrowers = borrowers[has < most]


def _is_rounded_up(rests: Ints, starts: Rows, sizes: Rows, spare: Ints) -> Flags:
    """Tell who gets one of the spare units of its level: the largest rests, the first of equals."""
    widest = int(sizes.max())
    place = np.arange(len(rests)) - np.repeat(starts, sizes)
    level = np.repeat(np.arange(len(starts)), sizes)
    if widest * len(starts) <= _MAX_PADDING * len(rests):
        # Sorting many short rows is several times as fast as sorting everything.
        padded = np.ones((len(starts), widest), dtype=rests.dtype)
        padded[level, place] = -rests
        order = np.argsort(padded, axis=1, kind="stable")
        table = np.zeros(padded.shape, dtype=np.bool_)
        table[np.arange(len(starts))[:, None], order] = np.arange(widest) < spare[:, None]
        return table[level, place]
    order = np.argsort(-rests, kind="stable")
    order = order[np.argsort(level[order], kind="stable")]
    is_up = np.zeros(len(rests), dtype=np.bool_)
    is_up[order[place < np.repeat(spare, sizes)]] = True
    return is_up


def _sizes(starts: Rows, end: int) -> Rows:
    sizes: Rows = np.append(starts[1:], end) - starts
    return sizes


def _multiply_and_divide(factor: Ints, multiplier: Ints, divisor: Ints) -> tuple[Ints, Ints]:
    """Return quotient and remainder of ``factor * multiplier`` by a positive divisor, exactly.

    The product need not fit into 64 bits. The quotient is estimated in floating point: below
    ``MAX_AMOUNT`` the estimate is off by some 16 units at most. Its remainder is computed modulo
    2**64, fits because divisors are below ``MAX_WEIGHT``, and corrects the quotient.
    """
    if factor.dtype == object:
        quotient = factor * multiplier // divisor
        return quotient, factor * multiplier - quotient * divisor
    quotient = (factor.astype(np.float64) * multiplier / divisor).astype(np.int64)
    remainder = factor * multiplier - quotient * divisor
    missing = remainder // divisor
    return quotient + missing, remainder - missing * divisor
