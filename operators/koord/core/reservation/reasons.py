"""Why a pod cannot use a reservation, or a reservation cannot be placed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from koord.core.model.reasons import PodReason
from koord.core.model.text import listed, named, plural
from koord.core.model.units import PODS
from koord.core.reservation.closed import ClosedReservation
from koord.core.reservation.ledger import InsufficientResource

_MOST_NAMED: Final = 3


def describe_insufficient(lack: InsufficientResource, *, is_detailed: bool = False) -> str:
    """Say of what a reservation has not enough left, in Koordinator's words."""
    what = "Too many pods" if lack.resource == PODS else f"Insufficient {lack.resource}"
    text = f"Reservation(s) {what}"
    if not is_detailed:
        return text
    return f"{text}, requested: {lack.requested}, used: {lack.used}, capacity: {lack.capacity}"


@dataclass(frozen=True, slots=True)
class NoReservationFits(PodReason):
    """No reservation takes a pod that must use one.

    ``problems`` of those that it owns: (what is wrong, how many). ``closed`` would take it if they
    were open; ``name`` is the one that it names.
    """

    code: ClassVar = "NoReservationFits"
    is_capacity: ClassVar = True
    owned: int
    problems: tuple[tuple[str, int], ...] = ()
    name: str = ""
    closed: tuple[ClosedReservation, ...] = ()

    def _text(self) -> str:
        return " ".join([self._count(), *self._tell_closed()])

    def _count(self) -> str:
        why = listed(f"{count} {what}" for what, count in self.problems)
        if not why:
            why = "node(s) no reservations match reservation affinity"
        return f"0/{self.owned} reservations are available: {why}."

    def _tell_closed(self) -> Iterator[str]:
        if self.name and not self.closed:
            yield f"There is no reservation {self.name} for {self.pod}."
        yield from (
            f"{closed_reservation.text()}." for closed_reservation in self.closed[:_MOST_NAMED]
        )
        more = len(self.closed) - _MOST_NAMED
        if more > 0:
            yield f"{plural(more, 'more reservation')} cannot be used either."

    def _advice(self) -> Iterable[str]:
        if over := [
            closed_reservation.name
            for closed_reservation in self.closed
            if closed_reservation.is_over
        ]:
            yield (
                f"Create {named(over)} again, or name another one in the annotation "
                "reservation-affinity: a reservation that is over serves no more pods."
            )
        yield f"Run koord reservation explain NAME --pod {self.pod} to see each rule and amount."


@dataclass(frozen=True, slots=True)
class InvalidReservationAnnotation(PodReason):
    """Annotations of a pod about reservations cannot be read: (field, what is wrong)."""

    code: ClassVar = "InvalidReservationAnnotation"
    problems: tuple[tuple[str, str], ...]

    def _text(self) -> str:
        return f"{self.pod}: {listed(f'{field} {problem}' for field, problem in self.problems)}"

    def _advice(self) -> Iterable[str]:
        yield "Correct the annotation in the template of the pods, and create them again."


@dataclass(frozen=True, slots=True)
class InvalidReservation(PodReason):
    """A Reservation cannot be placed: (field, what is wrong)."""

    code: ClassVar = "InvalidReservation"
    problems: tuple[tuple[str, str], ...]

    def _text(self) -> str:
        return listed(f"{field} {problem}" for field, problem in self.problems)

    def _advice(self) -> Iterable[str]:
        yield "Correct these fields of the Reservation."
