"""Requests over the connection pool, to a scripted server."""

import asyncio
import gc
import gzip
import math
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from typing_extensions import override

from koord.kube import pool, warm_connections
from koord.kube.client import Client
from koord.kube.config import Access, Credentials
from koord.kube.errors import ApiError, ConnectionLost, Garbled, TooManyRequests
from koord_sandbox.credentials import Authority, User

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
HANG_UP = b""
LAST = b"!"


@dataclass
class Script:
    """Sends the responses in turn; an empty one closes the connection, as does a final ``LAST``."""

    answers: list[bytes]
    heads: list[str] = field(default_factory=list)
    connections: int = 0
    probes: int = 0
    mute: bool = False
    """Whether probes get no answer."""
    ended: int = 0
    port: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        while head := await self._next(reader):
            if head.startswith("GET /version "):
                if not self.mute:
                    self.probes += 1
                    writer.write(OK)
                continue
            self.heads.append(head)
            answer = self.answers.pop(0)
            if answer == HANG_UP:
                break
            writer.write(answer.removesuffix(LAST))
            if answer.endswith(LAST):
                break
        writer.close()

    async def _next(self, reader: asyncio.StreamReader) -> str:
        try:
            head = await _read_head(reader)
        except ConnectionError:
            head = ""
        self.ended += not head
        return head


async def _read_head(reader: asyncio.StreamReader) -> str:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return ""
    for line in head.splitlines():
        if line.startswith("Content-Length: "):
            await reader.readexactly(int(line.split()[1]))
    return head


@asynccontextmanager
async def scripted(*answers: bytes, path: str = "") -> AsyncIterator[tuple[Script, Client]]:
    """Yield a server with these responses, and a client of it."""
    script = Script(list(answers))
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.port = server.sockets[0].getsockname()[1]
    access = Access(f"http://127.0.0.1:{script.port}{path}", authorization="Bearer secret")
    try:
        async with Client(Credentials(lambda: access)) as client:
            yield script, client
    finally:
        for writer in script.writers:
            writer.close()
        server.close()


@dataclass
class Rude(asyncio.Protocol):
    """Sends data, or closes, as soon as a client has connected."""

    words: bytes = b""
    then: Callable[[asyncio.Transport], None] = lambda transport: transport.close()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self.words)
        self.then(transport)


@asynccontextmanager
async def rude(
    how: Callable[[], Rude],
    serves: ssl.SSLContext | None = None,
    trusts: ssl.SSLContext | None = None,
) -> AsyncIterator[pool.Pool]:
    """Yield connections to such a server; it may have TLS."""
    server = await asyncio.get_running_loop().create_server(how, "127.0.0.1", 0, ssl=serves)
    scheme = "http" if trusts is None else "https"
    address = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    connections = pool.Pool(pool.Origin(address, trusts, ""))
    try:
        yield connections
        await connections.close()
    finally:
        server.close()


async def all_refused(connections: pool.Pool, count: int) -> list[ConnectionLost]:
    """Send several requests concurrently that all fail."""
    async with asyncio.timeout(5):
        asked = (connections.send(b"", lambda: None, is_safe=True) for _ in range(count))
        answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer) for answer in answers] == [ConnectionLost] * count
    return [answer for answer in answers if isinstance(answer, ConnectionLost)]


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK, b"{}"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n1\r\n \r\n0\r\n\r\n",
            b"{} ",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
    ids=["length", "chunked", "none"],
)
async def test_requests_share_one_connection(answer: bytes, body: bytes) -> None:
    async with scripted(answer, answer) as (script, client):
        assert [await client.list("/a"), await client.post("/b", {})] == [body, body]
    assert script.connections == 1
    assert [head.split()[:2] for head in script.heads] == [["GET", "/a"], ["POST", "/b"]]
    assert all("Authorization: Bearer secret\r\n" in head for head in script.heads)


async def test_server_url_with_a_path() -> None:
    async with scripted(OK, path="/clusters/one") as (script, client):
        await client.list("/api/v1/nodes", {"limit": "5"})
    assert script.heads[0].startswith("GET /clusters/one/api/v1/nodes?limit=5 HTTP/1.1\r\n")


async def test_connection_closed_with_a_response_is_not_reused() -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with scripted(closing, OK) as (script, client):
        await client.list("/a")
        await client.list("/b")
    assert script.connections == 2


async def test_error_has_the_retry_after() -> None:
    answer = b"HTTP/1.1 429 Too Many\r\nretry-after: 7\r\nContent-Length: 0\r\n\r\n"
    async with scripted(answer) as (_, client):
        with pytest.raises(TooManyRequests) as raised:
            await client.list("/a")
    assert raised.value.retry_after == 7.0


async def test_read_is_retried_if_an_idle_connection_was_closed() -> None:
    async with scripted(OK, HANG_UP, OK) as (script, client):
        await client.list("/a")
        assert await client.list("/b") == b"{}"
    assert script.connections == 2


@pytest.mark.parametrize(
    "ask",
    [lambda client: client.post("/b", {}), lambda client: client.put("/b", {})],
    ids=["post", "put"],
)
async def test_write_is_not_retried(ask: Callable[[Client], object]) -> None:
    async with scripted(OK, HANG_UP, OK) as (script, client):
        await client.list("/a")
        with pytest.raises(ConnectionLost) as raised:
            await ask(client)  # type: ignore[misc]
    assert raised.value.sent
    assert len(script.heads) == 2


@pytest.mark.parametrize(
    "answer",
    [b"what?\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}" + LAST],
    ids=["garbage", "cut"],
)
async def test_invalid_response_fails_only_its_request(answer: bytes) -> None:
    async with scripted(answer, OK) as (_, client):
        with pytest.raises(ConnectionLost):
            await client.list("/a")
        assert await client.list("/c") == b"{}"


async def test_unexpected_second_response_is_discarded() -> None:
    async with scripted(OK + OK.replace(b"{}", b"[]"), OK) as (script, client):
        assert [await client.list("/a"), await client.list("/b")] == [b"{}", b"{}"]
    assert script.connections == 2


async def test_cancelled_request_closes_its_connection() -> None:
    async with scripted(b"HTTP/1.1 200 OK\r\n", OK) as (script, client):
        given_up = asyncio.create_task(client.list("/a"))
        await asyncio.sleep(0.05)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert await client.list("/b") == b"{}"
    assert script.connections == 2


async def test_read_that_timed_out_is_not_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(pool, "_SWEEP_SECONDS", 0.02)
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _read_head(reader):
            asked.append(head.split()[1])
            if asked[-1] == "/a":
                await asyncio.sleep(0.02)  # otherwise one connection is enough
                writer.write(OK)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    access = Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with Client(Credentials(lambda: access)) as client:
        await asyncio.gather(*(client.list("/a") for _ in range(5)))
        with pytest.raises(ConnectionLost, match="no response"):
            await client.list("/b")
    server.close()
    assert asked.count("/b") == 1


async def test_idle_connections_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "KEEP_ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(pool, "_SWEEP_SECONDS", 0.02)
    async with scripted(OK, OK) as (script, client):
        await client.list("/a")
        await asyncio.sleep(0.1)
        await client.list("/b")
    assert script.connections == 2


async def test_new_server_gets_new_connections() -> None:
    async with scripted(OK) as (one, _), scripted(OK) as (two, _):
        accesses = [Access(f"http://127.0.0.1:{each.port}", max_age=0.0) for each in (one, two)]
        async with Client(Credentials(lambda: accesses.pop(0))) as client:
            await client.list("/a")
            await client.list("/b")
    assert [len(one.heads), len(two.heads)] == [1, 1]


async def test_connections_to_previous_servers_are_closed_on_shutdown() -> None:
    async with scripted(b"HTTP/1.1 200 OK\r\n") as (one, _), scripted(OK) as (two, _):
        accesses = [Access(f"http://127.0.0.1:{each.port}", max_age=0.0) for each in (one, two)]
        async with Client(Credentials(lambda: accesses.pop(0))) as client:
            before = asyncio.create_task(client.list("/a"))
            await asyncio.sleep(0.05)
            await client.list("/b")
        async with asyncio.timeout(1):
            with pytest.raises(ConnectionLost, match="closed"):
                await before


@pytest.mark.parametrize("name", ["a b", "a\r\nX: y", "ä", "a\x00"])
async def test_names_cannot_inject_into_the_request(name: str) -> None:
    async with scripted(OK) as (script, client):
        with pytest.raises(Garbled, match="not the path"):
            await client.list(f"/api/v1/namespaces/{name}")
    assert not script.heads


async def test_a_proxy_from_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted(OK) as (script, _):
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{script.port}")
        access = Access("http://cluster.example:6443")
        async with Client(Credentials(lambda: access)) as client:
            await client.post("/a", {})
    assert script.heads[0].startswith("POST http://cluster.example:6443/a HTTP/1.1\r\n")


async def test_error_page_of_a_proxy() -> None:
    page = b"<html>bad gateway"
    answer = b"HTTP/1.1 404 No\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)
    async with scripted(answer) as (_, client):
        with pytest.raises(ApiError, match="bad gateway"):
            await client.list("/a")


async def test_only_needed_connections_are_opened() -> None:
    async with scripted(*[OK] * 200) as (script, client):
        await asyncio.gather(*(client.list("/a") for _ in range(200)))
    assert script.connections < 50


async def test_all_pending_requests_fail_if_the_server_is_unreachable() -> None:
    async with Client(Credentials(lambda: Access("http://127.0.0.1:9"))) as client:
        answers = await asyncio.gather(
            *(client.list("/a") for _ in range(20)), return_exceptions=True
        )
    assert all(isinstance(answer, ConnectionLost) and not answer.sent for answer in answers)


async def test_immediate_retry_gets_a_new_error() -> None:
    """A caller that retries immediately must not wait on the finished connect task."""
    connections = pool.Pool(pool.Origin("http://127.0.0.1:9", None, ""))
    for _ in range(3):
        async with asyncio.timeout(10):
            with pytest.raises(ConnectionLost):
                await connections.send(b"", lambda: None, is_safe=True)


@pytest.mark.parametrize(
    "how",
    [
        Rude,
        lambda: Rude(then=lambda transport: transport.abort()),
        lambda: Rude(OK),
        lambda: Rude(OK, then=lambda _: None),
    ],
    ids=["closes", "aborts", "speaks and closes", "speaks"],
)
async def test_data_without_a_request_closes_the_connection(how: Callable[[], Rude]) -> None:
    """Connections are closed between being handed out and being used."""
    async with rude(how) as connections:
        for count in (1, 3, 40):
            assert len(await all_refused(connections, count)) == count


async def test_data_right_after_the_handshake_closes_the_connection(tmp_path: Path) -> None:
    """Such a connection is closed before it is open."""
    authority = Authority("ca")
    address = x509.IPAddress(ip_address("127.0.0.1"))
    issued = authority.issue(User("server"), [address])
    pair = tmp_path / "server.pem"
    pair.write_bytes(issued.certificate + issued.key)
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.maximum_version = ssl.TLSVersion.TLSv1_2  # the server ends its handshake
    serves.load_cert_chain(pair)
    trusts = ssl.create_default_context(cadata=authority.certificate.decode())
    async with rude(lambda: Rude(OK), serves, trusts) as connections:
        for error in await all_refused(connections, 3):
            assert "cannot connect" in str(error)
            assert not error.sent


async def test_any_connect_error_is_reported() -> None:
    connections = pool.Pool(pool.Origin(443, None, ""))  # type: ignore[arg-type]
    for error in await all_refused(connections, 3):
        assert not error.sent


async def test_connection_closed_while_handed_over_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "MAX_CONNECTIONS", 1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_head(reader)
        writer.write(OK)
        # In time to be read in the iteration in which the connection is handed over.
        asyncio.get_running_loop().call_later(0, writer.write, b"too much")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    access = Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with asyncio.timeout(5), Client(Credentials(lambda: access)) as client:
        assert await asyncio.gather(*(client.post("/a", {}) for _ in range(5))) == [b"{}"] * 5
    server.close()


async def test_cancelled_waiter_leaves_the_connection_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "MAX_CONNECTIONS", 1)
    async with scripted(OK, OK, OK) as (script, client):
        first, second, third = (asyncio.create_task(client.list("/a")) for _ in range(3))
        await asyncio.sleep(0)
        second.cancel()
        assert await first == await third == b"{}"
    assert (script.connections, len(script.heads)) == (1, 2)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13])
async def test_closed_client_leaves_no_connection_open(turns: int) -> None:
    """Connections may be requested, being opened, in use or idle at that time."""
    async with scripted(*[OK] * 8) as (script, client):
        asked = [asyncio.create_task(client.get("/", dict)) for _ in range(8)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for one in asked[::2]:
            one.cancel()
        gc.disable()
        try:
            await client.__aexit__(None, None, None)
            await asyncio.gather(*asked, return_exceptions=True)
            await asyncio.sleep(0.05)
            async with asyncio.timeout(5):
                while script.ended < script.connections:  # noqa: ASYNC110 - counted by the server
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()
        assert script.ended == script.connections


@asynccontextmanager
async def stand(
    monkeypatch: pytest.MonkeyPatch, *answers: bytes, count: int = 20
) -> AsyncIterator[tuple[Script, Client]]:
    """Yield a client with open, unused connections."""
    monkeypatch.setattr(pool, "_SWEEP_SECONDS", 0.02)
    async with scripted(*answers) as (script, client):
        await client.keep_open(count)
        # The server counts a connection before the client has the answer to its probe, and may
        # lend it.
        await until(lambda: len(client._pool.find_overdue(-math.inf)) == count)
        yield script, client


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - counted by the server
            await asyncio.sleep(0.01)


async def test_connections_are_opened_before_the_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stand(monkeypatch, *[OK] * 20) as (script, client):
        await asyncio.gather(*(client.post("/a", {}) for _ in range(20)))
        await asyncio.sleep(0.1)
        assert script.connections == 20


async def test_closed_warm_connections_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand(monkeypatch) as (script, _):
        for writer in script.writers[:7]:
            writer.close()
        await until(lambda: script.connections == 27)
        await asyncio.sleep(0.1)
        assert script.connections == 27


async def test_idle_warm_connections_are_probed_before_the_server_closes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "KEEP_ALIVE_SECONDS", 0.1)
    async with stand(monkeypatch, count=5) as (script, _):
        await until(lambda: script.probes == 5)  # immediately: servers close unused new ones sooner
        await until(lambda: script.probes >= 15)
        assert script.connections == 5


async def test_surplus_connections_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "KEEP_ALIVE_SECONDS", 0.3)
    async with stand(monkeypatch, *[OK] * 9, count=2) as (script, client):
        await asyncio.gather(*(client.list("/a") for _ in range(9)))
        most = script.connections
        assert most > 2
        await until(lambda: script.ended == most - 2)
        await asyncio.sleep(0.1)
        assert (script.connections, script.ended) == (most, most - 2)


async def test_server_that_closes_probed_connections_is_retried_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stand(monkeypatch, *[HANG_UP] * 100) as (script, client):
        clock = asyncio.get_running_loop().time
        began = clock()
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionLost):
                await client.list("/a")
        # Probes are answered, so a few more are opened per sweep; on a busy machine there is time
        # for several.
        sweeps = 1 + (clock() - began) / 0.02
        assert script.connections <= 20 + pool.MAX_OPENING * sweeps


async def test_read_is_retried_if_a_warm_connection_was_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stand(monkeypatch, HANG_UP, OK) as (_, client):
        assert await client.list("/a") == b"{}"


async def test_unreachable_server_is_tried_one_connection_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stand(monkeypatch) as (script, _):
        attempts = 0

        async def fail(_: pool.Pool) -> None:
            nonlocal attempts
            attempts += 1
            raise ConnectionRefusedError

        connect = pool.Pool.connect
        monkeypatch.setattr(pool.Pool, "connect", fail)
        for writer in script.writers:
            writer.close()
        await asyncio.sleep(0.2)
        assert attempts <= pool.MAX_OPENING + 0.2 / 0.02 + 1
        monkeypatch.setattr(pool.Pool, "connect", connect)
        await until(lambda: script.connections == 40)


async def test_new_server_gets_as_many_warm_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_SWEEP_SECONDS", 0.02)
    async with scripted() as (one, _), scripted(OK) as (two, _):
        ports = [one.port]
        access = Credentials(lambda: Access(f"http://127.0.0.1:{ports[-1]}", max_age=0.0))
        async with Client(access) as client:
            await client.keep_open(3)
            await until(lambda: one.probes == 3)
            ports.append(two.port)
            await client.list("/b")
            await until(lambda: one.ended == 3 and two.connections >= 3)
        await until(lambda: two.ended == two.connections)
        assert (one.connections, two.connections) in {(3, 3), (3, 4)}


async def test_closed_client_keeps_nothing_open() -> None:
    async with scripted() as (script, client):
        pass
    await client.keep_open(3)
    await asyncio.sleep(0.05)
    assert script.connections == 0


async def test_no_warm_connections_with_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with scripted() as (script, client):
        await client.keep_open(3)
        await asyncio.sleep(0.05)
    assert script.connections == 0


@pytest.mark.parametrize(
    "answer",
    [OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK + LAST],
    ids=["says so", "does not"],
)
async def test_server_with_one_request_per_connection_is_not_flooded(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(pool, "_SWEEP_SECONDS", 0.02)
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await _read_head(reader)
        writer.write(answer.removesuffix(LAST))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    access = Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with Client(Credentials(lambda: access)) as client:
        await client.keep_open(32)
        await asyncio.sleep(0.5)
    server.close()
    assert connections <= 2 * pool.MAX_OPENING + 0.5 / 0.02


async def test_probe_without_a_response_closes_only_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "KEEP_ALIVE_SECONDS", 0.1)
    monkeypatch.setattr(pool, "_STALE_SECONDS", 0.3)
    monkeypatch.setattr(warm_connections, "PROBE_SECONDS", 0.2)
    async with stand(monkeypatch, count=4) as (script, client):
        await until(lambda: script.probes == 4)
        script.mute = True
        await until(lambda: script.ended == 4)
        script.mute = False
        await until(lambda: script.probes >= 8)
        assert await client.list("/version") == b"{}"


async def test_warm_connections_respect_the_maximum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "MAX_CONNECTIONS", 16)
    monkeypatch.setattr(pool, "_SWEEP_SECONDS", 0.02)
    async with scripted(*[OK] * 64) as (script, client):
        await client.keep_open(1000)
        await asyncio.gather(*(client.list("/a") for _ in range(64)))
        await asyncio.sleep(0.1)
    assert script.connections <= 16


async def test_client_closed_while_connecting_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "_SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(pool, "KEEP_ALIVE_SECONDS", 0.05)
    async with scripted() as (one, _), scripted() as (two, _):
        ports = [one.port]
        credentials = Credentials(lambda: Access(f"http://127.0.0.1:{ports[-1]}", max_age=0.0))
        current = credentials.current

        async def slowly() -> Access:
            await asyncio.sleep(0.1)
            return await current()

        async with Client(credentials) as client:
            await client.keep_open(3)
            await until(lambda: one.probes >= 3)
            monkeypatch.setattr(credentials, "current", slowly)
            ports.append(two.port)
            await asyncio.sleep(0.07)
        await asyncio.sleep(0.3)
    assert two.connections == 0


def compressed(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def test_compressed_responses_are_asked_for_and_read() -> None:
    async with scripted(compressed(gzip.compress(b"[1]")), OK) as (server, client):
        assert await client.request("GET", "/a") == b"[1]"
        assert await client.request("GET", "/a") == b"{}"
        assert "Accept-Encoding: gzip" in server.heads[0]
        assert server.connections == 1


async def test_broken_compression_is_a_lost_response() -> None:
    async with scripted(*[compressed(gzip.compress(b"[1]")[:-4])] * 3) as (_, client):
        with pytest.raises(ConnectionLost, match="cannot decompress"):
            await client.request("GET", "/a")
