"""The operator ``device``: keeps the status of Devices, and what they add to their nodes.

All that is written about devices gives way: agents report them, and nobody waits for it.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from koord.api.device import Device
from koord.controllers.device_status import DeviceStatusPolicy, NodeResourcesPolicy
from koord.controllers.status_publishing import DeviceAnnouncer
from koord.domains.device import DEVICES, RESOURCE_CLAIMS
from koord.domains.placement import NODES, PODS
from koord.kube.node_writer import NodeWriter
from koord.kube.objects import ref_of_devices
from koord.kube.status import BEHIND_ALL, Former
from koord.kube.write_check import Write
from koord.operators.names import DEVICE
from koord.operators.operator import Operator

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    state = parts.reader.state
    author = parts.make_author(
        OPERATOR,
        parts.reader.translator(DEVICES),
        lambda meta: str(meta["name"]),
        ref_of_devices,
        former=(Former("koord-device-status"),),
        # The policy has yielded before it gives a status to the writer.
        pace=replace(BEHIND_ALL, seconds=0.0),
    )
    policy = DeviceStatusPolicy(state, author, DeviceAnnouncer(parts.events))
    parts.handle(author, parts.keep_status(policy, author, pace=BEHIND_ALL))
    nodes = NodeResourcesPolicy(state, NodeWriter(parts.client))
    parts.keep_status(nodes, author, pace=BEHIND_ALL)


OPERATOR: Final = Operator(
    DEVICE,
    Device,
    start,
    reads=(PODS, NODES, DEVICES, RESOURCE_CLAIMS),
    writes=frozenset(
        {
            Write("scheduling.koordinator.sh", "devices/status", "patch"),
            Write("", "nodes/status", "patch"),
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
