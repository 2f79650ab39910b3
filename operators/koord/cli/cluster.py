"""Reads the cluster once, with the rights of whoever asks, into a ``ClusterState``.

Pods, nodes, PodGroups, ElasticQuotas and topologies are listed side by side and go through the
decoding and translation of the operators. What must not be read is no error here but a *gap*; what
it leaves open is for others to say.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from koord.api.misspelled_keys import Slip, find_slips
from koord.controllers.quota_status import HOOK_FAILED
from koord.core.quota.conditions import QuotaCondition
from koord.core.state import ClusterState
from koord.kube.client import Client
from koord.kube.config import Access, find_credentials
from koord.kube.decode import Decoder
from koord.kube.errors import (
    ConnectionLost,
    Forbidden,
    KubeError,
    ServerUnavailable,
    TooManyRequests,
)
from koord.kube.reflector import Source
from koord.kube.retry import retry
from koord.kube.sources import (
    TOPOLOGIES_PATH,
    claim_source,
    namespace_source,
    native_pod_group_source,
    node_source,
    pod_group_source,
    pod_source,
    quota_source,
    storage_class_source,
    topology_source,
    volume_source,
)
from koord.kube.status import conditions_of
from koord.kube.store import HasMeta, Store
from koord.kube.translate.gangs import PodGroupTranslator
from koord.kube.translate.pods import PodTranslator
from koord.kube.translate.quotas import QuotaTranslator
from koord.kube.translate.topologies import TopologyTranslator
from koord.kube.wire import Condition, WireClaim, WirePod, WirePodGroup
from koord.runtime.hooks import load_hooks

PAGE_SIZE: Final = 2500
BUSY_SECONDS: Final = 5.0
"""How long a server that is busy is asked again."""

W = TypeVar("W", bound=HasMeta)
T = TypeVar("T")


class Kind(StrEnum):
    """What can be asked about."""

    POD = "Pod"
    POD_GROUP = "PodGroup"


@dataclass(frozen=True, slots=True)
class Target:
    """The object that is asked about."""

    kind: Kind
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Extent(StrEnum):
    """How much of a kind was read, if not all of it."""

    NAMESPACE = "Namespace"
    """The objects of the target's namespace."""
    NOTHING = "Nothing"
    NOT_SERVED = "NotServed"
    """There is no such kind on this server."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A kind (``resource`` with its group, as RBAC knows it) of which not everything was read."""

    resource: str
    extent: Extent


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the target says of itself beside what is decided on."""

    conditions: Mapping[str, Condition] = field(default_factory=dict)
    scheduler: str = ""
    owners: tuple[str, ...] = ()
    slips: tuple[Slip, ...] = ()
    """Keys that were probably meant to say something of a gang."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The cluster as far as it could be read.

    ``sighting`` is None if the target was not among what was read. ``rejected`` holds what made no
    sense, ``namespace/name`` -> problem; the state is without it. Hooks of quotas are those that
    are installed here.
    """

    state: ClusterState
    sighting: Sighting | None = None
    gaps: tuple[Gap, ...] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)
    operators_have_hooks: bool | None = None
    """Whether the operators ask hooks about quotas, as these show it; None if none does."""

    def extent_of(self, resource: str) -> Extent | None:
        """Return how much of a kind was read; None if all of it."""
        return next((gap.extent for gap in self.gaps if gap.resource == resource), None)


PODS: Final = "pods"
NODES: Final = "nodes"
POD_GROUPS: Final = "podgroups.scheduling.sigs.k8s.io"
QUOTAS: Final = "elasticquotas.scheduling.sigs.k8s.io"
TOPOLOGIES: Final = "clusternetworktopologies.scheduling.koordinator.sh"
NAMESPACES: Final = "namespaces"
CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
STORAGE_CLASSES: Final = "storageclasses.storage.k8s.io"
VOLUME_KINDS: Final = (CLAIMS, VOLUMES, STORAGE_CLASSES)
NATIVE_POD_GROUPS: Final = "podgroups.scheduling.k8s.io"


class Unreachable(KubeError):  # noqa: N818 - what it says is what is wrong
    """No answer came from the server that the configuration names."""


@asynccontextmanager
async def open_client(kubeconfig: str, context: str) -> AsyncIterator[tuple[Client, Access]]:
    """Yield a client with the user's own credentials; errors of connection name the server."""
    credentials = find_credentials(kubeconfig, context)
    access = await credentials.current()
    try:
        async with Client(credentials, user_agent="koord") as client:
            yield client, access
    except ConnectionLost as error:
        raise Unreachable(f"the cluster at {access.server} does not answer: {error}") from error


def path_in(path: str, namespace: str) -> str:
    """Return the path of a collection within one namespace."""
    head, _, plural = path.rpartition("/")
    return f"{head}/namespaces/{quote(namespace, safe='')}/{plural}"


async def read_cluster(client: Client, target: Target, *, compat: bool = False) -> Reading:
    """Read everything that an answer about ``target`` depends on. Raises ``KubeError``.

    ``compat`` asks for Koordinator's rules, as the operators' option of this name does.
    """
    reader = _Reader(client, target)
    pods, groups, quotas = PodTranslator(), PodGroupTranslator(), QuotaTranslator()
    try:
        async with asyncio.TaskGroup() as tasks:
            of_nodes = tasks.create_task(reader.read(NODES, node_source(reader.reject)))
            of_groups = tasks.create_task(
                reader.read(POD_GROUPS, pod_group_source(groups, reader.reject))
            )
            of_quotas = tasks.create_task(reader.read(QUOTAS, quota_source(quotas, reader.reject)))
            of_topologies = tasks.create_task(
                reader.read(TOPOLOGIES, topology_source(TopologyTranslator(), reader.reject))
            )
            of_native = tasks.create_task(
                reader.read(
                    NATIVE_POD_GROUPS, native_pod_group_source(groups.defaults, reader.reject)
                )
            )
            of_pods = tasks.create_task(reader.read(PODS, pod_source(pods, reader.reject)))
            of_spaces = tasks.create_task(reader.read(NAMESPACES, namespace_source(reader.reject)))
            of_claims = tasks.create_task(reader.read(CLAIMS, claim_source(reader.reject)))
            of_volumes = tasks.create_task(reader.read(VOLUMES, volume_source(reader.reject)))
            of_classes = tasks.create_task(
                reader.read(STORAGE_CLASSES, storage_class_source(reader.reject))
            )
    except BaseExceptionGroup as errors:
        # The first one ended the others; one message is what people can use.
        raise errors.exceptions[0] from None
    state = ClusterState(compat=compat, hooks=load_hooks())
    _take(of_topologies, state.upsert_topology)
    _take(of_nodes, state.upsert_node)
    _take(of_groups, state.upsert_pod_group)
    _take(of_native, state.upsert_pod_group)
    _take(of_spaces, lambda one: state.upsert_namespace(one.name, one.labels))
    _take(of_claims, state.upsert_claim)
    _take(of_volumes, state.upsert_volume)
    _take(of_classes, state.upsert_storage_class)
    state.volumes.is_known = not any(gap.resource in VOLUME_KINDS for gap in reader.gaps)
    _take(of_quotas, state.upsert_quota)
    _take(of_pods, state.upsert_pod)
    statuses = [quotas.status_of(one.uid) or {} for one in of_quotas.result()]
    hooked = _are_hooked(statuses)
    return Reading(state, reader.sighting, tuple(reader.gaps), reader.rejected, hooked)


def _are_hooked(statuses: Iterable[Mapping[str, Any]]) -> bool | None:
    """Whether the operators have hooks: they say of every quota if one has failed."""
    types = {kind for status in statuses for kind in conditions_of(status)}
    return HOOK_FAILED in types if QuotaCondition.READY in types else None


def _take(objects: asyncio.Task[list[T]], upsert: Callable[[T], None]) -> None:
    for one in objects.result():
        upsert(one)


_NAMESPACED: Final = (WirePod, WirePodGroup, WireClaim)


class _Reader:
    """Lists kinds in the widest extent that is allowed; keeps what is seen of the target."""

    def __init__(self, client: Client, target: Target) -> None:
        self.sighting: Sighting | None = None
        self.gaps: list[Gap] = []
        self.rejected: dict[str, str] = {}
        self._client = client
        self._target = target
        self._wire = WirePod if target.kind is Kind.POD else WirePodGroup

    def reject(self, key: str, problem: str) -> None:
        self.rejected[key] = problem

    async def read(self, resource: str, source: Source[W, T]) -> list[T]:
        """Return what could be read of a kind, and note the gap if that is not all."""
        for extent, path in self._extents(source):
            try:
                found = await self._list(source, path)
            except Forbidden:
                continue
            except source.absent_on:
                if source.wire is WirePodGroup or source.path == TOPOLOGIES_PATH:
                    self.gaps.append(Gap(resource, Extent.NOT_SERVED))
                return []
            if extent is not None:
                self.gaps.append(Gap(resource, extent))
            return found
        self.gaps.append(Gap(resource, Extent.NOTHING))
        return []

    def _extents(self, source: Source[W, T]) -> Iterator[tuple[Extent | None, str]]:
        yield None, source.path
        if source.wire in _NAMESPACED:
            yield Extent.NAMESPACE, path_in(source.path, self._target.namespace)

    async def _list(self, source: Source[W, T], path: str) -> list[T]:
        decoder = Decoder(source.wire)
        store: Store[W, T] = Store(self._noting_target(source), source.reject)
        params = {**source.params, "limit": str(PAGE_SIZE)}
        values: list[T] = []
        while True:
            body = await retry(
                lambda: self._client.list(path, params),
                within=BUSY_SECONDS,
                is_retryable=_is_busy,
            )
            meta, items = decoder.decode_page(body)
            values += [change.value for item in items for change in store.upsert(item)]
            if not meta.continue_:
                return values
            params["continue"] = meta.continue_

    def _noting_target(self, source: Source[W, T]) -> Callable[[W], T]:
        """Return the translation of a source, which also notes what the target says of itself."""

        def translate(wire: W) -> T:
            if isinstance(wire, self._wire) and _key_of(wire) == self._target.key:
                self.sighting = _see(wire)
            return source.translate(wire)

        return translate


def _key_of(wire: WirePod | WirePodGroup) -> str:
    return f"{wire.metadata.namespace}/{wire.metadata.name}"


def _see(wire: WirePod | WirePodGroup) -> Sighting:
    owners = tuple(f"{one.kind}/{one.name}" for one in wire.metadata.owner_references or ())
    if isinstance(wire, WirePod):
        conditions = wire.status.conditions or []
        slips = tuple(find_slips(wire.metadata.labels or (), wire.metadata.annotations or ()))
        return Sighting(_by_type(conditions), wire.spec.scheduler_name, owners, slips)
    try:
        status = msgspec.json.decode(wire.status or b"null", type=_GroupStatus | None)
    except msgspec.DecodeError:
        status = None
    return Sighting(_by_type((status and status.conditions) or []), owners=owners)


class _GroupStatus(msgspec.Struct):
    conditions: list[Condition] | None = None


def _by_type(conditions: Iterable[Condition]) -> Mapping[str, Condition]:
    return {condition.type: condition for condition in conditions}


def _is_busy(error: KubeError) -> bool:
    return isinstance(error, TooManyRequests | ServerUnavailable)
