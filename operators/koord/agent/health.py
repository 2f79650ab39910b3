"""When a device counts as unhealthy: at once after a fault, and until it was quiet for a while.

Pure; times are seconds on any clock that does not go back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koord.agent.reading import Fault


@dataclass(slots=True)
class Health:
    """The last fault of each device, by id; ``quiet_seconds`` without one make it healthy again."""

    quiet_seconds: float
    _last: dict[str, tuple[Fault, float]] = field(default_factory=dict)

    def note(self, faults: Mapping[str, Fault], now: float) -> None:
        self._last |= {device: (fault, now) for device, fault in faults.items()}

    def faults(self, now: float) -> dict[str, Fault]:
        """Return the devices that are unhealthy now, and why."""
        end = now - self.quiet_seconds
        self._last = {device: last for device, last in self._last.items() if last[1] > end}
        return {device: fault for device, (fault, _) in self._last.items()}
