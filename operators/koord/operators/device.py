"""The operator ``device``: keeps the status of Devices, and what they add to their nodes."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from koord.api.device import Device
from koord.controllers.device_status import DeviceStatusPolicy, NodeResourcesPolicy
from koord.controllers.status_publishing import DeviceAnnouncer, StatusPublisher
from koord.domains.device import DEVICES, RESOURCE_CLAIMS
from koord.domains.placement import NODES, PODS
from koord.kube.node_writer import NodeWriter
from koord.kube.objects import ref_of_devices
from koord.kube.status import BEHIND_ALL, applied_by
from koord.kube.write_check import Write
from koord.operators.names import DEVICE
from koord.operators.operator import Operator

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    """All that is written about devices gives way: agents report them, and nobody waits for it.

    The policy has yielded before it gives a status to the writer.
    """
    seen, state = parts.reader.translator(DEVICES), parts.reader.state
    writer = parts.make_writer(
        DEVICES.plural,
        applied_by("koord-device-status"),
        lambda ref: seen.status_of(ref.uid),
        pace=replace(BEHIND_ALL, seconds=0.0),
    )
    sink = StatusPublisher(writer, ref_of_devices)
    announcer = DeviceAnnouncer(parts.events)
    parts.keep_status(DeviceStatusPolicy(state, sink, announcer), pace=BEHIND_ALL)
    parts.keep_status(NodeResourcesPolicy(state, NodeWriter(parts.client)), pace=BEHIND_ALL)


OPERATOR: Final = Operator(
    DEVICE,
    Device,
    start,
    pace=BEHIND_ALL,
    reads=(PODS, NODES, DEVICES, RESOURCE_CLAIMS),
    writes=frozenset(
        {
            Write("scheduling.koordinator.sh", "devices/status", "patch"),
            Write("", "nodes/status", "patch"),
        }
    ),
)
