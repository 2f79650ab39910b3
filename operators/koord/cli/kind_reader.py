"""Lists one kind after another for an answer, and notes what each object says of itself.

A kind that must not be listed everywhere is listed in the namespace that was asked about; what is
missing then is a *gap*. Decides nothing, and puts nothing into a state.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from koord.answers.queue_view import QueuePlace
from koord.answers.reading import Extent, Gap, ReportsOfLoad, Target, TargetDetails, TargetKind
from koord.answers.reports import Reported, SeenCondition, make_report
from koord.answers.standing import QueueStanding
from koord.api.keys import operators
from koord.api.misspelled_keys import find_misspelled_keys
from koord.api.pod_qos import find_qos_problems
from koord.cli.connection import path_in
from koord.controllers.queue_status import read_standing
from koord.core.engine.state import ClusterState
from koord.core.load.plugin import Loads
from koord.core.model.gangs import ObservedPodGroup
from koord.core.reservation.lifecycle import SCHEDULED
from koord.core.reservation.model import ReservationInfo
from koord.domains.gang import POD_GROUPS
from koord.domains.load import NODE_METRICS
from koord.domains.placement import PODS
from koord.domains.reservation import RESERVATIONS
from koord.kube.client import Client
from koord.kube.decode import MALFORMED, Decoder, Poison
from koord.kube.errors import Forbidden, KubeError, NotFound, ServerUnavailable, TooManyRequests
from koord.kube.kind import AnyKind, Kind, Translator
from koord.kube.load_metrics import fetch_metrics
from koord.kube.reflector import Source
from koord.kube.retry import retry
from koord.kube.store import HasMeta
from koord.kube.wire import WireCondition, WireCustomResource, WirePod

if TYPE_CHECKING:
    from koord.core.load.model import NodeLoad
    from koord.core.model.gangs import GangKey

PAGE_SIZE: Final = 5000
"""A large cluster is sent in a fifth less time than in pages of half the size."""
_AT_ONCE: Final = 50
"""Objects that are translated before data that has arrived is taken in."""
BUSY_SECONDS: Final = 5.0
"""How long requests to a busy server are repeated."""

_MOST_NOTES: Final = 4
_METRICS: Final = "nodes.metrics.k8s.io and pods.metrics.k8s.io"

W = TypeVar("W", bound=HasMeta)
T = TypeVar("T")


class KindReader:
    """Lists kinds in the widest extent that is allowed; records how the target looks."""

    def __init__(self, client: Client, target: Target, *, for_all: bool = False) -> None:
        self.details: TargetDetails | None = None
        self.all_details: dict[tuple[str, str], TargetDetails] = {}
        self._kind_of = {kind.path: name for name, kind in _KINDS.items()} if for_all else {}
        self.gaps: list[Gap] = []
        self.rejected: dict[str, str] = {}
        self.reports: dict[str, Reported] = {}
        self.finalizers: dict[str, tuple[str, ...]] = {}
        self.places: dict[GangKey, QueuePlace] = {}
        self.standings: dict[GangKey, QueueStanding] = {}
        self.polled: list[NodeLoad] = []
        """What nodes use, where no object reports it."""
        self._client = client
        self._target = target
        self._path = _KINDS[target.kind].path
        self._places = {"", target.namespace}

    def reject(self, key: str, problem: str) -> None:
        self.rejected[key] = problem

    async def read(
        self, kind: Kind[W, T, Any], translator: Translator[W, T], take: Callable[[T], None]
    ) -> None:
        """Pass on what can be read of a kind, and note the gap if that is not all."""
        source = kind.source(translator, self.reject)
        for extent, paths in self._extents(kind):
            try:
                await self._list(source, paths, take)
            except Forbidden:
                continue
            except source.absent_on:
                self.gaps.append(Gap(kind, Extent.NOT_SERVED))
                return
            if extent is not None:
                self.gaps.append(Gap(kind, extent))
            return
        self.gaps.append(Gap(kind, Extent.NOTHING))

    async def read_metrics(self, state: ClusterState, interval: float) -> None:
        """Have the state know what ``metrics.k8s.io`` says, where no NodeMetric reports."""
        loads = state.plugin(Loads)
        if Gap(NODE_METRICS, Extent.NOTHING) in self.gaps:
            self.gaps.append(Gap(ReportsOfLoad(str(NODE_METRICS)), Extent.NOTHING))
            return
        if not loads.lacks(state.table.row_of):
            return

        def node_of(key: str) -> str:
            pod = state.pod_by_key(key)
            return "" if pod is None else pod.node

        try:
            reports = await fetch_metrics(self._client, node_of, interval)
        except NotFound:
            return  # then nobody reports, as the operators know, too
        except KubeError as error:
            extent = Extent.NOTHING if isinstance(error, Forbidden) else Extent.NOT_SERVED
            self.gaps.append(Gap(ReportsOfLoad(_METRICS), extent))
            return
        self.polled += reports.values()
        for report in self.polled:
            loads.upsert(report)

    def _extents(self, kind: AnyKind) -> Iterator[tuple[Extent | None, tuple[str, ...]]]:
        yield None, kind.paths
        if kind.is_useful_in_part:
            namespace = self._target.namespace
            yield Extent.NAMESPACE, tuple(path_in(path, namespace) for path in kind.paths)

    async def _list(
        self, source: Source[W, T], paths: tuple[str, ...], take: Callable[[T], None]
    ) -> None:
        """List the first version that is served."""
        for path in paths[:-1]:
            with suppress(NotFound):
                await self._list_version(source, path, take)
                return
        await self._list_version(source, paths[-1], take)

    async def _list_version(
        self, source: Source[W, T], path: str, take: Callable[[T], None]
    ) -> None:
        decoder = Decoder(source.wire)
        page = asyncio.ensure_future(self._fetch(path, source.params, ""))
        while True:
            meta, items = decoder.decode_page(await page)
            if meta.continue_:
                page = asyncio.ensure_future(self._fetch(path, source.params, meta.continue_))
            for at, item in enumerate(items):
                self._pass_on(source, item, take)
                if at % _AT_ONCE == 0:
                    await asyncio.sleep(0)  # the next page arrives meanwhile
            if not meta.continue_:
                return

    async def _fetch(self, path: str, params: Mapping[str, str], after: str) -> bytes:
        page_params = {**params, "limit": str(PAGE_SIZE), **({"continue": after} if after else {})}
        return await retry(
            lambda: self._client.list(path, page_params), within=BUSY_SECONDS, is_retryable=_is_busy
        )

    def _note_details(self, path: str, item: HasMeta) -> None:
        meta, seen = item.metadata, cast("WirePod | WireCustomResource", item)
        is_named = meta.name == self._target.name
        if is_named and path == self._path and meta.namespace in self._places:
            self.details = replace(_see(seen), agent_notes=_find_agent_notes(seen))
        if path in self._kind_of and not (isinstance(item, WirePod) and item.spec.node_name):
            title = f"{meta.namespace}/{meta.name}".removeprefix("/")
            self.all_details[self._kind_of[path], title] = _see(seen)

    def _pass_on(self, source: Source[W, T], item: W | Poison, take: Callable[[T], None]) -> None:
        """Translate an object, and note what the target says of itself."""
        if isinstance(item, Poison):
            source.reject(f"{item.identity.namespace}/{item.identity.name}", item.problem)
            return
        meta = item.metadata
        self._note_details(source.path, item)
        if meta.finalizers and meta.deletion_timestamp and isinstance(item, WirePod):
            self.finalizers[f"{meta.namespace}/{meta.name}"] = tuple(meta.finalizers)
        try:
            value = source.translate(item)
        except MALFORMED as error:
            source.reject(f"{meta.namespace}/{meta.name}", str(error))
        else:
            take(value)
            if (
                isinstance(value, ObservedPodGroup)
                and isinstance(item, WireCustomResource)
                and (place := read_place(bytes(item.status)))
            ):
                key = f"{meta.namespace}/{meta.name}"
                self.places[key] = place
                standing = read_told(bytes(item.status))
                if standing is not None:
                    self.standings[key] = standing
            elif isinstance(item, WirePod) and not item.spec.node_name:
                self._note_report(
                    f"{meta.namespace}/{meta.name}", _by_type(item.status.conditions or ())
                )
            elif isinstance(value, ReservationInfo) and value.pod is not None:
                self._note_report(value.pod.key, _see(cast("WireCustomResource", item)).conditions)

    def _note_report(self, pod: str, conditions: Mapping[str, SeenCondition]) -> None:
        condition = conditions.get(operators.PLACED) or conditions.get(SCHEDULED)
        if condition is not None and condition.status == "False":
            self.reports[pod] = make_report(condition)


_KINDS: Final[Mapping[str, AnyKind]] = {
    TargetKind.POD: PODS,
    TargetKind.POD_GROUP: POD_GROUPS,
    TargetKind.RESERVATION: RESERVATIONS,
}


def _see(wire: WirePod | WireCustomResource) -> TargetDetails:
    owners = tuple(
        f"{owner_reference.kind}/{owner_reference.name}"
        for owner_reference in wire.metadata.owner_references or ()
    )
    if isinstance(wire, WirePod):
        conditions = wire.status.conditions or []
        slips = tuple(
            find_misspelled_keys(wire.metadata.labels or (), wire.metadata.annotations or ())
        )
        return TargetDetails(_by_type(conditions), wire.spec.scheduler_name, owners, slips)
    try:
        status = msgspec.json.decode(bytes(wire.status) or b"null", type=_Conditions | None)
    except MALFORMED:
        status = None
    return TargetDetails(_by_type((status and status.conditions) or []), owners=owners)


def _find_agent_notes(wire: WirePod | WireCustomResource) -> tuple[str, ...]:
    """Return what is wrong with what a pod says to the agent of its node."""
    if not isinstance(wire, WirePod):
        return ()
    meta = wire.metadata
    return tuple(
        f"{problem}. The pod is placed all the same; an agent may ignore it."
        for problem in find_qos_problems(meta.labels or {}, meta.annotations or {})[:_MOST_NOTES]
    )


class _Conditions(msgspec.Struct):
    conditions: list[WireCondition] | None = None


def _by_type(conditions: Iterable[WireCondition]) -> Mapping[str, WireCondition]:
    return {condition.type: condition for condition in conditions}


def _is_busy(error: KubeError) -> bool:
    return isinstance(error, TooManyRequests | ServerUnavailable)


class _Placed(msgspec.Struct, rename="camel"):
    queue_position: int = 0
    gpus_ahead: int = 0


def read_place(status: bytes) -> QueuePlace | None:
    """Return where a PodGroup stands in the queue, as its status says; None if it does not."""
    try:
        placed = msgspec.json.decode(status, type=_Placed | None) if status else None
    except MALFORMED:
        return None
    if placed is None or placed.queue_position <= 0:
        return None
    return QueuePlace(placed.queue_position, placed.gpus_ahead)


def read_told(status: bytes) -> QueueStanding | None:
    """Return where a PodGroup stands in its queue, as its status says."""
    try:
        return read_standing(msgspec.json.decode(status, type=dict[str, Any]))
    except MALFORMED:
        return None
