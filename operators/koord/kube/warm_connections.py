"""So many connections of a pool are open at every time, whether anybody asks or not.

What is missing is opened a few at a time, and what nobody used for long is used, or the server
would hang up on it. Who borrows a connection, and for what, is the pool's to know.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from koord.kube.http1 import Broken, Connection

PROBE_SECONDS: Final = 10.0
"""What is sent to keep a connection open has to be answered by then."""


class Lender(Protocol):
    """The pool whose connections are to stand."""

    def count(self) -> int:
        """Return how many it has open, or opens for who waits."""

    async def connect(self) -> Connection:
        """Open one; raises whatever keeps it from being used."""

    async def use(self, connection: Connection, request: bytes, deadline: float) -> None:
        """Send a request and keep the connection if it can be; raises Broken."""

    def find_overdue(self) -> list[Connection]:
        """Return what has been idle for too long; the longest first."""

    def take(self, connection: Connection) -> None:
        """Lend an idle connection to nobody else."""


class StandingConnections:
    """Has so many connections of a lender open; none until :meth:`keep_open` was called."""

    def __init__(self, lender: Lender, most_at_once: int) -> None:
        self.count = 0
        self.being_opened = 0
        """Connections that are being opened to stand."""
        self.task: asyncio.Task[None] | None = None
        self._lender = lender
        self._most_at_once = most_at_once
        self._make_probe: Callable[[], Awaitable[bytes]] = _make_nothing
        self._is_lasting = True
        """Whether those that were opened last to stand have answered, and stand."""

    def keep_open(self, count: int, make_probe: Callable[[], Awaitable[bytes]]) -> None:
        """Have so many open from now on; ``make_probe`` returns a request that changes nothing."""
        self.count, self._make_probe = count, make_probe
        self.look()

    def note_lost(self) -> None:
        """Hear that some that were idle have ended."""
        self._is_lasting = False

    def look(self) -> None:
        """Begin what there is to do, unless it was begun."""
        is_at_it = self.task is not None and not self.task.done()
        has_work = self.count and (self._count_missing() > 0 or self._lender.find_overdue())
        if has_work and not is_at_it:
            self.task = asyncio.get_running_loop().create_task(self._tend())

    def _count_missing(self) -> int:
        return self.count - self._lender.count()

    async def _tend(self) -> None:
        """Open what is missing, and use what has long been idle; of both only a few at a time."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                probe = await self._make_probe()
        except Exception:  # noqa: BLE001 - as below
            return
        most = self._most_at_once if self._is_lasting else 1
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._count_missing(), most)):
                self.being_opened += 1
                group.create_task(self._open_and_use(probe))
            for connection in self._lender.find_overdue()[: self._most_at_once]:
                self._lender.take(connection)
                group.create_task(self._use(connection, probe))

    async def _open_and_use(self, probe: bytes) -> None:
        try:
            connection = await self._lender.connect()
        except Exception:  # noqa: BLE001 - whoever asks for something is told what keeps it
            self._is_lasting = False
            return
        finally:
            self.being_opened -= 1
        await self._use(connection, probe)

    async def _use(self, connection: Connection, probe: bytes) -> None:
        if not connection.is_idle:
            return  # it ended in the turn since it was chosen
        deadline = asyncio.get_running_loop().time() + PROBE_SECONDS
        try:
            await self._lender.use(connection, probe, deadline)
        except Broken:
            self._is_lasting = False
        else:
            self._is_lasting = connection.is_idle


async def _make_nothing() -> bytes:
    return b""
