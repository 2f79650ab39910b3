"""The file in which HAMi-core's library keeps what the processes of one container use of GPUs.

The container may write it, so every byte is a claim of a tenant: numbers are for dashboards, never
for bills or evictions. Two layouts are known, each by the exact size of its file; all numbers are
little endian. It is never mapped into memory: a tenant who truncates it meanwhile would end this
process.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from struct import Struct
from typing import Final, NamedTuple

MAGIC: Final = 19920718
MOST_CARDS: Final = 16
"""Cards that a file has room for."""
MOST_SLOTS: Final = 1024
"""Processes that a file has room for."""
_UUID: Final = re.compile(rb"GPU-[0-9a-f-]{36}")
_UUID_BYTES: Final = 96
_INT: Final = Struct("<i")
_LONG: Final = Struct("<q")
_COUNT: Final = Struct("<Q")
_AMOUNTS: Final = Struct(f"<{MOST_CARDS}Q")


class Unreadable(StrEnum):
    """Why a file, or an entry of one, does not count."""

    NO_FILE = "NoFile"
    """There is none, or more than one."""
    NOT_REGULAR = "NotRegular"
    """A link, a pipe, a device, or nothing that can be opened."""
    UNKNOWN_SIZE = "UnknownSize"
    UNKNOWN_MAGIC = "UnknownMagic"
    """Or an unknown version, or more cards than there is room for."""
    TRUNCATED = "Truncated"
    """It became shorter while it was read."""
    UNKNOWN_CARD = "UnknownCard"
    """No UUID of a card that the pod holds, or one that is there twice."""
    ABOVE_MEMORY = "AboveMemory"
    """More than the card has: what it has counts."""
    TOO_MANY = "TooMany"
    """More files, or more time for them, than one reading may take."""


class UnreadableRegion(Exception):  # noqa: N818 - what it says is what is wrong
    """A file does not count."""

    def __init__(self, why: Unreadable) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class RegionLayout:
    """Where things are in a file of ``size`` bytes; ``major`` is None where no version is said.

    ``used`` and ``load`` are places in a slot: of the first card, and from one card to the next.
    """

    size: int
    major: int | None
    num: int
    limits: int
    slots: int
    slot: int
    used: tuple[int, int]
    load: tuple[int, int]
    status: int
    processes: int
    last_kernel: int | None

    @property
    def uuids(self) -> int:
        return self.num + 8


V1: Final = RegionLayout(
    size=2_008_952, major=1, num=56, limits=1600, slots=1856, slot=1960,
    used=(8 + 32, 64), load=(1160 + 16, 48), status=1928,
    processes=2_008_896, last_kernel=2_008_912,
)  # fmt: skip
V0: Final = RegionLayout(
    size=1_197_896, major=None, num=48, limits=1592, slots=1848, slot=1168,
    used=(8 + 32, 40), load=(776 + 16, 24), status=1160,
    processes=1_197_880, last_kernel=None,
)  # fmt: skip
LAYOUTS: Final = {layout.size: layout for layout in (V0, V1)}


class RegionCard(NamedTuple):
    """A card as a container sees it: its number there, bytes, and percent; sums of processes."""

    number: int
    uuid: str
    limit: int
    used: int
    load: int


class ContainerRegion(NamedTuple):
    """What a file says; ``last_kernel`` in seconds since the epoch, 0: not said."""

    cards: tuple[RegionCard, ...]
    last_kernel: int = 0


def read_region(folder: int, name: str) -> ContainerRegion:
    """Read a file of an open folder. Raises UnreadableRegion."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise UnreadableRegion(Unreadable.NOT_REGULAR) from error
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableRegion(Unreadable.NOT_REGULAR)
        layout = LAYOUTS.get(status.st_size)
        if layout is None:
            raise UnreadableRegion(Unreadable.UNKNOWN_SIZE)
        return parse_region(layout, lambda start, length: _read(file, start, length))
    finally:
        os.close(file)


def _read(file: int, start: int, length: int) -> bytes:
    try:
        content = os.pread(file, length, start)
    except OSError as error:
        raise UnreadableRegion(Unreadable.TRUNCATED) from error
    if len(content) != length:
        raise UnreadableRegion(Unreadable.TRUNCATED)
    return content


def parse_region(layout: RegionLayout, read: Callable[[int, int], bytes]) -> ContainerRegion:
    """Return what three ranges of a file say, which ``read`` gets. Raises UnreadableRegion."""
    head = read(0, layout.slots)
    if _INT.unpack_from(head)[0] != MAGIC:
        raise UnreadableRegion(Unreadable.UNKNOWN_MAGIC)
    if layout.major is not None and _INT.unpack_from(head, 4)[0] != layout.major:
        raise UnreadableRegion(Unreadable.UNKNOWN_MAGIC)
    count = _COUNT.unpack_from(head, layout.num)[0]
    if count > MOST_CARDS:
        raise UnreadableRegion(Unreadable.UNKNOWN_MAGIC)
    tail = read(layout.processes, layout.size - layout.processes)
    processes = min(max(_INT.unpack_from(tail)[0], 0), MOST_SLOTS)
    slots = read(layout.slots, processes * layout.slot)
    used, load = [0] * count, [0] * count
    for start in _live_slots(layout, slots):
        for card in range(count):
            used[card] += _at(slots, start, layout.used, card)
            load[card] += _at(slots, start, layout.load, card)
    limits = _AMOUNTS.unpack_from(head, layout.limits)
    cards = tuple(
        RegionCard(card, _uuid_of(layout, head, card), limits[card], used[card], load[card])
        for card in range(count)
    )
    if layout.last_kernel is None:
        return ContainerRegion(cards)
    return ContainerRegion(cards, _LONG.unpack_from(tail, layout.last_kernel - layout.processes)[0])


def _live_slots(layout: RegionLayout, slots: bytes) -> Iterator[int]:
    """Yield where the slots of processes begin that have not ended: others keep their numbers."""
    for start in range(0, len(slots), layout.slot):
        if _INT.unpack_from(slots, start + layout.status)[0]:
            yield start


def _at(slots: bytes, start: int, place: tuple[int, int], card: int) -> int:
    first, step = place
    amount: int = _COUNT.unpack_from(slots, start + first + card * step)[0]
    return amount


def _uuid_of(layout: RegionLayout, head: bytes, card: int) -> str:
    """Return the UUID of a card; empty if it is none."""
    start = layout.uuids + card * _UUID_BYTES
    text = head[start : start + _UUID_BYTES].partition(b"\0")[0]
    return text.decode() if _UUID.fullmatch(text) else ""
