"""What streams are told: each event is made once for all who follow a topic and may see the same.

A channel goes through the states as long as somebody follows it, and keeps its last events: who is
behind, or comes back after the connection broke, gets those that are missing, and whoever needs
more gets the whole answer. Knows no connection.
"""

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from koord.answers.redaction import EVERYTHING, Sight
from koord.see.route import NothingThere
from koord.see.snapshots import Snapshots
from koord.see.topics import Topic, make_head, parse_topic

MOST_EVENTS: Final = 512
MOST_BYTES: Final = 256 * 1024
"""Of the events that one channel keeps. If they take more, telling the whole answer takes less."""
IDLE_SECONDS: Final = 60.0
"""For so long a channel is kept that nobody follows."""
MOST_IDLE: Final = 64
_KINDS: Final = {"value": "value", "items": "patch"}
"""Part of changes -> the event that has it; others are of rows."""
_BEGINNING: Final = frozenset({"hello", "gap"})
"""Events that say who leads and what is missing, or that there is nothing."""
log = logging.getLogger(__name__)


def make_event(kind: str, body: Mapping[str, Any]) -> bytes:
    """Return an event; JSON has no line breaks of its own."""
    return f"event: {kind}\ndata: {json.dumps(body, ensure_ascii=True)}\n\n".encode()


@dataclass(frozen=True, slots=True)
class ChannelEvent:
    """What changed up to a state. ``kind`` is empty, and so is ``text``, if nothing did."""

    number: int
    kind: str = ""
    text: bytes = b""
    seconds: float = 0.0
    """Of a processor that making it took."""


class TopicChannel:
    """The events of one topic, as those see it who may see the same; used in the event loop."""

    def __init__(self, topic: Topic, sight: Sight) -> None:
        self._topic, self._sight = topic, sight
        self.number = 0
        """Of the state up to which everything was told."""
        self.followers = 0
        self.left_at = 0.0
        """When the last follower went; monotonic."""
        self._base = 0
        """Who knows this state, or a later one, needs only the events that are kept."""
        self._events: deque[ChannelEvent] = deque()
        self._bytes = 0
        self._whole = b""
        """The whole answer as an event; empty until somebody needs it."""
        self._problem = ""
        self._turn = asyncio.Lock()

    async def advance(self, snapshots: Snapshots) -> float:
        """Go on to the last state; return the seconds that it took from others.

        Of whoever asks first: for the others it is there already.
        """
        began = time.monotonic()
        async with self._turn:
            last = snapshots.last
            if last is None or last.number <= self.number:
                return 0.0
            plans = self._topic.route.plans
            compute = snapshots.plan if plans else snapshots.follow
            event = await compute(lambda: self._make_next(snapshots))
            self._keep(event)
        # What takes a plan has a queue of its own, and the longer that is the less is asked for.
        return time.monotonic() - began if plans else event.seconds

    def since(self, number: int) -> list[bytes] | None:
        """Return the events after a state; None if that takes the whole answer."""
        if not self._base <= number <= self.number or not number:
            return None
        later = [event for event in self._events if event.number > number]
        return [event.text for event in later]

    async def tell_all(self, snapshots: Snapshots) -> bytes:
        """Return the whole answer, as of the state up to which everything was told."""
        async with self._turn:
            if not self._whole:
                self._whole = await snapshots.follow(self._make_whole)
            return self._whole

    def _keep(self, event: ChannelEvent) -> None:
        self.number = event.number
        if not event.text:
            return
        self._whole = event.text if event.kind in _BEGINNING else b""
        if event.kind == "value" or event.kind in _BEGINNING:
            self._drop(len(self._events), needs_beginning=event.kind == "value")
        self._events.append(event)
        self._bytes += len(event.text)
        while len(self._events) > MOST_EVENTS or self._bytes > MOST_BYTES:
            self._base = self._events[0].number
            self._drop(1)

    def _drop(self, count: int, *, needs_beginning: bool = False) -> None:
        """Drop the oldest events; who was told none of a beginning among them begins anew."""
        for _ in range(count):
            event = self._events.popleft()
            self._bytes -= len(event.text)
            if needs_beginning and event.kind in _BEGINNING:
                self._base = event.number

    # --- in the thread of answers ----------------------------------------------------------------

    def _make_next(self, snapshots: Snapshots) -> ChannelEvent:
        """Return what changed up to the last state, whichever that is by now."""
        began, last = time.thread_time(), snapshots.last
        assert last is not None, "there is no way back"  # noqa: S101 - for the type checker
        snapshot, topic, had_problem = last.seen_with(self._sight), self._topic, self._problem
        kind, self._problem = "gap", ""
        body: Mapping[str, Any] = {}
        try:
            head = make_head(topic, snapshot)
            # Changes have no gaps: who leads now, or nobody, is told with the whole answer.
            if had_problem or topic.differs_in_head(head):
                kind, body = "hello", topic.hello(snapshot)
            else:
                changes = topic.changes(snapshot)
                if changes is not None:
                    kind = next((name for part, name in _KINDS.items() if part in changes), "rows")
                    body = {**changes, "asOf": head.wrap(None)["asOf"]}
        except NothingThere as error:
            self._problem = str(error)
        except Exception:
            trace = secrets.token_hex(4)
            log.exception("An answer failed", extra={"topic": topic.name, "trace": trace})
            self._problem = f"the log says more: {trace}"
        if self._problem:
            body = {} if self._problem == had_problem else {"message": self._problem}
        text = make_event(kind, {"topic": topic.name, **body}) if body else b""
        return ChannelEvent(last.number, kind if body else "", text, time.thread_time() - began)

    def _make_whole(self) -> bytes:
        body = {"message": self._problem} if self._problem else self._topic.whole
        return make_event("gap" if self._problem else "hello", {"topic": self._topic.name, **body})


@dataclass(slots=True)
class Channels:
    """The channels of a process, those that nobody follows any more for a while."""

    snapshots: Snapshots
    _channels: OrderedDict[tuple[str, Sight], TopicChannel] = field(default_factory=OrderedDict)
    """By topic and sight, those last that were left last."""

    def __len__(self) -> int:
        return len(self._channels)

    def join(self, topic: str, sight: Sight) -> TopicChannel:
        """Begin to follow a topic with a sight. Raises ``InvalidQuery``."""
        key = topic, sight
        channel = self._channels.get(key)
        if channel is None:
            channel = TopicChannel(parse_topic(topic, self.snapshots.instance), sight)
            self._channels[key] = channel
        channel.followers += 1
        return channel

    def leave(self, topic: str, sight: Sight) -> None:
        """End to follow it."""
        channel = self._channels[topic, sight]
        channel.followers -= 1
        if not channel.followers:
            channel.left_at = time.monotonic()
            self._channels.move_to_end((topic, sight))
        self._forget()

    def _forget(self) -> None:
        idle = [key for key, channel in self._channels.items() if not channel.followers]
        old = time.monotonic() - IDLE_SECONDS
        for at, key in enumerate(idle):
            if at < len(idle) - MOST_IDLE or self._channels[key].left_at < old:
                del self._channels[key]


@dataclass(slots=True)
class _Place:
    """How far a stream is in one topic: what it was told up to ``number``, 0 for nothing."""

    topic: Topic
    sight: Sight | None = None
    channel: TopicChannel | None = None
    number: int = 0


class Followed:
    """The topics of one stream, and what it was told of each."""

    def __init__(self, channels: Channels, topics: Sequence[Topic]) -> None:
        self._channels = channels
        self._places = [_Place(topic) for topic in topics]

    @property
    def topics(self) -> list[Topic]:
        return [place.topic for place in self._places]

    @property
    def number(self) -> int:
        """Of the last state of which everything was told."""
        return min(place.number for place in self._places)

    @property
    def identity(self) -> str:
        """What names that state, and what was told of it."""
        return f"{self._channels.snapshots.instance}-{self._digest}:{self.number}"

    @property
    def _digest(self) -> str:
        parts = [(place.topic.name, (place.sight or EVERYTHING).digest) for place in self._places]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]

    def see_with(self, sights: Sequence[Sight]) -> None:
        """Follow what may be seen of each topic now."""
        for place, sight in zip(self._places, sights, strict=True):
            if sight != place.sight:
                self._leave(place)
                place.channel = self._channels.join(place.topic.name, sight)
                place.sight, place.number = sight, 0

    def go_on_after(self, identity: str) -> None:
        """Take up where a stream ended, if it was told the same and not too much has happened."""
        begin, _, number = identity.rpartition(":")
        if begin != self.identity.rpartition(":")[0] or not _is_number(number):
            return
        for place in self._places:
            channel = place.channel
            if channel is not None and channel.since(int(number)) is not None:
                place.number = int(number)

    async def take_events(self) -> tuple[list[bytes], float]:
        """Return what is to be told now, and the seconds that it took from others."""
        snapshots, events, seconds = self._channels.snapshots, list[bytes](), 0.0
        for place in self._places:
            channel = place.channel
            if channel is None:
                continue
            seconds += await channel.advance(snapshots)
            news = channel.since(place.number)
            if news is None:
                news = [await channel.tell_all(snapshots)]
            events += news
            place.number = channel.number
        return events, seconds

    def close(self) -> None:
        for place in self._places:
            self._leave(place)

    def _leave(self, place: _Place) -> None:
        if place.sight is not None:
            self._channels.leave(place.topic.name, place.sight)
        place.sight = place.channel = None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


@contextmanager
def follow(channels: Channels, topics: Sequence[Topic]) -> Iterator[Followed]:
    """Follow topics for a while."""
    followed = Followed(channels, topics)
    try:
        yield followed
    finally:
        followed.close()
