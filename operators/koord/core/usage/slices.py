"""Slices of GPUs: which sevenths of the GPUs of a node pods hold, so that seven make a whole.

A seventh is no whole number of thousandths. The first six of a GPU count 143, the last one 142;
which one a pod has is chosen as it begins, the lowest that is free, and stays.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple

SEVENTHS: Final = 7
MOST_SLOTS: Final = 16 * SEVENTHS
"""Sevenths of one pod that are told apart: no node has more of them. Of a pod that asks for more,
which no kubelet accepts, only the number counts."""
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
        self._freed: list[int] = []
        """A heap; all from ``_next`` on are free, too."""
        self._next = 0

    def take(self, uid: str, count: int) -> int:
        """Return the thousandths that a pod holds with so many sevenths, the same while it does."""
        slots = self._held.get(uid, ())
        if len(slots) != count:
            self.free(uid)
            if count > MOST_SLOTS:
                return measure_slices(count)
            slots = self._held[uid] = tuple(self._take_lowest() for _ in range(count))
        return sum(measure_slices(1, slot) for slot in slots)

    def free(self, uid: str) -> None:
        """Note that a pod holds none; without effect if it did not."""
        for slot in self._held.pop(uid, ()):
            heappush(self._freed, slot)

    def _take_lowest(self) -> int:
        if self._freed:
            return heappop(self._freed)
        self._next += 1
        return self._next - 1

    def __bool__(self) -> bool:
        return bool(self._held)


def share_slices(spans: Iterable[SliceSpan]) -> dict[str, int]:
    """Return the thousandths that each pod of one node held."""
    slots, shares = SliceSlots(), dict[str, int]()
    running: list[tuple[int, str]] = []
    """A heap of ends, and whose they are."""
    for span in sorted(spans, key=lambda span: (span.start, span.uid)):
        while running and running[0][0] <= span.start:
            slots.free(heappop(running)[1])
        shares[span.uid] = slots.take(span.uid, span.sevenths)
        heappush(running, (span.end, span.uid))
    return shares
