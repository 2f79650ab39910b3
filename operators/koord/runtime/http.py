"""The HTTP server: metrics, health, readiness, and the internal state.

The content comes from callables; this module knows no operator. It answers in an event loop that
planning does not block, and waits for the one that plans only where it has to. What clients may
take is bounded in ``connections``. ``/debug/state``
names pods and nodes, so only loopback clients may read it, whatever the listen address is;
``kubectl port-forward`` is one.
"""

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Protocol

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from koord.plain_text import escape
from koord.runtime.address import Address
from koord.runtime.connections import (
    ConnectionLimits,
    LimitedConnection,
    OpenConnections,
    count_descriptors,
)
from koord.runtime.diagnosis_pages import DiagnosisPages, DiagnosisSource
from koord.runtime.readers import CYCLES, FEED, LOCAL_ONLY, METRICS, Authorizers, Readers, is_local

KEPT_SECONDS = 1.0
"""How long the text of the metrics is served again: many readers cost as much as one."""
SHUTDOWN_SECONDS = 1.0
"""How long slow readers may hold up the end of the process."""
BACKLOG = 128
"""Connections that the kernel keeps until they are taken in; all that wait are taken in at once."""
_MAX_BODY_BYTES = 1024
_MAX_HEADERS = 32


class FeedPage(Protocol):
    """A status of HTTP, and lines of JSON if that is 200."""

    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class CycleSource(Protocol):
    """Snapshots of what the leader plans with, one at a time; see ``cycle_snapshots``."""

    @property
    def holder(self) -> str: ...

    async def order(self, unit: str) -> FeedPage: ...
    async def fetch(self) -> FeedPage: ...


class FeedSource(Protocol):
    """Records of decisions, and who has made them."""

    @property
    def holder(self) -> str: ...

    async def read(self, query: Mapping[str, str]) -> FeedPage: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the pages come from.

    ``problem`` returns what is wrong with the process, empty if it is healthy; ``unsynced`` the
    names of parts that are not ready; ``metrics`` the text format; ``state`` JSON, or it raises
    TimeoutError. ``feed``, ``cycles`` and ``diagnosis`` are None if they are not served.
    """

    problem: Callable[[], str]
    unsynced: Callable[[], Sequence[str]]
    metrics: Callable[[], Awaitable[bytes]]
    state: Callable[[], Awaitable[bytes]]
    feed: FeedSource | None = None
    cycles: CycleSource | None = None
    diagnosis: DiagnosisSource | None = None


class CannotListen(Exception):  # noqa: N818 - what it says is what is wrong
    """The address is in use, or not one of this machine's."""


@asynccontextmanager
async def serve_http(
    address: Address,
    sources: Sources,
    authorize: Authorizers = MappingProxyType({}),
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - a frozen value
) -> AsyncIterator[Address]:
    """Serve while the context is open; yields the address with the actual port.

    Without ``authorize`` everybody may read the metrics, and this machine alone the feed.
    ``limits`` are lower in a process that may have few file descriptors.

    Raises CannotListen.
    """
    runner = web.AppRunner(
        make_app(sources, authorize),
        access_log=None,
        handle_signals=False,
        keepalive_timeout=limits.seconds,
        max_headers=_MAX_HEADERS,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    await runner.setup()
    connections = OpenConnections(limits.within(count_descriptors()))
    try:
        async with _listen(runner, address, connections) as listening:
            host, port, *_ = listening.sockets[0].getsockname()
            yield Address(host, port)
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _listen(
    runner: web.AppRunner, address: Address, connections: OpenConnections
) -> AsyncIterator[asyncio.Server]:
    server = runner.server
    if server is None:
        raise RuntimeError("the runner is not set up")
    loop = asyncio.get_running_loop()
    make = partial(LimitedConnection, connections, server)
    listen = partial(loop.create_server, make, address.host, backlog=BACKLOG)
    try:
        try:
            listening = await listen(address.port)
        except OSError as error:
            if not address.or_free or error.errno != errno.EADDRINUSE:
                raise
            listening = await listen(0)
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        raise CannotListen(f"{address.host}:{address.port}: {why}") from error
    try:
        yield listening
    finally:
        listening.close()


async def _end_connection(_: web.Request, response: web.StreamResponse) -> None:
    """One request per connection, see ``connections``."""
    response.force_close()


def make_app(sources: Sources, authorize: Authorizers = MappingProxyType({})) -> web.Application:
    readers = Readers(authorize)
    pages = _Pages(sources, readers)
    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    app.on_response_prepare.append(_end_connection)
    app.router.add_get(METRICS, pages.metrics)
    app.router.add_get("/healthz", pages.healthz)
    app.router.add_get("/readyz", pages.readyz)
    app.router.add_get("/debug/state", pages.state)
    app.router.add_get(FEED, pages.feed)
    if sources.cycles is not None:
        cycles = _CycleHandlers(sources.cycles, readers)
        app.router.add_post(CYCLES, cycles.order)
        app.router.add_get(CYCLES, cycles.fetch)
    if sources.diagnosis is not None:
        DiagnosisPages(sources.diagnosis, readers).add_to(app)
    return app


class _CycleHandlers:
    """Snapshots have all that is known of all tenants: their path is a right of its own."""

    def __init__(self, source: CycleSource, readers: Readers) -> None:
        self._source = source
        self._readers = readers

    async def order(self, request: web.Request) -> web.Response:
        return await self._answer(
            request, lambda: self._source.order(request.query.get("unit", ""))
        )

    async def fetch(self, request: web.Request) -> web.Response:
        return await self._answer(request, self._source.fetch)

    async def _answer(
        self, request: web.Request, make: Callable[[], Awaitable[FeedPage]]
    ) -> web.Response:
        reader = await self._readers.identify(request, FEED)
        if isinstance(reader, web.Response):
            return reader
        try:
            page = await make()
        except TimeoutError:
            return web.Response(status=503, text="a plan takes long; try again\n")
        kind = "application/gzip" if page.status == 200 else "text/plain"
        headers = {"Koord-Leader": self._source.holder, "Content-Type": kind}
        return web.Response(status=page.status, body=page.body, headers=headers)


class _Pages:
    def __init__(self, sources: Sources, readers: Readers) -> None:
        self._sources = sources
        self._readers = readers
        self._reading = asyncio.Lock()
        self._metrics = b""
        self._read_at = float("-inf")

    async def metrics(self, request: web.Request) -> web.Response:
        refusal = await self._readers.refuse(request, METRICS)
        if refusal is not None:
            return refusal
        async with self._reading:
            if time.monotonic() >= self._read_at + KEPT_SECONDS:
                self._metrics = await self._sources.metrics()
                self._read_at = time.monotonic()
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=self._metrics, headers=headers)

    async def feed(self, request: web.Request) -> web.Response:
        """Serve records. They name all tenants, so nobody else reads them without being asked."""
        source = self._sources.feed
        if source is None:
            return web.Response(status=404, text="audit.feed is not set\n")
        reader = await self._readers.identify(request, FEED)
        if isinstance(reader, web.Response):
            return reader
        page = await source.read(request.query)
        kind = "application/jsonl" if page.status == 200 else "text/plain"
        headers = {"Koord-Leader": source.holder, "Content-Type": kind}
        return web.Response(status=page.status, body=page.body, headers=headers)

    async def healthz(self, _: web.Request) -> web.Response:
        problem = self._sources.problem()
        if problem:
            return web.Response(status=503, text=f"{problem}\n")
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.Response:
        unsynced = self._sources.unsynced()
        if unsynced:
            return web.Response(status=503, text=f"not ready: {', '.join(unsynced)}\n")
        return web.Response(text="ok\n")

    async def state(self, request: web.Request) -> web.Response:
        if not is_local(request.remote):
            return web.Response(status=403, text=LOCAL_ONLY)
        try:
            state = await self._sources.state()
        except TimeoutError:
            return web.Response(status=503, text="a plan takes long; try again\n")
        text = escape(msgspec.json.format(state, indent=2).decode())
        return web.Response(text=text, content_type="application/json")
