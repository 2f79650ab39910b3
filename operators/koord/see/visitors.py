"""Connections to the server: who sends nothing, or reads nothing, gives room to others.

A connection is busy while a request is answered, however long a stream lasts. Otherwise it ends
after a while: so does one whose client sends a request byte by byte, or does not take an answer.
Where there are too many, the one that has been idle for longest ends. Knows no answer.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import override

from koord.runtime.connections import ForwardingConnection

IDLE_SECONDS: Final = 20.0
MOST: Final = 2000
_SHARE: Final = 2
"""Connections take at most one in so many of the file descriptors of the process."""


@dataclass(slots=True)
class Visitors:
    """All connections of a server, used from one event loop."""

    most: int = MOST
    idle_seconds: float = IDLE_SECONDS
    _open: "dict[asyncio.BaseTransport, Visitor]" = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._open)

    def within(self, descriptors: int) -> "Visitors":
        """Return the same for a process that may have so many file descriptors."""
        most = max(2, min(self.most, descriptors // _SHARE))
        return Visitors(most, self.idle_seconds)

    def admit(self, transport: asyncio.BaseTransport, visitor: "Visitor") -> None:
        """Take one in, and end the one that is idle for longest where there are too many."""
        self._open[transport] = visitor
        if len(self._open) > self.most:
            min(self._open.values(), key=lambda each: (each.requests, each.idle_since)).end()

    def forget(self, transport: asyncio.BaseTransport) -> None:
        self._open.pop(transport, None)

    def end_all(self) -> None:
        """End all connections, also where something is answered."""
        for visitor in list(self._open.values()):
            visitor.end()

    @contextmanager
    def busy(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """Note that a request of a connection is answered."""
        visitor = None if transport is None else self._open.get(transport)
        if visitor is None:
            yield
            return
        visitor.requests += 1
        try:
            yield
        finally:
            visitor.requests -= 1
            visitor.idle_since = time.monotonic()


class Visitor(ForwardingConnection):
    """A connection that ends when nothing was asked for a while."""

    def __init__(self, visitors: Visitors, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        super().__init__(make_protocol)
        self.requests = 0
        """Which are answered now."""
        self.idle_since = time.monotonic()
        self._visitors = visitors
        self._look: asyncio.TimerHandle | None = None

    def end(self) -> None:
        if self._transport is not None:
            self._visitors.forget(self._transport)
            self._transport.abort()

    def _end_if_idle(self) -> None:
        limit, now = self._visitors.idle_seconds, time.monotonic()
        left = limit if self.requests else self.idle_since + limit - now
        if left <= 0:
            self.end()
        else:
            self._look = asyncio.get_running_loop().call_later(left, self._end_if_idle)

    @override
    def take_in(self, transport: asyncio.Transport) -> None:
        self._visitors.admit(transport, self)
        self._end_if_idle()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        if self._transport is not None:
            self._visitors.forget(self._transport)
        super().connection_lost(exc)
