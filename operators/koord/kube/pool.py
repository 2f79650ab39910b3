"""Open connections to one server, handed out for a request each.

A TLS handshake costs more than the request that it is for, on both sides, and most when a burst
begins and the server is busy. So only a few are opened at a time: meanwhile others become free, and
there are soon as many as the server's pace needs. What is asked over them, and whether to ask
again, is for others to know; what makes some stay open though nobody asks is in ``standing``.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from koord.kube.errors import ConnectionLost
from koord.kube.http1 import Broken, Connection, HttpResponse
from koord.kube.warm_connections import StandingConnections

MAX_CONNECTIONS: Final = 128
MAX_OPENING: Final = 16
REQUEST_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 5.0
KEEP_ALIVE_SECONDS: Final = 60.0
"""An API server hangs up on a connection that lies idle for 90 s, or for 32 s before its first use.
"""
_STALE_SECONDS: Final = 15.0
"""What nothing was sent over so long after its time is given up: the server is about to."""
_SWEEP_SECONDS: Final = 1.0
_CLOSED: Final = "the client was closed"
_OPENING_SECONDS: Final = 0.5
_TURNS_TO_CLOSE: Final = 3
"""Of the event loop, until what was given up has let go of its socket."""
_HAPPY_EYEBALLS_SECONDS: Final = 0.25


class Origin(NamedTuple):
    """Where to connect to; connections of one origin serve each other's requests."""

    server: str
    tls: ssl.SSLContext | None
    server_name: str


class Pool:
    """Connections to one origin; once :meth:`retire` was called, none is kept."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._is_retired = False
        self._is_closed = False
        self._idle: list[Connection] = []
        """The one used last is at the end, and is used next: the others may then grow old."""
        self._busy: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[asyncio.Future[Connection]] = deque()
        self._sweeping: asyncio.TimerHandle | None = None
        self._standing = StandingConnections(self, MAX_OPENING)

    def keep_open(self, count: int, make_probe: Callable[[], Awaitable[bytes]]) -> None:
        """Have so many connections open from now on, also while nobody asks.

        ``make_probe`` returns a request that says and changes nothing. It is sent over each when it
        was opened, and when it would be given up as unused. What is missing is opened a few every
        second; one a second while that fails, or nothing stays open.
        """
        self._standing.keep_open(min(count, MAX_CONNECTIONS), make_probe)
        self._keep_sweeping()

    async def ask(
        self, request: bytes, permit: Callable[[], None], *, is_safe: bool
    ) -> HttpResponse:
        """Send a request and return the answer.

        ``permit`` is called when nothing can hold the request up any more, and may raise. What
        ``is_safe`` to send twice is sent again if the server had hung up on an idle connection,
        but nothing that has been under way for ``REQUEST_SECONDS``. Raises ConnectionLost.
        """
        time = asyncio.get_running_loop().time
        deadline = 0.0
        while True:
            connection = self._take_idle() or await self._wait()
            was_used = connection.is_used
            if not connection.is_idle:
                # It ended in the turn since it was handed over. To pass over those that were used
                # comes to an end; a server that hangs up on new ones may never stop.
                self._open_more()
                if was_used:
                    continue
                raise ConnectionLost("connection lost before it was used", sent=False)
            deadline = deadline or time() + REQUEST_SECONDS
            try:
                return await self._exchange(connection, request, permit, deadline)
            except Broken as error:
                if error.began or not (was_used and is_safe) or time() >= deadline:
                    raise ConnectionLost(f"connection lost: {error}", sent=True) from error

    def retire(self) -> None:
        """Keep nothing open that nobody waits for."""
        self._is_retired = True
        self._standing.count = 0
        for connection in self._idle:
            connection.abort("not needed any more")
        self._idle.clear()

    async def close(self) -> None:
        """Hang up on everything; nothing is asked any more."""
        self._is_closed = True
        self.retire()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        opening = {*self._opening, *({task} if (task := self._standing.task) is not None else ())}
        if opening:
            # A handshake that is cancelled before its first byte would leave its socket open.
            _, late = await asyncio.wait(opening, timeout=_OPENING_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self._busy):
            connection.abort(_CLOSED)
        self._refuse(_CLOSED)
        for _ in range(_TURNS_TO_CLOSE):
            await asyncio.sleep(0)

    def count(self) -> int:
        """Return how many are open, or are being opened for who waits."""
        return len(self._idle) + len(self._busy) + len(self._opening)

    def find_overdue(self, by: float = 0.0) -> list[Connection]:
        """Return what has been idle for too long, by so many seconds; the longest first."""
        latest = asyncio.get_running_loop().time() - by
        return [one for one in self._idle if one.deadline <= latest]

    def take(self, connection: Connection) -> None:
        """Lend an idle connection to nobody else."""
        self._idle.remove(connection)

    async def use(self, connection: Connection, request: bytes, deadline: float) -> None:
        """Send a request over a connection, and keep that if it can be kept; raises Broken."""
        await self._exchange(connection, request, let_pass, deadline)

    async def connect(self) -> Connection:
        """Open one connection; raises whatever keeps it from being used."""
        address = urlsplit(self.origin.server)
        is_tls = address.scheme == "https"
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection,
                address.hostname or "",
                address.port or (443 if is_tls else 80),
                ssl=(self.origin.tls or True) if is_tls else None,
                server_hostname=(self.origin.server_name or address.hostname) if is_tls else None,
                happy_eyeballs_delay=_HAPPY_EYEBALLS_SECONDS,
            )
        if not connection.is_idle:
            raise ConnectionError("the server hung up, or spoke without being asked")
        return connection

    async def _exchange(
        self, connection: Connection, request: bytes, permit: Callable[[], None], deadline: float
    ) -> HttpResponse:
        self._busy.add(connection)
        self._keep_sweeping()
        try:
            permit()
            return await connection.ask(request, deadline)
        except asyncio.CancelledError:
            # Its answer would be taken for that to the next request.
            connection.abort("given up")
            raise
        finally:
            self._busy.discard(connection)
            self._hand_on(connection)

    def _hand_on(self, connection: Connection) -> None:
        """Give a connection to who waits longest, or keep it."""
        if not connection.is_idle:
            self._open_more()
            return
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(connection)
                return
        if self._is_retired:
            connection.abort("not needed any more")
            return
        connection.deadline = asyncio.get_running_loop().time() + KEEP_ALIVE_SECONDS
        self._idle.append(connection)

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_idle:
                return connection
        return None

    async def _wait(self) -> Connection:
        """Wait for a connection: one that becomes free, or a new one."""
        if self._is_closed:
            raise ConnectionLost(_CLOSED, sent=False)
        waiting: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._open_more()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._hand_on(waiting.result())
            raise

    def _open_more(self) -> None:
        """Open a connection for who waits, unless enough are being opened."""
        wanted = min(len(self._waiting), MAX_OPENING)
        room = MAX_CONNECTIONS - len(self._busy) - len(self._idle) - self._standing.being_opened
        for _ in range(min(wanted, room) - len(self._opening)):
            task = asyncio.get_running_loop().create_task(self._open())
            self._opening.add(task)

    async def _open(self) -> None:
        """Open a connection for who waits longest."""
        opened: Connection | Exception
        try:
            opened = await self.connect()
        except Exception as error:  # noqa: BLE001 - who waits has to hear of it, whatever it is
            opened = error
        # Before anybody hears of it: who asks again at once would wait for what is over.
        self._opening -= {asyncio.current_task()}
        if isinstance(opened, Connection):
            self._hand_on(opened)
        else:
            # The others would not get any further: they wait for the same server.
            why = str(opened) or type(opened).__name__
            self._refuse(f"cannot connect to {self.origin.server}: {why}")

    def _refuse(self, why: str) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(ConnectionLost(why, sent=False))

    def _keep_sweeping(self) -> None:
        if self._sweeping is None and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Give up what is overdue, and look after what is to stand.

        One timer for all costs less than one for each request.
        """
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for connection in [one for one in self._busy if one.deadline <= now]:
            connection.abort(f"no answer for {REQUEST_SECONDS:.0f} s")
        for connection in self.find_overdue(_STALE_SECONDS):
            connection.abort("nothing could be sent")
        present = len(self._idle)
        self._idle = [one for one in self._idle if one.is_idle]
        if len(self._idle) < present:
            self._standing.note_lost()
        surplus = len(self._idle) + len(self._busy) - self._standing.count
        for connection in self.find_overdue()[: max(surplus, 0)]:
            connection.abort("unused")
            self._idle.remove(connection)
        self._standing.look()
        if self._idle or self._busy or self._standing.count:
            self._keep_sweeping()


def let_pass() -> None:
    """Permit a request without asking anybody."""
