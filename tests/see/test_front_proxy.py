"""Who asks through the aggregation layer: certificates first, then headers; nobody else."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from tests.see.reviewer import Reviewer
from tests.see.test_token_access import make_reading

from koord.cli.serve_aggregation import AggregationPort
from koord.cli.serve_server import listen
from koord.kube.errors import KubeError
from koord.runtime.address import Address
from koord.runtime.reviews import AccessReviews
from koord.see.app import BASE, Server
from koord.see.askers import Askers
from koord.see.front_proxy import (
    MOST_GROUPS,
    MOST_LENGTH,
    FrontProxyAccess,
    InvalidFrontProxy,
    read_front_proxy,
)
from koord.see.self_signed import SelfSignedCertificate
from koord.see.snapshots import Snapshots
from koord_sandbox.credentials import Authority, User

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HEADERS = {
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User", "X-Other-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
ANN = {"X-Remote-User": "ann", "X-Remote-Group": "system:authenticated"}


class ConfigMaps:
    """Stands in for the API server that says who may ask."""

    def __init__(self, data: dict[str, str]) -> None:
        self.data: dict[str, str] | None = data

    async def get(self, path: str, kind: type[Any]) -> Any:
        assert path.endswith("/kube-system/configmaps/extension-apiserver-authentication")
        if self.data is None:
            raise KubeError("forbidden")
        return kind(self.data)


class Aggregator:
    """Asks as the API server does, with any certificate."""

    def __init__(self, port: AggregationPort, folder: Path, maps: ConfigMaps) -> None:
        self.port, self.folder, self.maps = port, folder, maps
        self.number = 0

    def make_context(self, authority: Authority | None, name: str = "front-proxy-client") -> Any:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if authority is not None:
            pair, file = authority.issue(User(name)), self.folder / "client.pem"
            file.write_bytes(pair.certificate + pair.key)
            context.load_cert_chain(file)
        return context

    async def get(self, path: str, context: Any, headers: Any = ANN) -> tuple[int, Any]:
        connector = aiohttp.TCPConnector(ssl=context)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"https://127.0.0.1:{self.number}{path}", headers=headers) as response,
        ):
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text


@asynccontextmanager
async def open_port(
    folder: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Aggregator]:
    monkeypatch.setattr("koord.cli.serve_aggregation.LOOK_SECONDS", 0.02)
    monkeypatch.setattr("koord.cli.serve_aggregation.RETRY_SECONDS", 0.02)
    maps = ConfigMaps({**HEADERS, "requestheader-client-ca-file": authority.certificate.decode()})
    certificate = SelfSignedCertificate(("127.0.0.1",))
    readings = Snapshots(make_reading)
    opened: list[int] = []

    failures = [OSError("the address is in use")]

    async def note(*arguments: Any) -> asyncio.Server:
        if failures:  # it is tried again
            raise failures.pop()
        server = await listen(*arguments)
        opened.append(server.sockets[0].getsockname()[1])
        asking.number = opened[-1]
        return server

    port = AggregationPort(maps, certificate, Address("127.0.0.1", 0), note)  # type: ignore[arg-type]
    asking = Aggregator(port, folder, maps)
    reviewer = Reviewer(rights={("ann", "pods", "team-a")})
    access = FrontProxyAccess(Askers(AccessReviews(reviewer)), port.find)  # type: ignore[arg-type]
    server = Server(readings, access, visitors=port.visitors)
    runner = web.AppRunner(server.make_aggregated_app(), shutdown_timeout=0.1)
    await runner.setup()
    await readings.read_once()
    assert port.find_hindrance()
    task = asyncio.create_task(port.run(runner))
    try:
        while port.find_hindrance():  # noqa: ASYNC110 - many things are waited for
            await asyncio.sleep(0.01)
        yield asking
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        readings.close()
        await runner.cleanup()


async def test_headers_count_with_a_certificate_of_the_authority_and_an_allowed_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority("front-proxy-ca")
    async with open_port(tmp_path, authority, monkeypatch) as asking:
        good = asking.make_context(authority)
        status, document = await asking.get(f"{BASE}/queue", good)
        assert status == 200
        names = [name for row in document["value"]["items"] for name in row["names"]]
        assert sorted(map(str, names)) == ["None", "team-a/team-a-job"]
        for refused in (None, Authority("front-proxy-ca")):  # none, and one that looks like it
            with pytest.raises((aiohttp.ClientError, ConnectionError)):
                await asking.get(f"{BASE}/queue", asking.make_context(refused))
        other = asking.make_context(authority, "somebody")
        assert (await asking.get(f"{BASE}/queue", other))[0] == 401
        for headers in (
            {},
            {"X-Remote-User": ""},
            {"X-Remote-User": "system:anonymous"},
            {"Authorization": "Bearer x"},
        ):
            assert (await asking.get(f"{BASE}/queue", good, headers))[0] == 401, headers
        second = {"X-Remote-User": "", "X-Other-User": "ann"}
        assert (await asking.get(f"{BASE}/queue", good, second))[0] == 200
        long = {**ANN, "X-Remote-Extra-a": "x" * (MOST_LENGTH + 1)}
        assert (await asking.get(f"{BASE}/queue", good, long))[0] == 400
        many = [("X-Remote-User", "ann"), *(("X-Remote-Group", "g"),) * (MOST_GROUPS + 1)]
        assert (await asking.get(f"{BASE}/queue", good, many))[0] == 400
        for absent in ("/page/", "/session", "/metrics", f"{BASE}/stream?topic=queue", "/"):
            assert (await asking.get(absent, good))[0] == 404, absent


async def test_another_authority_is_trusted_from_then_on_and_the_one_before_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Authority("a"), Authority("b")
    async with open_port(tmp_path, first, monkeypatch) as asking:
        before = asking.make_context(first)
        connector = aiohttp.TCPConnector(ssl=before)
        async with aiohttp.ClientSession(connector=connector) as session:
            url, number = f"https://127.0.0.1:{asking.number}{BASE}/queue", asking.number
            async with session.get(url, headers=ANN) as response:
                assert response.status == 200
            asking.maps.data = None  # what cannot be read changes nothing
            await asyncio.sleep(0.1)
            assert not asking.port.find_hindrance()
            data = {**HEADERS, "requestheader-client-ca-file": second.certificate.decode()}
            asking.maps.data = data
            while asking.number == number:  # noqa: ASYNC110 - a port of its own is opened
                await asyncio.sleep(0.01)
            # Not even over the connection that the one before has vouched for.
            with pytest.raises(aiohttp.ClientError):
                await session.get(url, headers=ANN)
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await asking.get(f"{BASE}/queue", before)
        assert (await asking.get(f"{BASE}/queue", asking.make_context(second)))[0] == 200


async def test_discovery_says_that_there_is_nothing_to_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority("front-proxy-ca")
    async with open_port(tmp_path, authority, monkeypatch) as asking:
        context = asking.make_context(authority)
        _, groups = await asking.get("/apis", context)
        assert [group["name"] for group in groups["groups"]] == ["answers.operators.koordinator.sh"]
        _, group = await asking.get("/apis/answers.operators.koordinator.sh", context)
        assert group["preferredVersion"]["version"] == "v1alpha1"
        _, resources = await asking.get(BASE, context)
        assert (resources["kind"], resources["resources"]) == ("APIResourceList", [])
        form = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        _, whole = await asking.get("/apis", context, {**ANN, "Accept": f"{form},application/json"})
        assert whole["apiVersion"] == "apidiscovery.k8s.io/v2"
        assert whole["items"][0]["versions"][0]["resources"] == []


PEM = "-----BEGIN CERTIFICATE-----"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"requestheader-client-ca-file": ""}, "no aggregation layer"),
        ({"requestheader-client-ca-file": "x" * 300_000}, "256 KiB"),
        ({"requestheader-username-headers": "[]"}, "names no header"),
        ({"requestheader-username-headers": "{"}, "no list"),
        ({"requestheader-username-headers": '["a b"]'}, "no name of a header"),
        ({"requestheader-group-headers": "[1]"}, "something else than names"),
        ({"requestheader-allowed-names": "[" * 100_000}, "no list"),
        ({"requestheader-allowed-names": json.dumps(["a"] * 65)}, "no list of 64"),
    ],
)
def test_what_the_cluster_says_is_checked(change: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidFrontProxy, match=says):
        read_front_proxy({**HEADERS, "requestheader-client-ca-file": PEM, **change})
