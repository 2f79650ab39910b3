"""Who holds the devices of a node: for people. Decides nothing."""

from collections.abc import Iterable
from dataclasses import dataclass

from koord.core.device.plugin import Devices
from koord.core.engine.state import ClusterState
from koord.core.model.device_names import DeviceType
from koord.core.model.pods import Pod
from koord.core.model.text import cut, listed
from koord.core.reservation.plugin import Reservations

_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class DeviceHolding:
    """Devices of one type that a pod, or a reservation by its name, holds on a node."""

    pod: Pod
    reservation: str
    kind: DeviceType
    minors: tuple[int, ...]


def find_holdings(state: ClusterState, node: str) -> list[DeviceHolding]:
    """Return what pods and reservations hold on a node: reservations first, most first.

    Of a reservation only what no pod uses.
    """
    reservations = state.plugin(Reservations).reservations
    holdings = []
    for uid, shares in state.plugin(Devices).pods_on(node).items():
        pod = state.pods.get(uid)
        if pod is None:
            continue
        minors: dict[DeviceType, list[int]] = {}
        for share in shares:
            minors.setdefault(share.kind, []).append(share.minor)
        name = reservations[uid].name if uid in reservations else ""
        holdings += [
            DeviceHolding(pod, name, kind, tuple(group)) for kind, group in sorted(minors.items())
        ]
    return sorted(
        holdings,
        key=lambda device_holding: (
            not device_holding.reservation,
            -len(device_holding.minors),
            device_holding.pod.key,
        ),
    )


def describe_reserved(holdings: Iterable[DeviceHolding]) -> str:
    """Return which reservations hold which devices; empty if none does."""
    held = [
        f"reservation {holding.reservation} holds {holding.kind} "
        f"{', '.join(map(str, holding.minors))}"
        for holding in holdings
        if holding.reservation
    ]
    more = len(held) - _MOST_NAMED
    return cut(listed(held[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else ""))
