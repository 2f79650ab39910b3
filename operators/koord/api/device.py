"""Device: the accelerators and NICs of one node, and who holds them.

Compatible with Koordinator's Device, which its own agents write. The object is named after its
node. How devices are chosen is decided elsewhere.
"""

from typing import Annotated, ClassVar, Final

from pydantic import Field

from koord.api.model import DEFAULTED, ListMap, Model
from koord.api.reservation import KOORDINATOR_GROUP
from koord.api.resource import (
    AGE,
    Conditions,
    Int32,
    Int64,
    Names,
    ObservedResources,
    PrinterColumn,
    Resource,
    ResourceList,
    reason_column,
)

UNKNOWN_ID: Final = -1
"""The value of a topology id that nobody reported."""


class DeviceTopology(Model):
    """Where the device sits in the machine."""

    socket_id: Int32 = Field(default=UNKNOWN_ID, alias="socketID")
    """CPU socket; -1 or absent means unknown."""
    node_id: Int32 = Field(default=UNKNOWN_ID, alias="nodeID")
    """NUMA node; -1 or absent means unknown."""
    pcie_id: str = Field(default="", alias="pcieID")
    """PCIe switch or root; unique over NUMA nodes."""
    bus_id: str = Field(default="", alias="busID")
    """PCI address as domain:bus:device.function."""


class VirtualFunction(Model):
    """One SR-IOV virtual function."""

    minor: Int32
    """Number as reported; the bus id is what identifies it."""
    bus_id: str | None = Field(default=None, alias="busID")
    """PCI address as domain:bus:device.function."""


class VirtualFunctionGroup(Model):
    """Virtual functions that share labels."""

    labels: dict[str, str] | None = None
    """What a pod's vfSelector is matched with."""
    vfs: list[VirtualFunction] | None = None
    """The virtual functions."""


class DeviceInfo(Model):
    """One device of the node."""

    type: Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """gpu, rdma, fpga or another type; NPUs and MLUs are of type gpu."""
    minor: Annotated[Int32, Field(ge=0, le=1023), DEFAULTED] = 0
    """Number of the device among those of its type on this node, from 0."""
    health: Annotated[bool, DEFAULTED] = False
    """Whether the device works; others are not handed out."""
    id: str | None = None
    """UUID of the device; for an RDMA NIC the PCI address of its physical function."""
    module_id: Int32 | None = Field(default=None, alias="moduleID")
    """Physical slot."""
    labels: dict[str, str] | None = None
    """What a pod's device selector is matched with."""
    resources: ResourceList | None = None
    """What the device offers in total."""
    topology: DeviceTopology | None = None
    """Where the device sits in the machine."""
    vf_groups: list[VirtualFunctionGroup] | None = None
    """SR-IOV virtual functions of the device."""
    conditions: Conditions | None = None
    """What is the matter with the device, Healthy among them."""


class DeviceSpec(Model):
    """The devices of the node."""

    devices: (
        Annotated[list[DeviceInfo], Field(max_length=512), ListMap(("type", "minor"))] | None
    ) = None
    """The devices; type and minor together are unique."""


class DeviceHolder(Model):
    """A pod that holds devices."""

    name: str | None = None
    """Name of the pod."""
    namespace: str | None = None
    """Namespace of the pod."""
    uuid: str | None = None
    """UID of the pod."""
    minors: list[Int32] | None = None
    """Devices that the pod holds, whole or in part."""


class DeviceAllocation(Model):
    """Who holds devices of one type."""

    type: str | None = None
    """Type of the devices."""
    entries: list[DeviceHolder] | None = None
    """The pods that hold them."""


class DeviceSummary(Model):
    """How many devices of one type are in which state."""

    total: Int32 = 0
    """All devices."""
    healthy: Int32 = 0
    """Devices that work."""
    free: Int32 = 0
    """Healthy devices that nobody uses."""
    shared: Int32 = 0
    """Devices that are in use in part."""


class DeviceUse(Model):
    """What is left of one device, and who uses it."""

    type: str
    """Type of the device."""
    minor: Int32
    """Number of the device."""
    health: bool = False
    """Whether the device works."""
    free: ObservedResources | None = None
    """What is left."""
    pods: list[str] | None = None
    """The pods that use it, as namespace/name."""


class DeviceFragmentation(Model):
    """How well the free devices can still be used together."""

    largest_free_partition: Int32 | None = None
    """The largest number of free GPUs that one pod could get."""
    index: str | None = None
    """0 (all free GPUs usable together) to 1 (none)."""


class DeviceStatus(Model):
    """Who holds which device."""

    allocations: list[DeviceAllocation] | None = None
    """Who holds devices, by type."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""
    conditions: Conditions | None = None
    """Whether the inventory is understood and agrees with the pods, Ready among them."""
    summary: dict[str, DeviceSummary] | None = None
    """Device type to how many are in which state."""
    devices: list[DeviceUse] | None = None
    """What is left of each device, and who uses it."""
    fragmentation: DeviceFragmentation | None = None
    """How well the free GPUs can still be used together."""


class Device(Resource):
    """The devices of one node; the object has the name of the node."""

    names: ClassVar = Names(
        group=KOORDINATOR_GROUP,
        kind="Device",
        plural="devices",
        short=("dev",),
        namespaced=False,
        columns=(
            PrinterColumn("Vendor", r".metadata.labels.node\.koordinator\.sh/gpu-vendor"),
            PrinterColumn("Model", r".metadata.labels.node\.koordinator\.sh/gpu-model"),
            PrinterColumn("GPUs", ".status.summary.gpu.healthy", "integer", "GPUs that work."),
            PrinterColumn("Free", ".status.summary.gpu.free", "integer", "GPUs that nobody uses."),
            PrinterColumn(
                "Shared", ".status.summary.gpu.shared", "integer", "GPUs in use in part."
            ),
            PrinterColumn("RDMA", ".status.summary.rdma.healthy", "integer", priority=1),
            PrinterColumn("Frag", ".status.fragmentation.index", priority=1),
            reason_column("Accepted"),
            reason_column("Ready", priority=1),
            AGE,
        ),
    )

    spec: DeviceSpec = DeviceSpec()
    """The devices of the node."""
    status: DeviceStatus = DeviceStatus()
    """Who holds which device."""
