"""Keeps a number of connections of a pool open while there are no requests.

Missing ones are opened a few at a time. A connection that was idle for long gets a probe, or the
server would close it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from koord.kube.http1 import Broken, Connection

PROBE_SECONDS: Final = 10.0
"""Timeout of a probe."""


class Lender(Protocol):
    """The part of the pool that is needed here; see there."""

    def count(self) -> int: ...
    async def connect(self) -> Connection: ...
    async def probe(self, connection: Connection, request: bytes, deadline: float) -> None: ...
    def find_overdue(self) -> list[Connection]: ...
    def take(self, connection: Connection) -> None: ...


class WarmConnections:
    """Keeps ``count`` connections open; none before :meth:`keep_open`."""

    def __init__(self, lender: Lender, most_at_once: int) -> None:
        self.count = 0
        self.being_opened = 0
        """Connections that are being opened here."""
        self.task: asyncio.Task[None] | None = None
        self._lender = lender
        self._most_at_once = most_at_once
        self._make_probe: Callable[[], Awaitable[bytes]] = _make_nothing
        self._is_lasting = True
        """Whether the connections opened last answered their probe and stayed open."""

    def keep_open(self, count: int, make_probe: Callable[[], Awaitable[bytes]]) -> None:
        self.count, self._make_probe = count, make_probe
        self.maintain()

    def note_lost(self) -> None:
        self._is_lasting = False

    def maintain(self) -> None:
        """Start a task that opens and probes connections, unless one runs."""
        is_running = self.task is not None and not self.task.done()
        has_work = self.count and (self._count_missing() > 0 or self._lender.find_overdue())
        if has_work and not is_running:
            self.task = asyncio.get_running_loop().create_task(self._maintain())

    def _count_missing(self) -> int:
        return self.count - self._lender.count()

    async def _maintain(self) -> None:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                probe = await self._make_probe()
        except Exception:  # noqa: BLE001 - the next request gets the error
            return
        most = self._most_at_once if self._is_lasting else 1
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._count_missing(), most)):
                self.being_opened += 1
                group.create_task(self._open_one(probe))
            for connection in self._lender.find_overdue()[: self._most_at_once]:
                self._lender.take(connection)
                group.create_task(self._probe(connection, probe))

    async def _open_one(self, probe: bytes) -> None:
        try:
            connection = await self._lender.connect()
        except Exception:  # noqa: BLE001 - the next request gets the error
            self._is_lasting = False
            return
        finally:
            self.being_opened -= 1
        await self._probe(connection, probe)

    async def _probe(self, connection: Connection, probe: bytes) -> None:
        if not connection.is_idle:
            return  # closed since it was chosen
        deadline = asyncio.get_running_loop().time() + PROBE_SECONDS
        try:
            await self._lender.probe(connection, probe, deadline)
        except Broken:
            self._is_lasting = False
        else:
            self._is_lasting = connection.is_idle


async def _make_nothing() -> bytes:
    return b""
