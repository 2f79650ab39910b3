"""HTTP/1.1: requests as bytes, and a connection that carries one request at a time.

Placing a pod takes two requests, and a general HTTP client spends three times the CPU time on each.
httptools parses the responses. This module knows nothing of Kubernetes, credentials or retries.
"""

import asyncio
import re
import socket
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httptools
from typing_extensions import override

from koord.kube.errors import Garbled

UNACKNOWLEDGED_SECONDS: Final = 4.0
"""The kernel drops a connection whose data stays unacknowledged this long, even after this process
has ended: a write must not arrive when another process already leads."""
_GZIP: Final = zlib.MAX_WBITS | 16
_TARGET: Final = re.compile(r"/[!-~]*")


class Request(NamedTuple):
    """``target`` is the path with its query; ``content`` is None for a request without a body."""

    method: str
    target: str
    accept: str
    content: bytes | None = None
    media: str = ""


class RequestWriter:
    """Writes requests to one server; the headers that all of them share are formatted once."""

    def __init__(self, server: str, headers: Mapping[str, str]) -> None:
        address = urlsplit(server)
        self._base = address.path.rstrip("/")
        # Decompressing a large list takes less processor time than receiving it in full.
        shared = {"Host": address.netloc, "Accept-Encoding": "gzip", **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in shared.items())
        self._tail = f" HTTP/1.1\r\n{lines}"

    def write(self, request: Request) -> bytes:
        """Return the bytes to send. Raises Garbled if the target is not valid in a request line."""
        target = f"{self._base}{request.target}"
        if not _TARGET.fullmatch(target):
            raise Garbled(f"not the path of an object: {request.target!r}")
        head = f"{request.method} {target}{self._tail}Accept: {request.accept}\r\n"
        if request.content is None:
            return f"{head}\r\n".encode()
        length = len(request.content)
        entity = f"Content-Type: {request.media}\r\nContent-Length: {length}\r\n\r\n"
        return f"{head}{entity}".encode() + request.content


def set_user_timeout(connection: socket.socket) -> None:
    milliseconds = int(UNACKNOWLEDGED_SECONDS * 1000)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response; ``retry_after`` is the raw header."""

    status: int
    body: bytes
    retry_after: str | None = None


class Broken(Exception):  # noqa: N818 - what it says is what happened
    """The connection ended before the response was complete; ``began``: part of it had arrived."""

    def __init__(self, why: str, *, began: bool) -> None:
        super().__init__(why)
        self.began = began


class Connection(asyncio.Protocol):
    """For ``create_connection``; it accepts a request while :attr:`is_idle`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[HttpResponse] | None = None
        self._began = False
        self._chunks: list[bytes] = []
        self._retry_after: str | None = None
        self._encoding = b""
        self.is_used = False
        """Whether it has carried a response: the server may have closed it since."""
        self.deadline = 0.0
        """When the current request times out, on the event loop's clock."""

    @property
    def is_idle(self) -> bool:
        return self._transport is not None and self._waiting is None

    def send(self, request: bytes, deadline: float) -> "asyncio.Future[HttpResponse]":
        """Send a request immediately; the future gets the response, or ``Broken``."""
        if self._transport is None or self._waiting is not None:
            raise RuntimeError("the connection is not idle")
        self.deadline = deadline
        self._began = False
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def abort(self, why: str) -> None:
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
            self.abort("the server sent data without a request")
            return
        self._began = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.abort(f"not an HTTP response: {error}")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.abort(str(exc or "closed by the server"))

    def on_header(self, name: bytes, value: bytes) -> None:
        # Called by the parser, like the other on_ methods.
        header = name.lower()
        if header == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif header == b"content-encoding":
            self._encoding = value.lower()

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        self.is_used = True
        body = b"".join(self._chunks)
        if self._encoding == b"gzip":
            try:
                body = zlib.decompress(body, _GZIP)
            except zlib.error as error:
                self.abort(f"cannot decompress the response: {error}")
                return
        answer = HttpResponse(self._parser.get_status_code(), body, self._retry_after)
        self._chunks, self._retry_after, self._encoding = [], None, b""
        waiting, self._waiting = self._waiting, None
        if waiting is None or not self._parser.should_keep_alive():
            self.abort("closed after the response")
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
