"""One process of operators: check the cluster, follow, lead, and shut down gracefully.

Several processes may run the same operators. All of them watch the cluster; one, the leader, plans,
runs Kopf and writes. A process that loses leadership exits immediately, because its assumed state
may be wrong; a new one starts from the API objects.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from koord.controllers.placement import PlacementController
from koord.kube.client import Client
from koord.kube.config import Credentials
from koord.kube.election import Fence, LeadershipLost
from koord.kube.kinds import KINDS, PLACEMENT, AnyKind
from koord.kube.lease import Elector, NoNamespace
from koord.runtime.collectors import leadership
from koord.runtime.election import make_elector, refuse_taken_name
from koord.runtime.http import Sources, serve_http
from koord.runtime.kopf_host import KopfHost
from koord.runtime.registry import OPERATORS, required_resources
from koord.runtime.settings import Settings
from koord.runtime.wiring import Parts

log = logging.getLogger(__name__)

FINISH_SECONDS: Final = 1.5
"""After a signal, running commits get this long to finish."""
ENDS: Final = (LeadershipLost, NoNamespace)
"""Errors that end the process, whichever task raises them; raised alone, not in a group."""
GC_THRESHOLDS: Final = 50_000, 10, 10
"""A cluster is tens of thousands of long-lived objects. With Python's default thresholds garbage
collection took a tenth of the time."""


class NotInstalled(Exception):  # noqa: N818 - what it says is what is wrong
    """The operators need custom resources that are not installed in the cluster."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run; ``operators`` by name, by default all."""

    credentials: Credentials
    settings: Settings
    operators: Collection[str] = OPERATORS


@dataclass(frozen=True, slots=True)
class _Process:
    """Objects that live as long as the process."""

    parts: Parts
    kopf: KopfHost
    elector: Elector

    def unsynced(self) -> list[str]:
        """Name the parts that are not ready; a follower is ready when it could lead."""
        waiting = self.parts.reader.unsynced()
        if not self.elector.has_looked:
            waiting.append("lease")
        if self.elector.leading.is_set() and not self.kopf.is_ready.is_set():
            waiting.append("kopf")
        return waiting

    def describe(self) -> dict[str, object]:
        election = self.elector.election
        described = {"lease": self.elector.key, "leader": election.holder, "leads": election.leads}
        return {"election": described, **self.parts.describe()}


async def run_operators(options: Options) -> None:
    """Run until SIGTERM or SIGINT, then finish running commits.

    Raises NotInstalled, NameTaken, NoNamespace, LeadershipLost, and the errors of
    ``koord.kube.errors`` if the cluster cannot be reached.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    fence = Fence()
    async with (
        Client(options.credentials) as own_client,
        Client(options.credentials, permit=fence.check) as client,
    ):
        served = await _check_installed(client, options.operators)
        if PLACEMENT in options.operators:
            await refuse_taken_name(client, options.settings.scheduler_name)
        without = [name for name in served if "/" not in name and f"{name}/status" not in served]
        parts = Parts(
            client,
            options.settings,
            options.operators,
            without_subresource=without,
            served=await _find_served(client),
        )
        access = await options.credentials.current()
        elector = make_elector(own_client, access, options.operators, fence)
        parts.metrics.watch(leadership(lambda: fence.is_open))
        await _serve(_Process(parts, KopfHost(parts.make_registry), elector), options.settings)


async def _check_installed(client: Client, operators: Collection[str]) -> frozenset[str]:
    """Return all resources served in the groups of ours. Raises NotInstalled."""
    served: frozenset[str] = frozenset()
    missing = []
    for api_version, plural in required_resources(operators):
        resources = await client.served_resources(api_version)
        served |= resources
        if plural not in resources:
            missing.append(f"{plural}.{api_version.partition('/')[0]}")
    if missing:
        raise NotInstalled(
            f"the cluster does not serve {', '.join(missing)}; install the CRDs first: "
            "kubectl apply --server-side -f crds/",
        )
    return served


async def _find_served(client: Client) -> list[AnyKind]:
    optional = [kind for kind in KINDS if kind.is_optional]
    return [
        kind for kind in optional if kind.plural in await client.served_resources(kind.api_version)
    ]


async def _serve(process: _Process, settings: Settings) -> None:
    """Run a process and its HTTP server. Raises an error of ``ENDS`` alone, not in a group."""
    sources = Sources(
        metrics=process.parts.metrics.encode,
        unsynced=process.unsynced,
        state=process.describe,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serve_http(settings.http_address, sources) as address:
        log.info("Serving HTTP", extra={"address": address.host, "port": address.port})
        try:
            await _run(process, stop)
        except BaseExceptionGroup as group:
            # The elector and all writers may raise it, in any order.
            ends = group.subgroup(ENDS)
            if ends is None:
                raise
            raise _first_of(ends) from None


def _first_of(group: BaseExceptionGroup) -> BaseException:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


async def _run(process: _Process, stop: asyncio.Event) -> None:
    """Run all parts until ``stop``; an error in one ends all."""
    parts, kopf, elector = process.parts, process.kopf, process.elector
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(parts.reader.run(), name="reader"),
                group.create_task(elector.run(), name="election"),
                group.create_task(_run_for_election_when_synced(parts, elector)),
            ]
            lead = group.create_task(_lead(process, stop), name="leader")
            kopf.start()
            await stop.wait()
            log.info("Stopping")
            group.create_task(kopf.stop())
            if not elector.leading.is_set():
                lead.cancel()
            finished, _ = await asyncio.wait([lead], timeout=FINISH_SECONDS)
            for task in (*tasks, lead):
                task.cancel()
        # A cancelled write may still arrive: then the lease must expire by itself.
        if finished:
            await elector.release()
    finally:
        # Also after an error: a running Kopf would keep the process alive.
        await kopf.stop()


async def _run_for_election_when_synced(parts: Parts, elector: Elector) -> None:
    await parts.reader.wait_synced()
    freeze_garbage_collection()
    log.info("Caches are synced", extra=parts.count())
    elector.stand()


def freeze_garbage_collection() -> None:
    """Exclude all present objects, which live long, from garbage collection."""
    gc.collect()
    gc.freeze()


async def _lead(process: _Process, stop: asyncio.Event) -> None:
    """Run all that writes, from our election until ``stop``; then finish running commits."""
    await process.elector.leading.wait()
    process.kopf.operate()
    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(run()) for run in process.parts.background]
        placement = process.parts.placement
        if placement is None:
            log.info("Leading without placement", extra=process.parts.count())
            await stop.wait()
        else:
            planning = group.create_task(_plan(process, placement), name="placement")
            await stop.wait()
            placement.stop()
            await planning
        for writer in writers:
            writer.cancel()


async def _plan(process: _Process, placement: PlacementController) -> None:
    """Plan until stopped, once the caches have everything that the last leader wrote."""
    await process.parts.get_ready()
    await process.parts.catch_up(process.elector.election.identity)
    log.info("Ready to plan", extra=process.parts.count())
    await placement.run()
