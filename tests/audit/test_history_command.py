"""``koord history``: what it prints, and what it does with a feed that lies."""

from __future__ import annotations

import io
from contextlib import asynccontextmanager

import pytest
import typer
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.audit.test_feed import make_ring
from tests.audit.test_story import TRAIN, at, example, ms
from tests.cli.test_devices import printed

from koord.answers.happenings import SeenObjects
from koord.answers.leaders import Leader
from koord.answers.story import make_story
from koord.cli.feed_records import find_address, read_feed
from koord.cli.history import parse_age, parse_moment
from koord.cli.history_view import make_parts
from koord.cli.output import SafeConsole, print_parts
from koord.cli.queries import parse_subject
from koord.kube.leader_report import LeaderReport
from koord.runtime.audit import FeedPages


def lead(holder="leader-a", feed=""):
    return Leader("koord-operators", holder, "", 1.0, LeaderReport(feed=feed))


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


def test_a_story_in_words():
    story = make_story(TRAIN, example().documents, SeenObjects(), ms("08:00:41.200"))
    text = printed(make_parts(story, ms("09:00:41.200") / 1000))
    assert text.startswith("PodGroup team-a/train (pg-uid)\n")
    assert "Where its time went: 2h, since 2026-11-25T05:17:00Z" in text
    lines = text.splitlines()
    assert any(line.split()[:4] == ["Room", "2h", "73", "%"] for line in lines)
    assert any(line.split()[:3] == ["Deciding", "0.0s", "0"] for line in lines)
    assert any(line.split()[:2] == ["60m", "Running"] for line in lines)
    assert lines[-1] == "From records of the leader."


@pytest.mark.parametrize(
    ("feed", "address"),
    [
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("[::1]:8080", "[::1]:8080"),
        ("0.0.0.0:8080", ""),
        ("10.0.0.7:8080", ""),
        ("evil.example:80", ""),
        ("127.0.0.1.evil.example:80", ""),
        ("", ""),
    ],
)
def test_only_an_address_of_this_machine_is_taken_from_the_lease(feed, address):
    assert find_address(lead(feed=feed), "") == address
    assert find_address(lead(feed=feed), "http://localhost:9/") == "localhost:9"


async def test_all_pages_of_the_leader_are_read():
    pages = FeedPages(make_ring(2500, most=5000), "leader-a", lambda: True)

    async def answer(request):
        page = await pages.read(request.query)
        return web.Response(
            status=page.status, body=page.body, headers={"Koord-Leader": pages.holder}
        )

    async with serving(answer) as address:
        feed = await read_feed(address, lead())
        other = await read_feed(address, lead("leader-b"))
    assert [record["seq"] for record in feed.records] == list(range(1, 2501))
    assert other.problem.endswith("is not that of the leader leader-b")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"no json\n"),
        (200, b"[1]\n"),
        (200, b'{"seq": "1", "term": 1}\n'),
        (200, b"[" * 100_000),
        (200, b"\xff\xfe"),
        (403, b"only for this machine\n"),
        (302, b""),
    ],
)
async def test_what_makes_no_sense_is_a_problem_and_no_records(status, body):
    async def answer(_):
        headers = {"Koord-Leader": "leader-a", "Location": "http://127.0.0.1:1/"}
        return web.Response(status=status, body=body, headers=headers)

    async with serving(answer) as address:
        feed = await read_feed(address, lead())
    assert feed.records == ()
    assert feed.problem


async def test_nobody_there_is_a_problem():
    assert (await read_feed("127.0.0.1:1", lead())).problem.startswith("127.0.0.1:1 does not")
    assert (await read_feed("", lead())).problem


async def test_no_credentials_are_sent():
    seen = []

    async def answer(request):
        seen.append(dict(request.headers))
        return web.Response(headers={"Koord-Leader": "leader-a"})

    async with serving(answer) as address:
        await read_feed(address, lead())
    assert not {"authorization", "cookie"} & {name.lower() for name in seen[0]}


def test_names_in_records_do_not_steer_a_terminal():
    records = example()
    records.add("Degraded", "09:00:00.000", why="\x1b[31mred\u202e")
    story = make_story(TRAIN, records.documents, SeenObjects(), ms("10:00:00.000"))
    console = SafeConsole(file=io.StringIO(), width=200)
    print_parts(make_parts(story, 0.0), console)
    text = console.file.getvalue()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "Degraded" in text


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 0), ("90m", 5400), ("7d", 604_800), ("1h30m", 5400)]
)
def test_ages(text, seconds):
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["d", "-1h", "soon", "999999d", "٣d", "0s"])
def test_what_is_no_age_is_refused(text):
    with pytest.raises(typer.BadParameter):
        parse_age(text)


def test_moments():
    assert parse_moment(at("07:00:30")) == at("07:00:30")
    with pytest.raises(typer.BadParameter):
        parse_moment("yesterday")


def test_a_name_needs_no_kind():
    assert parse_subject("train", "", "") == ("", "", "train")
    assert parse_subject("team-a/train", "", "") == ("", "team-a", "train")
    assert parse_subject("pg/train", "team-a", "") == ("podgroup", "team-a", "train")
