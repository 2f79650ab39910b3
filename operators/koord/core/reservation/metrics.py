"""What is measured of reservations: numbers with the names and units of Koordinator's series."""

from typing import Final

from koord.core.model.units import CPU, Amounts, is_in_bytes
from koord.core.reservation.model import ReservationPhase, ReservationState

PHASES: Final = (
    ReservationPhase.PENDING,
    ReservationPhase.AVAILABLE,
    ReservationPhase.SUCCEEDED,
    ReservationPhase.FAILED,
)
_GIB: Final = 1 << 30
Series = list[tuple[str, str, str, float]]


def phase_series(status: ReservationState) -> dict[str, int]:
    """Return 1 for the phase of a reservation and 0 for each other one."""
    current = status.phase or ReservationPhase.PENDING
    return {str(phase): int(phase == current) for phase in PHASES}


def resource_series(allocatable: Amounts, allocated: Amounts) -> Series:
    """Return (type, resource, unit, value) for what is reserved, used, and their ratio."""
    series: Series = []
    for name, size in sorted(allocatable.items()):
        used = allocated.get(name, 0)
        unit, divisor = _unit_of(name)
        series.append(("allocatable", name, unit, size / divisor))
        series.append(("allocated", name, unit, used / divisor))
        if size > 0:
            series.append(("utilization", name, "ratio", used / size))
    return series


def _unit_of(name: str) -> tuple[str, int]:
    if name == CPU:
        return "core", 1000
    return ("Gi", _GIB) if is_in_bytes(name) else ("raw", 1)
