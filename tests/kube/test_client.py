"""The client and its errors, through a proxy that injects faults."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.support.fault_proxy import Do, FaultProxy, is_method

from koord.kube import pool
from koord.kube.client import Client, Media
from koord.kube.config import Access, Credentials, find_credentials
from koord.kube.errors import (
    ApiError,
    Conflict,
    ConnectionLost,
    Forbidden,
    Garbled,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    ServerUnavailable,
    TooManyRequests,
    Unauthorized,
    error_of_answer,
)
from koord.kube.retry import Backoff, is_transient, retry
from koord_sandbox import Sandbox

DEFAULT = "/api/v1/namespaces/default"


@pytest.fixture
async def proxy(sandbox: Sandbox) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(find_credentials(str(sandbox.kubeconfig))) as proxy:
        yield proxy


@pytest.fixture
async def through(proxy: FaultProxy) -> AsyncIterator[Client]:
    async with Client(proxy.credentials) as client:
        yield client


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ApiError),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (422, Invalid),
        (429, TooManyRequests),
        (500, ServerUnavailable),
        (504, ServerUnavailable),
    ],
)
async def test_errors_are_typed(
    proxy: FaultProxy, through: Client, status: int, kind: type[ApiError]
) -> None:
    proxy.plan(lambda _: True, Do.ANSWER, times=2, status=status, reason="Planned")
    with pytest.raises(kind, match="planned by the test") as raised:
        await through.get(DEFAULT, dict)
    assert type(raised.value) is kind
    assert (raised.value.status, raised.value.reason) == (status, "Planned")


def test_retry_after_from_header_and_body() -> None:
    body = msgspec.json.encode({"reason": "Slow", "details": {"retryAfterSeconds": 3}})
    assert error_of_answer(429, body, None).retry_after == 3
    assert error_of_answer(429, body, "7").retry_after == 7
    assert error_of_answer(429, b"{}", "Wed, 21 Oct 2015 07:28:00 GMT").retry_after == 0


def test_responses_that_are_not_a_status() -> None:
    error = error_of_answer(502, b"<html>" + b"x" * 5000, None)
    assert isinstance(error, ServerUnavailable)
    assert error.message.startswith("<html>")
    assert len(error.message) == 1024


async def test_refused_credentials_are_renewed_once(proxy: FaultProxy) -> None:
    loaded = 0

    def load() -> Access:
        nonlocal loaded
        loaded += 1
        return Access(proxy.server)

    async with Client(Credentials(load)) as client:
        proxy.plan(is_method("POST"), Do.ANSWER, status=401)
        body = {"metadata": {"generateName": "x-"}}
        await client.post(f"{DEFAULT}/configmaps", body)
        assert loaded == 2
        proxy.plan(is_method("GET"), Do.ANSWER, status=401, times=2)
        with pytest.raises(Unauthorized):
            await client.get(DEFAULT, dict)
        assert loaded == 3
        proxy.plan(is_method("GET"), Do.ANSWER, status=401)
        async with client.watch(f"{DEFAULT}/configmaps", {}, silence=5) as read:
            assert b"ADDED" in await read()


async def test_request_that_was_not_sent() -> None:
    async with Client(Credentials(lambda: Access("http://127.0.0.1:9"))) as client:
        with pytest.raises(ConnectionLost) as raised:
            await client.get(DEFAULT, dict)
    assert not raised.value.sent


async def test_compressed_response_passes_the_proxy(through: Client) -> None:
    body = {
        "metadata": {"name": "large"},
        "data": {"text": "x" * 200_000},
    }  # compressed from 128 KiB
    await through.post(f"{DEFAULT}/configmaps", body)
    read = await through.get(f"{DEFAULT}/configmaps/large", dict)
    assert read["data"] == body["data"]
    await through.delete(f"{DEFAULT}/configmaps/large")


async def test_lost_response(proxy: FaultProxy, through: Client) -> None:
    proxy.plan(is_method("POST"), Do.LOSE_REPLY)
    body = {"metadata": {"name": "lost-reply"}}
    with pytest.raises(ConnectionLost) as raised:
        await through.post(f"{DEFAULT}/configmaps", body)
    assert raised.value.sent
    await through.delete(f"{DEFAULT}/configmaps/lost-reply")


async def test_server_without_response(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "REQUEST_SECONDS", 0.2)
    proxy.plan(is_method("GET"), Do.DELAY, seconds=2)
    async with Client(proxy.credentials) as client:
        with pytest.raises(ConnectionLost) as raised:
            await client.get(DEFAULT, dict)
    assert raised.value.sent


async def test_silent_watch_is_lost(through: Client) -> None:
    path = f"{DEFAULT}/configmaps"
    params = {"fieldSelector": "metadata.name=nobody"}
    with pytest.raises(ConnectionLost):
        async with through.watch(path, params, silence=0.2) as read:
            await read()


async def test_writes(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    made = msgspec.json.decode(await client.post(path, {"metadata": {"name": "a"}, "data": {}}))
    await client.patch(f"{path}/a", b'{"data":{"k":"v"}}', Media.MERGE_PATCH, {"dryRun": "All"})
    assert "data" not in await client.get(f"{path}/a", dict)
    await client.put(f"{path}/a", made | {"data": {"k": "w"}})
    assert (await client.get(f"{path}/a", dict))["data"] == {"k": "w"}
    with pytest.raises(Garbled):
        await client.get(f"{path}/a", list[int])
    with pytest.raises(Conflict):
        await client.delete(f"{path}/a", uid="another")
    await client.delete(f"{path}/a", uid=made["metadata"]["uid"], grace_seconds=0)
    with pytest.raises(NotFound):
        await client.get(f"{path}/a", dict)


async def test_served_resources(client: Client) -> None:
    assert {"pods", "pods/binding", "pods/status"} <= await client.served_resources("v1")
    assert await client.served_resources("nobody.example/v1") == frozenset()


def test_delays_are_jittered_and_bounded() -> None:
    backoff = Backoff(base=0.2, cap=5)
    for attempt, ceiling in [(0, 0.2), (3, 1.6), (10, 5), (10_000, 5)]:
        delays = [backoff.delay(attempt) for _ in range(50)]
        assert all(0 <= delay <= ceiling for delay in delays)
        assert len(set(delays)) > 1
    assert backoff.delay(0, TooManyRequests(429, "", "", 9)) == 9
    assert backoff.delay(0, ServerUnavailable(503, "", "", 3600)) == 30


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TooManyRequests(429, "", ""), True),
        (ServerUnavailable(503, "", ""), True),
        (ConnectionLost("", sent=True), True),
        (Conflict(409, "", ""), False),
        (Forbidden(403, "", ""), False),
        (Garbled(""), False),
    ],
)
def test_transient_errors(error: KubeError, expected: bool) -> None:  # noqa: FBT001
    assert is_transient(error) is expected


class Flaky:
    """Fails with the given errors, then succeeds."""

    def __init__(self, *errors: KubeError) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


QUICK: dict[str, Any] = {"within": 5.0, "backoff": Backoff(base=0.001, cap=0.001)}


async def test_retry() -> None:
    flaky = Flaky(ServerUnavailable(503, "", ""), ConnectionLost("", sent=False))
    assert await retry(flaky, **QUICK) == "done"
    assert flaky.calls == 3
    final = Flaky(Conflict(409, "", ""))
    with pytest.raises(Conflict):
        await retry(final, **QUICK)
    assert final.calls == 1
    # A delay longer than the remaining time is an immediate failure.
    late = Flaky(TooManyRequests(429, "", "", 60))
    with pytest.raises(TooManyRequests):
        await retry(late, **QUICK)
