"""The one HTTP client: bytes in, bytes out, typed errors.

It is thin because it carries every pod that is placed: no generated models, no environment lookups
per request, no compression. Requests go over connections of our own (``pool``); aiohttp carries
watches, and everything where a proxy stands between. Paths and media types of the API are known, no
resource. Callers choose what to retry; what is repeated here is a request refused with 401, once,
after the credentials were renewed.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import urlencode
from weakref import WeakSet

import aiohttp
import msgspec
from typing_extensions import override
from yarl import URL

from koord.kube.config import Access, Credentials
from koord.kube.errors import ConnectionLost, Garbled, Unauthorized, error_of_answer
from koord.kube.fence import Fence
from koord.kube.http1 import set_user_timeout
from koord.kube.pool import (
    CONNECT_SECONDS,
    KEEP_ALIVE_SECONDS,
    MAX_CONNECTIONS,
    REQUEST_SECONDS,
    Origin,
    Pool,
    let_pass,
)
from koord.kube.request import Media, Request, RequestWriter

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace

T = TypeVar("T")

READ_BUFFER: Final = 1 << 20
"""Bytes read ahead from a watch: many events arrive as one chunk when we are behind."""

_PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


class Client:
    """Talks to one API server. Use it as an async context manager.

    Bodies are given as objects that msgspec can encode, or as bytes that are sent as they are.
    All methods raise the errors of ``koord.kube.errors``; with a ``fence``, whatever is not a read
    also raises ``FenceClosed``.
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
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._is_proxied = any(os.environ.get(name) for name in _PROXY_VARIABLES)
        self._writer = RequestWriter(Access(""), {})
        self._pool = Pool(Origin("", None, ""))
        self._standing = 0
        """So many connections are kept open."""
        self._retired: WeakSet[Pool] = WeakSet()
        """Those that were replaced, for as long as something is under way over them."""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=_Connector(self._fence),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS),
            # Looking at the environment for every request doubles its cost.
            trust_env=self._is_proxied,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # At once: nothing that is asked from here on may open a connection again.
        session, self._session = self._session, None
        await asyncio.gather(*(pool.close() for pool in {self._pool, *self._retired}))
        if session is not None:
            await session.close()

    @property
    def credentials(self) -> Credentials:
        """What requests are signed with; also knows the namespace of the context."""
        return self._credentials

    async def keep_open(self, count: int) -> None:
        """Have so many connections open from now on, so that a burst need not wait for them.

        Where a proxy stands between, they are opened as they are needed.
        """
        self._standing = count
        access = await self._credentials.current()
        if self._session is not None and not self._goes_by_proxy(access):
            self._follow(access)
            self._pool.keep_open(count, self._make_probe)

    async def _make_probe(self) -> bytes:
        """Return a request that anybody may make, and that costs the server next to nothing."""
        access = await self._credentials.current()
        if self._session is None or self._goes_by_proxy(access):
            raise ConnectionLost("nothing is kept open any more", sent=False)
        self._follow(access)
        return self._writer.write(Request("GET", "/version"))

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
        """Change an object; returns its metadata."""
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
        content = None if body is None else body if isinstance(body, bytes) else _encode(body)
        request = Request(method, _target(path, params), content, media)
        return await self._signed(lambda access: self._ask(access, request))

    @asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, str], *, silence: float
    ) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        """Open a watch; yields a function that waits for the next bytes, empty at the end.

        The bytes may end anywhere, also in the middle of a line. ``ConnectionLost`` is raised when
        nothing arrives for ``silence`` seconds or the connection breaks.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        request = Request("GET", _target(path, {**params, "watch": "true"}))
        answer = await self._signed(lambda access: self._open(access, request, timeout=timeout))

        async def read() -> bytes:
            with _connection_errors():
                return await answer.content.readany()

        try:
            yield read
        finally:
            # The stream is endless: it cannot be drained, so its connection is given up.
            answer.close()

    async def _signed(self, send: "Callable[[Access], Awaitable[T]]") -> T:
        """Do something with our credentials, twice if they turn out to be stale."""
        access = await self._credentials.current()
        try:
            return await send(access)
        except Unauthorized:
            return await send(await self._credentials.renew(access))

    async def _ask(self, access: Access, request: Request) -> bytes:
        """Return the body of a good answer, raise the error of another."""
        if self._session is None:
            raise ConnectionLost("the client is not open", sent=False)
        if self._goes_by_proxy(access):
            answer = await self._open(access, request)
            with _connection_errors():
                return await answer.read()
        self._follow(access)
        is_read = request.method == "GET"
        permit = let_pass if is_read or self._fence is None else self._fence.check
        written = self._writer.write(request)
        got = await self._pool.ask(written, permit, is_safe=is_read)
        if got.status < 300:
            return got.body
        raise error_of_answer(got.status, got.body, got.retry_after)

    def _goes_by_proxy(self, access: Access) -> bool:
        return self._is_proxied or bool(access.proxy)

    def _follow(self, access: Access) -> None:
        """Write requests for this access from now on, to another server if need be."""
        if access is self._writer.access:
            return
        self._writer = RequestWriter(access, self._headers)
        origin = Origin(access.server, access.tls, access.server_name)
        if origin != self._pool.origin:
            self._pool.retire()
            self._retired.add(self._pool)
            self._pool = Pool(origin)
            if self._standing:
                self._pool.keep_open(self._standing, self._make_probe)

    async def _open(
        self, access: Access, request: Request, **options: Any
    ) -> aiohttp.ClientResponse:
        """Return the answer as it begins, if it is a good one; raise its error otherwise."""
        if self._session is None:
            raise ConnectionLost("the client is not open", sent=False)
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
    set_user_timeout(made)
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
