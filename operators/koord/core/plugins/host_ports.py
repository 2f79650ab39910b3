"""Host ports in use, per row of the node table.

Two ports conflict when protocol and number are equal and the addresses are equal or either is the
wildcard (source: kube-scheduler's NodePorts filter).
"""

from collections import Counter

from koord.core.pods import HostPort

_ANY = "0.0.0.0"  # noqa: S104 - the API's word for "every address of the node"


class HostPorts:
    """Row -> ports taken, with multiplicity: a conflict may already exist on a node."""

    def __init__(self) -> None:
        self._taken: dict[int, Counter[HostPort]] = {}

    def copy(self) -> "HostPorts":
        """Return an independent copy."""
        other = HostPorts()
        other._taken = {row: Counter(ports) for row, ports in self._taken.items()}
        return other

    def charge(self, row: int, ports: tuple[HostPort, ...], count: int) -> None:
        """Take (or, with a negative count, give back) ports on a row."""
        taken = self._taken.setdefault(row, Counter())
        for port in ports:
            taken[port] += count
            if taken[port] <= 0:
                del taken[port]
        if not taken:
            del self._taken[row]

    def clear(self, row: int) -> None:
        """Forget a row."""
        self._taken.pop(row, None)

    def rows_in_conflict(self, wanted: tuple[HostPort, ...]) -> list[int]:
        """Return the rows on which any of the ports is taken."""
        return [
            row
            for row, taken in self._taken.items()
            if any(_is_in_conflict(port, other) for port in wanted for other in taken)
        ]


def _is_in_conflict(one: HostPort, other: HostPort) -> bool:
    return (
        one.port == other.port
        and one.protocol == other.protocol
        and (one.ip == other.ip or _ANY in {one.ip, other.ip})
    )
