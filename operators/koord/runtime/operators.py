"""Starts the operators.

Each function ``start_…`` puts the parts of one operator together, with what they share.

They are registered in ``koord.runtime.registry``. Controllers, writers and events know each other
only through what is handed to them here.
"""

import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from koord.controllers.device_status import DeviceStatusPolicy, NodeResourcesPolicy
from koord.controllers.enforcement import Enforcement
from koord.controllers.history import HistoryRecorder
from koord.controllers.network_topology import TopologyStatusPolicy
from koord.controllers.placeholders import Placeholders
from koord.controllers.placement import PlacementController
from koord.controllers.pod_group import PodGroupStatusPolicy, ProblemReports
from koord.controllers.preemption import PreemptionController
from koord.controllers.preemption_run import PreemptionRules
from koord.controllers.quota_profile import ProfileStatusPolicy
from koord.controllers.quota_status import QuotaAudit, QuotaStatusPolicy
from koord.controllers.reclaim import ReclaimController, ReclaimOptions
from koord.controllers.reservation_status import ReservationStatusPolicy
from koord.controllers.restart import GangRestarts
from koord.controllers.status_publishing import (
    DeviceAnnouncer,
    IgnoredKeys,
    PlacementAnnouncer,
    PreemptionAnnouncer,
    QuotaPublisher,
    ReclaimAnnouncer,
    ReservationAnnouncer,
    StatusPublisher,
)
from koord.controllers.validation import ValidationSink
from koord.controllers.wait_reports import WaitReports
from koord.controllers.writes_in_flight import BindTurns
from koord.core.engine.holds import Holds
from koord.core.eviction.search import PreemptionOptions
from koord.core.model.gang_history import OF_PLACEMENT, OF_POD_GROUPS, Happened
from koord.core.model.pods import Pod
from koord.core.quota.entitlement import ReclaimSetting
from koord.kube.events import EventRecorder
from koord.kube.evictor import Evictor
from koord.kube.kinds import (
    DEVICES,
    PLACEMENT,
    POD_GROUPS,
    PODS,
    PROFILES,
    QUOTA,
    QUOTAS,
    RESERVATIONS,
    TOPOLOGIES,
)
from koord.kube.node_writer import NodeWriter
from koord.kube.nominator import Nominator
from koord.kube.objects import (
    ObjectRef,
    ref_of_devices,
    ref_of_pod_group,
    ref_of_profile,
    ref_of_quota,
    ref_of_reservation,
    ref_of_topology,
)
from koord.kube.placeholders import PlaceholderWriter
from koord.kube.quota_objects import EnforcementMap, RootQuotaWriter
from koord.kube.status import (
    AFTER_BINDINGS,
    AT_ONCE,
    BEHIND_ALL,
    MERGED,
    Form,
    Pace,
    Present,
    StatusWriter,
    annotated_by,
    applied_by,
    metadata_by,
)
from koord.runtime.collectors import (
    QuotaSeries,
    event_outcomes,
    hook_failures,
    kubelet_rejections,
    pending_units,
    preemptions,
    quota_audit,
    quota_evictions,
    reservations,
)
from koord.runtime.descriptions import count_by_reason
from koord.runtime.discovery import NameGuard

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start_placement(parts: "Parts") -> None:
    state = parts.reader.state
    guard = parts.name_guard = NameGuard(parts.client, parts.settings.scheduler_name, parts.warn)

    def may_place() -> bool:
        return parts.reader.is_synced() and guard.is_free()

    events = parts.events = EventRecorder(
        parts.client, "koord-placement", socket.gethostname(), is_busy=parts.is_binding
    )
    announcer = PlacementAnnouncer(
        pods=_make_pod_writer(parts),
        pod_groups=_make_group_writer(parts, "koord-placement"),
        reservations=_make_reservation_writer(parts, "koord-placement-wait"),
        events=events,
        compat=state.gangs.compat,
    )
    reports = WaitReports(
        state=state, announcer=announcer, clock=time.monotonic, is_busy=parts.is_binding
    )
    evictor = Evictor(parts.client, time.time)
    history = _make_history(parts, "koord-placement-history", OF_PLACEMENT)
    placement = parts.placement = PlacementController(
        state=state,
        binder=parts.binder,
        turns=_keep_placeholders(parts, events),
        scoring=parts.settings.make_scoring(),
        observer=parts.metrics,
        reporter=reports,
        restarts=GangRestarts(state, evictor, announcer, time.monotonic, record=history.record),
        is_synced=may_place,
        clock=time.monotonic,
        wall_clock=time.time,
        holds=Holds(parts.settings.keep_room_seconds),
        reclaim=ReclaimSetting(
            is_known=True,
            after=parts.settings.reclaims_after,
            budget_grace=parts.settings.elastic_quota.budget_grace,
            patience=parts.settings.preemption.patience,
        ),
    )
    guard.on_change = placement.wake
    ignored = IgnoredKeys(parts.reader.translator(PODS).ignored, events)
    parts.background += [events.run, guard.run, ignored.run, lambda: reports.run(placement)]
    parts.reader.listeners.append(placement.wake)
    parts.metrics.watch(
        event_outcomes(events),
        pending_units(lambda: count_by_reason(placement)),
        kubelet_rejections(lambda: parts.reader.rejections),
    )
    _start_reclaim(parts, placement, history)
    _start_preemption(parts, placement, history)


def _keep_placeholders(parts: "Parts", events: EventRecorder) -> Placeholders:
    state = parts.reader.state
    placeholders = Placeholders(
        state,
        PlaceholderWriter(parts.client),
        BindTurns(state, NodeWriter(parts.client), time.monotonic),
        ReservationAnnouncer(events).announce_refused,
        time.monotonic,
    )
    parts.keep_status(placeholders)
    return placeholders


def _start_reclaim(
    parts: "Parts", placement: PlacementController, history: HistoryRecorder
) -> None:
    settings, events = parts.settings.elastic_quota, parts.events
    if events is None:
        raise AssertionError("placement has events")
    controller = ReclaimController(
        state=parts.reader.state,
        evictor=Evictor(parts.client, time.time, parts.settings.preemption.most_grace),
        reporter=ReclaimAnnouncer(events),
        blocked=lambda: list(placement.queue.blocked.values()),
        is_synced=placement.is_synced,
        clock=time.monotonic,
        wall_clock=time.time,
        options=ReclaimOptions(
            is_on=parts.settings.reclaims_after is not None,
            delay=settings.delay_evict_time,
            interval=settings.revoke_pod_interval,
            is_dry=settings.reclaim_dry_run,
            most_per_minute=settings.max_reclaims_per_minute,
            min_runtime=parts.settings.preemption.min_runtime,
            soft_eviction_limit=parts.settings.preemption.soft_eviction_limit,
            patience=parts.settings.preemption.patience,
            budget_grace=settings.budget_grace,
        ),
        record=history.record,
        note=partial(_note, placement),
    )
    parts.background.append(controller.run)
    parts.metrics.watch(quota_evictions(lambda: controller.evictions.counts))


def _note(placement: PlacementController, pods: Iterable[Pod]) -> None:
    """Have reports on waiting pods written soon."""
    pods = tuple(pods)
    gangs = {pod.gang.key for pod in pods if pod.gang is not None}
    placement.reporter.note(gangs, {pod.uid for pod in pods if pod.gang is None})


def _start_preemption(
    parts: "Parts", placement: PlacementController, history: HistoryRecorder
) -> None:
    settings, events = parts.settings.preemption, parts.events
    if events is None:
        raise AssertionError("placement has events")

    controller = PreemptionController(
        state=parts.reader.state,
        queue=placement.queue,
        holds=placement.holds,
        evictor=Evictor(parts.client, time.time, settings.most_grace),
        nominator=Nominator(parts.client, parts.keys),
        reporter=PreemptionAnnouncer(events, parts.reader.state, history.record),
        note=partial(_note, placement),
        is_synced=placement.is_synced,
        clock=time.monotonic,
        wall_clock=time.time,
        settings=PreemptionRules(
            is_on=settings.enabled,
            options=PreemptionOptions(settings.min_runtime, settings.max_per_day),
            stuck_after=settings.stuck_after,
            grace_limit=settings.most_grace,
            soft_eviction_limit=settings.soft_eviction_limit,
            uses_eviction_api=settings.respect_budgets,
            scheduler=parts.settings.scheduler_name,
        ),
    )
    placement.recover = controller.recover
    placement.on_refused = controller.wake
    placement.preempting = controller.reason_for
    parts.preemption = controller
    parts.background.append(controller.run)
    parts.reader.listeners.append(controller.wake_if_busy)
    ended, evictions = controller.counts, controller.evictions.counts
    parts.metrics.watch(*preemptions(lambda: (ended, evictions)))


def start_pod_groups(parts: "Parts") -> ValidationSink:
    writer = _make_group_writer(parts, "koord-podgroup", pace=AFTER_BINDINGS)
    policy = PodGroupStatusPolicy(
        state=parts.reader.state,
        sink=StatusPublisher(writer, ref_of_pod_group, events=parts.events),
        clock=time.monotonic,
        wall_clock=time.time,
        record=_make_history(parts, "koord-podgroup-history", OF_POD_GROUPS).record,
        present=parts.reader.translator(POD_GROUPS).status_of,
    )
    controller = parts.keep_status(policy, when_synced=False)
    return ProblemReports(policy, controller.wake)


def start_quotas(parts: "Parts") -> None:
    seen = parts.reader.translator(QUOTAS)
    observe = parts.metrics.quotas.write.observe

    def make_writer(form: Form, present: Present) -> StatusWriter:
        return parts.make_writer(QUOTAS.plural, form, present, pace=AFTER_BINDINGS, observe=observe)

    policy = QuotaStatusPolicy(
        state=parts.reader.state,
        sink=QuotaPublisher(
            make_writer(applied_by("koord-quota"), lambda ref: seen.status_of(ref.uid)),
            ref_of_quota,
            make_writer(
                annotated_by("koord-quota-annotations"), lambda ref: seen.recorded_on(ref.uid)
            ),
            make_writer(
                metadata_by("koord-quota-finalizer"), lambda ref: seen.finalizers_on(ref.uid)
            ),
            seen,
            events=parts.events,
        ),
        is_busy=parts.is_binding,
        reclaim_delay=parts.settings.reclaims_after,
    )
    controller = parts.keep_status(policy)
    enforcement = Enforcement(
        parts.reader.state,
        EnforcementMap(parts.client, lambda: parts.namespace),
        on_change=controller.wake,
    )
    policy.enforcement = enforcement.describe
    parts.enforcement = enforcement
    parts.background.append(enforcement.run)
    parts.metrics.watch_quotas(QuotaSeries(lambda: policy.summaries))


def start_profiles(parts: "Parts") -> None:
    seen = parts.reader.translator(PROFILES)
    writer = parts.make_writer(
        PROFILES.plural,
        applied_by("koord-elasticquotaprofile-tree"),
        lambda ref: seen.status_of(ref.uid),
        pace=AFTER_BINDINGS,
    )
    policy = ProfileStatusPolicy(
        state=parts.reader.state,
        sink=StatusPublisher(writer, ref_of_profile),
        quotas=RootQuotaWriter(parts.client),
        meta_of=parts.reader.translator(QUOTAS).meta_of,
    )
    parts.keep_status(policy)


def start_topologies(parts: "Parts") -> None:
    seen = parts.reader.translator(TOPOLOGIES)
    writer = parts.make_writer(
        TOPOLOGIES.plural,
        applied_by("koord-networktopology-tree"),
        lambda ref: seen.status_of(ref.uid),
        pace=AFTER_BINDINGS,
    )
    policy = TopologyStatusPolicy(parts.reader.state, StatusPublisher(writer, ref_of_topology))
    parts.keep_status(policy, when_synced=False)


def start_devices(parts: "Parts") -> None:
    """All that is written about devices gives way: agents report them, and nobody waits for it.

    The policy has yielded before it gives a status to the writer.
    """
    seen, state = parts.reader.translator(DEVICES), parts.reader.state
    writer = parts.make_writer(
        DEVICES.plural,
        applied_by("koord-device-status"),
        lambda ref: seen.status_of(ref.uid),
        pace=replace(BEHIND_ALL, seconds=0.0),
    )
    sink = StatusPublisher(writer, ref_of_devices)
    announcer = DeviceAnnouncer(parts.events)
    parts.keep_status(DeviceStatusPolicy(state, sink, announcer), pace=BEHIND_ALL)
    parts.keep_status(NodeResourcesPolicy(state, NodeWriter(parts.client)), pace=BEHIND_ALL)


def start_reservations(parts: "Parts") -> None:
    policy = ReservationStatusPolicy(
        parts.reader.state,
        StatusPublisher(
            _make_reservation_writer(parts, "koord-reservation-status"), ref_of_reservation
        ),
        lambda reservation: parts.client.delete(
            ref_of_reservation(reservation).path, uid=reservation.uid
        ),
        time.time,
    )
    parts.keep_status(policy)
    parts.metrics.watch(*reservations(parts.reader.state))


def _make_reservation_writer(parts: "Parts", manager: str) -> StatusWriter:
    seen = parts.reader.translator(RESERVATIONS)
    form = applied_by(manager)
    return parts.make_writer(RESERVATIONS.plural, form, lambda ref: seen.status_of(ref.uid))


def start_quota_audit(parts: "Parts") -> None:
    state = parts.reader.state
    parts.metrics.quotas.attach(state.quotas)
    parts.metrics.watch(hook_failures(state.quotas.hooks))
    if not parts.operators.isdisjoint({PLACEMENT, QUOTA}):
        audit = QuotaAudit(state, is_synced=parts.reader.is_synced, is_busy=parts.is_binding)
        parts.background.append(audit.run)
        parts.metrics.watch(*quota_audit(audit))


def _make_pod_writer(parts: "Parts") -> StatusWriter:
    """Return the writer of conditions of pods.

    The translator only remembers waiting pods, so the state says which pods there are.
    """
    state, seen = parts.reader.state, parts.reader.translator(PODS)

    def present(ref: ObjectRef) -> Mapping[str, Any] | None:
        return seen.status_of(ref.uid) if ref.uid in state.pods else None

    return parts.make_writer(PODS.plural, MERGED, present)


def _make_history(parts: "Parts", manager: str, own: frozenset[Happened]) -> HistoryRecorder:
    writer = _make_group_writer(parts, manager, pace=AFTER_BINDINGS)
    return HistoryRecorder(writer, own, parts.events, time.time)


def _make_group_writer(parts: "Parts", manager: str, *, pace: Pace = AT_ONCE) -> StatusWriter:
    seen = parts.reader.translator(POD_GROUPS)
    return parts.make_writer(
        POD_GROUPS.plural,
        applied_by(manager),
        lambda ref: seen.status_of(ref.uid),
        pace=pace,
    )
