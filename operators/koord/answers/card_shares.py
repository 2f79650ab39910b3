"""Which pod holds which GPU, and how much of it: one value per pod and card. Decides nothing.

A pod without a record of which cards it holds has none here, and neither has a reservation: nobody
knows the one, and no pod uses the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from koord.answers.fragmentation import model_of
from koord.answers.gpus import measure_part
from koord.core.device.model import DeviceName, DeviceReport
from koord.core.device.plugin import Devices
from koord.core.device.vendors import MODEL_LABEL
from koord.core.model.device_names import GPU, GPU_MEMORY
from koord.core.model.pods import Handling, Pod


@dataclass(frozen=True, slots=True)
class CardShare:
    """What a pod holds of one card: ``memory`` in bytes; 0 where nobody says how much there is."""

    node: str
    minor: int
    uuid: str
    model: str
    namespace: str
    pod: str
    milli_gpus: int
    memory: int


def list_card_shares(devices: Devices, pods: Mapping[str, Pod], name: str) -> tuple[CardShare, ...]:
    """Return the cards of a node that pods hold, by minor and pod."""
    report = devices.reports.get(name)
    if report is None:
        return ()
    model = _find_model(devices, report)
    shares = [
        _make_share(report, model, pods[uid], share.minor, dict(share.part))
        for uid, held in devices.pods_on(name).items()
        if uid in pods and pods[uid].handling is not Handling.RESERVE
        for share in held
        if share.kind == GPU
    ]
    return tuple(sorted(shares, key=lambda share: (share.minor, share.namespace, share.pod)))


def _find_model(devices: Devices, report: DeviceReport) -> str:
    node = devices.node(report.node)
    if node is not None and MODEL_LABEL in node.labels:
        return node.labels[MODEL_LABEL]
    return report.labels.get(MODEL_LABEL, "") or (GPU if node is None else model_of(node))


def _make_share(
    report: DeviceReport, model: str, pod: Pod, minor: int, amounts: Mapping[str, int]
) -> CardShare:
    name = report.names.get((GPU, minor), DeviceName())
    memory = amounts.get(GPU_MEMORY, 0)
    return CardShare(
        report.node, minor, name.id, model, pod.namespace, pod.name, measure_part(amounts), memory
    )
