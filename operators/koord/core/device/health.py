"""Which devices are unhealthy, and which have recovered only now: those are not given out yet.

A device that fails is out of use at once. One that keeps failing and recovering would be given to
one pod after another, so it must stay healthy for a while first. What a status shows as unhealthy
counts as such after a restart. A device is known by its id, where it has one: its minor may change.
Who uses a device is not known here.
"""

from dataclasses import replace
from math import inf
from typing import Final, TypeAlias

from koord.core.device.inventory import compared
from koord.core.device.model import DEFAULT_OPTIONS, DeviceKey, DeviceReport
from koord.core.model.device_names import DeviceType

RECOVERY_SECONDS: Final = DEFAULT_OPTIONS.recovery_seconds
"""The default."""
_FAILED: Final = -inf
_UNTIMED: Final = inf
_Identity: TypeAlias = tuple[DeviceType, str | int]
"""Type and id of a device; its minor, where it has no id."""


def _identify(report: DeviceReport, key: DeviceKey) -> _Identity:
    name = report.names.get(key)
    return (key[0], compared(name.id)) if name is not None and name.id else key


class Recoveries:
    """Devices of all nodes that are not in use for their health; times are since the epoch.

    Recovered devices are used again after ``seconds``, counted from the next :meth:`advance`.
    """

    def __init__(self, seconds: float = RECOVERY_SECONDS) -> None:
        self.seconds = seconds
        self._until: dict[str, dict[_Identity, float]] = {}
        """Node -> device -> when it is used again."""
        self._due: float | None = None

    def note(self, report: DeviceReport) -> None:
        """Note what a node reports."""
        previous = self._until.pop(report.node, None)
        if previous is None:
            shown = (_identify(report, key) for key in report.shown_unhealthy)
            previous = dict.fromkeys(shown, _FAILED)
        until: dict[_Identity, float] = {}
        for kind, devices in report.devices:
            for device in devices:
                key = _identify(report, (kind, device.minor))
                if not device.total:
                    until[key] = _FAILED
                elif key in previous and self.seconds:
                    until[key] = _UNTIMED if previous[key] == _FAILED else previous[key]
        self._until[report.node] = until
        if _UNTIMED in until.values():
            self._due = _FAILED

    def forget(self, node: str) -> None:
        self._until.pop(node, None)

    def advance(self, now: float) -> list[str]:
        """Set the time; return the nodes with devices that are used again."""
        if self._due is None or now < self._due:
            return []
        recovered: list[str] = []
        pending: list[float] = []
        for node, until in self._until.items():
            for key, at in until.items():
                if at == _UNTIMED:
                    until[key] = now + self.seconds
            due = [key for key, at in until.items() if _FAILED < at <= now]
            for key in due:
                del until[key]
            if due:
                recovered.append(node)
            pending.extend(at for at in until.values() if at != _FAILED)
        self._due = min(pending, default=None)
        return recovered

    def next_due(self) -> float | None:
        """Return when :meth:`advance` is to be called; None for never."""
        return self._due

    def is_recovering(self, report: DeviceReport, device: DeviceKey) -> bool:
        until = self._until.get(report.node, {})
        return until.get(_identify(report, device), _FAILED) != _FAILED

    def mask(self, report: DeviceReport) -> DeviceReport:
        """Return a report with the devices that are not used yet as unhealthy ones."""
        until = self._until.get(report.node, {})
        if all(at == _FAILED for at in until.values()):
            return report
        return replace(
            report,
            devices=tuple(
                (
                    kind,
                    tuple(
                        replace(device, total=())
                        if _identify(report, (kind, device.minor)) in until
                        else device
                        for device in devices
                    ),
                )
                for kind, devices in report.devices
            ),
        )
