"""Why a pod cannot use a reservation, or a reservation cannot be placed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from koord.core.reasons import PodReason
from koord.core.reservation.ledger import Lack
from koord.core.text import listed
from koord.core.units import PODS


def describe_lack(lack: Lack, *, is_detailed: bool = False) -> str:
    """Say of what a reservation has not enough left, in Koordinator's words."""
    what = "Too many pods" if lack.resource == PODS else f"Insufficient {lack.resource}"
    text = f"Reservation(s) {what}"
    if not is_detailed:
        return text
    return f"{text}, requested: {lack.requested}, used: {lack.used}, capacity: {lack.capacity}"


@dataclass(frozen=True, slots=True)
class NoReservationFits(PodReason):
    """No reservation takes a pod that must use one: (what is wrong, how many reservations)."""

    code: ClassVar = "NoReservationFits"
    is_capacity: ClassVar = True
    owned: int
    problems: tuple[tuple[str, int], ...] = ()

    def _text(self) -> str:
        why = listed(f"{count} {what}" for what, count in self.problems)
        if not why:
            why = "node(s) no reservations match reservation affinity"
        return f"0/{self.owned} reservations are available: {why}."

    def _advice(self) -> Iterable[str]:
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
