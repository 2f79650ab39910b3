"""HTTP for clients that must use little of the processors that they share with the measured ones.

They run on the same processors as the API server, so a client with a general HTTP library would
set the ceiling too low. One connection carries one request at a time; only the status of an answer
is read, unless the caller asks for more.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
from typing_extensions import override

from koord.kube.client import accept_of
from koord.kube.config import Access

_P = TypeVar("_P", bound=asyncio.BaseProtocol)

_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"


class Refused(Exception):  # noqa: N818 - what it says is what happened
    """The API server refused a request, so there is nothing to measure."""


class Caller:
    """The address of an API server; makes connections to it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        address = urlsplit(access.server)
        self._host, self._port = address.hostname or "", address.port or 443
        authorization = f"Authorization: {access.authorization}\r\n" if access.authorization else ""
        self._tail = (
            f" HTTP/1.1\r\nHost: {address.netloc}\r\n{authorization}User-Agent: koord-benchmark\r\n"
        )

    def make_request(self, method: str, path: str, body: Any = None, media: str = _JSON) -> bytes:
        """Return a request as bytes."""
        head = f"{method} {path}{self._tail}Accept: {accept_of(method)}\r\n"
        if body is None:
            return f"{head}\r\n".encode()
        content = msgspec.json.encode(body)
        entity = f"Content-Type: {media}\r\nContent-Length: {len(content)}\r\n\r\n"
        return f"{head}{entity}".encode() + content

    async def connect(self) -> "Connection":
        return await self._open(Connection)

    async def follow(self, path: str, revision: str) -> AsyncIterator[bytes]:
        """Watch until the server ends it; yield complete lines as they come, several at once.

        The first that it yields is empty: the watch is open.
        """
        reader = asyncio.StreamReader()
        stream = await self._open(lambda: _Stream(reader))
        since = {"resourceVersion": revision} if revision else {}
        query = urlencode({**since, "watch": "true", "timeoutSeconds": "3600"})
        stream.write(self.make_request("GET", f"{path}?{query}"))
        _check(await reader.readuntil(_END))
        yield b""
        chunks, rest = Chunks(), b""
        while not chunks.ended and (data := await reader.read(1 << 16)):
            lines, _, rest = (rest + chunks.feed(data)).rpartition(b"\n")
            if lines:
                yield lines
        stream.close()

    async def _open(self, make: Callable[[], _P]) -> _P:
        _, protocol = await asyncio.get_running_loop().create_connection(
            make, self._host, self._port, ssl=self._access.tls, server_hostname=self._host
        )
        return protocol


class _Stream(asyncio.StreamReaderProtocol):
    """A connection with an endless answer."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self._sink: asyncio.Transport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if isinstance(transport, asyncio.Transport):
            self._sink = transport

    def write(self, request: bytes) -> None:
        if self._sink is not None:
            self._sink.write(request)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()


class Connection(asyncio.Protocol):
    """A connection with one request on it at a time."""

    def __init__(self) -> None:
        self._received = b""
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        if self._answer is not None and is_complete(self._received):
            received, self._received = self._received, b""
            self._answer.set_result(received)
            self._answer = None

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("closed by the API server"))

    async def send(self, request: bytes) -> bytes:
        """Send a request; return the whole answer. Raises ``Refused`` for an error status."""
        if self._transport is None:
            raise RuntimeError("the connection is not open")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        answer = await self._answer
        _check(answer)
        return answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def is_complete(received: bytes) -> bool:
    """Whether the answer is complete. JSON has no line breaks like those between chunks."""
    end = received.find(_END)
    if end < 0:
        return False
    length = _LENGTH.search(received, 0, end)
    if length is None:
        return received.endswith(b"0\r\n\r\n")
    return len(received) >= end + len(_END) + int(length[1])


def body_of(answer: bytes) -> bytes:
    head, _, body = answer.partition(_END)
    return body if _LENGTH.search(head) else Chunks().feed(body)


def _check(answer: bytes) -> None:
    if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
        raise Refused(answer[:1000].decode(errors="replace"))


class Chunks:
    """Decodes the chunked transfer coding."""

    def __init__(self) -> None:
        self._rest = b""
        self.ended = False
        """Whether the last chunk, which is empty, has arrived."""

    def feed(self, data: bytes) -> bytes:
        """Take what has arrived; return the content of all chunks that are complete."""
        data = self._rest + data
        content, at = [], 0
        while (end := data.find(b"\r\n", at)) >= 0:
            start, size = end + 2, int(data[at:end], 16)
            if len(data) < start + size + 2:
                break
            content.append(data[start : start + size])
            self.ended = not size
            at = start + size + 2
        self._rest = data[at:]
        return b"".join(content)
