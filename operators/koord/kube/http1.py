"""One connection that carries one HTTP/1.1 request at a time: whole requests in, whole answers out.

A placed pod is two requests, and a general HTTP client needs three times the processor time for
each. httptools parses; here is only what a request and its answer need. Nothing is known of what
they mean, of credentials or of when to try again.
"""

import asyncio
import socket
from dataclasses import dataclass
from typing import Final

import httptools
from typing_extensions import override

UNACKNOWLEDGED_SECONDS: Final = 4.0
"""What the other side's kernel has not acknowledged for so long is given up, also when this process
has ended meanwhile: a write must not arrive when another process leads already."""


def set_user_timeout(connection: socket.socket) -> None:
    """Have the kernel give up on a connection after ``UNACKNOWLEDGED_SECONDS``."""
    milliseconds = int(UNACKNOWLEDGED_SECONDS * 1000)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole answer; ``retry_after`` as the header of that name has it."""

    status: int
    body: bytes
    retry_after: str | None = None


class Broken(Exception):  # noqa: N818 - what it says is what happened
    """The connection ended before the answer did; ``began``: a part of the answer had come."""

    def __init__(self, why: str, *, began: bool) -> None:
        super().__init__(why)
        self.began = began


class Connection(asyncio.Protocol):
    """Use it with ``create_connection``; while :attr:`is_idle`, it takes a request."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[HttpResponse] | None = None
        self._began = False
        self._chunks: list[bytes] = []
        self._retry_after: str | None = None
        self.is_used = False
        """Whether it has carried an answer: the server may have hung up since."""
        self.deadline = 0.0
        """When the request that is on the way is given up, by the event loop's clock."""

    @property
    def is_idle(self) -> bool:
        """Whether it is open and has nothing on the way."""
        return self._transport is not None and self._waiting is None

    def ask(self, request: bytes, deadline: float) -> "asyncio.Future[HttpResponse]":
        """Send a request, at once; the future has the answer, or ``Broken``."""
        if self._transport is None or self._waiting is not None:
            raise RuntimeError("the connection is not idle")
        self.deadline = deadline
        self._began = False
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def abort(self, why: str) -> None:
        """Hang up, at once."""
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.abort()
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            if not waiting.done():
                waiting.set_exception(Broken(why, began=self._began))

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("HTTP needs a stream")
        self._transport = transport
        set_user_timeout(transport.get_extra_info("socket"))

    @override
    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self.abort("the server spoke without being asked")
            return
        self._began = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.abort(f"not an HTTP answer: {error}")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.abort(str(exc or "closed by the server"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header of the answer (called by the parser)."""
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Take a part of the body (called by the parser)."""
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        """Give the answer to who waits for it (called by the parser)."""
        self.is_used = True
        answer = HttpResponse(
            self._parser.get_status_code(), b"".join(self._chunks), self._retry_after
        )
        self._chunks, self._retry_after = [], None
        waiting, self._waiting = self._waiting, None
        if waiting is None or not self._parser.should_keep_alive():
            self.abort("nothing more is to come")
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
