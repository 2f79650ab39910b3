"""One process of operators from start to end: check, follow, lead, and stop in good order.

Several processes may run the same operators. All of them read the cluster all the time, and one,
the leader, plans, runs Kopf and writes. A process that led and does no longer ends at once: what it
believed is of no use to anybody, and a new one starts with what is true.
"""

import asyncio
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
from koord.runtime.collectors import gauge_leader
from koord.runtime.election import make_elector, refuse_taken_name
from koord.runtime.gc_tuning import leave_alone_what_is_there, look_seldom
from koord.runtime.http import Sources, serve_http
from koord.runtime.kopf_host import KopfHost
from koord.runtime.registry import OPERATORS, required_resources
from koord.runtime.settings import Settings
from koord.runtime.wiring import Parts

log = logging.getLogger(__name__)

FINISH_SECONDS: Final = 1.5
"""After a signal, what is being committed gets this long to come to its end."""
ENDS: Final = (LeadershipLost, NoNamespace)
"""What ends the process whichever part of it notices, and is told by itself, not in a group."""


class NotInstalled(Exception):  # noqa: N818 - what it says is what is wrong
    """Custom resources that the operators need are not installed in the cluster."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run: ``operators`` by name, all of them in one process if nothing else is said."""

    credentials: Credentials
    settings: Settings
    operators: Collection[str] = OPERATORS


@dataclass(frozen=True, slots=True)
class _Process:
    """What lives as long as the process."""

    parts: Parts
    kopf: KopfHost
    elector: Elector

    def unsynced(self) -> list[str]:
        """Name what is not ready; a follower is ready when it could lead from now on."""
        waiting = self.parts.reader.unsynced()
        if not self.elector.has_looked:
            waiting.append("lease")
        if self.elector.leading.is_set() and not self.kopf.is_ready.is_set():
            waiting.append("kopf")
        return waiting

    def describe(self) -> dict[str, object]:
        """Return the inner state for the debug page."""
        election = self.elector.election
        described = {"lease": self.elector.key, "leader": election.holder, "leads": election.leads}
        return {"election": described, **self.parts.describe()}


async def run_operators(options: Options) -> None:
    """Run until SIGTERM or SIGINT; what is being committed then is finished first.

    Raises NotInstalled, NameTaken, NoNamespace, LeadershipLost, and the errors of
    ``koord.kube.errors`` if the cluster cannot be reached.
    """
    look_seldom()
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
        parts.metrics.watch(gauge_leader(lambda: fence.is_open))
        await _serve(_Process(parts, KopfHost(parts.make_registry), elector), options.settings)


async def _check_installed(client: Client, operators: Collection[str]) -> frozenset[str]:
    """Return what is served in the groups of our resources; refuse to run without them."""
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
    """Return the optional kinds that the server has."""
    optional = [kind for kind in KINDS if kind.is_optional]
    return [
        kind for kind in optional if kind.plural in await client.served_resources(kind.api_version)
    ]


async def _serve(process: _Process, settings: Settings) -> None:
    """Run a process with its HTTP side. Raises what is in ``ENDS`` by itself, not in a group."""
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
        log.info("serving HTTP", extra={"address": address.host, "port": address.port})
        try:
            await _run(process, stop)
        except BaseExceptionGroup as group:
            # The elector and every writer may notice, in any order.
            ends = group.subgroup(ENDS)
            if ends is None:
                raise
            raise _first_of(ends) from None


def _first_of(group: BaseExceptionGroup) -> BaseException:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


async def _run(process: _Process, stop: asyncio.Event) -> None:
    """Run every part until ``stop``; the failure of one ends all."""
    parts, kopf, elector = process.parts, process.kopf, process.elector
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(parts.reader.run(), name="reader"),
                group.create_task(elector.run(), name="election"),
                group.create_task(_stand_when_synced(parts, elector)),
            ]
            lead = group.create_task(_lead(process, stop), name="leader")
            kopf.start()
            await stop.wait()
            log.info("stopping")
            group.create_task(kopf.stop())
            if not elector.leading.is_set():
                lead.cancel()
            finished, _ = await asyncio.wait([lead], timeout=FINISH_SECONDS)
            for task in (*tasks, lead):
                task.cancel()
        # What was cut off may still arrive: then the lease has to run out by itself.
        if finished:
            await elector.release()
    finally:
        # Also after a failure: a Kopf that goes on would keep the process from ending.
        await kopf.stop()


async def _stand_when_synced(parts: Parts, elector: Elector) -> None:
    """Stand for election from the moment that every kind has been listed completely."""
    await parts.reader.wait_synced()
    leave_alone_what_is_there()
    log.info("synced", extra=parts.count())
    elector.stand()


async def _lead(process: _Process, stop: asyncio.Event) -> None:
    """Do everything that writes, from our election until ``stop``; then finish what was begun."""
    await process.elector.leading.wait()
    process.kopf.operate()
    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(run()) for run in process.parts.background]
        placement = process.parts.placement
        if placement is None:
            log.info("ready", extra=process.parts.count())
            await stop.wait()
        else:
            planning = group.create_task(_plan(process, placement), name="placement")
            await stop.wait()
            placement.stop()
            await planning
        for writer in writers:
            writer.cancel()


async def _plan(process: _Process, placement: PlacementController) -> None:
    """Plan until told to stop, from a copy that holds what the leader before us wrote."""
    await process.parts.get_ready()
    await process.parts.catch_up(process.elector.election.identity)
    log.info("ready", extra=process.parts.count())
    await placement.run()
