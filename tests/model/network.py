"""What lies between the operators and the server: delays, faults, and crashes at a given write.

``ModelClient`` takes the place of the HTTP client, at the level of requests and answers: everything
above it is the real thing. What goes wrong is drawn from a seed.
"""

import asyncio
import random
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tests.model.server import Answer, Request, Server, parse_path
from tests.model.store import Event, decode, encode
from typing_extensions import override

from koord.kube.client import Client, Media
from koord.kube.errors import ConnectionLost, error_of_answer


class Fault(StrEnum):
    """What may become of a request."""

    LOST_BEFORE = "LostBefore"
    LOST_AFTER = "LostAfter"
    CONFLICT = "Conflict"
    FORBIDDEN = "Forbidden"
    TOO_MANY = "TooMany"
    UNAVAILABLE = "Unavailable"
    SLOW = "Slow"


_STATUS = {
    Fault.CONFLICT: 409,
    Fault.FORBIDDEN: 403,
    Fault.TOO_MANY: 429,
    Fault.UNAVAILABLE: 503,
}


@dataclass(slots=True)
class Weather:
    """How bad it is now: which faults, how often, and how late watches are (seconds at most)."""

    faults: tuple[Fault, ...] = ()
    rate: float = 0.0
    lag: float = 0.02


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The operators end at their n-th write (from 1), before or after the server acted on it."""

    write: int
    is_before: bool


@dataclass(slots=True)
class Life:
    """One process of the operators, as the network sees it."""

    number: int
    elected: asyncio.Event = field(default_factory=asyncio.Event)
    crash: CrashPoint | None = None
    is_over: bool = False
    writes: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    """Kind -> the last revision of it that was delivered."""
    outdated: dict[str, float] = field(default_factory=dict)
    """Kind -> since when it knows that it has to list anew."""
    decided: dict[str, dict[str, int]] = field(default_factory=dict)
    """Plan id -> what had been seen when the first write of that plan was wanted."""
    releases: dict[str, set[str]] = field(default_factory=dict)
    """Plan id -> uids of the pods that were to be released by it."""
    flying: list[Request] = field(default_factory=list)
    """Writes that were sent and have not arrived."""


class Network:
    """Carries requests of every life to one server.

    ``on_decide`` hears of every write that somebody wants, ``on_send`` of those that set out,
    ``on_write`` of those that arrive.
    """

    def __init__(self, server: Server, rng: random.Random) -> None:
        self.server = server
        self.weather = Weather()
        self.faults_drawn: Counter[Fault] = Counter()
        self.faults_of: Counter[str] = Counter()
        """Name of an object -> faults in requests about it."""
        self.writes = 0
        self.kinds_of_writes: defaultdict[int, list[str]] = defaultdict(list)
        """Life -> what it wrote, or wanted to."""
        self.serving: Life | None = None
        """Whose request the server is answering."""
        self.on_crash: Callable[[Life], None] = lambda _: None
        self.on_decide: Callable[[Life, Request], None] = lambda *_: None
        self.on_send: Callable[[Life, Request], None] = lambda *_: None
        self.on_write: Callable[[Life, Request, Answer, Any], None] = lambda *_: None
        self._rng = rng
        self._streams: list[_Stream] = []
        server.store.listeners.append(self._publish)

    async def exchange(  # noqa: C901 - the way there and back, in order
        self, life: Life, request: Request
    ) -> Answer:
        """Carry a request there and its answer back; it may never come back."""
        is_write = request.method != "GET"
        self.writes += is_write
        crash = self._count(life) if is_write else None
        if crash and crash.is_before:
            self._end(life)
        if life.is_over:
            await asyncio.Event().wait()
        if is_write:
            self.kinds_of_writes[life.number].append(_kind_of(request))
            self.on_decide(life, request)
        fault = self._draw_fault(request)
        if crash:
            fault = None
        if fault is Fault.LOST_BEFORE:
            await self._travel(fault)
            raise ConnectionLost("lost on the way", sent=True)
        if fault in _STATUS:
            await self._travel(fault)
            return _refuse(_STATUS[fault])
        if is_write:
            life.flying.append(request)
            self.on_send(life, request)
        await self._travel(fault)
        if life.is_over:
            await asyncio.Event().wait()
        if is_write:
            life.flying.remove(request)
        answer = self.serve(life, request)
        if crash:
            self._end(life)
            await asyncio.Event().wait()
        await self._travel(None)
        if fault is Fault.LOST_AFTER:
            raise ConnectionLost("lost on the way back", sent=True)
        return answer

    def serve(self, life: Life, request: Request) -> Answer:
        """Have the server answer, and tell who listens."""
        if request.method == "GET":
            return self.server.handle(request)
        target = parse_path(request.path)
        before = None
        if target.name:
            before = self.server.store.get(target.kind, target.key)
        self.serving = life
        answer = self.server.handle(request)
        self.serving = None
        self.on_write(life, request, answer, before)
        return answer

    def open_stream(self, life: Life, kind: str, revision: int) -> "_Stream":
        """Start a watch."""
        stream = _Stream(kind, life)
        events = self.server.store.since(kind, revision)
        if events is None:
            stream.put(_EXPIRED, asyncio.get_running_loop().time())
        else:
            for event in events:
                self._send(stream, event)
            self._streams.append(stream)
        return stream

    def close_stream(self, stream: "_Stream") -> None:
        """End a watch."""
        stream.is_closed = True
        if stream in self._streams:
            self._streams.remove(stream)

    def break_watches(self, kind: str) -> None:
        """End every watch of a kind without a word."""
        for stream in [one for one in self._streams if one.kind == kind]:
            self._streams.remove(stream)
            stream.put(None, 0.0)

    def _count(self, life: Life) -> CrashPoint | None:
        life.writes += 1
        crash = life.crash
        return crash if crash is not None and life.writes == crash.write else None

    def _end(self, life: Life) -> None:
        """End a life; of what it has sent, some arrives all the same."""
        if life.is_over:
            return
        life.is_over = True
        for request in life.flying:
            if self._rng.random() < 0.5:
                self.serve(life, request)
        life.flying.clear()
        self.on_crash(life)

    def clock(self) -> float:
        """Return the seconds since the beginning of the world."""
        return asyncio.get_event_loop().time()

    def kill(self, life: Life) -> None:
        """End a life now."""
        self._end(life)

    def _draw_fault(self, request: Request) -> Fault | None:
        weather = self.weather
        if not weather.faults or self._rng.random() >= weather.rate:
            return None
        fault = self._rng.choice(weather.faults)
        self.faults_drawn[fault] += 1
        self.faults_of[parse_path(request.path).name] += 1
        return fault

    async def _travel(self, fault: Fault | None) -> None:
        seconds = 3.0 if fault is Fault.SLOW else 0.002
        await asyncio.sleep(self._rng.uniform(0.0, seconds))

    def _publish(self, event: Event) -> None:
        for stream in self._streams:
            if stream.kind == event.kind:
                self._send(stream, event)

    def _send(self, stream: "_Stream", event: Event) -> None:
        now = asyncio.get_event_loop().time()
        stream.put(event, now + self._rng.uniform(0.0, self.weather.lag))


_EXPIRED = Event(
    0,
    "",
    "ERROR",
    {},
    b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"old"}}\n',
)


class _Stream:
    """One watch: events in order, none before its time, late ones together."""

    def __init__(self, kind: str, life: Life) -> None:
        self.kind = kind
        self.is_closed = False
        self._life = life
        self._queue: deque[tuple[float, Event | None]] = deque()
        self._more = asyncio.Event()

    def put(self, event: Event | None, at: float) -> None:
        """Deliver an event at a time, and not before those before it; None ends the stream."""
        last = self._queue[-1][0] if self._queue else 0.0
        self._queue.append((max(at, last), event))
        self._more.set()

    async def read(self) -> bytes:
        """Wait for the next events."""
        while not self._queue:
            self._more.clear()
            await self._more.wait()
        now = asyncio.get_running_loop().time()
        if self._queue[0][0] > now:
            await asyncio.sleep(self._queue[0][0] - now)
            now = asyncio.get_running_loop().time()
        lines = []
        while self._queue and self._queue[0][0] <= now:
            event = self._queue[0][1]
            if event is None and lines:
                break
            if event is None:
                raise ConnectionLost("the stream broke", sent=True)
            self._queue.popleft()
            if event is _EXPIRED:
                self._life.outdated.setdefault(self.kind, now)
            self._life.seen[self.kind] = max(event.revision, self._life.seen.get(self.kind, 0))
            lines.append(event.line)
        return b"".join(lines)


class ModelClient(Client):
    """The client of one life."""

    def __init__(self, network: Network, life: Life) -> None:  # no connection, no credentials
        self._network = network
        self._life = life

    @override
    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        media: Media = Media.JSON,
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        said = None if body is None else decode(encode(body))
        request = Request(method, path, said, media, params or {})
        answer = await self._network.exchange(self._life, request)
        if answer.status >= 300:
            raise error_of_answer(answer.status, answer.body, None)
        if method == "GET" and not parse_path(path).name:
            meta = decode(answer.body)["metadata"]
            kind = parse_path(path).kind
            self._life.seen[kind] = int(meta["resourceVersion"])
            self._life.outdated.pop(kind, None)
        return answer.body

    @override
    @asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, str], *, silence: float
    ) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        kind = parse_path(path).kind
        stream = self._network.open_stream(self._life, kind, int(params["resourceVersion"]))
        try:
            yield stream.read
        finally:
            self._network.close_stream(stream)


def _kind_of(request: Request) -> str:
    target = parse_path(request.path)
    if target.subresource or target.kind == "events":
        return f"{target.kind} {target.subresource}".rstrip()
    return "pods release" if request.media == Media.JSON_PATCH else "pods mark"


def _refuse(status: int) -> Answer:
    body = {"kind": "Status", "code": status, "reason": "Injected", "message": "injected"}
    if status == 429:
        body["details"] = {"retryAfterSeconds": 1}
    return Answer(status, encode(body))
