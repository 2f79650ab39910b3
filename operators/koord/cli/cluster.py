"""Reads the cluster once, with the user's rights, into a ``ClusterState``.

All kinds that the planner reads are listed concurrently, and decoded and translated as by the
operators. A kind that must not be read is no error here but a *gap*; ``answers.reading`` says what
follows from it. Of quotas that must not all be read, those of one namespace are taken as the
operators reported them: a part of a tree says nothing about shares.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from koord.answers.quota_view import QuotaView, ReportedQuota
from koord.answers.reading import (
    Extent,
    Gap,
    Reading,
    ReportedPreemption,
    Target,
    TargetKind,
)
from koord.api.keys import quota as keys
from koord.cli.common import ExitCode, fail, warn
from koord.cli.connection import open_client, path_in
from koord.cli.kind_reader import KindReader
from koord.cli.leases import parse_time, read_leader
from koord.core.engine.state import ClusterState
from koord.core.migration.model import MigrationOptions
from koord.core.model.pods import Pod
from koord.core.model.text import suggest
from koord.core.model.units import Amounts
from koord.core.plugins.inter_pod import InterPod
from koord.core.quota.coverage import covers
from koord.core.quota.entitlement import ReclaimSetting
from koord.core.quota.model import ROOT, QuotaOptions
from koord.core.quota.reclaim import Overuse
from koord.core.quota.status import HOOK_FAILED, QuotaCondition, Summary
from koord.core.suspend.plugin import SuspendOptions
from koord.domains.autoscaler_settings import read_reported as read_reported_autoscaler
from koord.domains.load import NODE_METRICS
from koord.domains.load_settings import read_reported as read_reported_load
from koord.domains.migration_settings import read_reported as read_reported_migration
from koord.domains.owner_settings import OwnerSettings
from koord.domains.owner_settings import read_reported as read_owner_settings
from koord.domains.owners import OwnerKinds, make_kind
from koord.domains.placement import NAMESPACES, PODS
from koord.domains.quota import QUOTAS
from koord.domains.registry import (
    KINDS,
    find_more_kinds,
    make_cluster_state,
    make_translator_options,
)
from koord.kube.client import Client
from koord.kube.decode import MALFORMED
from koord.kube.errors import (
    Forbidden,
    KubeError,
)
from koord.kube.kind import AnyKind, TranslatorOptions
from koord.kube.leader_report import LeaderReport
from koord.kube.plan_keys import AnySignature
from koord.kube.served_kinds import select_served
from koord.kube.status import conditions_of
from koord.kube.translate.quotas import QuotaTranslator, read_amounts, read_recorded
from koord.kube.wire import (
    ObjectList,
    WireCondition,
    WireCustomResource,
)
from koord.replay.recorded import RecordedCluster, record_reading, settle
from koord.runtime.hooks import load_hooks

if TYPE_CHECKING:
    from koord.kube.translate.pods import PodTranslator


async def read_cluster(
    client: Client,
    target: Target,
    *,
    compat: bool = False,
    for_all: bool = False,
    record: Callable[[RecordedCluster], None] | None = None,
) -> Reading:
    """Read everything that an answer about ``target`` depends on. Raises ``KubeError``.

    ``compat`` asks for Koordinator's rules even if the operators do not follow them. With
    ``for_all`` the reading tells as much of all that waits as of the target. ``record`` gets what
    the planner's state was made of.
    """
    reader = KindReader(client, target, for_all=for_all)
    leader = await read_leader(client)
    leader_report = cast("LeaderReport | None", leader.report) if leader else None
    of_load = read_reported_load(leader_report.load if leader_report is not None else None)
    load = of_load.options
    of_owners = read_owner_settings(leader_report.owners if leader_report is not None else None)
    # What the leader does not report of its settings is as by default. Its key is not known here.
    options = make_translator_options(
        TranslatorOptions(plans=AnySignature()), load, *of_owners.plan_options()
    )
    suspend = SuspendOptions(leader_report is not None and leader_report.suspend)
    kinds = (
        *KINDS,
        *find_more_kinds(suspend),
        *(await find_owner_kinds(client, of_owners) if of_owners.enabled else ()),
    )
    translators = {kind: kind.make_translator(options) for kind in kinds}
    sink = _PodSink(keeps=record is not None)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reader.read(PODS, translators[PODS], sink.take))
            values: dict[AnyKind, list[Any]] = {
                kind: [] for kind in translators if kind is not PODS
            }
            async with asyncio.TaskGroup() as reads:
                for kind, objects in values.items():
                    reads.create_task(reader.read(kind, translators[kind], objects.append))
            quotas = cast("QuotaTranslator", translators[QUOTAS])
            statuses = {quota.name: quotas.status_of(quota.uid) or {} for quota in values[QUOTAS]}
            plan_options = (
                find_quota_options(leader_report, statuses.values()),
                load,
                read_reported_autoscaler(leader_report.autoscaler if leader_report else None),
                suspend,
                *of_owners.plan_options(),
            )
            compat = compat or (leader_report is not None and leader_report.compat)
            hooks = load_hooks()
            state = make_cluster_state(*plan_options, hooks, compat=compat)
            state.advance(time.time())
            for kind, objects in reversed(values.items()):
                for value in objects:
                    kind.upsert(state, value)
            sink.open(state)
            if of_load.enabled and of_load.poll_metrics:
                await reader.read_metrics(state, of_load.poll_interval)
    except BaseExceptionGroup as errors:
        # The first one ended the others; one message is what people can use.
        raise _first_of(errors) from None
    settle(state, {gap.kind.name: gap.extent for gap in reader.gaps})
    state.advance(time.time())  # now that namespaces and pods are known, too
    # As the operators do before they look: a view of it would count pods in reservations twice.
    state.refresh()
    is_partial = Gap(QUOTAS, Extent.NOTHING) in reader.gaps
    reading = Reading(
        state,
        reader.details,
        tuple(reader.gaps),
        reader.rejected,
        find_reclaim(leader_report, statuses),
        find_preemption_settings(leader_report),
        find_migration_options(leader_report),
        are_hooked(statuses.values()),
        tuple(cast("PodTranslator", translators[PODS]).ignored.values()),
        leader,
        reader.notes.reports,
        reader.notes.finalizers,
        reader.notes.places,
        reader.notes.standings,
        await read_reported(client, target.namespace) if is_partial else None,
        all_details=reader.notes.details,
    )
    if record is not None:
        values[PODS] = sink.kept
        values[NODE_METRICS] += reader.polled
        record(
            record_reading(
                reading,
                {kind.name: tuple(objects) for kind, objects in values.items()},
                plan_options,
                compat=compat,
                hooks=tuple(hooks.hooks),
            )
        )
    return reading


async def find_owner_kinds(client: Client, settings: OwnerSettings) -> tuple[AnyKind, ...]:
    """Return the kinds of which objects say what gangs there are, those that are served."""
    kinds = OwnerKinds.choose(settings.kinds)
    return tuple(map(make_kind, await select_served(client, kinds.readable)))


class _PodSink:
    """Passes pods to the state while more arrive, once all else is in it."""

    def __init__(self, *, keeps: bool) -> None:
        self.kept: list[Pod] = []
        """All of them, if somebody wants that."""
        self._keeps = keeps
        self._early: list[Pod] = []
        self._state: ClusterState | None = None

    def take(self, pod: Pod) -> None:
        if self._keeps:
            self.kept.append(pod)
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


def find_quota_options(
    report: LeaderReport | None, statuses: Iterable[Mapping[str, Any]]
) -> QuotaOptions:
    if report is not None and report.quota is not None:
        return msgspec.convert(report.quota, QuotaOptions, from_attributes=True)
    # Published only where ``elasticQuota.guaranteeUsage`` is on.
    return QuotaOptions(guarantees_usage=any(status.get("guaranteed") for status in statuses))


def find_preemption_settings(report: LeaderReport | None) -> ReportedPreemption | None:
    settings = None if report is None else report.preemption
    if settings is None:
        return None
    return ReportedPreemption(
        settings.enabled, settings.min_runtime, settings.max_per_day, settings.patience
    )


def find_migration_options(report: LeaderReport | None) -> MigrationOptions:
    if report is None:
        return MigrationOptions()
    return read_reported_migration(report.migration, compat=report.compat)


def find_reclaim(
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


def are_hooked(statuses: Iterable[Mapping[str, Any]]) -> bool | None:
    """Whether the operators have hooks: then every quota has the condition HookFailed."""
    types = {kind for status in statuses for kind in conditions_of(status)}
    return HOOK_FAILED in types if QuotaCondition.READY in types else None


def refuse_unknown_namespace(reading: Reading, namespace: str) -> None:
    """End the command if this namespace, empty for all, certainly does not exist."""
    namespaces = reading.state.plugin(InterPod).namespaces
    if namespace and namespace not in namespaces and reading.extent_of(NAMESPACES.name) is None:
        fail(f"there is no namespace {namespace}{suggest(namespace, namespaces)}", ExitCode.USAGE)


def refuse_without_pods(reading: Reading, target: Target) -> None:
    """End the command if no pods could be read, not even in the namespace of the target."""
    if reading.extent_of(PODS.name) is Extent.NOTHING:
        fail(
            f"you may not list pods, not even in namespace {target.namespace}: nothing can be "
            "explained (the ClusterRole koord-user has the right)",
            ExitCode.UNREADABLE,
        )


def refuse_gaps(reading: Reading, *kinds: AnyKind) -> None:
    """End the command if any of these kinds could not be read; warn if pods could not."""
    for kind in kinds:
        refuse_gap(reading, kind)
    if reading.extent_of(PODS.name) is not None:
        warn("you may not list all pods: less may be free than is shown")


def refuse_gap(reading: Reading, kind: AnyKind) -> None:
    """End the command if this kind could not be read."""
    extent = reading.extent_of(kind.name)
    if extent is Extent.NOT_SERVED:
        fail(
            f"the cluster has no {kind}: kubectl apply --server-side -f crds/", ExitCode.UNREADABLE
        )
    if extent is not None:
        fail(
            f"you may not list {kind} (the ClusterRole koord-user has the right)",
            ExitCode.UNREADABLE,
        )


class _QuotaStatus(msgspec.Struct):
    used: msgspec.Raw = msgspec.Raw()
    runtime: msgspec.Raw = msgspec.Raw()
    request: msgspec.Raw = msgspec.Raw()
    conditions: list[WireCondition] | None = None


async def read_reported(client: Client, namespace: str) -> tuple[ReportedQuota, ...] | None:
    """Return the quotas of a namespace, by name; None if they must not be read either."""
    try:
        objects = await client.get(path_in(QUOTAS.path, namespace), ObjectList[WireCustomResource])
    except Forbidden:
        return None
    reported = map(make_reported, objects.items or ())
    return tuple(sorted(reported, key=lambda reported_quota: reported_quota.view.summary.name))


def make_reported(wire: WireCustomResource) -> ReportedQuota:
    """Return what the operators last said of a quota."""
    try:
        status = msgspec.json.decode(bytes(wire.status) or b"{}", type=_QuotaStatus)
    except MALFORMED:
        status = _QuotaStatus()
    written = QuotaTranslator().translate(wire)
    spec = written.last_valid or written
    recorded = read_recorded(wire.metadata.annotations or {})
    used, share = _read(status.used), _read(status.runtime)
    summary = Summary(
        name=spec.name,
        parent="" if spec.parent == ROOT else spec.parent,
        tree=spec.tree_id,
        is_parent=spec.is_parent,
        min=spec.min,
        max=spec.max,
        weight=spec.share_weight(),
        share=share,
        request=_read(status.request),
        child_request=recorded.get(keys.CHILD_REQUEST.removeprefix(keys.PREFIX), {}),
        used=used,
    )
    conditions = {condition.type: condition for condition in status.conditions or ()}
    over = conditions.get(QuotaCondition.OVER_ENTITLEMENT)
    is_over = over is not None and over.status == "True"
    overuse = tuple(
        Overuse(spec.name, key, used[key], most)
        for key, most in sorted(share.items())
        if is_over and used.get(key, 0) > most
    )
    view = QuotaView(summary, spec.namespace, 0, overuse)
    return ReportedQuota(view, conditions, covers(spec))


def _read(raw: msgspec.Raw) -> Amounts:
    try:
        return read_amounts(bytes(raw))
    except MALFORMED:
        return {}  # somebody else has written nonsense into the status
