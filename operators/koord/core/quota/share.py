"""One level of the fair share: how children of one parent divide an amount of one resource.

1. Each child that wants more than its guarantee gets its guarantee and borrows. Each other gets
   what it wants, and all of its guarantee if it does not lend.
2. What is left goes to the borrowers in rounds, by weight, in whole units by largest remainder
   (Hamilton). Who has what it wants gives the rest back and drops out.

Every step is on exact integers: weights of bytes times bytes do not fit into 64 bits, nor a float.
Source: Koordinator's multi-hierarchy quota management and its runtime quota.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Level(NamedTuple):
    """The children of one parent, by name: that order decides between equal remainders.

    ``own`` is what the parent's own pods ask: like a child without guarantee, but served before the
    borrowers.
    """

    floors: Sequence[int]
    wants: Sequence[int]
    weights: Sequence[int]
    lends: Sequence[bool]
    own: int = 0


def share_level(total: int, level: Level) -> list[int]:
    """Return what each child gets of ``total``.

    Guarantees are given even if they exceed it; what no borrower can take stays undivided.
    """
    wants = level.wants
    granted = [
        want if want <= floor and lent else floor
        for floor, want, lent in zip(level.floors, wants, level.lends, strict=True)
    ]
    left = total - sum(granted) - level.own
    if left <= 0:
        return granted
    borrowers = [
        (row, want, weight)
        for row, (want, had, weight) in enumerate(zip(wants, granted, level.weights, strict=True))
        if want > had and weight > 0
    ]
    while left > 0 and borrowers:
        gives = divide(left, [weight for _, _, weight in borrowers])
        left = 0
        unsatisfied = []
        for borrower, give in zip(borrowers, gives, strict=True):
            row, want, _ = borrower
            has = granted[row] + give
            if has < want:
                granted[row] = has
                unsatisfied.append(borrower)
            else:
                granted[row] = want
                left += has - want
        borrowers = unsatisfied
    return granted


def divide(amount: int, weights: Sequence[int]) -> list[int]:
    """Divide ``amount`` by positive weights into whole units; the largest remainders round up."""
    whole = sum(weights)
    gives = [weight * amount // whole for weight in weights]
    spare = amount - sum(gives)
    if spare:
        rests = [weight * amount % whole for weight in weights]
        # A stable sort, reversed, keeps equal remainders in the order of names.
        for at in sorted(range(len(rests)), key=rests.__getitem__, reverse=True)[:spare]:
            gives[at] += 1
    return gives
