"""What streams are told of a topic: made once for those who may see the same, and kept."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.cluster import make_cluster
from tests.see.test_token_access import HERE, open_server
from tests.support.laws import examples

from koord.answers.leaders import Leader
from koord.answers.reading import Reading
from koord.answers.redaction import EVERYTHING, Sight
from koord.see import channels as channels_module
from koord.see.app import BASE
from koord.see.channels import MOST_IDLE, Channels, TopicChannel
from koord.see.snapshots import Snapshot
from koord.see.topics import Topic, parse_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import aiohttp
    import pytest

TOPICS = ("queue(limit=2)", "queue", "overview", "explanation(namespace=default,kind=pod,name=b)")


class Course:
    """A stand-in for what keeps snapshots: the cluster is what a test says."""

    instance = "i"

    def __init__(self) -> None:
        self.last: Snapshot | None = None
        self.number = 0

    def go_on(self, names: Sequence[str], term: int = 1) -> None:
        self.number += 1
        cluster = make_cluster(1).pods(*(make_pod(name).gpu(8) for name in names))
        leader = Leader("koord-operators", "x", "2026-03-01T11:00:00Z", 2.0, None, term)
        self.last = Snapshot(Reading(cluster.state, leader=leader), HERE, self.number, 0.0)

    async def follow(self, compute: Callable[[], Any]) -> Any:
        return compute()

    plan = follow


class Reader:
    """Puts together what a stream tells, as the page does."""

    def __init__(self) -> None:
        self.value: Any = None
        self.term: int | None = None
        self.message = ""

    @property
    def shown(self) -> Any:
        is_list = self.value is not None and "items" in self.value
        return (self.value["items"], self.value["total"]) if is_list else self.value

    def read(self, texts: Sequence[bytes]) -> None:
        for text in texts:
            kind, body = parse_event(text)
            getattr(self, f"_read_{kind}")(body)

    def _read_hello(self, body: Any) -> None:
        self.value, self.term, self.message = body["value"], body["asOf"]["term"], ""

    def _read_gap(self, body: Any) -> None:
        self.value, self.message = None, body["message"]

    def _read_value(self, body: Any) -> None:
        self.value = body["value"]

    def _read_rows(self, body: Any) -> None:
        rows = {row["names"][0]: row for row in self.value["items"]}
        rows |= {row["names"][0]: row for row in body["set"]}
        for key in body["gone"]:
            rows.pop(key.removeprefix("pod/"), None)
        order = [key.removeprefix("pod/") for key in body.get("order", ())] or list(rows)
        items = [rows[name] for name in order]
        self.value = {**self.value, "items": items, "total": body["total"]}


def parse_event(text: bytes) -> tuple[str, Any]:
    kind, data = text.decode().removesuffix("\n\n").split("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def read_up_to_now(channel: TopicChannel, course: Any, number: int, reader: Reader) -> int:
    await channel.advance(course)
    news = channel.since(number)
    reader.read([await channel.tell_all(course)] if news is None else news)
    return channel.number


@settings(max_examples=examples(20), deadline=None)
@given(
    st.sampled_from(TOPICS),
    st.lists(st.tuples(st.sets(st.sampled_from("abcd")), st.sampled_from((1, 1, 2))), min_size=2,
             max_size=6),
    st.sampled_from((512, 2)),
    st.data(),
)  # fmt: skip
def test_whoever_was_away_is_told_what_is_missing(
    topic: str, course_of: list[tuple[set[str], int]], most: int, data: st.DataObject
) -> None:
    """Each of three readers looks at some of the states only, the last one at the last."""

    async def play() -> None:
        course: Any = Course()
        channel = TopicChannel(parse_topic(topic, "i"), EVERYTHING)
        readers = [(Reader(), 0) for _ in range(3)]
        for names, term in course_of:
            course.go_on(sorted(names), term)
            for at in data.draw(st.sets(st.integers(0, 2))):
                reader, number = readers[at]
                readers[at] = reader, await read_up_to_now(channel, course, number, reader)
        for reader, number in readers:
            await read_up_to_now(channel, course, number, reader)
            fresh = Reader()
            await read_up_to_now(
                TopicChannel(parse_topic(topic, "i"), EVERYTHING), course, 0, fresh
            )
            assert (reader.shown, reader.message) == (fresh.shown, fresh.message)
            assert reader.term == fresh.term or fresh.message

    before, channels_module.MOST_EVENTS = channels_module.MOST_EVENTS, most
    try:
        asyncio.run(play())
    finally:
        channels_module.MOST_EVENTS = before


async def test_who_comes_back_is_told_what_is_missing() -> None:
    async with open_server() as client:
        url, headers = f"{client.root}{BASE}/stream?topic=queue", {"Authorization": "Bearer a"}
        async with client.session.get(url, headers=headers) as stream:
            kind, identity = await read_kind(stream)
        assert kind == "hello"
        await client.readings.read_once()
        for given, expected in ((identity, "sign"), (f"{identity}9", "hello"), ("x:1", "hello")):
            again = {**headers, "Last-Event-ID": given}
            async with client.session.get(url, headers=again) as stream:
                assert (await read_kind(stream))[0] == expected
        # What others saw is nobody's beginning, nor is another topic.
        for token, topic in (("b", "queue"), ("r", "queue"), ("a", "overview")):
            given = {"Authorization": f"Bearer {token}", "Last-Event-ID": identity}
            url = f"{client.root}{BASE}/stream?topic={topic}"
            async with client.session.get(url, headers=given) as stream:
                assert (await read_kind(stream))[0] == "hello"


async def read_kind(stream: aiohttp.ClientResponse) -> tuple[str, str]:
    """Return the kind of the first event, and its identity."""
    identity = ""
    async for line in stream.content:
        name, _, text = line.decode().strip().partition(": ")
        identity = text if name == "id" else identity
        if name == "event":
            return text, identity
    raise AssertionError("it ended")


async def test_an_event_is_made_once_for_all_who_may_see_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    hello = Topic.hello
    monkeypatch.setattr(Topic, "hello", lambda *args: made.append(1) or hello(*args))
    async with open_server() as client:
        client.reviewer.users |= {"a2": "ann", "a3": "ann"}
        for token in ("a", "a2", "a3", "b"):
            async with client.follow(token) as stream:
                assert (await read_kind(stream))[0] == "hello"
    assert len(made) == 2


def test_of_channels_that_nobody_follows_few_are_kept() -> None:
    channels = Channels(Course())  # type: ignore[arg-type]
    sights = [Sight(frozenset({f"team-{at}"})) for at in range(2 * MOST_IDLE)]
    for sight in sights:
        channels.join("queue", sight)
    channels.join("overview", EVERYTHING)
    for sight in sights:
        channels.leave("queue", sight)
    assert len(channels) == MOST_IDLE + 1
