"""Reads the cluster once, with the user's rights, into a ``ClusterState``.

All kinds that the planner reads are listed concurrently, and decoded and translated as by the
operators. A kind that must not be read is no error here but a *gap*; ``missing_rights`` says what
follows from it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import msgspec

from koord.answers.queue_view import QueuePlace
from koord.api.keys import operators
from koord.api.misspelled_keys import MisspelledKey, find_misspelled_keys
from koord.cli.common import ExitCode, fail, suggest, warn
from koord.cli.connection import open_client, path_in
from koord.cli.leases import Leader, parse_time, read_leader
from koord.cli.reported import Reported, make_report, read_place
from koord.cli.reported_quotas import ReportedQuota, read_reported
from koord.core.device.plugin import Devices
from koord.core.engine.state import ClusterState
from koord.core.eviction.progress import find_nominations
from koord.core.model.gangs import GangKey
from koord.core.model.pods import Pod
from koord.core.plugins.inter_pod import InterPod
from koord.core.quota.claims import UNKNOWN, ReclaimSetting
from koord.core.quota.model import QuotaOptions
from koord.core.quota.status import HOOK_FAILED, QuotaCondition
from koord.core.reservation.lifecycle import SCHEDULED
from koord.core.reservation.model import POD_PREFIX, Reservation
from koord.kube.client import Client
from koord.kube.decode import MALFORMED, Decoder, Poison
from koord.kube.errors import (
    Forbidden,
    KubeError,
    ServerUnavailable,
    TooManyRequests,
)
from koord.kube.kinds import (
    CLAIMS,
    DEVICES,
    KINDS,
    NAMESPACES,
    PLACEMENT,
    PODS,
    QUOTAS,
    STORAGE_CLASSES,
    VOLUMES,
    AnyKind,
    Kind,
    Translator,
    TranslatorOptions,
)
from koord.kube.leader_report import LeaderReport, PreemptionReport
from koord.kube.plan_keys import AnySignature
from koord.kube.reflector import Source
from koord.kube.retry import retry
from koord.kube.status import conditions_of
from koord.kube.store import HasMeta
from koord.kube.wire import (
    Condition,
    WirePod,
    WirePodGroup,
    WireReservation,
)
from koord.runtime.hooks import load_hooks

if TYPE_CHECKING:
    from koord.kube.translate.pods import PodTranslator
    from koord.kube.translate.quotas import QuotaTranslator

PAGE_SIZE: Final = 5000
"""A large cluster is sent in a fifth less time than in pages of half the size."""
_AT_ONCE: Final = 50
"""Objects that are translated before data that has arrived is taken in."""
BUSY_SECONDS: Final = 5.0
"""How long requests to a busy server are repeated."""

PLANNED_WITH: Final = tuple(kind for kind in KINDS if PLACEMENT in kind.read_by)

W = TypeVar("W", bound=HasMeta)
T = TypeVar("T")


class TargetKind(StrEnum):
    """The kinds of objects that can be asked about."""

    POD = "Pod"
    POD_GROUP = "PodGroup"
    JOB = "Job"
    """Stands for its gang, or for the first of its pods; so do the other workloads."""
    STATEFUL_SET = "StatefulSet"
    DEPLOYMENT = "Deployment"
    REPLICA_SET = "ReplicaSet"
    RESERVATION = "Reservation"


@dataclass(frozen=True, slots=True)
class Target:
    """The object of the question; the namespace of a reservation is that of its template."""

    kind: TargetKind
    namespace: str
    name: str

    @property
    def is_planned_alone(self) -> bool:
        """Whether it is a pod to the planner."""
        return self.kind in {TargetKind.POD, TargetKind.RESERVATION}

    @property
    def key(self) -> str:
        prefix = POD_PREFIX if self.kind is TargetKind.RESERVATION else ""
        return f"{self.namespace}/{prefix}{self.name}"

    @property
    def title(self) -> str:
        """What users call it, without its kind."""
        return self.name if self.kind is TargetKind.RESERVATION else self.key


class Extent(StrEnum):
    """How much of a kind was read, if not all of it."""

    NAMESPACE = "Namespace"
    """The objects of the target's namespace."""
    NOTHING = "Nothing"
    NOT_SERVED = "NotServed"
    """There is no such kind on this server."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A kind of which not everything was read."""

    kind: AnyKind
    extent: Extent


@dataclass(frozen=True, slots=True)
class Sighting:
    """Parts of the target that decide nothing but are shown."""

    conditions: Mapping[str, Condition] = field(default_factory=dict)
    scheduler: str = ""
    owners: tuple[str, ...] = ()
    slips: tuple[MisspelledKey, ...] = ()
    """Probable misspellings of the keys that describe a gang."""


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
    reclaim: ReclaimSetting = UNKNOWN
    """Whether over-use of quotas is reclaimed, as far as the leader says so."""
    preemption: PreemptionReport | None = None
    """The settings of preemption; None if the leader does not say."""
    operators_have_hooks: bool | None = None
    """Whether the operators call hooks, as the quotas show it; None if no quota shows it."""
    ignored: tuple[tuple[Pod, MisspelledKey], ...] = ()
    """Gated pods, and a misspelled key of each."""
    leader: Leader | None = None
    """Who leads; None if that is not known."""
    reports: Mapping[str, Reported] = field(default_factory=dict)
    """Pod of the state (``namespace/name``) -> why it waits, as the operators reported it."""
    finalizers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those of pods that are being deleted, by ``namespace/name``."""
    places: Mapping[GangKey, QueuePlace] = field(default_factory=dict)
    """Where gangs stand in the queue, as the operators reported it."""
    reported_quotas: tuple[ReportedQuota, ...] | None = None
    """The quotas of the target's namespace, where those of all must not be read, but these may."""

    def extent_of(self, kind: AnyKind) -> Extent | None:
        """Return how much of a kind was read; None if all of it."""
        return next((gap.extent for gap in self.gaps if gap.kind is kind), None)


VOLUME_KINDS: Final = (CLAIMS, VOLUMES, STORAGE_CLASSES)


async def read_cluster(client: Client, target: Target, *, compat: bool = False) -> Reading:
    """Read everything that an answer about ``target`` depends on. Raises ``KubeError``.

    ``compat`` asks for Koordinator's rules even if the operators do not follow them.
    """
    reader = _Reader(client, target)
    # What the leader does not report of its settings is as by default. Its key is not known here.
    options = TranslatorOptions(plans=AnySignature())
    translators = {kind: kind.make_translator(options) for kind in PLANNED_WITH}
    sink = _PodSink()
    try:
        async with asyncio.TaskGroup() as tasks:
            leading = tasks.create_task(read_leader(client))
            tasks.create_task(reader.read(PODS, translators[PODS], sink.take))
            values: dict[AnyKind, list[Any]] = {
                kind: [] for kind in translators if kind is not PODS
            }
            async with asyncio.TaskGroup() as reads:
                for kind, objects in values.items():
                    reads.create_task(reader.read(kind, translators[kind], objects.append))
            quotas = cast("QuotaTranslator", translators[QUOTAS])
            statuses = {quota.name: quotas.status_of(quota.uid) or {} for quota in values[QUOTAS]}
            leader = await leading
            leader_report = None if leader is None else leader.report
            state = ClusterState(
                compat=compat or (leader_report is not None and leader_report.compat),
                quota_options=_find_quota_options(leader_report, statuses.values()),
                hooks=load_hooks(),
            )
            for kind, objects in reversed(values.items()):
                for value in objects:
                    kind.upsert(state, value)
            sink.open(state)
    except BaseExceptionGroup as errors:
        # The first one ended the others; one message is what people can use.
        raise _first_of(errors) from None
    state.advance(time.time())
    state.volumes.is_known = not any(gap.kind in VOLUME_KINDS for gap in reader.gaps)
    state.plugin(Devices).is_known = Gap(DEVICES, Extent.NOTHING) not in reader.gaps
    for nomination in find_nominations(state):
        state.nominations.begin(nomination)
    # As the operators do before they look: a view of it would count pods in reservations twice.
    state.refresh()
    is_partial = Gap(QUOTAS, Extent.NOTHING) in reader.gaps
    return Reading(
        state,
        reader.sighting,
        tuple(reader.gaps),
        reader.rejected,
        _find_reclaim(leader_report, statuses),
        None if leader_report is None else leader_report.preemption,
        _are_hooked(statuses.values()),
        tuple(cast("PodTranslator", translators[PODS]).ignored.values()),
        leader,
        reader.reports,
        reader.finalizers,
        reader.places,
        await read_reported(client, target.namespace) if is_partial else None,
    )


class _PodSink:
    """Passes pods to the state while more arrive, once all else is in it."""

    def __init__(self) -> None:
        self._early: list[Pod] = []
        self._state: ClusterState | None = None

    def take(self, pod: Pod) -> None:
        if self._state is None:
            self._early.append(pod)
        else:
            PODS.upsert(self._state, pod)

    def open(self, state: ClusterState) -> None:
        self._state = state
        for pod in self._early:
            PODS.upsert(state, pod)


def _first_of(errors: BaseException) -> BaseException:
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors


def _find_quota_options(
    report: LeaderReport | None, statuses: Iterable[Mapping[str, Any]]
) -> QuotaOptions:
    if report is not None and report.quota is not None:
        return msgspec.convert(report.quota, QuotaOptions, from_attributes=True)
    # Published only where ``elasticQuota.guaranteeUsage`` is on.
    return QuotaOptions(guarantees_usage=any(status.get("guaranteed") for status in statuses))


def _find_reclaim(
    report: LeaderReport | None, statuses: Mapping[str, Mapping[str, Any]]
) -> ReclaimSetting:
    if report is None or report.blocked is None:  # of an earlier release, or without placement
        return ReclaimSetting()
    since = {}
    for name, status in statuses.items():
        over = conditions_of(status).get(QuotaCondition.OVER_ENTITLEMENT)
        moment = parse_time(over.get("lastTransitionTime")) if over is not None else None
        if over is not None and over.get("status") == "True" and moment is not None:
            since[name] = moment
    return ReclaimSetting(True, report.reclaim_after, since, time.time(), *report.delays)


def read_without_target(
    kubeconfig: str, context: str, namespace: str = ""
) -> tuple[Reading, Target]:
    """Read the cluster for a command about no pod or gang, which ends if it cannot be read.

    What must not be read everywhere is read in ``namespace``, or in that of the context.
    """

    async def read() -> tuple[Reading, Target]:
        async with open_client(kubeconfig, context) as (client, access):
            target = Target(TargetKind.POD, namespace or access.namespace, "")
            return await read_cluster(client, target), target

    try:
        return asyncio.run(read())
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)


def _are_hooked(statuses: Iterable[Mapping[str, Any]]) -> bool | None:
    """Whether the operators have hooks: then every quota has the condition HookFailed."""
    types = {kind for status in statuses for kind in conditions_of(status)}
    return HOOK_FAILED in types if QuotaCondition.READY in types else None


class _Reader:
    """Lists kinds in the widest extent that is allowed; records how the target looks."""

    def __init__(self, client: Client, target: Target) -> None:
        self.sighting: Sighting | None = None
        self.gaps: list[Gap] = []
        self.rejected: dict[str, str] = {}
        self.reports: dict[str, Reported] = {}
        self.finalizers: dict[str, tuple[str, ...]] = {}
        self.places: dict[GangKey, QueuePlace] = {}
        self._client = client
        self._target = target
        self._wire = _WIRE[target.kind]
        self._places = {"", target.namespace}

    def reject(self, key: str, problem: str) -> None:
        self.rejected[key] = problem

    async def read(
        self, kind: Kind[W, T, Any], translator: Translator[W, T], take: Callable[[T], None]
    ) -> None:
        """Pass on what can be read of a kind, and note the gap if that is not all."""
        source = kind.source(translator, self.reject)
        for extent, path in self._extents(kind):
            try:
                await self._list(source, path, take)
            except Forbidden:
                continue
            except source.absent_on:
                self.gaps.append(Gap(kind, Extent.NOT_SERVED))
                return
            if extent is not None:
                self.gaps.append(Gap(kind, extent))
            return
        self.gaps.append(Gap(kind, Extent.NOTHING))

    def _extents(self, kind: AnyKind) -> Iterator[tuple[Extent | None, str]]:
        yield None, kind.path
        if kind.is_useful_in_part:
            yield Extent.NAMESPACE, path_in(kind.path, self._target.namespace)

    async def _list(self, source: Source[W, T], path: str, take: Callable[[T], None]) -> None:
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

    def _pass_on(self, source: Source[W, T], item: W | Poison, take: Callable[[T], None]) -> None:
        """Translate an object, and note what the target says of itself."""
        if isinstance(item, Poison):
            source.reject(f"{item.identity.namespace}/{item.identity.name}", item.problem)
            return
        meta = item.metadata
        is_named = meta.name == self._target.name
        if is_named and isinstance(item, self._wire) and meta.namespace in self._places:
            self.sighting = _see(item)
        if meta.finalizers and meta.deletion_timestamp and isinstance(item, WirePod):
            self.finalizers[f"{meta.namespace}/{meta.name}"] = tuple(meta.finalizers)
        try:
            value = source.translate(item)
        except MALFORMED as error:
            source.reject(f"{meta.namespace}/{meta.name}", str(error))
        else:
            take(value)
            if isinstance(item, WirePodGroup) and (place := read_place(bytes(item.status))):
                self.places[f"{meta.namespace}/{meta.name}"] = place
            elif isinstance(item, WirePod) and not item.spec.node_name:
                self._note_report(
                    f"{meta.namespace}/{meta.name}", _by_type(item.status.conditions or ())
                )
            elif isinstance(value, Reservation) and value.pod is not None:
                self._note_report(value.pod.key, _see(cast("WireReservation", item)).conditions)

    def _note_report(self, pod: str, conditions: Mapping[str, Condition]) -> None:
        condition = conditions.get(operators.PLACED) or conditions.get(SCHEDULED)
        if condition is not None and condition.status == "False":
            self.reports[pod] = make_report(condition)


_Seen: TypeAlias = WirePod | WirePodGroup | WireReservation
_WIRE: Final[Mapping[TargetKind, type[_Seen]]] = {
    TargetKind.POD: WirePod,
    TargetKind.POD_GROUP: WirePodGroup,
    TargetKind.RESERVATION: WireReservation,
}


def _see(wire: _Seen) -> Sighting:
    owners = tuple(
        f"{owner_reference.kind}/{owner_reference.name}"
        for owner_reference in wire.metadata.owner_references or ()
    )
    if isinstance(wire, WirePod):
        conditions = wire.status.conditions or []
        slips = tuple(
            find_misspelled_keys(wire.metadata.labels or (), wire.metadata.annotations or ())
        )
        return Sighting(_by_type(conditions), wire.spec.scheduler_name, owners, slips)
    try:
        status = msgspec.json.decode(bytes(wire.status) or b"null", type=_Conditions | None)
    except MALFORMED:
        status = None
    return Sighting(_by_type((status and status.conditions) or []), owners=owners)


class _Conditions(msgspec.Struct):
    conditions: list[Condition] | None = None


def _by_type(conditions: Iterable[Condition]) -> Mapping[str, Condition]:
    return {condition.type: condition for condition in conditions}


def _is_busy(error: KubeError) -> bool:
    return isinstance(error, TooManyRequests | ServerUnavailable)


def refuse_unknown_namespace(reading: Reading, namespace: str) -> None:
    """End the command if this namespace, empty for all, certainly does not exist."""
    namespaces = reading.state.plugin(InterPod).namespaces
    if namespace and namespace not in namespaces and reading.extent_of(NAMESPACES) is None:
        fail(f"there is no namespace {namespace}{suggest(namespace, namespaces)}", ExitCode.USAGE)


def refuse_without_pods(reading: Reading, target: Target) -> None:
    """End the command if no pods could be read, not even in the namespace of the target."""
    if reading.extent_of(PODS) is Extent.NOTHING:
        fail(
            f"you may not list pods, not even in namespace {target.namespace}: nothing can be "
            "explained (the ClusterRole koord-user has the right)",
            ExitCode.UNREADABLE,
        )


def refuse_gaps(reading: Reading, *kinds: AnyKind) -> None:
    """End the command if any of these kinds could not be read; warn if pods could not."""
    for kind in kinds:
        refuse_gap(reading, kind)
    if reading.extent_of(PODS) is not None:
        warn("you may not list all pods: less may be free than is shown")


def refuse_gap(reading: Reading, kind: AnyKind) -> None:
    """End the command if this kind could not be read."""
    extent = reading.extent_of(kind)
    if extent is Extent.NOT_SERVED:
        fail(
            f"the cluster has no {kind}: kubectl apply --server-side -f crds/", ExitCode.UNREADABLE
        )
    if extent is not None:
        fail(
            f"you may not list {kind} (the ClusterRole koord-user has the right)",
            ExitCode.UNREADABLE,
        )
