"""What strangers may take of the HTTP server, and that probes of others get through meanwhile."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from koord.runtime.address import Address
from koord.runtime.connections import ConnectionLimits, peer_of
from koord.runtime.http import Sources, serve_http

LIMITS = ConnectionLimits(connections=12, per_peer=8, seconds=30, received_bytes=4096)
LARGE = b"x" * (16 << 20)
"""More than the kernel takes of an answer that nobody reads."""
PROBE = "127.0.0.9"
"""Loopback addresses stand for hosts."""


@asynccontextmanager
async def serve(limits: ConnectionLimits = LIMITS) -> AsyncIterator[int]:
    async def large() -> bytes:
        return LARGE

    sources = Sources(problem=str, unsynced=list, metrics=large, state=large)
    async with serve_http(Address("127.0.0.1", 0), sources, limits=limits) as address:
        yield address.port


@contextmanager
def clients() -> Iterator["Clients"]:
    made = Clients()
    try:
        yield made
    finally:
        for one in made.sockets:
            one.close()


class Clients:
    """Connections of strangers, which send what they like and never read."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []

    async def open(self, port: int, host: str = "127.0.0.1", sends: bytes = b"") -> socket.socket:
        one = socket.socket()
        self.sockets.append(one)
        one.setblocking(False)
        one.bind((host, 0))
        loop = asyncio.get_running_loop()
        await loop.sock_connect(one, ("127.0.0.1", port))
        await loop.sock_sendall(one, sends)
        return one

    async def count_open(self) -> int:
        await asyncio.sleep(0.05)
        return sum(not _is_ended(one) for one in self.sockets)


def _is_ended(one: socket.socket) -> bool:
    try:
        while one.recv(1 << 20):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


async def probe(port: int, host: str = PROBE) -> bytes:
    """Return the first line of the answer to a probe."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
    line = await reader.readline()
    writer.close()
    return line.strip()


SENT = {
    "nothing": b"",
    "half a request line": b"GET /hea",
    "half a header": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ",
    "a body that never comes": b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
    "a request whose answer it does not read": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("sends", SENT.values(), ids=SENT.keys())
async def test_connections_of_one_peer_are_bounded_and_keep_nobody_out(sends: bytes) -> None:
    async with serve() as port:
        with clients() as strangers:
            for _ in range(3 * LIMITS.connections):
                await strangers.open(port, sends=sends)
            assert await probe(port) == b"HTTP/1.1 200 OK"
            assert await probe(port, "127.0.0.1") == b"HTTP/1.1 200 OK"
            assert await strangers.count_open() <= LIMITS.per_peer


async def test_where_there_are_too_many_the_peer_with_the_most_loses_its_oldest() -> None:
    async with serve() as port:
        with clients() as strangers:
            kept = await strangers.open(port, "127.0.0.2")
            many = [await strangers.open(port, "127.0.0.3") for _ in range(7)]
            for host in range(4, 9):
                await strangers.open(port, f"127.0.0.{host}")
            assert await strangers.count_open() == LIMITS.connections
            assert _is_ended(many[0])
            assert not _is_ended(kept), "it is older, but alone"


@pytest.mark.parametrize("sends", SENT.values(), ids=SENT.keys())
async def test_a_slow_client_is_cut_off(sends: bytes) -> None:
    limits = ConnectionLimits(connections=12, per_peer=8, seconds=0.3)
    async with serve(limits) as port:
        with clients() as strangers:
            one = await strangers.open(port, sends=sends)
            await asyncio.wait_for(_read_to_end(one), 20)


async def test_headers_that_come_byte_by_byte_do_not_prolong_it() -> None:
    limits = ConnectionLimits(seconds=0.3)
    async with serve(limits) as port:
        with clients() as strangers:
            one = await strangers.open(port, sends=b"GET /healthz HTTP/1.1\r\nX-A: ")
            with pytest.raises(OSError):  # noqa: PT011 - reset, or a broken pipe
                await _send_slowly(one)


async def _send_slowly(one: socket.socket) -> None:
    while True:
        await asyncio.get_running_loop().sock_sendall(one, b"a")
        await asyncio.sleep(0.02)


async def _read_to_end(one: socket.socket) -> None:
    await asyncio.sleep(0.5)  # it is slow
    try:
        while await asyncio.get_running_loop().sock_recv(one, 1 << 20):
            pass
    except ConnectionResetError:
        pass


@pytest.mark.parametrize(
    "sends",
    [
        b"GET /healthz HTTP/1.1\r\n" + b"X-A: b\r\n" * 40,
        b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 5000,
        b"GET /" + b"a" * 5000,
        b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n" + b"a" * 5000,
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 200,
    ],
    ids=["many headers", "a long header", "a long line", "a large body", "many requests"],
)
async def test_large_requests_end_the_connection(sends: bytes) -> None:
    async with serve() as port:
        with clients() as strangers:
            one = await strangers.open(port, sends=sends)
            answers = b""
            try:
                while chunk := await asyncio.get_running_loop().sock_recv(one, 1 << 16):
                    answers += chunk
            except ConnectionResetError:
                pass
            assert answers.count(b"HTTP/1.1 200") <= 1
            assert await probe(port) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    ("descriptors", "connections", "per_peer"),
    [(1 << 16, 128, 32), (1024, 128, 32), (256, 32, 32), (64, 8, 8), (4, 2, 2)],
)
def test_strangers_get_a_small_part_of_the_descriptors(
    descriptors: int, connections: int, per_peer: int
) -> None:
    limits = ConnectionLimits().within(descriptors)
    assert (limits.connections, limits.per_peer) == (connections, per_peer)


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("10.0.0.7", 1), "10.0.0.7"),
        (("::ffff:10.0.0.7", 1, 0, 0), "10.0.0.7"),
        (("2001:db8:1:2:3:4:5:6", 1, 0, 0), "2001:db8:1:2::"),
        (("2001:db8:1:2::9", 1, 0, 0), "2001:db8:1:2::"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::"),
        (None, ""),
    ],
)
def test_a_host_is_one_peer_whatever_address_it_takes(address: Any, peer: str) -> None:
    class Transport(asyncio.BaseTransport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return {"peername": address}.get(name, default)

    assert peer_of(Transport()) == peer
