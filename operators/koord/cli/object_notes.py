"""What objects say of themselves that decides nothing and is shown: conditions, owners, places.

Whoever reads objects, once or again and again, hands each to ``ObjectNotes``. Reads nothing itself.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from koord.answers.queue_view import QueuePlace
from koord.answers.reading import TargetDetails, TargetKind
from koord.answers.reports import Reported, SeenCondition, make_report
from koord.answers.standing import QueueStanding
from koord.api.keys import operators
from koord.api.misspelled_keys import find_misspelled_keys
from koord.api.pod_qos import find_qos_problems
from koord.controllers.queue_status import read_standing
from koord.core.model.gangs import ObservedPodGroup
from koord.core.model.pods import Pod
from koord.core.reservation.lifecycle import SCHEDULED
from koord.core.reservation.model import ReservationInfo
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import PODS
from koord.domains.reservation import RESERVATIONS
from koord.kube.decode import MALFORMED
from koord.kube.kind import AnyKind
from koord.kube.wire import WireCondition, WireCustomResource, WirePod

if TYPE_CHECKING:
    from koord.core.model.gangs import GangKey

KINDS: Final[Mapping[str, AnyKind]] = {
    TargetKind.POD: PODS,
    TargetKind.POD_GROUP: POD_GROUPS,
    TargetKind.RESERVATION: RESERVATIONS,
}
"""Those that can be asked about."""
_MOST_NOTES: Final = 4
_MOST_NAMES: Final = 32
"""Owners, finalizers and slips of one object: their owner decides how many there are, and they are
kept as long as it exists."""
Noted = WirePod | WireCustomResource
NotedValue = Pod | ObservedPodGroup | ReservationInfo


class ObjectNotes:
    """The notes of all objects that were seen; of those that are gone if ``forget`` was called."""

    def __init__(self) -> None:
        self.details: dict[tuple[str, str], TargetDetails] = {}
        """By kind and ``namespace/name``; of bound pods there are none."""
        self.reports: dict[str, Reported] = {}
        self.finalizers: dict[str, tuple[str, ...]] = {}
        self.places: dict[GangKey, QueuePlace] = {}
        self.standings: dict[GangKey, QueueStanding] = {}

    def see(self, kind: str, item: Noted) -> None:
        """Note what an object shows, also if it makes no sense otherwise."""
        meta = item.metadata
        if isinstance(item, WirePod) and item.spec.node_name:
            return
        self.details[kind, title_of(meta.namespace, meta.name)] = read_details(item)

    def note(self, item: Any, value: Any) -> None:
        """Note what an object says that was understood; others than of ``KINDS`` say nothing."""
        if isinstance(item, WirePod):
            self._note_pod(item)
        elif isinstance(value, ObservedPodGroup) and isinstance(item, WireCustomResource):
            self._note_pod_group(item)
        elif isinstance(value, ReservationInfo) and value.pod is not None:
            self._note_report(value.pod.key, read_details(item).conditions)

    def forget(self, kind: str, value: NotedValue) -> None:
        """Drop all that was noted of an object."""
        if isinstance(value, ReservationInfo):
            key, report = value.name, "" if value.pod is None else value.pod.key
        else:
            key = report = value.key
        self.details.pop((kind, key), None)
        self.reports.pop(report, None)
        if isinstance(value, Pod):
            self.finalizers.pop(key, None)
        elif isinstance(value, ObservedPodGroup):
            self.places.pop(key, None)
            self.standings.pop(key, None)

    def _note_pod(self, item: WirePod) -> None:
        meta = item.metadata
        key = f"{meta.namespace}/{meta.name}"
        if meta.finalizers and meta.deletion_timestamp:
            self.finalizers[key] = tuple(meta.finalizers[:_MOST_NAMES])
        if not item.spec.node_name:
            self._note_report(key, _by_type(item.status.conditions or ()))

    def _note_pod_group(self, item: WireCustomResource) -> None:
        key = f"{item.metadata.namespace}/{item.metadata.name}"
        place = read_place(bytes(item.status))
        if place is None:
            return
        self.places[key] = place
        standing = read_told(bytes(item.status))
        if standing is not None:
            self.standings[key] = standing

    def _note_report(self, pod: str, conditions: Mapping[str, SeenCondition]) -> None:
        condition = conditions.get(operators.PLACED) or conditions.get(SCHEDULED)
        if condition is not None and condition.status == "False":
            self.reports[pod] = make_report(condition)


def title_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}".removeprefix("/")


def read_details(wire: Noted) -> TargetDetails:
    """Return what an object shows of itself."""
    owners = tuple(
        f"{owner_reference.kind}/{owner_reference.name}"
        for owner_reference in (wire.metadata.owner_references or ())[:_MOST_NAMES]
    )
    if isinstance(wire, WirePod):
        conditions = wire.status.conditions or []
        keys = find_misspelled_keys(wire.metadata.labels or (), wire.metadata.annotations or ())
        slips = tuple(islice(keys, _MOST_NAMES))
        return TargetDetails(_by_type(conditions), wire.spec.scheduler_name, owners, slips)
    try:
        status = msgspec.json.decode(bytes(wire.status) or b"null", type=_Conditions | None)
    except MALFORMED:
        status = None
    return TargetDetails(_by_type((status and status.conditions) or []), owners=owners)


def find_agent_notes(wire: Noted) -> tuple[str, ...]:
    """Return what is wrong with what a pod says to the agent of its node."""
    if not isinstance(wire, WirePod):
        return ()
    meta = wire.metadata
    return tuple(
        f"{problem}. The pod is placed all the same; an agent may ignore it."
        for problem in find_qos_problems(meta.labels or {}, meta.annotations or {})[:_MOST_NOTES]
    )


class _Conditions(msgspec.Struct):
    conditions: list[WireCondition] | None = None


def _by_type(conditions: Iterable[WireCondition]) -> Mapping[str, WireCondition]:
    return {condition.type: condition for condition in conditions}


class _Placed(msgspec.Struct, rename="camel"):
    queue_position: int = 0
    gpus_ahead: int = 0


def read_place(status: bytes) -> QueuePlace | None:
    """Return where a PodGroup stands in the queue, as its status says; None if it does not."""
    try:
        placed = msgspec.json.decode(status, type=_Placed | None) if status else None
    except MALFORMED:
        return None
    if placed is None or placed.queue_position <= 0:
        return None
    return QueuePlace(placed.queue_position, placed.gpus_ahead)


def read_told(status: bytes) -> QueueStanding | None:
    """Return where a PodGroup stands in its queue, as its status says."""
    try:
        return read_standing(msgspec.json.decode(status, type=dict[str, Any]))
    except MALFORMED:
        return None
