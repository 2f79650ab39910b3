"""Which pods may use which reservation, rule by rule. What fits is decided in ``ledger``.

Of a reservation that would serve a pod if it was open, also why it serves none now: it is over, in
use by its one pod, invalid, or waits.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from koord.core.engine.labels import is_tolerated
from koord.core.model.nodes import Taint
from koord.core.model.pods import OwnerReference, Pod
from koord.core.model.selectors import SelectorTerm, is_selected
from koord.core.model.units import Amounts
from koord.core.reservation.model import (
    EXACT_MATCH,
    ControllerOwner,
    ObjectOwner,
    Owner,
    ReservationHints,
    ReservationInfo,
    ReservationPhase,
)

NAME_FIELD: Final = "metadata.name"
CORDONED: Final = Taint("node.kubernetes.io/unschedulable")
_POD_VERSION: Final = "v1"
_NO_RESOURCE: Final = "must name a resource that a node has"


class MatchOutcome(Enum):
    """Whether a pod may use a reservation, or the rule that forbids it: text per reservation."""

    MATCHED = ""
    IGNORED = "is ignored"
    OWNERS = "has other owners"
    NAME = "didn't match the requested reservation name"
    UNSCHEDULABLE = "is unschedulable"
    TAINTS = "had untolerated taint"
    AFFINITY = "didn't match affinity rules"
    EXACT = "is not exact matched"

    @property
    def may_use(self) -> bool:
        return self in {MatchOutcome.MATCHED, MatchOutcome.IGNORED}


def judge(
    pod: Pod,
    hints: ReservationHints,
    reservation: ReservationInfo,
    node_labels: Mapping[str, str],
    *,
    every_namespace: bool = False,
) -> MatchOutcome:
    """Return whether a pod may use a reservation on a node with these labels.

    Label selectors of owners select in the namespace of the reservation, or in ``every_namespace``.
    """
    if hints.is_ignoring:
        return MatchOutcome.IGNORED
    namespace = pod.namespace if every_namespace else reservation.namespace
    if not is_owner(pod, reservation.owners, namespace):
        return MatchOutcome.OWNERS
    if hints.name:
        # Whoever names it has been told to: cordon, taints and selectors do not count.
        broken = MatchOutcome.NAME if reservation.name != hints.name else None
    else:
        broken = _find_broken(hints, reservation, node_labels)
    if broken is not None:
        return broken
    requests, reserved = dict(pod.shape.requests), reservation.status.allocatable
    is_exact = matches_exactly(requests, reserved, hints.exact)
    return MatchOutcome.MATCHED if is_exact else MatchOutcome.EXACT


def _find_broken(
    hints: ReservationHints, reservation: ReservationInfo, node_labels: Mapping[str, str]
) -> MatchOutcome | None:
    """Return the first rule that keeps a pod out that names no reservation."""
    if reservation.is_unschedulable and not is_tolerated(CORDONED, hints.tolerations):
        return MatchOutcome.UNSCHEDULABLE
    if untolerated(reservation.taints, hints) is not None:
        return MatchOutcome.TAINTS
    labels = {**node_labels, **reservation.labels}
    return None if matches_affinity(reservation.name, labels, hints) else MatchOutcome.AFFINITY


def untolerated(taints: Iterable[Taint], hints: ReservationHints) -> Taint | None:
    """Return the first taint that keeps a pod out; ``PreferNoSchedule`` does not."""
    hard = (taint for taint in taints if taint.effect != "PreferNoSchedule")
    return next((taint for taint in hard if not is_tolerated(taint, hints.tolerations)), None)


def matches_affinity(name: str, labels: Mapping[str, str], hints: ReservationHints) -> bool:
    """Whether selector and terms of a pod admit a reservation with these labels."""
    if any(labels.get(key) != value for key, value in hints.selector):
        return False
    return hints.terms is None or any(_admits(term, name, labels) for term in hints.terms)


def _admits(term: SelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    if not term.expressions and not term.fields:
        return False
    return is_selected(labels, term.expressions) and is_selected({NAME_FIELD: name}, term.fields)


def matches_exactly(requests: Amounts, allocatable: Amounts, names: Iterable[str]) -> bool:
    """Whether a pod requests just what is reserved of these resources; absent on both: equal."""
    return all(requests.get(name) == allocatable.get(name) for name in names)


def problems_of(
    hints: ReservationHints, pod: Pod, resources: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """Return what a pod says that cannot be read, or meant; nodes have these resources, if any."""
    requested = dict(pod.shape.requests).keys()
    missing = (
        (f"metadata.annotations[{EXACT_MATCH}].resourceNames[{at}]", f"{_NO_RESOURCE}: {name}")
        for at, name in enumerate(hints.exact)
        if name not in resources and name not in requested
    )
    return (*hints.problems, *missing) if resources else hints.problems


def is_owner(pod: Pod, owners: Iterable[Owner], namespace: str) -> bool:
    """Whether an owner is the pod; one that names no namespace means pods of ``namespace``.

    Labels, names and owner references can be written by anybody, in a namespace of their own.
    """
    return any(_is_owner(pod, owner, namespace) for owner in owners)


def _is_owner(pod: Pod, owner: Owner, namespace: str) -> bool:
    named = owner.pod or owner.controller
    where = named.namespace if named is not None else ""
    if pod.namespace != (where or namespace):
        return False
    if owner.pod is not None and not _is_object(pod, owner.pod):
        return False
    if owner.controller is not None and not _is_controlled(pod, owner.controller):
        return False
    return owner.selector is None or is_selected(pod.profile.labels, owner.selector)


def _is_object(pod: Pod, owner: ObjectOwner) -> bool:
    pairs = (
        (owner.uid, pod.uid),
        (owner.name, pod.name),
        (owner.namespace, pod.namespace),
        (owner.api_version, _POD_VERSION),
    )
    return all(wanted in {"", name} for wanted, name in pairs)


def _is_controlled(pod: Pod, owner: ControllerOwner) -> bool:
    if owner.namespace and owner.namespace != pod.namespace:
        return False
    return any(_is_reference(reference, owner) for reference in pod.owners)


def _is_reference(reference: OwnerReference, owner: ControllerOwner) -> bool:
    if owner.is_controller is not None and owner.is_controller != reference.is_controller:
        return False
    pairs = (
        (owner.uid, reference.uid),
        (owner.name, reference.name),
        (owner.kind, reference.kind),
        (owner.api_version, reference.api_version),
    )
    return all(wanted in {"", name} for wanted, name in pairs)


MOST_JUDGED: Final = 256
"""Reservations that are looked at for one pod; those beyond are not named."""
_MATCHING: Final = frozenset({MatchOutcome.MATCHED, MatchOutcome.EXACT})


class ClosedBy(StrEnum):
    """What closes a reservation."""

    USED_UP = "UsedUp"
    IN_USE = "InUse"
    ENDED = "Ended"
    INVALID = "Invalid"
    WAITING = "Waiting"
    NOT_AVAILABLE = "NotAvailable"


_TEXTS: Final[Mapping[ClosedBy, str]] = {
    ClosedBy.USED_UP: "is over: it was for one pod (allocateOnce), which has used it",
    ClosedBy.IN_USE: "is for one pod (allocateOnce), which uses it",
    ClosedBy.ENDED: "is over: {detail}",
    ClosedBy.INVALID: "is invalid: {detail}",
    ClosedBy.WAITING: "waits for a node itself",
    ClosedBy.NOT_AVAILABLE: "is not available: {detail}",
}


@dataclass(frozen=True, slots=True)
class ClosedReservation:
    """A reservation that would serve a pod if it was open, and why it is not."""

    name: str
    cause: ClosedBy
    detail: str = ""

    @property
    def is_over(self) -> bool:
        return self.cause in {ClosedBy.USED_UP, ClosedBy.ENDED}

    def text(self) -> str:
        return f"Reservation {self.name} {_TEXTS[self.cause].format(detail=self.detail)}"


def find_cause(reservation: ReservationInfo, pods: int) -> ClosedReservation | None:
    """Return why a reservation serves no further pod; ``pods`` use it. None if it may serve one."""
    if reservation.is_matchable(pods):
        return None
    status, detail = reservation.status, ""
    if status.phase == ReservationPhase.SUCCEEDED:
        cause = ClosedBy.USED_UP
    elif status.is_over:
        ready = status.condition("Ready")
        message = "" if ready is None else ready.message or ready.reason
        cause, detail = ClosedBy.ENDED, message or str(status.phase)
    elif reservation.problems:
        cause, detail = ClosedBy.INVALID, " ".join(reservation.problems[0])
    elif not status.node:
        cause = ClosedBy.WAITING
    elif status.is_available:
        cause = ClosedBy.IN_USE
    else:
        cause, detail = ClosedBy.NOT_AVAILABLE, str(status.phase)
    return ClosedReservation(reservation.name, cause, detail)


def find_closed(
    pod: Pod,
    hints: ReservationHints,
    candidates: Iterable[tuple[ReservationInfo, int]],
    labels: Mapping[str, Mapping[str, str]],
    *,
    every_namespace: bool,
) -> tuple[ClosedReservation, ...]:
    """Return what would serve a pod if it was open, by name.

    ``candidates`` are reservations and how many pods use each, ``labels`` those of their nodes.
    """
    closed: list[ClosedReservation] = []
    for reservation, pods in candidates:
        of_node = labels.get(reservation.status.node, {})
        outcome = judge(pod, hints, reservation, of_node, every_namespace=every_namespace)
        closing = find_cause(reservation, pods) if outcome in _MATCHING else None
        if closing is not None:
            closed.append(closing)
    return tuple(sorted(closed, key=lambda closing: closing.name))
