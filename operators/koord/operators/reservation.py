"""The operator ``reservation``: keeps the status of Reservations, and deletes old ones."""

import time
from typing import TYPE_CHECKING, Final

from koord.api.reservation import Reservation
from koord.controllers.reservation_status import ReservationStatusPolicy
from koord.controllers.status_publishing import StatusPublisher
from koord.domains.placement import NODES, PODS
from koord.domains.reservation import PRIORITY_CLASSES, RESERVATIONS
from koord.kube.objects import ref_of_reservation
from koord.kube.status import StatusWriter, applied_by
from koord.kube.write_check import Write
from koord.operators.names import RESERVATION
from koord.operators.operator import Operator
from koord.runtime.collectors import reservations

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    policy = ReservationStatusPolicy(
        parts.reader.state,
        StatusPublisher(
            make_reservation_writer(parts, "koord-reservation-status"), ref_of_reservation
        ),
        lambda reservation: parts.client.delete(
            ref_of_reservation(reservation).path, uid=reservation.uid
        ),
        time.time,
    )
    parts.keep_status(policy)
    parts.metrics.watch(*reservations(parts.reader.state))


def make_reservation_writer(parts: "Parts", manager: str) -> StatusWriter:
    seen = parts.reader.translator(RESERVATIONS)
    form = applied_by(manager)
    return parts.make_writer(RESERVATIONS.plural, form, lambda ref: seen.status_of(ref.uid))


OPERATOR: Final = Operator(
    RESERVATION,
    Reservation,
    start,
    reads=(PODS, NODES, RESERVATIONS, PRIORITY_CLASSES),
    writes=frozenset(
        {
            Write("scheduling.koordinator.sh", "reservations", "delete"),
            Write("scheduling.koordinator.sh", "reservations/status", "patch"),
        }
    ),
)
