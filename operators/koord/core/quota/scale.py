"""Shrinking guarantees: what is left of each child's min when there is less than their sum.

Koordinator computes this in floating point and only for the quotas that it happens to look at; here
it is exact, and made anew from the original min every time.
"""

from collections.abc import Sequence


def felt_min(minimum: int, scaled: int, want: int, share: int) -> int:
    """Return what is left of a guarantee, as far as anybody feels it.

    A parent that asks for little gets little, and the guarantees of its children are scaled to that
    although each of them has all that it wants: then nothing was taken from anybody.
    """
    return minimum if share >= min(minimum, want) else scaled


def scale_min(
    total: int, minimum: Sequence[int], is_scalable: Sequence[bool] | None = None
) -> Sequence[int]:
    """Return the guarantees of the children among which ``total`` is shared out.

    Guarantees that are not scalable stay, and the others share what these leave, in proportion and
    rounded down.
    """
    wanted = sum(minimum)
    if total >= wanted:
        return minimum
    if is_scalable is None:
        is_scalable = [True] * len(minimum)
    fixed = sum(n for n, scales in zip(minimum, is_scalable, strict=True) if not scales)
    left, elastic = max(0, total - fixed), wanted - fixed
    return [
        (left * n // elastic if elastic > 0 else 0) if scales else n
        for n, scales in zip(minimum, is_scalable, strict=True)
    ]
