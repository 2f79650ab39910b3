"""The operator ``placement``: plans pods, binds them, and evicts for them.

Controller, writers and events know each other only through what is handed to them here.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from koord.controllers.eviction import EvictionController
from koord.controllers.placeholders import Placeholders
from koord.controllers.placement import PlacementController
from koord.controllers.placement_reports import read_gang_report
from koord.controllers.preemption import PREEMPTION, PreemptionRules, Preemptions
from koord.controllers.queue_looks import QueueLooks
from koord.controllers.reclaim import RECLAIM, ReclaimOptions, Reclaims
from koord.controllers.restart import RESTART_LIMIT, GangRestarts
from koord.controllers.status_publishing import (
    IgnoredKeys,
    PlacementAnnouncer,
    PreemptionAnnouncer,
    ReclaimAnnouncer,
    ReservationAnnouncer,
)
from koord.controllers.wait_reports import WaitReports
from koord.controllers.writes_in_flight import BindTurns
from koord.core.engine.holds import Holds
from koord.core.eviction.limits import EvictionLimits
from koord.core.eviction.search import PreemptionOptions
from koord.core.model.pods import Pod
from koord.core.quota.entitlement import ReclaimSetting
from koord.domains.gang import POD_GROUPS
from koord.domains.migration_settings import MigrationSettings
from koord.domains.placement import PODS
from koord.domains.preemption_settings import PreemptionSettings
from koord.domains.quota_settings import QuotaSettings
from koord.domains.registry import KINDS
from koord.domains.reservation import RESERVATIONS
from koord.kube.events import EventRecorder
from koord.kube.evictor import Evictor
from koord.kube.node_writer import NodeWriter
from koord.kube.nominator import Nominator
from koord.kube.objects import ObjectRef
from koord.kube.placeholders import PlaceholderWriter
from koord.kube.status import MERGED, Former, StatusPatch, StatusWriter, applied_by
from koord.kube.write_check import Write
from koord.operators.names import PLACEMENT, POD_GROUP, RESERVATION
from koord.operators.operator import Operator
from koord.runtime.clock import Clock
from koord.runtime.collectors import (
    kubelet_rejections,
    pending_units,
    preemptions,
    quota_evictions,
)
from koord.runtime.descriptions import count_by_reason
from koord.runtime.discovery import NameGuard
from koord.runtime.queue_series import watch_queues
from koord.runtime.settings import Settings
from koord.runtime.team_series import TeamFigures, watch_teams

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    state = parts.reader.state
    guard = parts.name_guard = NameGuard(parts.client, parts.settings.scheduler_name, parts.warn)

    def may_place() -> bool:
        is_known = all(is_there() for is_there in parts.awaited)
        return parts.reader.is_synced() and is_known and guard.is_free()

    events = parts.events
    _write_reports(parts)
    announcer = PlacementAnnouncer(
        pods=_make_pod_writer(parts),
        pod_groups=parts.gang_reports,
        reservations=parts.reservation_reports,
        events=events,
        compat=state.gangs.compat,
    )
    reports = WaitReports(
        state=state, announcer=announcer, clock=time.monotonic, is_busy=parts.is_binding
    )
    evictor, clock = Evictor(parts.client, time.time), Clock(time.time, time.monotonic)
    options = _make_reclaim_options(parts.settings)
    moves = parts.settings.of(MigrationSettings)
    evictions = parts.evictions = EvictionController(
        state,
        may_place,
        clock,
        EvictionLimits((RESTART_LIMIT, *options.limits, *moves.eviction_limits)),
        parts.settings.of(PreemptionSettings).soft_eviction_limit,
        parts.settings.of(PreemptionSettings).patience,
    )
    placement = parts.placement = PlacementController(
        state=state,
        binder=parts.binder,
        turns=_keep_placeholders(parts, events),
        scoring=parts.settings.make_scoring(),
        observer=parts.metrics,
        reporter=reports,
        restarts=GangRestarts(evictions, evictor, announcer, record=parts.history.record),
        is_synced=may_place,
        clock=clock,
        holds=Holds(parts.settings.keep_room_seconds),
        reclaim=ReclaimSetting(
            is_known=True,
            after=parts.settings.reclaims_after,
            budget_grace=parts.settings.of(QuotaSettings).budget_grace,
            patience=parts.settings.of(PreemptionSettings).patience,
        ),
    )
    guard.on_change = placement.wake
    ignored = IgnoredKeys(parts.reader.translator(PODS).ignored, events)
    parts.background += [guard.run, ignored.run, lambda: reports.run(placement)]
    parts.reader.listeners.append(placement.wake)
    parts.metrics.watch(
        pending_units(lambda: count_by_reason(placement)),
        kubelet_rejections(lambda: parts.reader.rejections),
        *watch_teams(TeamFigures(parts.reader.state, placement.queue, placement.clock)),
    )
    evictions.add(_make_reclaim(parts, placement, evictions, options))
    policy, looks = _make_preemption(parts, placement, evictions), _look_at_queues(parts, placement)

    def note_refusals() -> None:
        policy.wake()
        looks.note()

    placement.on_refused = note_refusals
    evictions.add(policy)
    parts.background.append(evictions.run)
    ended, counts = evictions.ended[PREEMPTION], evictions.counts
    parts.metrics.watch(
        quota_evictions(lambda: counts[RECLAIM]),
        *preemptions(lambda: (ended, counts[PREEMPTION])),
    )


def _look_at_queues(parts: "Parts", placement: PlacementController) -> QueueLooks:
    """Have turns of waiting units followed, and starts foreseen."""
    looks = parts.queue_looks = QueueLooks(
        parts.reader.state,
        placement.queue,
        placement.scoring,
        placement.clock,
        placement.is_synced,
        parts.is_binding,
        parts.reader.translator(POD_GROUPS).status_of,
    )
    placement.standing_of, placement.on_started = looks.of, looks.note_start
    looks.on_told = lambda gangs: placement.reporter.note(gangs, set())
    parts.metrics.watch(*watch_queues(looks, parts.metrics.registry))
    parts.background.append(looks.run)
    return looks


def _write_reports(parts: "Parts") -> None:
    """Write reports on objects whose operators run in other processes, which know of none.

    Only there a status has two authors. Elsewhere its operator takes the reports over.
    """
    if POD_GROUP not in parts.operators:
        groups = parts.reader.translator(POD_GROUPS)
        form = applied_by("koord-placement", Former("koord-placement-history"))
        writer = parts.make_writer(POD_GROUPS.plural, form, lambda ref: groups.status_of(ref.uid))

        def write(ref: ObjectRef) -> None:
            report = parts.gang_reports.take(ref.uid)
            report = report or read_gang_report(groups.status_of(ref.uid) or {})
            fields = {**report.fields, **parts.history.fields_of(ref.uid)}
            writer.submit(ref, replace(report, fields=fields))

        parts.gang_reports.on_news = parts.history.on_news = write
    if RESERVATION not in parts.operators:
        seen = parts.reader.translator(RESERVATIONS)
        form = applied_by("koord-placement-wait")  # the node is written as koord-placement
        reservations = parts.make_writer(
            RESERVATIONS.plural, form, lambda ref: seen.status_of(ref.uid)
        )
        parts.reservation_reports.on_news = lambda ref: reservations.submit(
            ref, parts.reservation_reports.take(ref.uid) or StatusPatch()
        )


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


def _make_reclaim_options(settings: Settings) -> ReclaimOptions:
    quota = settings.of(QuotaSettings)
    return ReclaimOptions(
        is_on=settings.reclaims_after is not None,
        delay=quota.delay_evict_time,
        interval=quota.revoke_pod_interval,
        is_dry=quota.reclaim_dry_run,
        most_per_minute=quota.max_reclaims_per_minute,
        min_runtime=settings.of(PreemptionSettings).min_runtime,
        budget_grace=quota.budget_grace,
    )


def _make_reclaim(
    parts: "Parts",
    placement: PlacementController,
    evictions: EvictionController,
    options: ReclaimOptions,
) -> Reclaims:
    return Reclaims(
        controller=evictions,
        evictor=Evictor(parts.client, time.time, parts.settings.of(PreemptionSettings).most_grace),
        reporter=ReclaimAnnouncer(parts.events),
        blocked=lambda: list(placement.queue.blocked.values()),
        options=options,
        record=parts.history.record,
        note=partial(_note, placement),
    )


def _note(placement: PlacementController, pods: Iterable[Pod]) -> None:
    """Have reports on waiting pods written soon."""
    pods = tuple(pods)
    gangs = {pod.gang.key for pod in pods if pod.gang is not None}
    placement.reporter.note(gangs, {pod.uid for pod in pods if pod.gang is None})


def _make_preemption(
    parts: "Parts",
    placement: PlacementController,
    evictions: EvictionController,
) -> Preemptions:
    settings = parts.settings.of(PreemptionSettings)
    policy = Preemptions(
        controller=evictions,
        queue=placement.queue,
        holds=placement.holds,
        evictor=Evictor(parts.client, time.time, settings.most_grace),
        nominator=Nominator(parts.client, parts.keys),
        reporter=PreemptionAnnouncer(parts.events, parts.reader.state, parts.history.record),
        note=partial(_note, placement),
        rules=PreemptionRules(
            is_on=settings.enabled,
            options=PreemptionOptions(settings.min_runtime, settings.max_per_day),
            uses_eviction_api=settings.respect_budgets,
            scheduler=parts.settings.scheduler_name,
        ),
    )
    placement.recover = policy.recover
    placement.preempting = policy.reason_for
    parts.reader.listeners.append(policy.wake_if_busy)
    return policy


def _make_pod_writer(parts: "Parts") -> StatusWriter:
    """Return the writer of conditions of pods.

    The translator only remembers waiting pods, so the state says which pods there are.
    """
    state, seen = parts.reader.state, parts.reader.translator(PODS)

    def present(ref: ObjectRef) -> Mapping[str, Any] | None:
        return seen.status_of(ref.uid) if ref.uid in state.pods else None

    return parts.make_writer(PODS.plural, MERGED, present)


OPERATOR: Final = Operator(
    PLACEMENT,
    None,
    start,
    reads=KINDS,
    writes=frozenset(
        {
            Write("", "pods", "patch"),
            Write("", "pods", "delete"),
            Write("", "pods/binding", "create"),
            Write("", "pods/status", "patch"),
            Write("", "nodes/status", "patch"),
            Write("scheduling.sigs.k8s.io", "podgroups/status", "patch"),
            Write("scheduling.koordinator.sh", "reservations", "patch"),
            Write("scheduling.koordinator.sh", "reservations/status", "patch"),
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
