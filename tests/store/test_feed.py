"""Following the feed of whoever leads: nothing twice, nothing lost in silence, no lie believed."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from tests.audit.test_feed import make_ring
from tests.audit.test_ring import told
from tests.store.stores import make_line, open_store, read_all

from koord.runtime.audit import FeedPages
from koord.store import feed as feed_module
from koord.store.feed import FeedAddress, FeedError, FeedFollower, read_page
from koord.store.retention import Keep

if TYPE_CHECKING:
    from pathlib import Path


ALWAYS = Keep(1 << 60)
"""The records here have no time."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "see.db"


@asynccontextmanager
async def serving(answer):
    app = web.Application()
    app.router.add_get("/feed", answer)
    server = TestServer(app)
    await server.start_server()
    try:
        yield f"{server.host}:{server.port}"
    finally:
        await server.close()


def serve_ring(pages):
    """Answer as the HTTP server of the leader does."""

    async def answer(request):
        query = {name: text for name, text in request.query.items() if name != "wait"}
        page = await pages().read(query)
        await asyncio.sleep(0.01)
        headers = {"Koord-Leader": pages().holder}
        return web.Response(status=page.status, body=page.body, headers=headers)

    return answer


@asynccontextmanager
async def following(store, find):
    task = asyncio.create_task(FeedFollower(store, find).run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def eventually(path, wanted):
    """Wait until a store has such records."""
    while True:
        records = await asyncio.to_thread(read_all, path)
        if wanted(records):
            return records
        await asyncio.sleep(0.02)


async def test_the_feed_is_followed_over_restarts_and_leaders(path, monkeypatch):
    monkeypatch.setattr(feed_module, "_PAUSE_SECONDS", 0.02)
    ring = make_ring(5, term=4)
    leader = FeedPages(ring, "leader-a", lambda: True)
    async with serving(serve_ring(lambda: leader)) as address:

        async def find():
            return FeedAddress(address, leader.holder)

        with open_store(path, keep=ALWAYS) as store:
            async with following(store, find):
                await eventually(path, lambda each: len(each) == 5)
                ring.append(told())
                await eventually(path, lambda each: len(each) == 6)
        ring.append(told())
        with open_store(path, keep=ALWAYS) as store:
            async with following(store, find):
                await eventually(path, lambda each: len(each) == 7)
                leader = FeedPages(make_ring(2, term=5), "leader-b", lambda: True)
                records = await eventually(path, lambda each: len(each) == 10)
    order = [(each["term"], each["seq"], each["kind"]) for each in records]
    assert order[:7] == [(4, seq, "Degraded") for seq in range(1, 8)]
    assert order[7:] == [(4, 8, "Gap"), (5, 1, "Degraded"), (5, 2, "Degraded")]


async def test_what_the_leader_keeps_no_longer_is_a_gap(path):
    pages = FeedPages(make_ring(50, most=20), "leader-a", lambda: True)
    async with serving(serve_ring(lambda: pages)) as address:

        async def find():
            return FeedAddress(address, "leader-a")

        with open_store(path, keep=ALWAYS) as store:
            async with following(store, find):
                records = await eventually(path, lambda each: each and each[-1]["seq"] == 50)
    missing = sum(each["count"] for each in records if each["kind"] == "Gap")
    assert missing + sum(each["kind"] != "Gap" for each in records) == 50
    assert missing


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"no json"),
        (200, make_line(3) + b"\n" + make_line(3)),
        (200, make_line(3) + b"\n" + make_line(2)),
        (200, make_line(3) + b"\n" + make_line(4, term=9)),
        (200, b'{"term":1,"seq":"1"}'),
        (200, b"[" * 100_000),
        (410, b""),
        (410, b'{"term":"x"}'),
        (503, b"this process does not lead\n"),
        (302, b""),
    ],
)
async def test_what_a_feed_may_not_send_is_refused_as_a_whole(status, body):
    async def answer(_):
        return web.Response(status=status, body=body, headers={"Koord-Leader": "leader-a"})

    async with serving(answer) as address, ClientSession() as session:
        with pytest.raises(FeedError):
            await read_page(session, FeedAddress(address, "leader-a"), term=None, after=0)


async def test_only_the_leader_that_the_lease_names_is_read():
    async def answer(_):
        return web.Response(body=make_line(1), headers={"Koord-Leader": "leader-b"})

    async with serving(answer) as address, ClientSession() as session:
        with pytest.raises(FeedError, match="is not that of the leader leader-a"):
            await read_page(session, FeedAddress(address, "leader-a"), term=None, after=0)
        page = await read_page(session, FeedAddress(address), term=None, after=0)
    assert (page.holder, page.term, page.last) == ("leader-b", 1, 1)
    assert json.loads(page.lines[0])["seq"] == 1
