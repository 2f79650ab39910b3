"""How the status of a reservation changes, and when: without a clock, without objects.

Pending, then Available on its node, then Succeeded (used once) or Failed (expired, node gone).
Times are seconds since the epoch.
"""

from collections.abc import Container
from dataclasses import replace
from typing import Final

from koord.core.model.units import Amounts
from koord.core.reservation.model import (
    ReservationInfo,
    ReservationPhase,
    ReservationState,
    StatusCondition,
)

SCHEDULED: Final = "Scheduled"
READY: Final = "Ready"
TRUE: Final = "True"
FALSE: Final = "False"
UNSCHEDULABLE: Final = "Unschedulable"
EXPIRED: Final = "Expired"
GC_SECONDS: Final = 24 * 3600.0


def deadline_of(reservation: ReservationInfo) -> float | None:
    """Return when it expires; None for never. A ttl of 0 disables ``expires`` as well."""
    if reservation.ttl is None:
        return None
    by_ttl = reservation.created + reservation.ttl
    return by_ttl if reservation.expires is None else min(by_ttl, reservation.expires)


def must_fail(reservation: ReservationInfo, nodes: Container[str], now: float) -> bool:
    """Whether it has expired, or its node is gone; also while it waits for a node."""
    status, deadline = reservation.status, deadline_of(reservation)
    if status.is_over:
        return False
    is_late = deadline is not None and now > deadline
    return is_late or bool(status.node and status.node not in nodes)


def set_available(
    status: ReservationState, node: str, allocatable: Amounts, now: float = 0.0
) -> ReservationState:
    conditions = (
        StatusCondition(SCHEDULED, TRUE, SCHEDULED, probed=now, changed=now),
        StatusCondition(READY, TRUE, ReservationPhase.AVAILABLE, probed=now, changed=now),
    )
    return replace(
        status,
        phase=ReservationPhase.AVAILABLE,
        node=node,
        allocatable=allocatable,
        conditions=conditions,
    )


def set_unschedulable(status: ReservationState, message: str, now: float = 0.0) -> ReservationState:
    """Note why there is no node; one that has a node keeps its condition."""
    before = status.condition(SCHEDULED)
    if before is not None and before.status == TRUE:
        return _with(status, replace(before, probed=now))
    return _with(status, StatusCondition(SCHEDULED, FALSE, UNSCHEDULABLE, message, probed=now))


def expire(status: ReservationState, now: float = 0.0, message: str = "") -> ReservationState:
    return replace(_end(status, EXPIRED, message, now), phase=ReservationPhase.FAILED)


def succeed(status: ReservationState, now: float = 0.0) -> ReservationState:
    return replace(
        _end(status, ReservationPhase.SUCCEEDED, "", now), phase=ReservationPhase.SUCCEEDED
    )


def _end(status: ReservationState, reason: str, message: str, now: float) -> ReservationState:
    return _with(status, StatusCondition(READY, FALSE, reason, message, probed=now))


def is_collectable(status: ReservationState, nodes: Container[str], now: float) -> bool:
    """Whether it is over for a day, or over and its node is gone, so that it can be deleted."""
    if not status.is_over:
        return False
    if status.node and status.node not in nodes:
        return True
    ready = status.condition(READY)
    if ready is None:
        return False
    since = ready.probed if status.phase == ReservationPhase.SUCCEEDED else ready.changed
    return now - since > GC_SECONDS


def _with(status: ReservationState, condition: StatusCondition) -> ReservationState:
    """Set a condition; it has changed when it was probed unless its status is as before."""
    before = status.condition(condition.type)
    is_same = before is not None and before.status == condition.status
    changed = before.changed if before is not None and is_same else condition.probed
    condition = replace(condition, changed=changed)
    if before is None:
        return replace(status, conditions=(*status.conditions, condition))
    conditions = (condition if old is before else old for old in status.conditions)
    return replace(status, conditions=tuple(conditions))
