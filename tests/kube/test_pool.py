"""Requests over our own connections, to a server that says what it is told to say."""

import asyncio
import gc
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
from koord.sandbox.credentials import Authority, User

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
HANG_UP = b""
LAST = b"!"


@dataclass
class Script:
    """Answers requests in turn; an empty answer hangs up, one with ``LAST`` at its end after it."""

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
    """Yield a server that gives these answers, and a client of it."""
    script = Script(list(answers))
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.port = server.sockets[0].getsockname()[1]
    access = Access(f"http://127.0.0.1:{script.port}{path}", authorization="Bearer secret")
    async with Client(Credentials(lambda: access)) as client:
        yield script, client
    for writer in script.writers:
        writer.close()
    server.close()


@dataclass
class Rude(asyncio.Protocol):
    """Speaks, or hangs up, as soon as somebody has connected."""

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
    yield connections
    await connections.close()
    server.close()


async def all_refused(connections: pool.Pool, count: int) -> list[ConnectionLost]:
    """Ask in vain, several times at once."""
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
async def test_answers_over_one_connection(answer: bytes, body: bytes) -> None:
    async with scripted(answer, answer) as (script, client):
        assert [await client.list("/a"), await client.post("/b", {})] == [body, body]
    assert script.connections == 1
    assert [head.split()[:2] for head in script.heads] == [["GET", "/a"], ["POST", "/b"]]
    assert all("Authorization: Bearer secret\r\n" in head for head in script.heads)


async def test_a_server_behind_a_path() -> None:
    async with scripted(OK, path="/clusters/one") as (script, client):
        await client.list("/api/v1/nodes", {"limit": "5"})
    assert script.heads[0].startswith("GET /clusters/one/api/v1/nodes?limit=5 HTTP/1.1\r\n")


async def test_a_connection_that_the_server_closes_with_its_answer_is_not_used_again() -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with scripted(closing, OK) as (script, client):
        await client.list("/a")
        await client.list("/b")
    assert script.connections == 2


async def test_an_error_tells_when_to_come_again() -> None:
    answer = b"HTTP/1.1 429 Too Many\r\nretry-after: 7\r\nContent-Length: 0\r\n\r\n"
    async with scripted(answer) as (_, client):
        with pytest.raises(TooManyRequests) as raised:
            await client.list("/a")
    assert raised.value.retry_after == 7.0


async def test_a_read_is_repeated_if_an_idle_connection_was_dead() -> None:
    async with scripted(OK, HANG_UP, OK) as (script, client):
        await client.list("/a")
        assert await client.list("/b") == b"{}"
    assert script.connections == 2


@pytest.mark.parametrize(
    "ask",
    [lambda client: client.post("/b", {}), lambda client: client.put("/b", {})],
    ids=["post", "put"],
)
async def test_a_write_is_not_repeated(ask: Callable[[Client], object]) -> None:
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
async def test_what_is_no_answer_costs_one_request(answer: bytes) -> None:
    async with scripted(answer, OK) as (_, client):
        with pytest.raises(ConnectionLost):
            await client.list("/a")
        assert await client.list("/c") == b"{}"


async def test_a_second_answer_is_nobodys() -> None:
    async with scripted(OK + OK.replace(b"{}", b"[]"), OK) as (script, client):
        assert [await client.list("/a"), await client.list("/b")] == [b"{}", b"{}"]
    assert script.connections == 2


async def test_a_cancelled_request_takes_its_connection_along() -> None:
    async with scripted(b"HTTP/1.1 200 OK\r\n", OK) as (script, client):
        given_up = asyncio.create_task(client.list("/a"))
        await asyncio.sleep(0.05)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert await client.list("/b") == b"{}"
    assert script.connections == 2


async def test_a_read_that_is_not_answered_in_time_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(pool, "_SWEEP_SECONDS", 0.02)
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _read_head(reader):
            asked.append(head.split()[1])
            if asked[-1] == "/a":
                await asyncio.sleep(0.02)  # or one connection would do for all
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


async def test_idle_connections_are_given_up_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "KEEP_ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(pool, "_SWEEP_SECONDS", 0.02)
    async with scripted(OK, OK) as (script, client):
        await client.list("/a")
        await asyncio.sleep(0.1)
        await client.list("/b")
    assert script.connections == 2


async def test_another_server_gets_none_of_the_connections() -> None:
    async with scripted(OK) as (one, _), scripted(OK) as (two, _):
        accesses = [Access(f"http://127.0.0.1:{each.port}", max_age=0.0) for each in (one, two)]
        async with Client(Credentials(lambda: accesses.pop(0))) as client:
            await client.list("/a")
            await client.list("/b")
    assert [len(one.heads), len(two.heads)] == [1, 1]


async def test_what_is_under_way_to_a_server_of_before_ends_with_the_client() -> None:
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
async def test_names_cannot_break_out_of_the_request(name: str) -> None:
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


async def test_an_error_page_of_somebody_else() -> None:
    page = b"<html>bad gateway"
    answer = b"HTTP/1.1 404 No\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)
    async with scripted(answer) as (_, client):
        with pytest.raises(ApiError, match="bad gateway"):
            await client.list("/a")


async def test_few_connections_are_opened_where_few_are_needed() -> None:
    async with scripted(*[OK] * 200) as (script, client):
        await asyncio.gather(*(client.list("/a") for _ in range(200)))
    assert script.connections < 50


async def test_all_who_wait_hear_that_there_is_no_server() -> None:
    async with Client(Credentials(lambda: Access("http://127.0.0.1:9"))) as client:
        answers = await asyncio.gather(
            *(client.list("/a") for _ in range(20)), return_exceptions=True
        )
    assert all(isinstance(answer, ConnectionLost) and not answer.sent for answer in answers)


async def test_who_asks_again_at_once_is_answered_again() -> None:
    """What was being opened is over when its failure is heard of: nobody may wait for it."""
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
async def test_a_server_that_does_not_wait_to_be_asked(how: Callable[[], Rude]) -> None:
    """Its connections end between being handed out and being used."""
    async with rude(how) as connections:
        for count in (1, 3, 40):
            assert len(await all_refused(connections, count)) == count


async def test_a_server_that_speaks_with_the_end_of_its_handshake(tmp_path: Path) -> None:
    """Such a connection has ended before it is open."""
    authority = Authority("ca")
    address = x509.IPAddress(ip_address("127.0.0.1"))
    issued = authority.issue(User("server"), [address])
    pair = tmp_path / "server.pem"
    pair.write_bytes(issued.certificate + issued.key)
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.maximum_version = ssl.TLSVersion.TLSv1_2  # the end of which is the server's
    serves.load_cert_chain(pair)
    trusts = ssl.create_default_context(cadata=authority.certificate.decode())
    async with rude(lambda: Rude(OK), serves, trusts) as connections:
        for error in await all_refused(connections, 3):
            assert "cannot connect" in str(error)
            assert not error.sent


async def test_whatever_keeps_a_connection_from_being_opened_is_told() -> None:
    connections = pool.Pool(pool.Origin(443, None, ""))  # type: ignore[arg-type]
    for error in await all_refused(connections, 3):
        assert not error.sent


async def test_a_connection_that_ends_as_it_is_handed_on_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "MAX_CONNECTIONS", 1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_head(reader)
        writer.write(OK)
        # In time to be read in the turn in which the connection is handed on.
        asyncio.get_running_loop().call_later(0, writer.write, b"too much")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    access = Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with asyncio.timeout(5), Client(Credentials(lambda: access)) as client:
        assert await asyncio.gather(*(client.post("/a", {}) for _ in range(5))) == [b"{}"] * 5
    server.close()


async def test_who_gives_up_waiting_leaves_the_connection_to_others(
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
async def test_nothing_is_left_open_whenever_a_client_is_closed(turns: int) -> None:
    """Connections may be wanted, being opened, in use or idle when it is closed."""
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
    """Yield a client that has connections open, of which it has used none."""
    monkeypatch.setattr(pool, "_SWEEP_SECONDS", 0.02)
    async with scripted(*answers) as (script, client):
        await client.keep_open(count)
        await until(lambda: script.connections == count)
        yield script, client


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - counted by the server
            await asyncio.sleep(0.01)


async def test_connections_are_kept_open_before_anybody_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stand(monkeypatch, *[OK] * 20) as (script, client):
        await asyncio.gather(*(client.post("/a", {}) for _ in range(20)))
        await asyncio.sleep(0.1)
        assert script.connections == 20


async def test_what_the_server_ends_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand(monkeypatch) as (script, _):
        for writer in script.writers[:7]:
            writer.close()
        await until(lambda: script.connections == 27)
        await asyncio.sleep(0.1)
        assert script.connections == 27


async def test_what_lies_idle_is_used_before_the_server_gives_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "KEEP_ALIVE_SECONDS", 0.1)
    async with stand(monkeypatch, count=5) as (script, _):
        await until(lambda: script.probes == 5)  # at once: a server is less patient with new ones
        await until(lambda: script.probes >= 15)
        assert script.connections == 5


async def test_what_is_more_than_is_to_stand_is_given_up_unused(
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


async def test_a_server_that_hangs_up_on_requests_is_not_connected_to_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stand(monkeypatch, *[HANG_UP] * 100) as (script, client):
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionLost):
                await client.list("/a")
        assert script.connections <= 20 + pool.MAX_OPENING + 1


async def test_a_read_is_repeated_if_a_connection_that_was_kept_was_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stand(monkeypatch, HANG_UP, OK) as (_, client):
        assert await client.list("/a") == b"{}"


async def test_a_server_that_is_away_is_looked_for_one_connection_at_a_time(
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


async def test_another_server_has_as_many_kept_open(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_client_that_was_closed_keeps_nothing_open() -> None:
    async with scripted() as (script, client):
        pass
    await client.keep_open(3)
    await asyncio.sleep(0.05)
    assert script.connections == 0


async def test_where_a_proxy_stands_between_nothing_is_kept_open(
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
async def test_a_server_that_serves_one_request_per_connection_is_not_flooded(
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


async def test_a_probe_without_an_answer_costs_its_connection_only(
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


async def test_no_more_connections_stand_than_there_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "MAX_CONNECTIONS", 16)
    monkeypatch.setattr(pool, "_SWEEP_SECONDS", 0.02)
    async with scripted(*[OK] * 64) as (script, client):
        await client.keep_open(1000)
        await asyncio.gather(*(client.list("/a") for _ in range(64)))
        await asyncio.sleep(0.1)
    assert script.connections <= 16


async def test_a_client_that_is_closed_while_it_looks_for_its_server_opens_nothing(
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
