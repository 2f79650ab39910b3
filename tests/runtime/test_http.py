"""The HTTP server of the process, over a real socket where needed."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from unittest.mock import Mock

import msgspec
import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import make_mocked_request

from koord.runtime.address import Address
from koord.runtime.http import CannotListen, Sources, make_app, serve_http
from koord.runtime.metrics import Metrics

BLOCKED = object()
"""The state of a process whose main loop does not answer."""


@dataclass
class Process:
    """Something with metrics, unsynced parts and a state, as the operators are."""

    metrics: Metrics = field(default_factory=Metrics)
    unsynced: list[str] = field(default_factory=list)
    state: object = None
    problem: str = ""

    @property
    def sources(self):
        return Sources(
            problem=lambda: self.problem,
            unsynced=lambda: self.unsynced,
            metrics=self.read_metrics,
            state=self.read_state,
        )

    async def read_metrics(self):
        return self.metrics.encode()

    async def read_state(self):
        if self.state is BLOCKED:
            raise TimeoutError
        return msgspec.json.encode(self.state)

    @asynccontextmanager
    async def serve(self, host="127.0.0.1"):
        async with (
            serve_http(Address(host, 0), self.sources) as address,
            ClientSession(f"http://127.0.0.1:{address.port}") as session,
        ):
            yield Client(session)


@dataclass
class Client:
    session: ClientSession

    async def request(self, path, method="GET"):
        async with self.session.request(method, path) as answer:
            return answer.status, answer.content_type, await answer.text()


async def test_metrics_are_in_the_text_format_of_prometheus():
    process = Process()
    process.metrics.count_bind("bound")
    async with process.serve() as client:
        status, content_type, text = await client.request("/metrics")
    assert (status, content_type) == (200, "text/plain")
    assert 'koord_binds_total{outcome="bound"} 1.0' in text


async def test_many_readers_cost_no_more_than_one():
    process = Process()
    async with process.serve() as client:
        _, _, first = await client.request("/metrics")
        process.metrics.count_bind("bound")
        texts = [await client.request("/metrics") for _ in range(3)]
    assert [text for _, _, text in texts] == [first] * 3


async def test_address_in_use_is_reported():
    process = Process()
    async with serve_http(Address("127.0.0.1", 0), process.sources) as taken:
        with pytest.raises(
            CannotListen, match=rf"^127\.0\.0\.1:{taken.port}: address already in use$"
        ):
            async with serve_http(taken, process.sources):
                pass


async def test_a_port_that_nobody_chose_gives_way_to_a_free_one():
    process = Process()
    async with serve_http(Address("127.0.0.1", 0), process.sources) as taken:
        anywhere = replace(taken, or_free=True)
        async with serve_http(anywhere, process.sources) as served:
            assert served.host == taken.host
            assert served.port not in {0, taken.port}


async def test_foreign_address_is_reported():
    with pytest.raises(CannotListen, match=r"^192\.0\.2\.1:0: "):
        async with serve_http(Address("192.0.2.1", 0), Process().sources):
            pass


async def test_health_is_independent_of_readiness():
    async with Process(unsynced=["pods"]).serve() as client:
        assert await client.request("/healthz") == (200, "text/plain", "ok\n")


async def test_health_says_what_is_wrong():
    async with Process(problem="it does not answer").serve() as client:
        assert await client.request("/healthz") == (503, "text/plain", "it does not answer\n")


async def test_readiness_names_unsynced_parts():
    process = Process(unsynced=["pods", "nodes"])
    async with process.serve() as client:
        answer = await client.request("/readyz")
        assert answer == (503, "text/plain", "not ready: pods, nodes\n")
        process.unsynced.clear()
        assert await client.request("/readyz") == (200, "text/plain", "ok\n")


async def test_debug_state_is_json():
    async with Process(state={"units": [{"key": "default/a"}]}).serve() as client:
        status, content_type, text = await client.request("/debug/state")
    assert (status, content_type) == (200, "application/json")
    assert json.loads(text) == {"units": [{"key": "default/a"}]}


async def test_debug_state_of_a_blocked_process_is_unavailable():
    async with Process(state=BLOCKED).serve() as client:
        assert await client.request("/debug/state") == (
            503,
            "text/plain",
            "a plan takes long; try again\n",
        )


@pytest.mark.parametrize(
    ("remote", "status"),
    [
        ("127.0.0.1", 200),
        ("127.8.8.8", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("10.0.0.7", 403),
        ("::ffff:10.0.0.7", 403),
        ("fe80::1", 403),
    ],
)
async def test_debug_state_is_forbidden_for_remote_clients(remote, status):
    transport = Mock(get_extra_info={"peername": (remote, 40000)}.get)
    request = make_mocked_request("GET", "/debug/state", transport=transport)
    match = await make_app(Process(state={"a": "pod"}).sources).router.resolve(request)
    answer = await match.handler(request)
    assert answer.status == status
    assert (b"pod" in answer.body) == (status == 200)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/debug", 404),
        ("GET", "/metrics/../etc/passwd", 404),
        ("POST", "/debug/state", 405),
        ("DELETE", "/metrics", 405),
    ],
)
async def test_other_paths_are_not_found(method, path, status):
    async with Process().serve() as client:
        assert (await client.request(path, method))[0] == status


async def test_slow_reader_does_not_hold_up_the_end():
    process, asked = Process(), asyncio.Event()

    async def never() -> bytes:
        asked.set()
        await asyncio.Event().wait()
        return b""

    sources = replace(process.sources, metrics=never)
    async with asyncio.timeout(20):  # the default of aiohttp is a minute
        async with serve_http(Address("127.0.0.1", 0), sources) as address:
            _, writer = await asyncio.open_connection("127.0.0.1", address.port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            await asked.wait()
        writer.close()


async def test_port_is_released_on_shutdown():
    async with serve_http(Address("127.0.0.1", 0), Process().sources) as first:
        assert first.port > 0
    async with serve_http(first, Process().sources) as second:
        assert second == first
