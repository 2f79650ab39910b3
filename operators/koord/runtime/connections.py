"""What clients of the HTTP server may take: connections, time and bytes.

Any pod that reaches the port may be a client. They share the file descriptors of the process with
its writers, so their number is bounded, and so is what each of them holds. Where there are too
many, one of the peer that has the most ends, the oldest: a client that opens hundreds only disturbs
itself, and a probe that has just come stays.

Each connection carries one request. Probes and scrapes come seconds apart, so nobody gains from
keeping one open.
"""

import asyncio
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final

from typing_extensions import override

_HOST_BITS: Final = 64
"""Bits of an IPv6 address that a single host may choose as it likes."""
_SHARE: Final = 8
"""Strangers get at most one in so many of the file descriptors of the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """More than probes and scrapes need."""

    connections: int = 128
    """At once, of all peers."""
    per_peer: int = 32
    seconds: float = 10.0
    """How long a connection lives at most, however slowly its client sends or reads."""
    received_bytes: int = 32 * 1024
    """What a client may send over one connection."""

    def within(self, descriptors: int) -> "ConnectionLimits":
        """Return the limits for a process that may have so many file descriptors."""
        most = max(2, min(self.connections, descriptors // _SHARE))
        return ConnectionLimits(
            connections=most,
            per_peer=min(self.per_peer, most),
            seconds=self.seconds,
            received_bytes=self.received_bytes,
        )


def count_descriptors() -> int:
    """Return how many file descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


@dataclass(slots=True)
class OpenConnections:
    """All connections of strangers. Used from one event loop."""

    limits: ConnectionLimits
    _by_peer: "dict[str, dict[LimitedConnection, None]]" = field(default_factory=dict)
    """The connections of each peer, oldest first."""
    _count: int = 0

    def __len__(self) -> int:
        return self._count

    def admit(self, connection: "LimitedConnection") -> None:
        """Take a new connection in, and end another one where there are too many."""
        own = self._by_peer.setdefault(connection.peer, {})
        own[connection] = None
        self._count += 1
        if len(own) > self.limits.per_peer:
            self._end_oldest(connection.peer)
        elif self._count > self.limits.connections:
            self._end_oldest(max(self._by_peer, key=lambda peer: len(self._by_peer[peer])))

    def forget(self, connection: "LimitedConnection") -> None:
        own = self._by_peer.get(connection.peer, {})
        if connection in own:
            del own[connection]
            self._count -= 1
            if not own:
                del self._by_peer[connection.peer]

    def _end_oldest(self, peer: str) -> None:
        oldest = next(iter(self._by_peer[peer]))
        self.forget(oldest)
        oldest.end()


class ForwardingConnection(asyncio.Protocol):
    """One connection: hands everything to the protocol of the server, once it is taken in."""

    def __init__(self, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._make_protocol = make_protocol
        self._protocol: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None

    def take_in(self, transport: asyncio.Transport) -> None:
        """Take the connection in, or end it: the protocol is made afterwards."""
        raise NotImplementedError

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("HTTP needs a stream")
        self._transport = transport
        self.take_in(transport)
        self._protocol = self._make_protocol()
        self._protocol.connection_made(transport)

    @override
    def data_received(self, data: bytes) -> None:
        if self._protocol is not None:
            self._protocol.data_received(data)

    @override
    def eof_received(self) -> bool | None:
        return self._protocol.eof_received() if self._protocol is not None else None

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    @override
    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    @override
    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()


class LimitedConnection(ForwardingConnection):
    """A connection within its limits: those that are not taken in cost little."""

    def __init__(
        self, connections: OpenConnections, make_protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        super().__init__(make_protocol)
        self.peer = ""
        self._open = connections
        self._received = 0
        self._deadline: asyncio.TimerHandle | None = None

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @override
    def take_in(self, transport: asyncio.Transport) -> None:
        self.peer = peer_of(transport)
        self._open.admit(self)
        limit = self._open.limits.seconds
        self._deadline = asyncio.get_running_loop().call_later(limit, self.end)

    @override
    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > self._open.limits.received_bytes:
            self.end()
        else:
            super().data_received(data)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._open.forget(self)
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Return who is at the other end: an IPv4 address, or the network of an IPv6 address."""
    name = transport.get_extra_info("peername")
    if not name:
        return ""
    address = ip_address(name[0])
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> _HOST_BITS << _HOST_BITS))
