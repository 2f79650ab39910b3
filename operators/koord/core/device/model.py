"""Values of devices: what a node has, what a pod asks for, what it is given.

All values are immutable and hashable, so that nodes with equal hardware share one inventory and
answers can be remembered. Names of devices (UUIDs, PCI addresses) are no part of an inventory: they
differ between nodes, and decide only which device a record means. Which devices a pod is given is
decided elsewhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cached_property
from typing import Final, TypeAlias

from koord.core.model.device_names import GPU, DeviceType
from koord.core.model.selectors import LabelSelector

Part: TypeAlias = tuple[tuple[str, int], ...]
"""Amounts of one device by resource, in the order of names."""
DeviceKey: TypeAlias = tuple[DeviceType, int]
"""Type and minor of a device of a node."""
Labels: TypeAlias = tuple[tuple[str, str], ...]
Minors: TypeAlias = int
"""A set of minors: bit n is minor n."""


def make_part(amounts: Mapping[str, int]) -> Part:
    return tuple(sorted(amounts.items()))


def minors_of(numbers: Iterable[int]) -> Minors:
    return sum(1 << number for number in set(numbers))


@dataclass(frozen=True, slots=True)
class DeviceLocation:
    """Where in the machine a device is; -1 and "" are unknown."""

    socket: int = -1
    numa: int = -1
    pcie: str = ""


@dataclass(frozen=True, slots=True)
class FunctionGroup:
    """SR-IOV virtual functions that share labels, by their number on the device.

    The functions of a device are numbered in the order of their PCI addresses.
    """

    labels: Labels
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """One device of a node. ``total`` is empty while it is unhealthy."""

    minor: int
    total: Part
    place: DeviceLocation | None = None
    labels: Labels = ()
    groups: tuple[FunctionGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class Partition:
    """GPUs that the fabric of a node lets work together (NVSwitch, HCCS).

    A higher ``score`` is preferred. ``bandwidth`` of the ring in the unit of requests.
    """

    minors: Minors
    score: int = 0
    bandwidth: int | None = None


@dataclass(frozen=True)
class PartitionTable:
    """Partitions by the number of their GPUs, in the order in which they are listed.

    ``is_honored``: GPUs are given out by the table only; otherwise where it is possible.
    """

    partitions: tuple[tuple[int, tuple[Partition, ...]], ...]
    is_honored: bool = False

    @cached_property
    def by_size(self) -> Mapping[int, tuple[Partition, ...]]:
        return dict(self.partitions)


@dataclass(frozen=True)
class Inventory:
    """The devices of a node by type, each type in the order of minors.

    ``model`` is ``vendor-model``, for templates; ``isolation`` the provider that is installed.
    """

    devices: tuple[tuple[DeviceType, tuple[NodeDevice, ...]], ...]
    table: PartitionTable | None = None
    model: str = ""
    isolation: str = ""
    unshareable: str = ""
    """The model and its vendor, if its GPUs cannot be shared."""
    is_well_planned: bool = False
    """Whether NICs suffice for every choice of GPUs: they need not be counted to filter nodes."""
    vendor: str = ""

    @cached_property
    def types(self) -> Mapping[DeviceType, int]:
        """Type -> its place in ``devices``."""
        return {kind: index for index, (kind, _) in enumerate(self.devices)}

    def of(self, kind: DeviceType) -> tuple[NodeDevice, ...]:
        index = self.types.get(kind)
        return self.devices[index][1] if index is not None else ()

    @cached_property
    def index_of(self) -> Mapping[DeviceKey, int]:
        """(type, minor) -> the place of the device among those of its type."""
        return {
            (kind, device.minor): index
            for kind, devices in self.devices
            for index, device in enumerate(devices)
        }


@dataclass(frozen=True, slots=True)
class DeviceName:
    """What a device is called on its node: UUID or PCI address.

    ``functions`` are the virtual functions by number: minor and PCI address as reported.
    """

    id: str = ""
    functions: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """What a Device object says: devices, their names, partitions (None: not said), labels.

    ``problems`` are entries that could not be used: path and what is wrong. ``shown_unhealthy`` are
    the devices that the status shows as unhealthy. ``unhealthy_since`` says since when those are
    that its spec has, in seconds since the epoch, where that is said.
    """

    node: str
    devices: tuple[tuple[DeviceType, tuple[NodeDevice, ...]], ...] = ()
    names: Mapping[DeviceKey, DeviceName] = field(default_factory=dict)
    partitions: tuple[tuple[int, tuple[Partition, ...]], ...] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[tuple[str, str], ...] = ()
    shown_unhealthy: frozenset[DeviceKey] = field(default=frozenset(), compare=False)
    unhealthy_since: Mapping[DeviceKey, float] = field(default_factory=dict, compare=False)
    uid: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class DeviceResourceClaim:
    """A ResourceClaim (key): the GPUs of a node that DRA gave it; it is not known which ones."""

    key: str
    node: str = ""
    gpus: int = 0


class AllocateStrategy(Enum):
    """How many devices a request is for (annotation device-allocate-hint, allocateStrategy)."""

    APPLY_FOR_ALL = "ApplyForAll"
    """The amount from each device that matches."""
    REQUESTS_AS_COUNT = "RequestsAsCount"
    """As many devices as the amount says."""


class Scope(IntEnum):
    """Parts of a machine, the smaller the closer (requiredTopologyScope)."""

    NODE = 10
    SOCKET = 15
    NUMA_NODE = 20
    PCIE = 30
    DEVICE = 40


class Exclusive(Enum):
    """Whom a pod does not share with (exclusivePolicy)."""

    DEVICE = "DeviceLevel"
    """The devices are taken whole."""
    PCIE = "PCIeLevel"
    """Nobody else has devices of the type on the same PCIe switches."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What a pod says about the devices of one type."""

    selector: LabelSelector = ()
    function_selector: LabelSelector = None
    """Of virtual functions; None: none is asked for."""
    strategy: AllocateStrategy | None = None
    scope: Scope | None = None
    exclusive: Exclusive | None = None


NO_HINT: Final = Hint()


@dataclass(frozen=True, slots=True)
class TypeRequest:
    """A request for devices of one type: one part from each of ``len(parts)`` devices.

    ``is_shared``: others may use the rest of the devices.
    """

    kind: DeviceType
    parts: tuple[Part, ...]
    is_shared: bool = False
    hint: Hint = NO_HINT

    @property
    def is_uniform(self) -> bool:
        return all(part == self.parts[0] for part in self.parts)


class JointScope(Enum):
    """How close the devices of several types must be (annotation device-joint-allocate)."""

    SAME_PCIE = "SamePCIe"


@dataclass(frozen=True, slots=True)
class Joint:
    """Types whose devices are chosen together, the one that decides first."""

    kinds: tuple[DeviceType, ...]
    scope: JointScope | None = None


@dataclass(frozen=True, slots=True)
class PartitionHint:
    """What a pod says about GPU partitions (annotation gpu-partition-spec)."""

    is_restricted: bool = False
    """Only partitions of the best score will do."""
    bandwidth: int | None = None


@dataclass(frozen=True)
class DeviceRequest:
    """All that a pod asks for, one entry per type, in the order of types."""

    types: tuple[TypeRequest, ...]
    joint: Joint | None = None
    partition: PartitionHint | None = None
    isolation: str = ""
    """The provider that must be installed where GPUs are shared."""
    plugins: frozenset[str] = frozenset()
    """Vendors whose device plugins the pod needs."""
    needs_device_object: bool = False
    """It can be met only where it is known which devices there are."""

    @property
    def lacks_isolation(self) -> bool:
        """Whether nothing keeps it to its part of a GPU; device plugins of vendors do."""
        return self.is_gpu_shared and not self.isolation and not self.plugins

    @cached_property
    def by_type(self) -> Mapping[DeviceType, TypeRequest]:
        return {type_.kind: type_ for type_ in self.types}

    @property
    def is_gpu_shared(self) -> bool:
        gpu = self.by_type.get(GPU)
        return gpu is not None and gpu.is_shared


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """A device, or a part of it, that a pod is given.

    ``functions`` are virtual functions by their number; ``template`` is that of a sliced NPU. With
    ``is_exclusive`` nobody else gets devices of the type on the same PCIe switch.
    """

    kind: DeviceType
    minor: int
    part: Part
    functions: tuple[int, ...] = ()
    template: str = ""
    is_exclusive: bool = False


@dataclass(frozen=True, slots=True)
class DeviceScoring:
    """How devices are preferred: weights by resource, fuller or emptier ones first."""

    weights: Mapping[str, int]
    packs: bool = False


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """Rules on which we and Koordinator differ: the defaults are ours, see ``KOORDINATOR``.

    ``docs/compatibility-devices.md`` lists the differences with reasons.
    """

    keeps_exclusive: bool = True
    """``exclusivePolicy: PCIeLevel`` has an effect."""
    is_memory_exact: bool = True
    """The free ratio of a GPU follows from its free bytes, so that rounding never adds up."""
    uses_partial_topology: bool = True
    """GPUs without a place do not keep the others from being chosen by theirs; sockets count."""
    shares_in_scopes: bool = True
    """Parts of several GPUs are chosen by their place, too."""
    tries_alternatives: bool = True
    """If the other types do not fit next to the first choice of GPUs, others are tried."""
    counts_all_devices: bool = True
    """The score of a node counts the whole request, converted to the memory of its devices."""
    allows_single_cards: bool = True
    """One GPU can be given out where a table without single GPUs is honoured."""
    waits_for_device_object: bool = True
    """Nodes without a Device give out no devices: which ones are free there is unknown."""
    fills_in_shared: bool = True
    """Cores of several whole GPUs without ``gpu.shared`` are as many GPUs."""


OURS: Final = DeviceRules()
KOORDINATOR: Final = DeviceRules(
    keeps_exclusive=False,
    is_memory_exact=False,
    uses_partial_topology=False,
    shares_in_scopes=False,
    tries_alternatives=False,
    counts_all_devices=False,
    allows_single_cards=False,
    waits_for_device_object=False,
    fills_in_shared=False,
)


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """How devices are given out.

    ``recovery_seconds``: a device that was unhealthy is used again after it was healthy this long.
    ``waits_for_isolation``: pods do not share GPUs without isolation.
    """

    recovery_seconds: float = 30.0
    waits_for_isolation: bool = False


DEFAULT_OPTIONS: Final = DeviceOptions()


@dataclass(frozen=True, slots=True)
class DeviceTerms:
    """Where on a node a request may be met, besides the hints of its pod.

    ``numa``: only devices of these NUMA nodes. ``required``: only these devices, as far as the
    amounts go. ``preferred`` devices come first. ``functions``: only these virtual functions of a
    device.
    """

    numa: frozenset[int] | None = None
    required: Mapping[DeviceKey, Part] | None = None
    preferred: frozenset[DeviceKey] = frozenset()
    functions: Mapping[DeviceKey, frozenset[int]] = field(default_factory=dict)


ANYWHERE: Final = DeviceTerms()
