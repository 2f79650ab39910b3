"""One process of operators from start to end: check, sync, run, and stop in good order."""

import asyncio
import logging
import signal
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from koord.api.podgroup import PodGroup
from koord.kube.client import Client
from koord.kube.config import Credentials
from koord.kube.discovery import served_resources
from koord.runtime.http import Sources, serve_http
from koord.runtime.kopf_host import KopfHost
from koord.runtime.settings import Settings
from koord.runtime.wiring import OPERATORS, Parts, resources_of

log = logging.getLogger(__name__)

FINISH_SECONDS: Final = 5.0
"""After a signal, what is being committed gets this long to come to its end."""


class NotInstalled(Exception):  # noqa: N818 - what it says is what is wrong
    """Custom resources that the operators need are not installed in the cluster."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run: ``operators`` by name, all of them in one process if nothing else is said."""

    credentials: Credentials
    settings: Settings
    operators: Collection[str] = OPERATORS


async def run_operators(options: Options) -> None:
    """Run until SIGTERM or SIGINT; what is being committed then is finished first.

    Raises NotInstalled, and the errors of ``koord.kube.errors`` if the cluster cannot be reached.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Client(options.credentials) as client:
        served = await _check_installed(client, options.operators)
        has_subresource = f"{PodGroup.names.plural}/status" in served
        parts = Parts(
            client,
            options.settings,
            options.operators,
            has_subresource=has_subresource,
        )
        kopf = KopfHost(parts.make_registry)
        sources = Sources(
            metrics=parts.metrics.encode,
            unsynced=lambda: _unsynced(parts, kopf),
            state=parts.describe,
        )
        async with serve_http(options.settings.http_address, sources) as address:
            log.info("serving HTTP", extra={"address": address.host, "port": address.port})
            await _run(parts, kopf, stop)


async def _check_installed(client: Client, operators: Collection[str]) -> frozenset[str]:
    """Return what is served in the groups of our resources; refuse to run without them."""
    served: frozenset[str] = frozenset()
    missing = []
    for names in resources_of(operators):
        resources = await served_resources(client, names.api_version)
        served |= resources
        if names.plural not in resources:
            missing.append(names.crd_name)
    if missing:
        raise NotInstalled(
            f"the cluster does not serve {', '.join(missing)}; install the CRDs first: "
            "kubectl apply --server-side -f crds/",
        )
    return served


def _unsynced(parts: Parts, kopf: KopfHost) -> list[str]:
    waiting = parts.reader.unsynced()
    return waiting if kopf.is_ready.is_set() else [*waiting, "kopf"]


async def _run(parts: Parts, kopf: KopfHost, stop: asyncio.Event) -> None:
    """Run every part until ``stop``; the failure of one ends all."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(parts.reader.run(), name="reader")]
        tasks += [group.create_task(run()) for run in parts.background]
        tasks.append(group.create_task(_plan_when_synced(parts, stop), name="placement"))
        kopf.start()
        await stop.wait()
        log.info("stopping")
        await asyncio.wait(tasks[-1:], timeout=FINISH_SECONDS)
        await kopf.stop()
        for task in tasks:
            task.cancel()


async def _plan_when_synced(parts: Parts, stop: asyncio.Event) -> None:
    """Plan from the moment that every kind has been listed completely, until ``stop``."""
    await parts.reader.wait_synced()
    log.info("synced", extra={"pods": len(parts.reader.state.pods)})
    if parts.placement is None:
        return
    async with asyncio.TaskGroup() as group:
        group.create_task(parts.placement.run())
        await stop.wait()
        parts.placement.stop()
