"""The network between operators and server: delays, faults, and crashes at a given write.

``ModelClient`` replaces the HTTP client at the level of requests and answers; all code above it is
real. Faults are drawn from a seed.
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

from koord.domains.registry import KINDS
from koord.kube.client import Client, Media
from koord.kube.errors import ConnectionLost, Forbidden, error_of_answer


class Fault(StrEnum):
    """A fault of one request."""

    LOST_BEFORE = "LostBefore"
    LOST_AFTER = "LostAfter"
    CONFLICT = "Conflict"
    FORBIDDEN = "Forbidden"
    TOO_MANY = "TooMany"
    UNAVAILABLE = "Unavailable"
    SLOW = "Slow"


OPTIONAL = {parse_path(kind.path).kind for kind in KINDS if Forbidden in kind.absent_on}
"""Kinds that a process without the right to list them takes for empty."""
_STATUS = {
    Fault.CONFLICT: 409,
    Fault.FORBIDDEN: 403,
    Fault.TOO_MANY: 429,
    Fault.UNAVAILABLE: 503,
}


@dataclass(slots=True)
class NetworkFaults:
    """Kinds of faults, their rate (0 to 1), and the largest delay of watches in seconds."""

    faults: tuple[Fault, ...] = ()
    rate: float = 0.0
    lag: float = 0.02


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The process crashes at its n-th write (from 1), before or after the server carries it out."""

    write: int
    is_before: bool


@dataclass(slots=True)
class Process:
    """One process of the operators, as seen by the network."""

    number: int
    elected: asyncio.Event = field(default_factory=asyncio.Event)
    crash: CrashPoint | None = None
    is_dead: bool = False
    writes: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    """Kind -> the last revision that was delivered."""
    relist_since: dict[str, float] = field(default_factory=dict)
    """Kind -> time at which it learned that it has to list again."""
    decided: dict[str, dict[str, int]] = field(default_factory=dict)
    """Plan id -> revisions seen per kind when the first write of the plan was requested."""
    decided_with: dict[str, dict[str, int]] = field(default_factory=dict)
    """Plan id -> the same, when the plan was decided at the earliest."""
    releases: dict[str, set[str]] = field(default_factory=dict)
    """Plan id -> uids of the pods that it releases."""
    in_flight: list[Request] = field(default_factory=list)
    """Writes that were sent and have not arrived yet."""
    _arrivals: deque[tuple[float, str, int]] = field(default_factory=lambda: deque(maxlen=1000))
    """Time, kind, and the revision that was seen before."""

    def see(self, kind: str, revision: int, now: float) -> None:
        """Note that a revision of a kind was delivered."""
        self._arrivals.append((now, kind, self.seen.get(kind, 0)))
        self.seen[kind] = revision

    def seen_before(self, when: float) -> dict[str, int]:
        """Return what had been delivered before a time."""
        seen = dict(self.seen)
        for at, kind, revision in reversed(self._arrivals):
            if at < when:
                break
            seen[kind] = revision
        return seen


class Network:
    """Carries requests of all processes to one server.

    ``on_decide`` is called for every requested write, ``on_send`` for every write that is sent,
    ``on_write`` for every write that arrives, and ``on_forbid`` for every request that a fault
    answers with 403.
    """

    def __init__(self, server: Server, rng: random.Random) -> None:
        self.server = server
        self.injected = NetworkFaults()
        self.faults_drawn: Counter[Fault] = Counter()
        self.faults_of: Counter[str] = Counter()
        """Object name -> number of faults in its requests."""
        self.writes = 0
        self.kinds_of_writes: defaultdict[int, list[str]] = defaultdict(list)
        """Process number -> kinds of its writes, also of those that failed."""
        self.serving: Process | None = None
        """The process whose request the server is answering."""
        self.on_crash: Callable[[Process], None] = lambda _: None
        self.on_decide: Callable[[Process, Request], None] = lambda *_: None
        self.on_forbid: Callable[[Request], None] = lambda _: None
        self.on_send: Callable[[Process, Request], None] = lambda *_: None
        self.on_write: Callable[[Process, Request, Answer, Any], None] = lambda *_: None
        self._rng = rng
        self._streams: list[_Stream] = []
        server.store.listeners.append(self._publish)

    async def exchange(  # noqa: C901 - the path of a request, step by step
        self, process: Process, request: Request
    ) -> Answer:
        """Carry a request and its answer; after a crash it never returns."""
        is_write = request.method != "GET"
        self.writes += is_write
        crash = self._count(process) if is_write else None
        if crash and crash.is_before:
            self._end(process)
        if process.is_dead:
            await asyncio.Event().wait()
        if is_write:
            self.kinds_of_writes[process.number].append(_kind_of(request))
            self.on_decide(process, request)
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
            process.in_flight.append(request)
            self.on_send(process, request)
        await self._travel(fault)
        if process.is_dead:
            await asyncio.Event().wait()
        if is_write:
            process.in_flight.remove(request)
        answer = self.serve(process, request)
        if crash:
            self._end(process)
            await asyncio.Event().wait()
        await self._travel(None)
        if fault is Fault.LOST_AFTER:
            raise ConnectionLost("lost on the way back", sent=True)
        return answer

    def serve(self, process: Process, request: Request) -> Answer:
        """Let the server answer, and call ``on_write``."""
        if request.method == "GET":
            return self.server.handle(request)
        target = parse_path(request.path)
        before = None
        if target.name:
            before = self.server.store.get(target.kind, target.key)
        self.serving = process
        answer = self.server.handle(request)
        self.serving = None
        self.on_write(process, request, answer, before)
        return answer

    def open_stream(self, process: Process, kind: str, revision: int) -> "_Stream":
        stream = _Stream(kind, process)
        events = self.server.store.since(kind, revision)
        if events is None:
            stream.put(_EXPIRED, asyncio.get_running_loop().time())
        else:
            for event in events:
                self._send(stream, event)
            self._streams.append(stream)
        return stream

    def close_stream(self, stream: "_Stream") -> None:
        stream.is_closed = True
        if stream in self._streams:
            self._streams.remove(stream)

    def break_watches(self, kind: str) -> None:
        """Break all watches of a kind."""
        for stream in [one for one in self._streams if one.kind == kind]:
            self._streams.remove(stream)
            stream.put(None, 0.0)

    def _count(self, process: Process) -> CrashPoint | None:
        process.writes += 1
        crash = process.crash
        return crash if crash is not None and process.writes == crash.write else None

    def _end(self, process: Process) -> None:
        """Kill a process; some of its writes in flight still arrive."""
        if process.is_dead:
            return
        process.is_dead = True
        for request in process.in_flight:
            if self._rng.random() < 0.5:
                self.serve(process, request)
        process.in_flight.clear()
        self.on_crash(process)

    def clock(self) -> float:
        """Return the virtual time in seconds."""
        return asyncio.get_event_loop().time()

    def kill(self, process: Process) -> None:
        self._end(process)

    def _draw_fault(self, request: Request) -> Fault | None:
        injected = self.injected
        if not injected.faults or self._rng.random() >= injected.rate:
            return None
        fault = self._rng.choice(injected.faults)
        self.faults_drawn[fault] += 1
        self.faults_of[parse_path(request.path).name] += 1
        if fault is Fault.FORBIDDEN:
            self.on_forbid(request)
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
        stream.put(event, now + self._rng.uniform(0.0, self.injected.lag))


_EXPIRED = Event(
    0,
    "",
    "ERROR",
    {},
    b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"old"}}\n',
)


class _Stream:
    """One watch: events in order, each at its delivery time."""

    def __init__(self, kind: str, process: Process) -> None:
        self.kind = kind
        self.is_closed = False
        self._life = process
        self._queue: deque[tuple[float, Event | None]] = deque()
        self._more = asyncio.Event()

    def put(self, event: Event | None, at: float) -> None:
        """Schedule an event, never before earlier events; None ends the stream."""
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
                self._life.relist_since.setdefault(self.kind, now)
            if event.revision > self._life.seen.get(self.kind, 0):
                self._life.see(self.kind, event.revision, now)
            lines.append(event.line)
        return b"".join(lines)


class ModelClient(Client):
    """The client of one process."""

    def __init__(self, network: Network, process: Process) -> None:  # no connection, no credentials
        self._network = network
        self._life = process

    @override
    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        media: Media = Media.JSON,
        params: Mapping[str, str] | None = None,
        accept: str = "",
    ) -> bytes:
        assert not accept, "the model knows the usual form only"
        said = None if body is None else decode(encode(body))
        request = Request(method, path, said, media, params or {})
        answer = await self._network.exchange(self._life, request)
        target = parse_path(path)
        if answer.status == 403 and target.kind in OPTIONAL:
            self._life.relist_since.pop(target.kind, None)
        if answer.status >= 300:
            raise error_of_answer(answer.status, answer.body, None)
        # A list of one namespace, as of placeholders, says nothing of the others.
        if method == "GET" and not target.name and not target.namespace:
            meta = decode(answer.body)["metadata"]
            self._life.see(target.kind, int(meta["resourceVersion"]), self._network.clock())
            self._life.relist_since.pop(target.kind, None)
        return answer.body

    @override
    @asynccontextmanager
    async def watch(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        silence: float,
        is_metadata_only: bool = False,
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
