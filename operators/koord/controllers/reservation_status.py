"""The status of Reservations: for the operator ``reservation``.

The binder writes the node of a reservation, as it does of a pod. All else is written here: why it
has none yet, who uses it, that it has expired or was used up, and finally its deletion.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koord.api.keys.operators import PROTECTION
from koord.api.reservation import ReservationStatus
from koord.api.resource import ObjectReference
from koord.controllers.coalescing import Pause
from koord.controllers.placement_reports import PlacementReports
from koord.controllers.status_author import StatusAuthor, read_condition
from koord.core.engine.state import ClusterState
from koord.core.model.pods import Pod
from koord.core.model.text import listed
from koord.core.model.units import PODS, format_amount
from koord.core.reservation.ledger import ReservationAccount, add_up
from koord.core.reservation.lifecycle import (
    GC_SECONDS,
    READY,
    SCHEDULED,
    deadline_of,
    describe_ignored,
    expire,
    is_collectable,
    must_fail,
    succeed,
)
from koord.core.reservation.model import (
    PLACEHOLDERS,
    ReservationInfo,
    ReservationPhase,
    ReservationState,
)
from koord.core.reservation.placeholders import HoldState, assess, find_overfull
from koord.core.reservation.plugin import Reservations, find_use
from koord.kube.status import ConditionPatch, conditions_of
from koord.kube.translate.amounts import write_quantities

VALID: Final = "SpecValid"
PROTECTED: Final = "Protected"
TEMPLATE_APPLIED: Final = "TemplateApplied"
_EDITED: Final = (
    "What is held stays as it was placed; to change it, delete the Reservation and create it again"
)
_PAUSE: Final = Pause(0.1, 0.5)
_LEAST_SECONDS: Final = 0.5
_PROTECTION: Final = {
    HoldState.LEDGER: "only what koord-scheduler places keeps away from the reserved room: pods "
    f"that others place may take it, unless {PROTECTION}: Placeholder is annotated",
    HoldState.PLACEHOLDER: f"pods in the namespace {PLACEHOLDERS} request what is held; others "
    "take none of it unless they have the priority of the system",
    HoldState.MISSING: f"there are no pods yet in the namespace {PLACEHOLDERS} that request what "
    "is held; if this lasts, see the events, and apply manifests/overlays/placeholders",
    HoldState.STOLEN: "its node has too little: {}. Delete pods there that others have placed",
}


@dataclass(slots=True)
class ReservationStatusPolicy:
    """Observes reservations that changed, or whose pods or nodes did, and those that expire."""

    state: ClusterState
    author: StatusAuthor[str, ReservationInfo]
    delete: Callable[[ReservationInfo], Awaitable[object]]
    wall_clock: Callable[[], float]
    reports: PlacementReports | None = None
    """What placement says, if it runs in this process."""
    present: Callable[[str], Mapping[str, Any] | None] = field(default=lambda _: None)
    """Returns the observed status of a reservation, by uid."""
    _seen: int = 0

    def changed(self) -> list[str]:
        changes = self.state.plugin(Reservations).changes
        changed, self._seen = list(changes.after(self._seen)), changes.last
        return changed

    def pause_for(self, _uid: str) -> Pause:
        return _PAUSE

    async def update(self, uid: str) -> float | None:
        if uid in self.state.assumed:
            return _LEAST_SECONDS  # its node is being written
        plugin, now = self.state.plugin(Reservations), self.wall_clock()
        reservation = plugin.reservations.get(uid)
        if reservation is None:
            return None
        nodes = self.state.table.row_of
        if reservation.status.is_over:
            if is_collectable(reservation.status, nodes, now):
                await self.delete(reservation)
            return GC_SECONDS / 24
        users = self._users_of(uid)
        status = self._next(reservation, users, now)
        ignored = describe_ignored(reservation, plugin.classes)
        account = ReservationAccount(reservation, add_up(dict(pod.shape.requests) for pod in users))
        conditions = _conditions(status, reservation, ignored)
        if status.phase == ReservationPhase.AVAILABLE:
            plugin.absorb()
            applied = _template_applied(reservation)
            conditions = (*conditions, _protected(self.state, account), applied)
        scheduled, is_new = self._report_scheduled(reservation)
        conditions = (*conditions, *scheduled)
        fields = _fields(status, account, users)
        self.author.write_status(reservation, fields, conditions, is_urgent=is_new)
        deadline = deadline_of(reservation)
        return None if deadline is None else max(deadline - now, 0.0) + _LEAST_SECONDS

    def _report_scheduled(
        self, reservation: ReservationInfo
    ) -> tuple[tuple[ConditionPatch, ...], bool]:
        """Return why there is no node, or that there is one, and whether that is a new report.

        The binder says it together with the node; here it is said on, or placement would be a
        second author of it.
        """
        if self.reports is None:
            return (), False
        report = self.reports.take(reservation.uid)
        if reservation.status.node and not reservation.status.is_over:
            return (ConditionPatch(SCHEDULED, True, SCHEDULED, ""),), False
        if report is not None and not reservation.status.is_over:
            return report.conditions, report.is_urgent
        shown = conditions_of(self.present(reservation.uid) or {}).get(SCHEDULED)
        return (() if shown is None else (read_condition(shown),)), False

    def _users_of(self, uid: str) -> list[Pod]:
        """Return the pods of which the API server shows that they use a reservation."""
        charges = self.state.plugin(Reservations).users_of(uid)
        pods = (self.state.observed(charge.uid) for charge in charges)
        return [pod for pod in pods if pod is not None and find_use(pod.allocations)]

    def _next(self, reservation: ReservationInfo, users: list[Pod], now: float) -> ReservationState:
        status, nodes = reservation.status, self.state.table.row_of
        is_homeless = reservation.uid in self.state.plugin(Reservations).homeless
        if is_homeless or must_fail(reservation, nodes, now):
            is_gone = is_homeless or bool(status.node and status.node not in nodes)
            why = f"node {status.node} is gone" if is_gone else "its time is over"
            return expire(status, now, why)
        if reservation.is_once and users and status.is_available:
            return succeed(status, now)
        return status


def _fields(
    status: ReservationState, account: ReservationAccount, users: list[Pod]
) -> dict[str, Any]:
    """Return the status without its conditions, named as in the API."""
    made = ReservationStatus(
        allocated=write_quantities(
            {name: n for name, n in account.allocated().items() if name != PODS}
        ),
        current_owners=[
            ObjectReference(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in users
        ],
    )
    fields = made.encode_set() if status.node else {}
    # The phase of one that lives is written with its node.
    ended = ReservationStatus(phase=str(status.phase)).encode_set() if status.is_over else {}
    return fields | ended


def _conditions(
    status: ReservationState, reservation: ReservationInfo, ignored: str
) -> tuple[ConditionPatch, ...]:
    generation = reservation.generation
    problems = reservation.find_problems()
    text = listed(f"{field} {problem}" for field, problem in problems)
    text = text or f"it can be used{ignored and f'; {ignored}'}"
    reason = "InvalidSpec" if problems else "Valid"
    conditions = [ConditionPatch(VALID, not problems, reason, text, generation)]
    ready = status.condition(READY)
    if status.is_over and ready is not None:
        conditions.append(ConditionPatch(READY, False, ready.reason, ready.message, generation))
    return tuple(conditions)


def _template_applied(reservation: ReservationInfo) -> ConditionPatch:
    """Say whether what is held is what the template asks for now."""
    held = reservation.status.allocatable
    changed = {name: n for name, n in reservation.requests().items() if n != held.get(name, 0)}
    texts = (
        f"{name} is {format_amount(name, held.get(name, 0))}, not {format_amount(name, n)}"
        for name, n in sorted(changed.items())
    )
    text = f"spec.template: {listed(texts)}. {_EDITED}" if changed else "it holds what is asked for"
    reason = "TemplateChanged" if changed else "Applied"
    return ConditionPatch(TEMPLATE_APPLIED, not changed, reason, text, reservation.generation)


def _protected(state: ClusterState, account: ReservationAccount) -> ConditionPatch:
    """Say how the room is kept from pods that others place."""
    held, over = assess(state, account), find_overfull(state, account)
    short = listed(f"{name} {format_amount(name, n)}" for name, n in sorted(over.items()))
    text = _PROTECTION[held].format(short)
    is_held, generation = held is HoldState.PLACEHOLDER, account.reservation.generation
    return ConditionPatch(PROTECTED, is_held, held.value, text, generation)
