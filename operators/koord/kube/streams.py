"""Requests over aiohttp: watches, and everything where there is a proxy.

Other requests use the connection ``pool``, which costs less. This module knows neither credentials
that expire nor what requests mean; short commands never import it.
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from typing_extensions import override
from yarl import URL

from koord.kube.config import Access
from koord.kube.errors import ConnectionLost, error_of_answer
from koord.kube.http1 import Request, set_user_timeout
from koord.kube.pool import (
    CONNECT_SECONDS,
    KEEP_ALIVE_SECONDS,
    MAX_CONNECTIONS,
    REQUEST_SECONDS,
)

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace

READ_BUFFER: Final = 1 << 20
"""Bytes read ahead from a watch: many events arrive as one chunk when we are behind."""


class Streams:
    """One session of aiohttp; needs a running event loop.

    ``permit`` is called just before a write is sent and may raise; ``reads_proxy`` says that the
    environment names a proxy.
    """

    def __init__(
        self, headers: Mapping[str, str], permit: Callable[[], None], *, reads_proxy: bool
    ) -> None:
        self._session = aiohttp.ClientSession(
            connector=_Connector(permit),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={**headers, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS),
            # Reading the environment for every request doubles its cost.
            trust_env=reads_proxy,
        )

    async def close(self) -> None:
        await self._session.close()

    async def send(self, access: Access, request: Request) -> bytes:
        """Send a request and return the body of its response."""
        answer = await self._open(access, request)
        with _connection_errors():
            return await answer.read()

    async def watch(self, access: Access, request: Request, *, silence: float) -> "Watch":
        """Open a watch that may be silent for so many seconds."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        return Watch(await self._open(access, request, timeout=timeout))

    async def _open(
        self, access: Access, request: Request, **options: Any
    ) -> aiohttp.ClientResponse:
        """Return a response with its body still to come, or raise the error of its status."""
        headers = {"Accept": request.accept}
        if request.content is not None:
            headers["Content-Type"] = str(request.media)
        if access.authorization:
            headers["Authorization"] = access.authorization
        with _connection_errors():
            answer = await self._session.request(
                request.method,
                URL(access.server + request.target, encoded=True),
                data=request.content,
                headers=headers,
                ssl=access.tls or True,
                server_hostname=access.server_name or None,
                proxy=access.proxy or None,
                read_bufsize=READ_BUFFER,
                allow_redirects=False,
                **options,
            )
            if answer.status < 300:
                return answer
            body = await answer.read()
        raise error_of_answer(answer.status, body, answer.headers.get("Retry-After"))


class Watch:
    """An endless response."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def read(self) -> bytes:
        """Wait for the next bytes; empty at the end. Raises ConnectionLost."""
        with _connection_errors():
            return await self._answer.content.readany()

    def close(self) -> None:
        """Close the connection too: the stream is endless and cannot be drained."""
        self._answer.close()


class _Connector(aiohttp.TCPConnector):
    """Asks for permission once a write has its connection, when nothing can delay it any more."""

    def __init__(self, permit: Callable[[], None]) -> None:
        super().__init__(
            limit=MAX_CONNECTIONS,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            socket_factory=_make_socket,
        )
        self._permit = permit

    @override
    async def connect(
        self, req: "ClientRequest", traces: "list[Trace]", timeout: aiohttp.ClientTimeout
    ) -> "Connection":
        connection = await super().connect(req, traces, timeout)
        if req.method != "GET":
            try:
                self._permit()
            except BaseException:
                connection.release()
                raise
        return connection


def _make_socket(address: "AddrInfoType") -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    set_user_timeout(made)
    return made


@contextmanager
def _connection_errors() -> Iterator[None]:
    """Turn aiohttp's errors into ``ConnectionLost``."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise ConnectionLost(f"cannot connect: {error}", sent=False) from error
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        text = str(error) or type(error).__name__
        raise ConnectionLost(f"connection lost: {text}", sent=True) from error
