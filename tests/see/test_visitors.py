"""Connections that send or read nothing end, and those that are busy stay."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from koord.see.visitors import Visitor, Visitors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

REQUEST = b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def listen(visitors: Visitors, goes_on: asyncio.Event) -> AsyncIterator[int]:
    @web.middleware
    async def guard(request: web.Request, handler: object) -> web.StreamResponse:
        with visitors.busy(request.transport):
            return await handler(request)  # type: ignore[operator]

    async def wait(_: web.Request) -> web.Response:
        await goes_on.wait()
        return web.Response(text="done")

    app = web.Application(middlewares=[guard])
    app.router.add_get("/wait", wait)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(
        partial(Visitor, visitors, runner.server),  # type: ignore[arg-type]
        "127.0.0.1",
        0,
    )
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        await runner.cleanup()


async def connect(port: int, sends: bytes) -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sends)
    return reader, writer


async def is_ended(connection: Connection) -> bool:
    try:
        return await connection[0].read(1) == b""
    except ConnectionError:
        return True
    finally:
        connection[1].close()


async def test_whoever_sends_half_a_request_ends_and_whoever_waits_for_an_answer_stays() -> None:
    goes_on, visitors = asyncio.Event(), Visitors(idle_seconds=0.3)
    async with listen(visitors, goes_on) as port:
        waits = await connect(port, REQUEST)
        idle = [await connect(port, sends) for sends in (b"", b"GET / HTTP/1.1\r\nX: ")]
        assert [await is_ended(each) for each in idle] == [True, True]
        goes_on.set()
        assert b"200" in await waits[0].readline()
        assert len(visitors) == 1
        waits[1].close()


async def test_of_too_many_the_one_that_was_idle_for_longest_ends() -> None:
    goes_on, visitors = asyncio.Event(), Visitors(most=3)
    async with listen(visitors, goes_on) as port:
        waits = await connect(port, REQUEST)
        while not any(each.requests for each in visitors._open.values()):  # noqa: ASYNC110 - soon
            await asyncio.sleep(0)
        others = [await connect(port, b"") for _ in range(3)]
        assert await is_ended(others[0])
        goes_on.set()
        assert b"200" in await waits[0].readline()
        for _, writer in (waits, *others):
            writer.close()
