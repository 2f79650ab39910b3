"""Device: the accelerators and NICs of one node, and their allocations.

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
"""The value of an unknown topology id."""


class DeviceTopology(Model):
    """Location of the device in the machine."""

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
    """Number as reported; the bus id identifies the function."""
    bus_id: str | None = Field(default=None, alias="busID")
    """PCI address as domain:bus:device.function."""


class VirtualFunctionGroup(Model):
    """Virtual functions that share labels."""

    labels: dict[str, str] | None = None
    """Matched by the vfSelector of pods."""
    vfs: list[VirtualFunction] | None = None
    """The virtual functions."""


class DeviceInfo(Model):
    """One device of the node."""

    type: Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """gpu, rdma, fpga or another type; NPUs and MLUs are of type gpu."""
    minor: Annotated[Int32, Field(ge=0, le=1023), DEFAULTED] = 0
    """Number of the device among those of its type on this node, from 0."""
    health: Annotated[bool, DEFAULTED] = False
    """Whether the device is healthy; others are not allocated."""
    id: str | None = None
    """UUID of the device; for an RDMA NIC the PCI address of its physical function."""
    module_id: Int32 | None = Field(default=None, alias="moduleID")
    """Physical slot."""
    labels: dict[str, str] | None = None
    """Matched by the device selector of pods."""
    resources: ResourceList | None = None
    """Total resources of the device."""
    topology: DeviceTopology | None = None
    """Location of the device in the machine."""
    vf_groups: list[VirtualFunctionGroup] | None = None
    """SR-IOV virtual functions of the device."""
    conditions: Conditions | None = None
    """Conditions of the device, such as Healthy."""


class DeviceSpec(Model):
    """The devices of the node."""

    devices: (
        Annotated[list[DeviceInfo], Field(max_length=512), ListMap(("type", "minor"))] | None
    ) = None
    """The devices; type and minor together are unique."""


class DeviceHolder(Model):
    """A pod with allocated devices."""

    name: str | None = None
    """Name of the pod."""
    namespace: str | None = None
    """Namespace of the pod."""
    uuid: str | None = None
    """UID of the pod."""
    minors: list[Int32] | None = None
    """Devices allocated to the pod, whole or in part."""


class DeviceAllocation(Model):
    """Allocations of devices of one type."""

    type: str | None = None
    """Type of the devices."""
    entries: list[DeviceHolder] | None = None
    """The pods that use them."""


class DeviceSummary(Model):
    """Number of devices of one type by state."""

    total: Int32 = 0
    """All devices."""
    healthy: Int32 = 0
    """Healthy devices."""
    free: Int32 = 0
    """Healthy devices without pods."""
    shared: Int32 = 0
    """Partly used devices."""


class DeviceUse(Model):
    """Free resources and pods of one device."""

    type: str
    """Type of the device."""
    minor: Int32
    """Number of the device."""
    id: str | None = None
    """UUID or PCI address of the device."""
    health: bool = True
    """Whether the device is healthy."""
    free: ObservedResources | None = None
    """Free resources."""
    pods: list[str] | None = None
    """The pods that use it, as namespace/name."""


class DeviceFragmentation(Model):
    """Fragmentation of the free devices."""

    largest_free_partition: Int32 | None = None
    """Largest number of free GPUs that one pod can get."""
    index: str | None = None
    """0 (all free GPUs can be used together) to 1 (none)."""


class DeviceStatus(Model):
    """Allocations of devices."""

    consumption: str | None = None
    """Exact, or Advisory where a device plugin gives out cards, which the kubelet chooses."""
    allocations: list[DeviceAllocation] | None = None
    """Allocations by device type."""
    summary: dict[str, DeviceSummary] | None = None
    """Device type to the number of devices by state."""
    devices: list[DeviceUse] | None = None
    """Free resources and pods of each device."""
    fragmentation: DeviceFragmentation | None = None
    """Fragmentation of the free GPUs."""
    observed_generation: Int64 | None = None
    """The metadata.generation of the spec that this status describes."""
    conditions: Conditions | None = None
    """Whether the inventory is valid and consistent with the pods, such as Ready."""


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
            PrinterColumn("GPUs", ".status.summary.gpu.healthy", "integer", "Healthy GPUs."),
            PrinterColumn("Free", ".status.summary.gpu.free", "integer", "Unused GPUs."),
            PrinterColumn("Shared", ".status.summary.gpu.shared", "integer", "Partly used GPUs."),
            PrinterColumn("RDMA", ".status.summary.rdma.healthy", "integer", priority=1),
            PrinterColumn("Consumption", ".status.consumption", priority=1),
            PrinterColumn("Frag", ".status.fragmentation.index", priority=1),
            reason_column("Accepted"),
            reason_column("Ready", priority=1),
            AGE,
        ),
    )

    spec: DeviceSpec = DeviceSpec()
    """The devices of the node."""
    status: DeviceStatus = DeviceStatus()
    """Allocations of devices."""
