"""The feed and the log of records: who may read, and what bad input and bad disks cost."""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from unittest.mock import Mock

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st
from tests.audit.test_ring import told

from koord.core.audit.ring import Ring
from koord.domains.audit_settings import AuditSettings
from koord.runtime.address import Address
from koord.runtime.audit import FeedPages, RecordLog
from koord.runtime.http import Sources, make_app, serve_http
from koord.runtime.readers import Reader
from koord.runtime.settings import InvalidConfiguration, parse_settings

HEAD = "apiVersion: operators.koordinator.sh/v1alpha1\nkind: OperatorConfiguration\n"


def make_ring(records=5, term=4, most=100):
    ring = Ring(most, 1 << 30)
    ring.begin(term)
    for _ in range(records):
        ring.append(told())
    return ring


@dataclass
class Answer:
    status: int
    text: str
    leader: str

    @property
    def records(self):
        return list(map(json.loads, self.text.splitlines()))


def read(path):
    return path.read_text().splitlines()


async def nothing():
    return b"{}"


def make_sources(feed):
    return Sources(
        problem=lambda: "", unsynced=lambda: (), metrics=nothing, state=nothing, feed=feed
    )


@asynccontextmanager
async def serving(feed):
    async with (
        serve_http(Address("127.0.0.1", 0), make_sources(feed)) as address,
        ClientSession(f"http://127.0.0.1:{address.port}") as session,
    ):

        async def get(query=""):
            async with session.get(f"/feed{query}") as answer:
                leader = answer.headers.get("Koord-Leader", "")
                return Answer(answer.status, await answer.text(), leader)

        yield get


async def test_pages_of_the_feed_follow_each_other():
    async with serving(FeedPages(make_ring(), "leader-a", lambda: True)) as get:
        first = await get("?limit=3")
        rest = await get(f"?term=4&after={first.records[-1]['seq']}")
        none = await get("?term=4&after=5")
    assert (first.status, first.leader) == (200, "leader-a")
    assert [record["seq"] for record in first.records] == [1, 2, 3]
    assert [record["seq"] for record in rest.records] == [4, 5]
    assert (none.status, none.records) == (200, [])


async def test_an_earlier_term_is_gone_and_the_new_one_is_named():
    async with serving(FeedPages(make_ring(), "leader-a", lambda: True)) as get:
        answer = await get("?term=3&after=5")
    assert (answer.status, json.loads(answer.text)) == (410, {"term": 4})


async def test_a_reader_that_waits_gets_what_comes():
    ring = make_ring(0)
    async with serving(FeedPages(ring, "leader-a", lambda: True)) as get:
        ring.append(told())
        answer = await get("?wait=8")
    assert len(answer.records) == 1


async def test_who_does_not_lead_serves_nothing():
    async with serving(FeedPages(make_ring(), "a", lambda: False)) as get:
        assert (await get()).status == 503
    async with serving(None) as get:
        assert (await get()).status == 404


@pytest.mark.parametrize(
    "query",
    [
        "?limit=0",
        "?limit=2001",
        "?after=-1",
        "?wait=9",
        "?term=x",
        "?after=1e3",
        "?after=٣",
        f"?after={'9' * 400}",
    ],
)
async def test_numbers_that_make_no_sense_are_refused(query):
    async with serving(FeedPages(make_ring(), "a", lambda: True)) as get:
        answer = await get(query)
    assert answer.status == 400
    assert "has to be a number from" in answer.text


@pytest.mark.parametrize(
    ("remote", "allowed", "status"),
    [
        ("127.0.0.1", None, 200),
        ("::1", 403, 200),
        ("10.0.0.7", None, 403),
        ("::ffff:10.0.0.7", None, 403),
        ("10.0.0.7", 200, 200),
        ("10.0.0.7", 401, 401),
        ("10.0.0.7", 403, 403),
        ("10.0.0.7", 503, 503),
    ],
)
async def test_other_machines_read_it_only_with_the_right_to(remote, allowed, status):
    async def answer(*question):
        assert question == ("Bearer t", "/feed", "get")
        return Reader(allowed)

    authorize = {} if allowed is None else {"/feed": answer}
    transport = Mock(get_extra_info={"peername": (remote, 40000)}.get)
    headers = {"Authorization": "Bearer t"}
    request = make_mocked_request("GET", "/feed", headers=headers, transport=transport)
    feed = FeedPages(make_ring(), "a", lambda: True)
    match = await make_app(make_sources(feed), authorize).router.resolve(request)
    page = await match.handler(request)
    assert page.status == status
    assert (b"team/a" in page.body) == (status == 200)


@given(st.dictionaries(st.sampled_from(["term", "after", "limit"]), st.text(max_size=30)))
async def test_no_query_makes_the_feed_fail(query):
    page = await FeedPages(make_ring(), "a", lambda: True).read(query)
    assert page.status in {200, 400, 410}


def test_the_log_has_a_line_for_each_record_and_is_rotated(tmp_path):
    path, ring = tmp_path / "records.jsonl", make_ring(1)
    writer = RecordLog(ring, str(path), most_bytes=400)
    for _ in range(6):
        writer.write()
        ring.append(told())
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["records.jsonl", "records.jsonl.1", "records.jsonl.2", "records.jsonl.3"]
    lines = [json.loads(line) for name in names for line in read(tmp_path / name)]
    assert sorted(line["seq"] for line in lines) == [3, 4, 5, 6]
    assert all((tmp_path / name).stat().st_size <= 400 for name in names)


def test_what_a_disk_does_not_take_is_written_once_it_does(tmp_path):
    path, ring = tmp_path / "none" / "records.jsonl", make_ring(2)
    writer = RecordLog(ring, str(path))
    writer.write()
    path.parent.mkdir()
    writer.write()
    assert [json.loads(line)["seq"] for line in read(path)] == [1, 2]


def test_a_pipe_without_a_reader_is_no_file_to_write_to(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    RecordLog(make_ring(1), str(path)).write()
    writer = RecordLog(make_ring(1), str(tmp_path))
    writer.write()


def test_the_log_goes_on_in_a_new_term(tmp_path):
    path, ring = tmp_path / "records.jsonl", make_ring(2)
    writer = RecordLog(ring, str(path))
    writer.write()
    ring.begin(5)
    ring.append(told())
    writer.write()
    lines = list(map(json.loads, read(path)))
    assert [(line["term"], line["seq"]) for line in lines] == [(4, 1), (4, 2), (5, 1)]


def test_settings_of_the_audit():
    settings = parse_settings(
        f"{HEAD}audit: {{records: 100, bytes: 1Mi, log: stdout, feed: true}}", "test"
    ).of(AuditSettings)
    assert (settings.records, settings.bytes, settings.log) == (100, 1 << 20, "stdout")
    assert settings.is_on
    assert not parse_settings(HEAD, "test").of(AuditSettings).is_on


@pytest.mark.parametrize(
    "section",
    [
        "records: 0",
        "records: 99999999",
        "records: '8'",
        "bytes: 1",
        "bytes: 2Ti",
        "bytes: lots",
        "bytes: true",
        "bytes: [1]",
        "bytes: 1e99999",
        "bytes: 1.5.5",
        "log: relative.jsonl",
        "log: /var/log/",
        "log: 3",
        "log: [stdout]",
        'log: "/a\\0b"',
        "feed: 1",
        "feed: 'true'",
        "snapshots: true",
    ],
)
def test_settings_that_make_no_sense_are_named(section):
    with pytest.raises(InvalidConfiguration) as raised:
        parse_settings(f"{HEAD}audit: {{{section}}}", "test")
    (problem,) = raised.value.problems
    assert problem.startswith(f"audit.{section.partition(':')[0]}: ")
