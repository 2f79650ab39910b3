"""A pool of connections to one server, each lent for one request.

A TLS handshake costs both sides more than the request it is for, and most at the start of a burst,
when the server is busy. So only a few connections are opened at a time; others become idle
meanwhile, and the pool soon has as many as the server's speed needs. The pool does not know what
requests mean. ``warm_connections`` keeps some open while there are no requests.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from koord.kube.errors import ConnectionLost
from koord.kube.http1 import Broken, Connection, HttpResponse
from koord.kube.warm_connections import WarmConnections

MAX_CONNECTIONS: Final = 128
MAX_OPENING: Final = 16
REQUEST_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 5.0
KEEP_ALIVE_SECONDS: Final = 60.0
"""API servers close connections that are idle for 90 s, or for 32 s before their first request."""
_STALE_SECONDS: Final = 15.0
"""A connection idle this much longer than KEEP_ALIVE_SECONDS is closed: the server is about to."""
_SWEEP_SECONDS: Final = 1.0
_CLOSED: Final = "the client was closed"
_OPENING_SECONDS: Final = 0.5
_TURNS_TO_CLOSE: Final = 3
"""Iterations of the event loop until an aborted transport has closed its socket."""
_HAPPY_EYEBALLS_SECONDS: Final = 0.25


class Origin(NamedTuple):
    """A server as connections see it; connections to equal origins are interchangeable."""

    server: str
    tls: ssl.SSLContext | None
    server_name: str


class Pool:
    """Connections to one origin; after :meth:`retire` none is kept for later requests."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._is_retired = False
        self._is_closed = False
        self._idle: list[Connection] = []
        """The last one used is last and is used next, so that surplus ones expire."""
        self._busy: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[asyncio.Future[Connection]] = deque()
        self._sweeping: asyncio.TimerHandle | None = None
        self._warm = WarmConnections(self, MAX_OPENING)

    def keep_open(self, count: int, make_probe: Callable[[], Awaitable[bytes]]) -> None:
        """Keep ``count`` connections open, even without requests.

        ``make_probe`` returns a request without side effects. It is sent over each connection when
        it is opened, and again before it would expire. Missing connections are opened a few per
        second, or one per second while they fail or are closed again.
        """
        self._warm.keep_open(min(count, MAX_CONNECTIONS), make_probe)
        self._keep_sweeping()

    async def send(
        self, request: bytes, permit: Callable[[], None], *, is_safe: bool
    ) -> HttpResponse:
        """Send a request and return the response. Raises ConnectionLost.

        ``permit`` is called when nothing can delay the request any more, and may raise. A request
        that ``is_safe`` to send twice is sent again if the server closed an idle connection, unless
        ``REQUEST_SECONDS`` have passed.
        """
        time = asyncio.get_running_loop().time
        deadline = 0.0
        while True:
            connection = self._take_idle() or await self._wait()
            was_used = connection.is_used
            if not connection.is_idle:
                # It was closed since it was handed over. Skip used ones, which are limited in
                # number, but not new ones: a server may close them forever.
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
        """Close idle connections, now and as requests end."""
        self._is_retired = True
        self._warm.count = 0
        for connection in self._idle:
            connection.abort("no longer needed")
        self._idle.clear()

    async def close(self) -> None:
        """Close all connections; later requests fail."""
        self._is_closed = True
        self.retire()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        opening = {*self._opening, *({task} if (task := self._warm.task) is not None else ())}
        if opening:
            # A handshake that is cancelled before its first byte leaves its socket open.
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
        """Return the connections that are open or being opened for pending requests."""
        return len(self._idle) + len(self._busy) + len(self._opening)

    def find_overdue(self, by: float = 0.0) -> list[Connection]:
        """Return connections that expired at least ``by`` seconds ago, oldest first."""
        latest = asyncio.get_running_loop().time() - by
        return [connection for connection in self._idle if connection.deadline <= latest]

    def take(self, connection: Connection) -> None:
        self._idle.remove(connection)

    async def probe(self, connection: Connection, request: bytes, deadline: float) -> None:
        """Send a request over a taken connection and return it to the pool. Raises Broken."""
        await self._exchange(connection, request, permit_always, deadline)

    async def connect(self) -> Connection:
        """Open one connection; raises any error of the attempt."""
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
            raise ConnectionError("the server closed it, or sent data without a request")
        return connection

    async def _exchange(
        self, connection: Connection, request: bytes, permit: Callable[[], None], deadline: float
    ) -> HttpResponse:
        self._busy.add(connection)
        self._keep_sweeping()
        try:
            permit()
            return await connection.send(request, deadline)
        except asyncio.CancelledError:
            # Otherwise its response would be taken for the next request's.
            connection.abort("cancelled")
            raise
        finally:
            self._busy.discard(connection)
            self._hand_over(connection)

    def _hand_over(self, connection: Connection) -> None:
        """Give a connection to the oldest pending request, or keep it."""
        if not connection.is_idle:
            self._open_more()
            return
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(connection)
                return
        if self._is_retired:
            connection.abort("no longer needed")
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
        if self._is_closed:
            raise ConnectionLost(_CLOSED, sent=False)
        waiting: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._open_more()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._hand_over(waiting.result())
            raise

    def _open_more(self) -> None:
        """Open connections for pending requests, unless enough are being opened."""
        wanted = min(len(self._waiting), MAX_OPENING)
        room = MAX_CONNECTIONS - len(self._busy) - len(self._idle) - self._warm.being_opened
        for _ in range(min(wanted, room) - len(self._opening)):
            task = asyncio.get_running_loop().create_task(self._open())
            self._opening.add(task)

    async def _open(self) -> None:
        opened: Connection | Exception
        try:
            opened = await self.connect()
        except Exception as error:  # noqa: BLE001 - the pending request gets any error
            opened = error
        # First: a caller that retries immediately would wait on a finished task.
        self._opening -= {asyncio.current_task()}
        if isinstance(opened, Connection):
            self._hand_over(opened)
        else:
            # The other pending requests need the same server and would fail alike.
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
        """Abort what is overdue and top up warm connections.

        One timer for all costs less than one per request.
        """
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for connection in [connection for connection in self._busy if connection.deadline <= now]:
            connection.abort(f"no response for {REQUEST_SECONDS:.0f} s")
        for connection in self.find_overdue(_STALE_SECONDS):
            connection.abort("expired")
        present = len(self._idle)
        self._idle = [connection for connection in self._idle if connection.is_idle]
        if len(self._idle) < present:
            self._warm.note_lost()
        surplus = len(self._idle) + len(self._busy) - self._warm.count
        for connection in self.find_overdue()[: max(surplus, 0)]:
            connection.abort("unused")
            self._idle.remove(connection)
        self._warm.maintain()
        if self._idle or self._busy or self._warm.count:
            self._keep_sweeping()


def permit_always() -> None: ...
