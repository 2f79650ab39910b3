"""Files as HAMi-core's library would write them, made from its layout; none was recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import pack_into

from koord.agent.region import MAGIC, V0, V1, RegionLayout

UUID = "GPU-11111111-2222-3333-4444-555555555555"
OTHER = "GPU-99999999-2222-3333-4444-555555555555"


@dataclass
class Process:
    """A slot: bytes and percent of each card. Status 0: the process has ended."""

    used: Sequence[int]
    load: Sequence[int] = (0,)
    status: int = 1


@dataclass
class RegionFile:
    layout: RegionLayout = V1
    uuids: Sequence[str] = (UUID,)
    limits: Sequence[int] = (1 << 30,)
    processes: Sequence[Process] = ()
    magic: int = MAGIC
    major: int = 1
    count: int | None = None
    """What it says how many processes there are."""
    cards: int | None = None
    last_kernel: int = 0
    more: dict[int, bytes] = field(default_factory=dict)

    def make(self) -> bytes:
        layout, content = self.layout, bytearray(self.layout.size)
        pack_into("<i", content, 0, self.magic)
        if layout.major is not None:
            pack_into("<i", content, 4, self.major)
        pack_into("<Q", content, layout.num, len(self.uuids) if self.cards is None else self.cards)
        for at, uuid in enumerate(self.uuids):
            start = layout.uuids + 96 * at
            content[start : start + len(uuid)] = uuid.encode()
        for at, limit in enumerate(self.limits):
            pack_into("<Q", content, layout.limits + 8 * at, limit)
        for at, process in enumerate(self.processes):
            start = layout.slots + at * layout.slot
            for place, amounts in ((layout.used, process.used), (layout.load, process.load)):
                for card, amount in enumerate(amounts):
                    pack_into("<Q", content, start + place[0] + card * place[1], amount)
            pack_into("<i", content, start + layout.status, process.status)
        count = len(self.processes) if self.count is None else self.count
        pack_into("<i", content, layout.processes, count)
        if layout.last_kernel is not None:
            pack_into("<q", content, layout.last_kernel, self.last_kernel)
        for start, written in self.more.items():
            content[start : start + len(written)] = written
        return bytes(content)


LAYOUTS = (V0, V1)
