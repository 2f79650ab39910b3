"""What reservations hold, who uses it, and how long they last: for people. Decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from koord.answers.encoding import encode, encode_amounts
from koord.core.engine.state import ClusterState
from koord.core.model.units import Amounts
from koord.core.reservation.ledger import ReservationAccount
from koord.core.reservation.lifecycle import deadline_of
from koord.core.reservation.model import ReservationInfo
from koord.core.reservation.plugin import Reservations


@dataclass(frozen=True, slots=True)
class ReservationUsage:
    """One reservation; ``by`` are the pods that use it. ``seconds_left`` is None without an end."""

    name: str
    phase: str
    node: str
    reserved: Amounts
    used: Amounts
    by: tuple[str, ...]
    seconds_left: int | None


def view_reservation(
    state: ClusterState, reservation: ReservationInfo, now: float
) -> ReservationUsage:
    plugin, status = state.plugin(Reservations), reservation.status
    account = plugin.accounts.get(reservation.uid, ReservationAccount(reservation))
    deadline = deadline_of(reservation)
    charged = (charge.uid for charge in plugin.users_of(reservation.uid))
    return ReservationUsage(
        name=reservation.name,
        phase=status.phase or "Pending",
        node=status.node,
        reserved=_without_zero(account.reserved or reservation.requests()),
        used=_without_zero(account.allocated()),
        by=tuple(state.pods[uid].key for uid in charged if uid in state.pods),
        seconds_left=(None if deadline is None or status.is_over else max(0, int(deadline - now))),
    )


def _without_zero(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}


class ReservationUsageDocument(TypedDict):
    """What a reservation holds; ``by`` are the pods that use it."""

    name: str
    phase: str
    node: str | None
    reserved: Mapping[str, str]
    used: Mapping[str, str]
    by: list[str | None]
    secondsLeft: int | None


@encode.register
def _(usage: ReservationUsage) -> ReservationUsageDocument:
    return {
        "name": usage.name,
        "phase": usage.phase,
        "node": encode(usage.node),
        "reserved": encode_amounts(usage.reserved),
        "used": encode_amounts(usage.used),
        "by": encode(usage.by),
        "secondsLeft": usage.seconds_left,
    }
