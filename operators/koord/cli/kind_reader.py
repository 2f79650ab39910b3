"""Lists one kind after another for an answer, and notes what each object says of itself.

A kind that must not be listed everywhere is listed in the namespace that was asked about; what is
missing then is a *gap*. Decides nothing, and puts nothing into a state.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from koord.answers.reading import Extent, Gap, ReportsOfLoad, Target, TargetDetails
from koord.cli.connection import path_in
from koord.cli.object_notes import KINDS, ObjectNotes, find_agent_notes, read_details
from koord.core.engine.state import ClusterState
from koord.core.load.plugin import Loads
from koord.domains.load import NODE_METRICS
from koord.kube.client import Client
from koord.kube.decode import MALFORMED, Decoder, Poison
from koord.kube.errors import Forbidden, KubeError, NotFound, ServerUnavailable, TooManyRequests
from koord.kube.kind import AnyKind, Kind, Translator
from koord.kube.load_metrics import fetch_metrics
from koord.kube.reflector import Source
from koord.kube.retry import retry
from koord.kube.store import HasMeta

if TYPE_CHECKING:
    from koord.core.load.model import NodeLoad
    from koord.kube.wire import WireCustomResource, WirePod

PAGE_SIZE: Final = 5000
"""A large cluster is sent in a fifth less time than in pages of half the size."""
_AT_ONCE: Final = 50
"""Objects that are translated before data that has arrived is taken in."""
BUSY_SECONDS: Final = 5.0
"""How long requests to a busy server are repeated."""

_METRICS: Final = "nodes.metrics.k8s.io and pods.metrics.k8s.io"

W = TypeVar("W", bound=HasMeta)
T = TypeVar("T")


class KindReader:
    """Lists kinds in the widest extent that is allowed; records how the target looks."""

    def __init__(self, client: Client, target: Target, *, for_all: bool = False) -> None:
        self.details: TargetDetails | None = None
        self.notes = ObjectNotes()
        self._kind_of = {kind.path: name for name, kind in KINDS.items()} if for_all else {}
        self.gaps: list[Gap] = []
        self.rejected: dict[str, str] = {}
        self.polled: list[NodeLoad] = []
        """What nodes use, where no object reports it."""
        self._client = client
        self._target = target
        self._path = KINDS[target.kind].path
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
            self.details = replace(read_details(seen), agent_notes=find_agent_notes(seen))
        if path in self._kind_of:
            self.notes.see(self._kind_of[path], seen)

    def _pass_on(self, source: Source[W, T], item: W | Poison, take: Callable[[T], None]) -> None:
        """Translate an object, and note what the target says of itself."""
        if isinstance(item, Poison):
            source.reject(f"{item.identity.namespace}/{item.identity.name}", item.problem)
            return
        meta = item.metadata
        self._note_details(source.path, item)
        try:
            value = source.translate(item)
        except MALFORMED as error:
            source.reject(f"{meta.namespace}/{meta.name}", str(error))
        else:
            take(value)
            self.notes.note(item, value)


def _is_busy(error: KubeError) -> bool:
    return isinstance(error, TooManyRequests | ServerUnavailable)
