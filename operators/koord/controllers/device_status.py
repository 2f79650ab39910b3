"""The status of Devices: for the operator ``device``.

Whether an object is valid is said in the condition ``Accepted``; here ``Ready`` says whether its
devices are in use, and the status says who holds them and what is free.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from koord.controllers.coalescing import Pause
from koord.controllers.status_controller import ChangedInputs, StatusSink
from koord.core.device.model import DeviceReport
from koord.core.device.plugin import Devices
from koord.core.device.status import DeviceStatus, Readiness, observe_devices
from koord.core.state import ClusterState
from koord.core.units import format_amount
from koord.kube.status import ConditionPatch

READY: Final = "Ready"
FOREIGN: Final = "ForeignAllocations"
_PAUSE: Final = Pause(1.0, 2.0)


@dataclass(frozen=True, slots=True)
class DeviceStatusPolicy:
    """Observes nodes whose devices, or the pods that hold them, have changed."""

    state: ClusterState
    sink: StatusSink[DeviceReport]
    _inputs: ChangedInputs[str] = field(default_factory=ChangedInputs)

    @property
    def _devices(self) -> Devices:
        return self.state.plugin(Devices)

    def changed(self) -> list[str]:
        plugin = self._devices
        return self._inputs.compare(
            {
                node: (report, plugin.ledger_of(node), tuple(plugin.pods_on(node).items()))
                for node, report in plugin.reports.items()
            }
        )

    def pause_for(self, _node: str) -> Pause:
        return _PAUSE

    async def update(self, node: str) -> None:
        report = self._devices.reports.get(node)
        if report is None:
            return
        keys = {
            uid: self.state.pods[uid].key
            for uid in self._devices.pods_on(node)
            if uid in self.state.pods
        }
        status = observe_devices(self._devices, report, keys)
        self.sink.write_status(report, make_fields(status), _conditions(status, report))


def _conditions(status: DeviceStatus, report: DeviceReport) -> tuple[ConditionPatch, ...]:
    is_ready = status.readiness is Readiness.SYNCED
    ready = ConditionPatch(
        READY, is_ready, str(status.readiness), status.describe(), report.generation
    )
    if not status.foreign:
        text = "it is known which devices each pod holds"
        return ready, ConditionPatch(FOREIGN, False, "None", text, report.generation)
    text = status.describe_foreign()
    return ready, ConditionPatch(FOREIGN, True, "UnknownDevices", text, report.generation)


def make_fields(status: DeviceStatus) -> dict[str, Any]:
    """Return the status without its conditions, named as in the API."""
    allocations: dict[str, list[dict[str, Any]]] = {}
    for one in status.holders:
        namespace, _, name = one.pod.rpartition("/")
        entry = {"name": name, "namespace": namespace, "uuid": one.uid, "minors": list(one.minors)}
        allocations.setdefault(one.kind, []).append(entry)
    return {
        "allocations": [
            {"type": kind, "entries": entries} for kind, entries in allocations.items()
        ],
        "summary": {
            kind: {
                "total": one.total,
                "healthy": one.healthy,
                "free": one.free,
                "shared": one.shared,
            }
            for kind, one in status.counts.items()
        },
        "devices": [
            {
                "type": one.kind,
                "minor": one.minor,
                "health": one.is_healthy,
                "free": {key: format_amount(key, amount) for key, amount in one.free},
                "pods": list(one.pods),
            }
            for one in status.devices
        ],
        "fragmentation": {
            "largestFreePartition": status.largest,
            "index": f"{status.fragmentation:.2f}",
        },
    }
