"""A reverse proxy in front of a real API server that injects faults.

Requests are forwarded unchanged until a fault is planned: error answers, replies that are lost
after the request was carried out, watches that break, fall silent or carry an error. It speaks
plain HTTP on loopback; requests without credentials get those of the proxy.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Self

import aiohttp
from aiohttp import web

from koord.kube.config import Access, Credentials

_HOP_BY_HOP = {"host", "connection", "transfer-encoding", "content-length"}


class Do(Enum):
    """What the proxy does with a request that a fault applies to."""

    ANSWER = auto()
    """Answer with the status of the fault instead of forwarding."""
    DROP = auto()
    """Break the connection instead of forwarding."""
    LOSE_REPLY = auto()
    """Forward, then break the connection instead of answering."""
    DELAY = auto()
    """Forward after ``seconds``."""


@dataclass
class Fault:
    """What to do with the next ``times`` requests for which ``matches`` holds."""

    matches: Callable[[web.Request], bool]
    do: Do
    times: int = 1
    status: int = 500
    reason: str = "InternalError"
    message: str = "planned by the test"
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    then: Callable[[], None] = lambda: None
    """Called right before the answer, or before the connection breaks."""


@dataclass(frozen=True)
class Seen:
    """One received request."""

    method: str
    path: str
    query: dict[str, str]

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


@dataclass(eq=False)
class _Stream:
    request: web.Request
    response: web.StreamResponse
    flows: asyncio.Event
    echoes: set[asyncio.Task[None]] = field(default_factory=set)

    def repeat(self, line: bytes, seconds: float) -> None:
        """Send a line again later."""
        echo = asyncio.ensure_future(self._repeat(line, seconds))
        self.echoes.add(echo)
        echo.add_done_callback(self.echoes.discard)

    async def _repeat(self, line: bytes, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with suppress(ConnectionError):
            await self.response.write(line)

    def hush(self) -> None:
        """Cancel pending repetitions."""
        for echo in self.echoes:
            echo.cancel()


class FaultProxy:
    """Runs while its context is open; clients use ``credentials``."""

    def __init__(self, credentials: Credentials) -> None:
        self.seen: list[Seen] = []
        self.faults: list[Fault] = []
        self.server = ""
        self.echo_seconds = 0.0
        """If not zero, every event of a watch is repeated after this time."""
        self._credentials = credentials
        self._streams: set[_Stream] = set()

    async def __aenter__(self) -> Self:
        self._upstream = await self._credentials.current()
        self._bare = ssl.create_default_context()
        self._bare.check_hostname = False
        self._bare.verify_mode = ssl.CERT_NONE
        self._session = aiohttp.ClientSession(
            # Watches of dead clients stay open for a while; others must not wait for them.
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.server = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.drop_streams()
        await self._runner.cleanup()
        await self._session.close()

    @property
    def credentials(self) -> Credentials:
        """Credentials of clients that use the proxy."""
        return Credentials(lambda: Access(self.server))

    def plan(self, matches: Callable[[web.Request], bool], do: Do, **how: Any) -> Fault:
        """Plan a fault; earlier faults take precedence."""
        fault = Fault(matches, do, **how)
        self.faults.append(fault)
        return fault

    def heal(self) -> None:
        """End all planned faults; silenced streams stay silent."""
        self.faults.clear()
        self.echo_seconds = 0.0

    @property
    def open_streams(self) -> int:
        """The number of open watches."""
        return len(self._streams)

    def drop_streams(self) -> None:
        """Break every open watch, possibly in the middle of an event."""
        for stream in self._streams:
            stream.flows.set()
            if stream.request.transport is not None:
                stream.request.transport.abort()

    def silence_streams(self) -> None:
        """Hold back all events of the open watches; their connections stay."""
        for stream in self._streams:
            stream.flows.clear()

    async def inject(self, event: dict[str, Any] | bytes) -> None:
        """Send a line on every open watch."""
        line = event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n"
        for stream in list(self._streams):
            await stream.response.write(line)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(Seen(request.method, request.path, dict(request.query)))
        fault = next((f for f in self.faults if f.times > 0 and f.matches(request)), None)
        if fault is not None:
            fault.times -= 1
            if fault.do is Do.ANSWER:
                return _refuse(fault)
            if fault.do is Do.DROP:
                fault.then()
                return _break(request)
            if fault.do is Do.DELAY:
                await asyncio.sleep(fault.seconds)
        try:
            return await self._pass_on(request, fault)
        except aiohttp.ClientError:
            return _break(request)  # as the server did, or would have done

    async def _pass_on(self, request: web.Request, fault: Fault | None) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        tls = self._bare if "Authorization" in headers else self._upstream.tls
        if "Authorization" not in headers and self._upstream.authorization:
            headers["Authorization"] = self._upstream.authorization
        async with self._session.request(
            request.method,
            f"{self._upstream.server}{request.raw_path}",
            headers=headers,
            data=await request.read() or None,  # aiohttp would add a content type to an empty body
            ssl=tls or True,
            read_bufsize=1 << 20,
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
            if request.query.get("watch") == "true" and answer.status == 200:
                return await self._stream(request, answer, kept)
            body = await answer.read()
            if fault is not None:
                fault.then()
                if fault.do is Do.LOSE_REPLY:
                    return _break(request)
            return web.Response(status=answer.status, body=body, headers=kept)

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        stream = _Stream(request, response, asyncio.Event())
        stream.flows.set()
        self._streams.add(stream)
        try:
            async for line in answer.content:
                await stream.flows.wait()
                await response.write(line)
                if self.echo_seconds:
                    stream.repeat(line, self.echo_seconds)
        except (ConnectionError, aiohttp.ClientError):
            pass  # the client has closed, or a fault broke the connection
        finally:
            stream.hush()
            self._streams.discard(stream)
        return response


class ProxyThread:
    """A proxy in its own thread, for synchronous tests."""

    def __init__(self, credentials: Credentials) -> None:
        self.proxy = FaultProxy(credentials)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()

    def run(self, started: threading.Event) -> None:
        """Run until :meth:`stop`."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(started))

    def do(self, act: Callable[[FaultProxy], object]) -> None:
        """Call a function with the proxy in its thread."""

        async def call() -> None:
            act(self.proxy)

        asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self, started: threading.Event) -> None:
        async with self.proxy:
            started.set()
            await self._stop.wait()


@contextmanager
def open_fault_proxy(credentials: Credentials) -> Iterator[ProxyThread]:
    """Run a proxy in a thread while the context is open."""
    runner = ProxyThread(credentials)
    started = threading.Event()
    thread = threading.Thread(target=runner.run, args=[started], daemon=True)
    thread.start()
    started.wait()
    try:
        yield runner
    finally:
        runner.stop()
        thread.join()


def is_watch(request: web.Request) -> bool:
    """Whether a request opens a watch."""
    return request.query.get("watch") == "true"


def is_page(number: int) -> Callable[[web.Request], bool]:
    """Match the first (1) or a later (2) page of a list."""
    return lambda r: (
        "limit" in r.query and not is_watch(r) and ("continue" in r.query) == (number > 1)
    )


def is_method(method: str, ends: str = "") -> Callable[[web.Request], bool]:
    """Match by method and by the end of the path."""
    return lambda r: r.method == method and r.path.endswith(ends)


def _refuse(fault: Fault) -> web.Response:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": fault.status,
        "reason": fault.reason,
        "message": fault.message,
    }
    return web.json_response(status, status=fault.status, headers=fault.headers)


def _break(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
