"""Open connections to one server, handed out for a request each.

Connections are kept for bursts that come minutes apart: a TLS handshake costs more than the request
that it is for. What is asked over them, and whether to ask again, is for others to know.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from koord.kube.errors import ConnectionLost
from koord.kube.http1 import Answer, Broken, Connection

MAX_CONNECTIONS: Final = 128
REQUEST_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 5.0
KEEP_ALIVE_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 1.0
_HAPPY_EYEBALLS_SECONDS: Final = 0.25


class Origin(NamedTuple):
    """Where to connect to; connections of one origin serve each other's requests."""

    server: str
    tls: ssl.SSLContext | None
    server_name: str


class Pool:
    """Connections to one origin at a time: those to an earlier one are closed when it changes."""

    def __init__(self) -> None:
        self._origin: Origin | None = None
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[Connection] = []
        """The one used last is at the end, and is used next: the others may then grow old."""
        self._busy: set[Connection] = set()
        self._sweeping: asyncio.TimerHandle | None = None

    async def ask(
        self, origin: Origin, request: bytes, permit: Callable[[], None], *, is_safe: bool
    ) -> Answer:
        """Send a request and return the answer.

        ``permit`` is called when nothing can hold the request up any more, and may raise. What
        ``is_safe`` to send twice is sent again if the server had hung up on an idle connection.
        Raises ConnectionLost.
        """
        async with self._slots:
            connection = self._take_idle(origin)
            if connection is not None:
                try:
                    return await self._exchange(origin, connection, request, permit)
                except Broken as error:
                    if error.began or not is_safe:
                        raise _lost(error) from error
            connection = await self._connect(origin)
            try:
                return await self._exchange(origin, connection, request, permit)
            except Broken as error:
                raise _lost(error) from error

    def close(self) -> None:
        """Hang up on everything."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for connection in [*self._idle, *self._busy]:
            connection.abort("the client was closed")
        self._idle.clear()

    async def _exchange(
        self,
        origin: Origin,
        connection: Connection,
        request: bytes,
        permit: Callable[[], None],
    ) -> Answer:
        now = asyncio.get_running_loop().time()
        self._busy.add(connection)
        self._keep_sweeping()
        try:
            permit()
            return await connection.ask(request, now + REQUEST_SECONDS)
        except asyncio.CancelledError:
            # Its answer would be taken for that to the next request.
            connection.abort("given up")
            raise
        finally:
            self._busy.discard(connection)
            if origin != self._origin:
                connection.abort("of an earlier origin")
            elif connection.is_idle:
                connection.deadline = now + KEEP_ALIVE_SECONDS
                self._idle.append(connection)

    def _take_idle(self, origin: Origin) -> Connection | None:
        if origin != self._origin:
            for connection in self._idle:
                connection.abort("the server's address or certificates have changed")
            self._idle.clear()
            self._origin = origin
        while self._idle:
            connection = self._idle.pop()
            if connection.is_idle:
                return connection
        return None

    async def _connect(self, origin: Origin) -> Connection:
        address = urlsplit(origin.server)
        is_tls = address.scheme == "https"
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection,
                    address.hostname or "",
                    address.port or (443 if is_tls else 80),
                    ssl=(origin.tls or True) if is_tls else None,
                    server_hostname=(origin.server_name or address.hostname) if is_tls else None,
                    happy_eyeballs_delay=_HAPPY_EYEBALLS_SECONDS,
                )
        except (OSError, TimeoutError) as error:
            text = str(error) or type(error).__name__
            raise ConnectionLost(
                f"cannot connect to {origin.server}: {text}", sent=False
            ) from error
        return connection

    def _keep_sweeping(self) -> None:
        if self._sweeping is None:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Give up what is overdue. One timer for all costs less than one for each request."""
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for connection in [one for one in self._busy if one.deadline <= now]:
            connection.abort(f"no answer for {REQUEST_SECONDS:.0f} s")
        for connection in [one for one in self._idle if one.deadline <= now]:
            connection.abort("unused")
        self._idle = [one for one in self._idle if one.is_idle]
        if self._idle or self._busy:
            self._keep_sweeping()


def _lost(error: Broken) -> ConnectionLost:
    return ConnectionLost(f"connection lost: {error}", sent=True)
