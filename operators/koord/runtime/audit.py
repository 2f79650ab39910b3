"""Where records of decisions go: the feed that others read, and lines of JSON in a log.

Both read the ring from other threads than the one that decides, and encode there. Neither holds
anything up: if a reader or a disk is slow, records are lost to it, and a gap says how many.
"""

import asyncio
import logging
import os
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import version as version_of
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from koord.answers.audit import write_record
from koord.api import Compat
from koord.controllers.decision_log import DecisionLog
from koord.controllers.placement import PlacementController
from koord.core.audit.records import AuditRecord, ConfigInForce
from koord.core.audit.ring import Ring
from koord.core.engine.decision_trace import DecisionTrace
from koord.domains.audit_settings import STDOUT, AuditSettings
from koord.runtime.collectors import audit_records
from koord.runtime.cycle_snapshots import (
    CycleSnapshots,
    EncodeCycle,
    PlannedCycle,
    PlannerSettings,
)
from koord.runtime.hooks import load_hooks
from koord.runtime.settings import Settings

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts

log = logging.getLogger(__name__)

MOST_PER_PAGE: Final = 2000
DEFAULT_LIMIT: Final = 500
LONGEST_WAIT_SECONDS: Final = 8
"""A connection lasts no longer than ten seconds."""
LOOK_SECONDS: Final = 0.25
"""How often a reader that waits, and the log, look for new records."""
RECORDS_PER_SECOND: Final = 2000
"""No more are encoded for all readers together."""
MOST_RECORD_BYTES: Final = 8 * 1024
FILE_BYTES: Final = 64 << 20
KEPT_FILES: Final = 3
_WARN_SECONDS: Final = 60.0
_MOST_KEY: Final = 512
_MOST_NAMES: Final = 3
_TRIMMED: Final = ("score", "fields", "nodes", "failures", "pods")
"""What is left out of a record that is too long, in this order; then names of gangs of a group."""


def start(parts: "Parts") -> None:
    """Have decisions recorded, where placement runs in this process and somebody may read them."""
    settings, placement = parts.settings.of(AuditSettings), parts.placement
    if not settings.is_on or placement is None:
        return
    ring = Ring(settings.records, settings.bytes)
    audit = DecisionLog(
        ring,
        parts.reader.state,
        placement.queue,
        time.time,
        time.monotonic,
        placement.places.last_position,
        _describe_config(parts.settings),
        _find_traces(placement),
    )
    parts.audit = placement.audit = audit
    parts.history.on_episode = audit.episode
    if parts.evictions is not None:
        parts.evictions.on_step = audit.eviction
    parts.metrics.watch(*audit_records(ring))
    if settings.log:
        parts.background.append(RecordLog(ring, settings.log).run)
    if settings.feed:
        parts.cycles = _follow_cycles(parts, placement, ring)


def _follow_cycles(parts: "Parts", placement: PlacementController, ring: Ring) -> CycleSnapshots:
    planner = PlannerSettings(
        tuple(parts.settings.all_plan_options()),
        parts.settings.compat is Compat.KOORDINATOR,
        tuple(load_hooks().hooks),
        parts.settings.of(AuditSettings).snapshot_on_error,
    )

    def list_records(unit: str) -> list[Mapping[str, Any]]:
        documents = (write_record(record) for record in ring.read(0, MOST_PER_PAGE))
        return [
            document
            for document in documents
            if unit and unit in ((document.get("unit") or {}).get("names") or ())
        ]

    return CycleSnapshots(placement, parts.reader.take_snapshot, planner, list_records)


def _find_traces(placement: PlacementController) -> Callable[[str], DecisionTrace | None]:
    return lambda unit: None if placement.tracer is None else placement.tracer.find(unit)


def _describe_config(settings: Settings) -> ConfigInForce:
    """Return what tells one configuration from another; it has no secrets, and is in a file."""
    whole = _in_order(settings.model_dump(mode="json", by_alias=True))
    text = msgspec.json.encode(whole, order="sorted")
    chosen = settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
    names = sorted(chosen.keys() - {"apiVersion", "kind"})
    version = version_of("koord-operators")
    return ConfigInForce(version, sha256(text).hexdigest()[:16], tuple(names))


def _in_order(value: Any) -> Any:
    """Return a value whose lists have one order: that of sets is another in each process."""
    if isinstance(value, dict):
        return {key: _in_order(item) for key, item in value.items()}
    return sorted(map(_in_order, value), key=repr) if isinstance(value, list) else value


def encode_record(record: AuditRecord) -> bytes:
    """Return a record as one line; what makes it too long is left out, which it says."""
    document = write_record(record)
    line = msgspec.json.encode(document)
    for name in _TRIMMED:
        if len(line) <= MOST_RECORD_BYTES:
            break
        if document.get(name):
            document |= {name: type(document[name])(), "truncated": True}
            line = msgspec.json.encode(document)
    unit = document.get("unit")
    if len(line) > MOST_RECORD_BYTES and unit is not None:
        unit |= {"key": unit["key"][:_MOST_KEY], "names": unit["names"][:_MOST_NAMES], "asks": {}}
        line = msgspec.json.encode(document | {"truncated": True})
    return line + b"\n"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer of the feed: a status of HTTP, and lines of JSON."""

    status: int
    body: bytes


@dataclass(slots=True)
class FeedPages:
    """Serves the records of the present term, page by page; used from one event loop."""

    ring: Ring
    holder: str
    is_leading: Callable[[], bool]
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self, query: Mapping[str, str]) -> Page:
        """Return a page: records after ``after`` of ``term``, once there are any."""
        try:
            numbers = {name: _parse(query, name, *bounds) for name, bounds in _BOUNDS.items()}
        except ValueError as error:
            return Page(400, f"{error}\n".encode())
        if not self.is_leading() or self.ring.term is None:
            return Page(503, _NOT_LEADING)
        term = self.ring.term if numbers["term"] < 0 else numbers["term"]
        until = time.monotonic() + numbers["wait"]
        while True:
            if term != self.ring.term:
                return Page(410, f'{{"term":{self.ring.term}}}\n'.encode())
            records = self.ring.read(numbers["after"], numbers["limit"])
            if records or time.monotonic() >= until:
                return Page(200, await self._encode(records))
            await asyncio.sleep(LOOK_SECONDS)

    async def _encode(self, records: Iterable[AuditRecord]) -> bytes:
        """Encode in small parts, so that neither probes nor the thread that decides wait long."""
        lines: list[bytes] = []
        async with self._turn:
            for record in records:
                lines.append(encode_record(record))
                if len(lines) % 20 == 0:
                    await asyncio.sleep(20 / RECORDS_PER_SECOND)
        return b"".join(lines)


_BOUNDS: Final[Mapping[str, tuple[int, int, int]]] = {
    "term": (-1, 0, 1 << 53),
    "after": (0, 0, 1 << 53),
    "limit": (DEFAULT_LIMIT, 1, MOST_PER_PAGE),
    "wait": (0, 0, LONGEST_WAIT_SECONDS),
}
"""Parameter -> its default, and the least and the most that it may be."""
_MOST_DIGITS: Final = 16


def _parse(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    if not is_number or not least <= int(text) <= most:
        raise ValueError(f"{name} has to be a number from {least} to {most}")
    return int(text)


@dataclass(slots=True)
class CyclePages:
    """Serves a snapshot of the next cycle to whoever orders it; used from one event loop.

    ``ask`` has the main loop answer, and raises TimeoutError.
    """

    snapshots: CycleSnapshots
    encode: EncodeCycle
    holder: str
    is_leading: Callable[[], bool]
    ask: Callable[[Callable[[], Any]], Awaitable[Any]]
    _file: tuple[PlannedCycle, asyncio.Task[bytes]] | None = None

    async def order(self, unit: str) -> Page:
        """Have the next cycle taken that plans a unit, empty for any."""
        if not self.is_leading():
            return Page(503, _NOT_LEADING)
        self._file = None
        if await self.ask(lambda: self.snapshots.order(unit)):
            return Page(202, b"ordered\n")
        return Page(429, b"one was ordered less than a minute ago\n")

    async def fetch(self) -> Page:
        """Return the file of the cycle that was ordered; 204: it is not there yet.

        It is made while nobody waits for it: a connection lasts ten seconds.
        """
        if not self.is_leading():
            return Page(503, _NOT_LEADING)
        cycle = self.snapshots.taken
        if cycle is None:
            self._file = None
            is_waiting = self.snapshots.is_waiting
            return Page(204, b"") if is_waiting else Page(404, b"nothing is ordered\n")
        if self._file is None or self._file[0] is not cycle:
            making = asyncio.create_task(asyncio.to_thread(self.encode, cycle))
            self._file = cycle, making
        made = self._file[1]
        if not made.done():
            return Page(204, b"")
        if error := made.exception():
            return Page(500, f"it cannot be written: {type(error).__name__}\n".encode())
        return Page(200, made.result())


_NOT_LEADING: Final = b"this process does not lead\n"


@dataclass(slots=True)
class RecordLog:
    """Writes each record as a line to ``stdout`` or a file, which is rotated by size."""

    ring: Ring
    to: str
    most_bytes: int = FILE_BYTES
    _term: int | None = None
    _after: int = 0
    _warned_at: float = float("-inf")
    _turn: Lock = field(default_factory=Lock)

    async def run(self) -> NoReturn:
        try:
            while True:
                await asyncio.to_thread(self.write)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self.write()

    def write(self) -> None:
        """Write what is new; what cannot be written is tried again as long as it is kept."""
        with self._turn:  # the last time is in another thread than those before
            self._write()

    def _write(self) -> None:
        if self._term != self.ring.term:
            self._term, self._after = self.ring.term, 0
        records = self.ring.read(self._after, DEFAULT_LIMIT)
        if not records:
            return
        try:
            self._append(b"".join(map(encode_record, records)))
        except OSError as error:
            if time.monotonic() >= self._warned_at + _WARN_SECONDS:
                self._warned_at = time.monotonic()
                log.warning(
                    "Cannot write records of decisions",
                    extra={"file": self.to, "problem": error.strerror or str(error)},
                )
            return
        self._after = records[-1].seq

    def _append(self, lines: bytes) -> None:
        if self.to == STDOUT:
            sys.stdout.buffer.write(lines)
            sys.stdout.buffer.flush()
            return
        path = Path(self.to)
        if path.is_file() and path.stat().st_size + len(lines) > self.most_bytes:
            _rotate(path)
        # A pipe without a reader must not hold up the end of the process.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o640)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(f"{path} is no file")
            view = memoryview(lines)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)


def _rotate(path: Path) -> None:
    for number in range(KEPT_FILES, 0, -1):
        older = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number}"))
