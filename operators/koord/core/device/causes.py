"""Why the devices of a node do not meet a request. Texts are those of Koordinator.

What frees devices may help against the causes that are resolvable; against the others it cannot.
"""

from dataclasses import dataclass
from typing import Final

from koord.core.engine.cause import Cause
from koord.core.model.device_names import DeviceType

_RANK: Final = 50
"""After all that kube-scheduler checks first."""

NO_DEVICE_OBJECT: Final = Cause(
    "DeviceAbsent",
    _RANK,
    "node(s) had no Device: unknown which devices are free",
    "Have the devices of {nodes} reported as a Device, as the device agent does.",
)
NO_SUCH_DEVICE: Final = Cause(
    "NoSuchDeviceType",
    _RANK,
    "Insufficient {detail} devices",
    "Request devices that {nodes} has, or add such devices.",
    by_detail=True,
)
INSUFFICIENT: Final = Cause(
    "InsufficientDevices",
    _RANK + 9,
    "Insufficient {detail} devices",
    "Free devices on {nodes}, or request fewer.",
    by_detail=True,
    is_held=True,
)
INSUFFICIENT_GPUS: Final = Cause(
    "InsufficientGPUs",
    _RANK + 9,
    "Insufficient GPU Devices",
    "Free GPUs on {nodes}, or request fewer.",
    is_held=True,
)
NO_FUNCTIONS: Final = Cause(
    "NoVirtualFunctions",
    _RANK + 1,
    "Insufficient {detail} VirtualFunctions",
    "Drop the vfSelector, or enable SR-IOV on {nodes}.",
    by_detail=True,
)
NO_PARTITION_TABLE: Final = Cause(
    "PartitionTableMissing",
    _RANK + 2,
    "node(s) missing GPU Partition Table",
    "Drop gpu-partition-spec, or annotate the Device with gpu-partitions.",
)
PARTITION_SIZE: Final = Cause(
    "PartitionSizeUnsupported",
    _RANK + 2,
    "node(s) Unsupported number of GPU requests",
    "Request a number of GPUs that the partition table of {nodes} lists.",
)
INSUFFICIENT_PARTITION: Final = Cause(
    "InsufficientPartition",
    _RANK + 8,
    "Insufficient Partitioned GPU Devices",
    "Free a whole partition of GPUs on {nodes}.",
    is_held=True,
)
NO_TOPOLOGY: Final = Cause(
    "TopologyMissing",
    _RANK + 3,
    "node(s) missing GPU Device Topology Tree",
    "Drop requiredTopologyScope, or report where the GPUs of {nodes} are.",
)
SHARES_IN_SCOPE: Final = Cause(
    "MultiSharedUnsupported", _RANK + 3, "node(s) Unsupported Multi-Shared GPU"
)
INSUFFICIENT_SCOPE: Final = Cause(
    "InsufficientScope",
    _RANK + 8,
    "Insufficient Topology Scoped GPU Devices",
    "Free GPUs that are close to each other on {nodes}, or ask for a wider scope.",
    is_held=True,
)
TEMPLATE: Final = Cause(
    "TemplateMismatch",
    _RANK + 4,
    "no matched GPU shared resource template",
    "Request exactly the amounts of a template of the NPU's model.",
)
SHARING: Final = Cause(
    "SharingUnsupported",
    _RANK + 4,
    "model {detail} does not support GPU Share",
    "Request whole GPUs on {nodes}.",
    by_detail=True,
)
ISOLATION: Final = Cause(
    "GPUIsolationProviderMismatch",
    _RANK + 4,
    "GPUIsolationProviderHAMICore not found on the node",
    "Install the provider on {nodes} and label it, or drop the label of the pod.",
)
ADAPTER: Final = Cause(
    "AdapterRejected",
    _RANK + 4,
    "{detail}",
    "Request what the device plugin of {nodes} can serve.",
    by_detail=True,
)
PRIMARY: Final = Cause(
    "InsufficientPrimaryDevice",
    _RANK + 8,
    "node(s) Insufficient primary device",
    "Free devices on {nodes}.",
    is_held=True,
)
JOINT: Final = Cause(
    "JointAllocateViolation",
    _RANK + 8,
    "node(s) Device Joint-Allocate rules violation",
    "Free devices that share a PCIe switch on {nodes}, or drop requiredScope.",
    is_held=True,
)

_FINAL: Final = frozenset(
    {
        NO_DEVICE_OBJECT,
        NO_SUCH_DEVICE,
        NO_FUNCTIONS,
        NO_PARTITION_TABLE,
        PARTITION_SIZE,
        NO_TOPOLOGY,
        SHARES_IN_SCOPE,
        TEMPLATE,
        SHARING,
        ISOLATION,
        ADAPTER,
    }
)


@dataclass(frozen=True, slots=True)
class DeviceCause:
    """One cause, with the type of device, how many are ``wanted`` and how many ``available``.

    ``named`` is what the text names instead of the type.
    """

    cause: Cause
    kind: DeviceType = ""
    wanted: int = 0
    available: int = 0
    primary: "DeviceCause | None" = None
    """Why the type that decides first did not fit."""
    named: str = ""

    @property
    def detail(self) -> str:
        return self.named or self.kind

    @property
    def is_resolvable(self) -> bool:
        """Whether freeing devices of the node may help."""
        return self.cause not in _FINAL

    def describe(self) -> str:
        """Return the message of Koordinator."""
        return self.cause.describe(detail=self.detail)
