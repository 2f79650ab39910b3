"""The second port of ``koord serve``: for the aggregation layer of the API server, and nobody else.

Who may ask there, a ConfigMap of the cluster says. It is read again and again; if the authority is
another one, the port is opened anew, so that one that was taken away is not trusted any longer.
Knows no answer.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from aiohttp import web
from msgspec import Struct

from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.runtime.address import Address
from koord.see.front_proxy import FrontProxy, InvalidFrontProxy, read_front_proxy
from koord.see.tls import ServerCertificate
from koord.see.visitors import Visitors

CONFIG_MAP: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
LOOK_SECONDS: Final = 30.0
"""How often it is looked who may ask."""
RETRY_SECONDS: Final = 5.0
PULSE_SECONDS: Final = 2.0
MOST_LAG: Final = 1.0
"""Seconds that the answer to discovery may take: the API server gives up soon after."""
log = logging.getLogger(__name__)


class _ConfigMap(Struct):
    data: dict[str, str] = {}


Listen = Callable[[web.AppRunner, Visitors, Address, ssl.SSLContext], Awaitable[asyncio.Server]]


@dataclass(slots=True)
class AggregationPort:
    """Listens at ``address`` for the API server; ``run`` it in the event loop."""

    client: Client
    certificate: ServerCertificate
    address: Address
    listen: Listen
    visitors: Visitors = field(default_factory=Visitors)
    proxy: FrontProxy | None = None
    """Who may ask now; None: nobody."""
    problem: str = "who may ask there is not read yet"
    _lag: float = 0.0

    def find(self) -> FrontProxy | None:
        """Return who may name users now."""
        return self.proxy

    def find_hindrance(self) -> str:
        """Return why the API server gets no answer there, or none in time; empty if it does."""
        if self.problem:
            return f"the port for the API server is not open: {self.problem}"
        if self._lag > MOST_LAG:
            return f"the answer to discovery takes {self._lag:.1f} s"
        return ""

    async def run(self, runner: web.AppRunner) -> NoReturn:
        """Serve until cancelled; what fails is tried again."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._feel_pulse())
            while True:
                current = await self._read()
                if current is not None:
                    await self._serve(runner, current)
                await asyncio.sleep(RETRY_SECONDS)

    async def _read(self) -> FrontProxy | None:
        try:
            return read_front_proxy((await self.client.get(CONFIG_MAP, _ConfigMap)).data)
        except (KubeError, InvalidFrontProxy) as error:
            problem = str(error)
        if self.proxy is None and problem != self.problem:
            self.problem = problem
            log.warning("Cannot serve the aggregation layer", extra={"problem": problem})
        return None

    async def _serve(self, runner: web.AppRunner, proxy: FrontProxy) -> None:
        """Serve to those whom ``proxy`` says, until there are others."""
        try:
            context = self._make_context(proxy)
            server = await self.listen(runner, self.visitors, self.address, context)
        except (InvalidFrontProxy, OSError) as error:
            self.problem = str(error)
            log.warning("Cannot serve the aggregation layer", extra={"problem": self.problem})
            return
        self.proxy, self.problem = proxy, ""
        host, port, *_ = server.sockets[0].getsockname()
        log.info("Serving the aggregation layer", extra={"address": host, "port": port})
        try:
            await self._wait_for_others(proxy)
        finally:
            self.proxy = None
            server.close()
            self.visitors.end_all()  # another authority has vouched for them

    async def _wait_for_others(self, proxy: FrontProxy) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            # While it cannot be read, the last one counts: it is a fact of the control plane.
            current = await self._read()
            if current is not None and current != proxy:
                log.info("Who may ask for users has changed")
                return

    def _make_context(self, proxy: FrontProxy) -> ssl.SSLContext:
        context = self.certificate.make_context()
        context.verify_mode = ssl.CERT_REQUIRED
        proxy.trust_in(context)
        return context

    async def _feel_pulse(self) -> NoReturn:
        """Measure how long anything waits in the event loop, the answer to discovery as well."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(PULSE_SECONDS)
            self._lag = max(0.0, time.monotonic() - before - PULSE_SECONDS)
