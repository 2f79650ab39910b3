"""The one HTTP client: bytes in, bytes out, typed errors.

It is thin because it carries every pod that is placed: no generated models, no environment lookups
per request, no compression. It knows paths and media types of the API, but no resource. Callers
choose what to retry; the only thing repeated here is a request refused with 401, once, after the
credentials were renewed.
"""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from typing_extensions import override
from yarl import URL

from koord.kube.config import Access, Credentials
from koord.kube.errors import ConnectionLost, Garbled, Unauthorized, error_of_answer
from koord.kube.fence import Fence

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace

T = TypeVar("T")

MAX_CONNECTIONS: Final = 128
REQUEST_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 5.0
KEEP_ALIVE_SECONDS: Final = 60.0
"""Bursts come minutes apart; a TLS handshake costs more than the request that it is for."""
UNACKNOWLEDGED_SECONDS: Final = 4.0
"""What the other side's kernel has not acknowledged for so long is given up, also when this process
has ended meanwhile: a write must not arrive when another process leads already."""
READ_BUFFER: Final = 1 << 20
"""Bytes read ahead from a watch: many events arrive as one chunk when we are behind."""

_PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


class Media(StrEnum):
    """Content types of request bodies."""

    JSON = "application/json"
    JSON_PATCH = "application/json-patch+json"
    MERGE_PATCH = "application/merge-patch+json"
    STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
    APPLY_PATCH = "application/apply-patch+yaml"


class Client:
    """Talks to one API server. Use it as an async context manager.

    Bodies are given as objects that msgspec can encode, or as bytes that are sent as they are.
    All methods raise the errors of ``koord.kube.errors``; with a ``fence``, whatever is not a read
    also raises ``LeadershipLost``.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        fence: Fence | None = None,
        user_agent: str = "koord-operators",
    ) -> None:
        self._credentials = credentials
        self._fence = fence
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=_Connector(self._fence),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "User-Agent": self._user_agent,
                "Accept": Media.JSON,
                "Accept-Encoding": "identity",
            },
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS),
            # Looking at the environment for every request doubles its cost.
            trust_env=any(os.environ.get(name) for name in _PROXY_VARIABLES),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def credentials(self) -> Credentials:
        """What requests are signed with; also knows the namespace of the context."""
        return self._credentials

    async def get(
        self,
        path: str,
        of: type[T],
        params: Mapping[str, str] | None = None,
    ) -> T:
        """Read one object, decoded as ``of``."""
        body = await self.request("GET", path, params=params)
        try:
            return msgspec.json.decode(body, type=of)
        except msgspec.DecodeError as error:
            raise Garbled(f"cannot decode {path}: {error}") from error

    async def list(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """Read one page of a list, undecoded."""
        return await self.request("GET", path, params=params)

    async def patch(
        self, path: str, body: Any, media: Media, params: Mapping[str, str] | None = None
    ) -> bytes:
        """Change an object; returns it."""
        return await self.request("PATCH", path, body=body, media=media, params=params)

    async def post(self, path: str, body: Any) -> bytes:
        """Create an object; returns what the server answers."""
        return await self.request("POST", path, body=body)

    async def put(self, path: str, body: Any) -> bytes:
        """Replace an object; returns it."""
        return await self.request("PUT", path, body=body)

    async def delete(self, path: str, *, uid: str = "", grace_seconds: int | None = None) -> bytes:
        """Delete an object, if ``uid`` is given only the one of that uid."""
        options: dict[str, Any] = {}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return await self.request("DELETE", path, body=options)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        media: Media = Media.JSON,
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send one request and return the body of the answer."""
        options: dict[str, Any] = {}
        if body is not None:
            options["data"] = body if isinstance(body, bytes) else _encode(body)
            options["headers"] = {"Content-Type": str(media)}
        answer = await self._open(method, _target(path, params), options)
        with _connection_errors():
            return await answer.read()

    @asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, str], *, silence: float
    ) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        """Open a watch; yields a function that waits for the next bytes, empty at the end.

        The bytes may end anywhere, also in the middle of a line. ``ConnectionLost`` is raised when
        nothing arrives for ``silence`` seconds or the connection breaks.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        target = _target(path, {**params, "watch": "true"})
        answer = await self._open("GET", target, {"timeout": timeout})

        async def read() -> bytes:
            with _connection_errors():
                return await answer.content.readany()

        try:
            yield read
        finally:
            # The stream is endless: it cannot be drained, so its connection is given up.
            answer.close()

    async def _open(
        self, method: str, target: str, options: dict[str, Any]
    ) -> aiohttp.ClientResponse:
        """Send a request, twice if the credentials turn out to be stale."""
        access = await self._credentials.current()
        try:
            return await self._send(access, method, target, options)
        except Unauthorized:
            access = await self._credentials.renew(access)
            return await self._send(access, method, target, options)

    async def _send(
        self, access: Access, method: str, target: str, options: dict[str, Any]
    ) -> aiohttp.ClientResponse:
        """Return the answer if it is a good one, raise its error otherwise."""
        if self._session is None:
            raise RuntimeError("the client is not open")
        headers = dict(options.get("headers", ()))
        if access.authorization:
            headers["Authorization"] = access.authorization
        with _connection_errors():
            answer = await self._session.request(
                method,
                URL(access.server + target, encoded=True),
                ssl=access.tls or True,
                server_hostname=access.server_name or None,
                proxy=access.proxy or None,
                read_bufsize=READ_BUFFER,
                allow_redirects=False,
                **{**options, "headers": headers},
            )
            if answer.status < 300:
                return answer
            body = await answer.read()
        raise error_of_answer(answer.status, body, answer.headers.get("Retry-After"))


class _Connector(aiohttp.TCPConnector):
    """Asks the fence once a write has its connection: nothing can hold it up after that."""

    def __init__(self, fence: Fence | None) -> None:
        super().__init__(
            limit=MAX_CONNECTIONS,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            socket_factory=_make_socket,
        )
        self._fence = fence

    @override
    async def connect(
        self, req: "ClientRequest", traces: "list[Trace]", timeout: aiohttp.ClientTimeout
    ) -> "Connection":
        connection = await super().connect(req, traces, timeout)
        if self._fence is not None and req.method != "GET":
            try:
                self._fence.check()
            except BaseException:
                connection.release()
                raise
        return connection


def _make_socket(address: "AddrInfoType") -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    milliseconds = int(UNACKNOWLEDGED_SECONDS * 1000)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    return made


def _encode(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        # A text quoted from an object may be none; it must not end more than this request.
        raise Garbled(f"cannot write the request: {error}") from error


def _target(path: str, params: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(params)}" if params else path


@contextmanager
def _connection_errors() -> Iterator[None]:
    """Turn what aiohttp raises into ``ConnectionLost``."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise ConnectionLost(f"cannot connect: {error}", sent=False) from error
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        text = str(error) or type(error).__name__
        raise ConnectionLost(f"connection lost: {text}", sent=True) from error
