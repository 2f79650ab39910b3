"""What all fake nodes of a shape have in common, as read from its file."""

import msgspec


class NodeLayer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A layer of the network: nodes of one domain share the value of its label."""

    label: str
    prefix: str
    nodes: int
    """Number of consecutive nodes that share one value."""


class DevicePool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Equal devices of a node, spread evenly over its PCIe switches and NUMA nodes."""

    type: str
    count: int
    resources: dict[str, str]
    """Of each device."""
    switches: int = 1
    numa_nodes: int = 1
    functions: int = 0
    """SR-IOV virtual functions of each device."""


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What all nodes of a shape have in common."""

    name: str
    description: str
    labels: dict[str, str]
    capacity: dict[str, str]
    allocatable: dict[str, str]
    topology: tuple[NodeLayer, ...] = ()
    numa_nodes: int = 0
    """CPUs and memory are spread evenly over them; 0: nothing is reported about NUMA."""
    devices: tuple[DevicePool, ...] = ()
    partitions: tuple[tuple[tuple[int, ...], ...], ...] = ()
    """Sets of GPUs that the fabric lets work together, by size."""
    honors_partitions: bool = False
