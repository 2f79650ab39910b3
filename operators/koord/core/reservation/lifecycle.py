"""How the status and the priority of a reservation come about: without a clock, without objects.

Pending, then Available on its node, then Succeeded (used once) or Failed (expired, node gone).
Times are seconds since the epoch.

The priority is that of the PriorityClass which the template names. The API server resolves the
class of a pod, and refuses a number that differs. Nobody checks templates, so a number there may
lower the priority in the queue, and has no other effect. Without a class a reservation takes no
part in preemption, on either side. Nor does one that pods use, as a victim: its room was promised
to them.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Final

from koord.core.model.pods import Pod
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


HIGHEST: Final = 2**31 - 1
"""Koordinator's priority of reservations without one: nothing preempts what has it."""


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass; pods of one that ``never_preempts`` wait for room."""

    name: str
    value: int
    never_preempts: bool = False


Classes = Mapping[str, PriorityClass]


def rank_waiting(pod: Pod, reservation: ReservationInfo, classes: Classes) -> Pod:
    """Return the pod that is planned for a reservation, with its priority.

    What is laid over running pods waits for them to end.
    """
    priority_class = classes.get(reservation.priority_class)
    if priority_class is None:
        return replace(pod, priority=min(pod.priority, 0), never_preempts=True)
    waits = priority_class.never_preempts or reservation.pre_allocation is not None
    return replace(pod, priority=priority_class.value, never_preempts=pod.never_preempts or waits)


def rank_held(reservation: ReservationInfo, classes: Classes, users: int) -> int:
    """Return the priority of what a reservation holds that this many pods use."""
    priority_class = classes.get(reservation.priority_class)
    return HIGHEST if priority_class is None or users else priority_class.value


def describe_ignored(reservation: ReservationInfo, classes: Classes) -> str:
    """Return what the template says of its priority without effect; empty for nothing."""
    name, pod = reservation.priority_class, reservation.pod
    priority_class = classes.get(name)
    if priority_class is None and name:
        return (
            f"spec.template.spec.priorityClassName: there is no PriorityClass {name}, so it "
            "takes no part in preemption"
        )
    if pod is None or pod.priority in {0, None if priority_class is None else priority_class.value}:
        return ""
    return (
        f"its priority {pod.priority} is ignored, because nobody has checked it: that of the "
        "PriorityClass in spec.template.spec.priorityClassName counts"
    )
