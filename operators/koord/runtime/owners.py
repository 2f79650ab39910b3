"""Which kinds of owners are read: those that the cluster serves, looked for again and again.

One request says which groups there are, so a kind that is not installed costs nothing. Nothing is
placed before it is known which are, nor before those that are have been read: pods of a gang that
nobody knows yet would go one by one.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily

from koord.api.owner_kinds import WorkloadKind
from koord.core.awaited.plugin import AwaitedRooms
from koord.core.owners.model import KindAccess
from koord.core.owners.plugin import OwnerGangs
from koord.domains.owner_settings import OwnerSettings
from koord.domains.owners import OwnerKinds, make_kind
from koord.isolation import Isolation
from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.kube.served_kinds import select_served
from koord.operators.names import PLACEMENT
from koord.runtime.collectors import SeriesCollector
from koord.runtime.discovery import LOOK_SECONDS

if TYPE_CHECKING:
    from koord.runtime.cluster import ClusterReader
    from koord.runtime.wiring import Parts

log = logging.getLogger(__name__)

MAX_UNKNOWN: Final = 20
"""Kinds without a rule that are counted by name."""
_OTHERS: Final = "others"
_RETRY_SECONDS: Final = 1.0


class OwnerWatch:
    """Has owners read as their kinds are installed."""

    def __init__(self, client: Client, reader: "ClusterReader", kinds: OwnerKinds) -> None:
        self.has_looked = False
        self._isolated = Isolation("owners")
        self._client = client
        self._reader = reader
        self._kinds = tuple(kinds.readable)
        self._owners = reader.state.plugin(OwnerGangs)
        self._read: set[str] = set()
        """Names of kinds that are read, or were while they were served."""

    async def run(self) -> None:
        while True:
            with self._isolated.of("kinds"):
                await self._look()
            await asyncio.sleep(LOOK_SECONDS if self.has_looked else _RETRY_SECONDS)

    async def _look(self) -> None:
        try:
            self._note(await select_served(self._client, self._kinds))
        except KubeError as error:
            log.debug("Cannot look for kinds of owners", extra={"problem": str(error)})

    def _note(self, served: list[WorkloadKind]) -> None:
        keys = {(kind.group, kind.kind) for kind in served}
        for owner in self._kinds:
            key = owner.group, owner.kind
            if key not in keys:
                self._owners.note_access(key, KindAccess.NOT_SERVED)
        for owner in served:
            kind = make_kind(owner)
            if kind.name in self._read:
                continue
            self._read.add(kind.name)
            self._owners.note_access((owner.group, owner.kind), KindAccess.READ)
            self._reader.add(kind)
            log.info("Owners of pods are read", extra={"kind": kind.name})
        self.has_looked = True


def start(parts: "Parts") -> None:
    settings = parts.settings.of(OwnerSettings)
    if PLACEMENT not in parts.operators or not settings.enabled:
        return
    watch = OwnerWatch(parts.client, parts.reader, OwnerKinds.choose(settings.kinds))
    # A process that is to lead next has read them already.
    parts.reader.companions.append(watch.run)
    parts.awaited.append(lambda: watch.has_looked)
    parts.metrics.watch(count_unknown(parts.reader.state.plugin(OwnerGangs)))
    placement = parts.placement
    if placement is not None:
        awaited = parts.reader.state.plugin(AwaitedRooms)
        awaited.on_told = lambda gangs: placement.reporter.note(gangs, set())


def count_unknown(owners: OwnerGangs) -> SeriesCollector:
    def read() -> list[tuple[tuple[str], float]]:
        counts = owners.count_unknown()
        most = counts.most_common(MAX_UNKNOWN)
        samples = [((kind,), float(count)) for kind, count in sorted(most)]
        remaining = counts.total() - sum(count for _, count in most)
        return [*samples, ((_OTHERS,), float(remaining))] if remaining else samples

    return SeriesCollector(
        GaugeMetricFamily,
        "koord_owners_unknown_pods",
        "Waiting pods that go one by one, as no rule is about the kind of their owner.",
        ["kind"],
        read,
    )
