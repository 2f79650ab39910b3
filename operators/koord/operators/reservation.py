"""The operator ``reservation``: keeps the status of Reservations, and deletes old ones."""

import time
from typing import TYPE_CHECKING, Final

from koord.api.reservation import Reservation
from koord.controllers.reservation_status import ReservationStatusPolicy
from koord.domains.placement import NODES, PODS
from koord.domains.reservation import PRIORITY_CLASSES, RESERVATIONS
from koord.kube.objects import ref_of_reservation
from koord.kube.status import AT_ONCE, Former
from koord.kube.write_check import Write
from koord.operators.names import PLACEMENT, RESERVATION
from koord.operators.operator import Operator
from koord.runtime.collectors import reservations

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts

_FORMER: Final = (Former("koord-reservation-status"),)
_FORMER_OF_PLACEMENT: Final = (Former("koord-placement-wait"),)
"""It writes under this name where it runs in another process."""


def start(parts: "Parts") -> None:
    seen, places = parts.reader.translator(RESERVATIONS), PLACEMENT in parts.operators
    author = parts.make_author(
        OPERATOR,
        seen,
        lambda meta: str(meta["uid"]),
        ref_of_reservation,
        former=(*_FORMER, *_FORMER_OF_PLACEMENT) if places else _FORMER,
        pace=AT_ONCE,
    )
    policy = ReservationStatusPolicy(
        parts.reader.state,
        author,
        lambda reservation: parts.client.delete(
            ref_of_reservation(reservation).path, uid=reservation.uid
        ),
        time.time,
        parts.reservation_reports if places else None,
        seen.status_of,
    )
    controller = parts.handle(author, parts.keep_status(policy, author))
    parts.reservation_reports.on_news = lambda ref: controller.hurry(ref.uid)
    parts.metrics.watch(*reservations(parts.reader.state))


OPERATOR: Final = Operator(
    RESERVATION,
    Reservation,
    start,
    reads=(PODS, NODES, RESERVATIONS, PRIORITY_CLASSES),
    writes=frozenset(
        {
            Write("scheduling.koordinator.sh", "reservations", "delete"),
            Write("scheduling.koordinator.sh", "reservations/status", "patch"),
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
