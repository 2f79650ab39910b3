"""Slices of GPUs: which sevenths of the GPUs of a node pods hold, so that seven make a whole.

A seventh is no whole number of thousandths. The first six of a GPU count 143, the last one 142;
which one a pod has is chosen as it begins, the lowest that is free, and stays.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

SEVENTHS: Final = 7
_GPU: Final = 1_000


def measure_slices(count: int, first: int = 0) -> int:
    """Return the thousandths of so many sevenths in a row, of which ``first`` come before."""
    return _upto(first + count) - _upto(first)


def _upto(slices: int) -> int:
    return -(-slices * _GPU // SEVENTHS)


class SliceSpan(NamedTuple):
    """A pod (uid) holds so many sevenths from ``start`` to ``end``."""

    uid: str
    start: int
    end: int
    sevenths: int


class SliceSlots:
    """The sevenths of one node."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, ...]] = {}

    def take(self, uid: str, count: int) -> int:
        """Return the thousandths that a pod holds with so many sevenths, the same while it does."""
        slots = self._held.get(uid, ())
        if len(slots) != count:
            self._held.pop(uid, None)
            taken = {slot for held in self._held.values() for slot in held}
            free = (slot for slot in range(len(taken) + count) if slot not in taken)
            slots = tuple(slot for slot, _ in zip(free, range(count), strict=False))
            self._held[uid] = slots
        return sum(measure_slices(1, slot) for slot in slots)

    def free(self, uid: str) -> None:
        """Note that a pod holds none; without effect if it did not."""
        self._held.pop(uid, None)

    def __bool__(self) -> bool:
        return bool(self._held)


def share_slices(spans: Iterable[SliceSpan]) -> dict[str, int]:
    """Return the thousandths that each pod of one node held."""
    slots, shares = SliceSlots(), dict[str, int]()
    running: list[SliceSpan] = []
    for span in sorted(spans, key=lambda span: (span.start, span.uid)):
        for ended in [other for other in running if other.end <= span.start]:
            slots.free(ended.uid)
            running.remove(ended)
        shares[span.uid] = slots.take(span.uid, span.sevenths)
        running.append(span)
    return shares
