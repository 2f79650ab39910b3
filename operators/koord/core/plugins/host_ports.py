"""Host ports in use, per row of the node table.

Two ports conflict when protocol and number are equal and the addresses are equal or either is the
wildcard (source: kube-scheduler's NodePorts filter).
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from typing_extensions import override

from koord.core.framework.arrays import NO_LIMIT, Ints, Rows
from koord.core.framework.cause import Cause
from koord.core.framework.cycle import Cycle
from koord.core.framework.plugin import Plugin, Reach, Session
from koord.core.plugins.causes import NodeRefusal
from koord.core.pod_charge import PodCharge
from koord.core.pods import HostPort, PodShape

_ANY = "0.0.0.0"  # noqa: S104 - the API's word for "every address of the node"


class PortsInUse:
    """Row -> ports in use, counted: pods on one node may already be in conflict."""

    def __init__(self, taken: dict[int, Counter[HostPort]] | None = None) -> None:
        self.taken = {} if taken is None else taken

    def copy(self) -> "PortsInUse":
        return PortsInUse({row: Counter(ports) for row, ports in self.taken.items()})

    def charge(self, row: int, ports: tuple[HostPort, ...], count: int) -> None:
        """Count ports as used on a row (negative: release)."""
        taken = self.taken.setdefault(row, Counter())
        for port in ports:
            taken[port] += count
            if taken[port] <= 0:
                del taken[port]
        if not taken:
            del self.taken[row]

    def rows_in_conflict(self, wanted: tuple[HostPort, ...]) -> list[int]:
        """Return the rows on which any of the ports is used."""
        return [
            row
            for row, taken in self.taken.items()
            if any(_is_in_conflict(port, other) for port in wanted for other in taken)
        ]


class HostPorts(Plugin):
    """The host ports in use in the cluster."""

    name = "host-ports"

    def __init__(self) -> None:
        self.in_use = PortsInUse()

    @override
    def charge(self, row: int, charge: PodCharge, count: int) -> None:
        if row >= 0 and charge.load.host_ports:
            self.in_use.charge(row, charge.load.host_ports, count)

    @override
    def open(self, cycle: Cycle) -> "HostPortsSession":
        return HostPortsSession(self.in_use, cycle)


class HostPortsSession(Session):
    """Ports in one cycle; the ports of the cluster are copied before the first change."""

    name = HostPorts.name
    reach = Reach.ROW

    def __init__(self, in_use: PortsInUse, cycle: Cycle) -> None:
        self.in_use = in_use
        self._rows = len(cycle.table.nodes)
        self._is_copy = False

    @override
    def concerns(self, shape: PodShape) -> bool:
        return bool(shape.host_ports)

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        if shape.host_ports:
            room = np.ones(self._rows, dtype=np.int64)
            room[self.in_use.rows_in_conflict(shape.host_ports)] = 0
            yield NodeRefusal.HOST_PORT, room[rows]

    @override
    def most_when_empty(self, shape: PodShape) -> int:
        return 1 if shape.host_ports else NO_LIMIT

    @override
    def apply(self, shape: PodShape, row: int, count: int) -> None:
        if not self._is_copy:
            self.in_use, self._is_copy = self.in_use.copy(), True
        self.in_use.charge(row, shape.host_ports, count)


def _is_in_conflict(one: HostPort, other: HostPort) -> bool:
    return (
        one.port == other.port
        and one.protocol == other.protocol
        and (one.ip == other.ip or _ANY in {one.ip, other.ip})
    )
