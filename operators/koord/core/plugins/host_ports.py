"""Host ports in use, per row of the node table.

Two ports conflict when protocol and number are equal and the addresses are equal or either is the
wildcard (source: kube-scheduler's NodePorts filter).
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from typing_extensions import override

from koord.core.engine.arrays import NO_LIMIT, Ints, Mask, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import FilterReach, Plugin, Session
from koord.core.model.pod_charge import PodCharge
from koord.core.model.pods import HostPort, PodShape
from koord.core.plugins.causes import NodeCause

_ANY = "0.0.0.0"  # noqa: S104 - the API's word for "every address of the node"
PER_PORT: Final = 2
"""Operations, in the unit of :class:`Steps`, of looking at, or charging, one port."""


class _Rows:
    """The rows that have any pods, as the bits of one number, and how many more than one each has.

    With bits, a pod of many ports is compared with all nodes by one operation for each port,
    whatever others have written. Hardly any row has more than one: there are as many of these as
    ports and addresses.
    """

    __slots__ = ("_more", "bits")

    def __init__(self) -> None:
        self.bits = 0
        self._more: dict[int, int] | None = None

    def copy(self) -> "_Rows":
        copy = _Rows()
        copy.bits, copy._more = self.bits, None if self._more is None else dict(self._more)
        return copy

    def count(self, row: int) -> int:
        return (self.bits >> row & 1) + (0 if self._more is None else self._more.get(row, 0))

    def charge(self, row: int, count: int) -> None:
        left = self.count(row) + count
        self.bits = self.bits | 1 << row if left > 0 else self.bits & ~(1 << row)
        more = self._more or {}
        if left > 1:
            more[row] = left - 1
        else:
            more.pop(row, None)
        self._more = more or None

    def counts(self) -> dict[int, int]:
        """Return row -> how many pods."""
        rows = (row for row in range(self.bits.bit_length()) if self.bits >> row & 1)
        return {row: self.count(row) for row in rows}


_NOBODY: Final[Mapping[str, _Rows]] = {}


class _Users:
    """The rows on which one port is used: for each address, and all together.

    With ``below``, only addresses that differ from it are held here.
    """

    __slots__ = ("_below", "_by_address", "rows")

    def __init__(self, below: "_Users | None" = None) -> None:
        self._below: Mapping[str, _Rows] = _NOBODY if below is None else below.by_address()
        self._by_address: dict[str, _Rows] = {}
        self.rows: _Rows = _Rows() if below is None else below.rows.copy()

    def by_address(self) -> Mapping[str, _Rows]:
        return ChainMap(self._by_address, dict(self._below)) if self._below else self._by_address

    def charge(self, ip: str, row: int, count: int) -> None:
        self.rows.charge(row, count)
        rows = self._by_address.get(ip)
        if rows is None:
            below = self._below.get(ip)
            rows = self._by_address[ip] = _Rows() if below is None else below.copy()
        rows.charge(row, count)
        if not rows.bits and ip not in self._below:
            del self._by_address[ip]

    def rows_in_conflict(self, ip: str) -> int:
        """Return as bits the rows where a pod that wants this address would be in conflict."""
        return self.rows.bits if ip == _ANY else self._bits(ip) | self._bits(_ANY)

    def _bits(self, ip: str) -> int:
        rows = self._by_address.get(ip) or self._below.get(ip)
        return 0 if rows is None else rows.bits


class PortsInUse:
    """The ports in use on each row.

    With ``below``, which stays as it is, only ports that differ from it are held here.
    """

    def __init__(self, below: "PortsInUse | None" = None) -> None:
        self._below: Mapping[tuple[int, str], _Users] = {} if below is None else below.users()
        self._users: dict[tuple[int, str], _Users] = {}
        """Port and protocol -> where it is used."""

    def users(self) -> Mapping[tuple[int, str], _Users]:
        return ChainMap(self._users, dict(self._below)) if self._below else self._users

    def charge(self, row: int, ports: tuple[HostPort, ...], count: int) -> None:
        """Count ports as used on a row (negative: release)."""
        for port in ports:
            key = port.port, port.protocol
            users = self._users.get(key)
            if users is None:
                users = self._users[key] = _Users(self._below.get(key))
            users.charge(port.ip, row, count)
            if not users.rows.bits and key not in self._below:
                del self._users[key]

    def rows_in_conflict(self, wanted: tuple[HostPort, ...], rows: int) -> Mask:
        """Return for each of the first ``rows`` rows whether any of the ports is used there."""
        bits = 0
        for port in wanted:
            key = port.port, port.protocol
            users = self._users.get(key) or self._below.get(key)
            if users is not None:
                bits |= users.rows_in_conflict(port.ip)
        raw = bits.to_bytes(max(rows, bits.bit_length()) // 8 + 1, "little")
        flags = np.unpackbits(np.frombuffer(raw, np.uint8), count=rows, bitorder="little")
        return flags.astype(bool)

    def counts(self) -> dict[tuple[int, str, str, int], int]:
        """Return port, protocol, address and row -> how many pods."""
        return {
            (port, protocol, ip, row): count
            for (port, protocol), users in self.users().items()
            for ip, rows in users.by_address().items()
            for row, count in rows.counts().items()
        }


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
    """Ports in one cycle; the ports of the cluster stay as they are."""

    name = HostPorts.name
    reach = FilterReach.ROW

    def __init__(self, in_use: PortsInUse, cycle: Cycle) -> None:
        self.in_use = in_use
        self._rows = len(cycle.table.nodes)
        self._steps = cycle.steps
        self._is_changed = False

    @override
    def concerns(self, shape: PodShape) -> bool:
        return bool(shape.host_ports)

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        if shape.host_ports:
            self._steps.spend(0, PER_PORT * len(shape.host_ports))
            conflicts = self.in_use.rows_in_conflict(shape.host_ports, self._rows)
            yield NodeCause.HOST_PORT, (~conflicts).astype(np.int64)[rows]

    @override
    def most_when_empty(self, shape: PodShape) -> int:
        return 1 if shape.host_ports else NO_LIMIT

    @override
    def apply(self, shape: PodShape, row: int, count: int) -> None:
        if not self._is_changed:
            self.in_use, self._is_changed = PortsInUse(self.in_use), True
        self.in_use.charge(row, shape.host_ports, count)

    @override
    def spend_apply(self, shape: PodShape) -> None:
        self._steps.spend(0, PER_PORT * len(shape.host_ports))
