"""Chooses GPUs that work well together: by the partition table of a node, or by where they are.

By table (NVSwitch, HCCS): partitions with most of the preferred devices come first, then those of a
higher score. Among equals the one is chosen that leaves the most partitions whole, large ones
first; then the one that is listed first.

By place (one PCIe switch, NUMA node, socket, or node): where most of the preferred devices are is
the best. Then the smallest scope that holds the whole request; among equals the one whose path has
the most parts in use, so that unused switches and NUMA nodes stay whole; then the first one. Inside
a scope the lowest minors are taken. Source of the order: Koordinator; sockets and GPUs of unknown
place are ours.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby

from koord.core.device.causes import (
    INSUFFICIENT_GPUS,
    INSUFFICIENT_PARTITION,
    INSUFFICIENT_SCOPE,
    NO_PARTITION_TABLE,
    NO_TOPOLOGY,
    PARTITION_SIZE,
    SHARES_IN_SCOPE,
    DeviceCause,
)
from koord.core.device.choice import Candidate, Picked, count_preferred, in_order, pick
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import (
    DeviceLocation,
    DeviceRequest,
    DeviceRules,
    Inventory,
    Minors,
    NodeDevice,
    Partition,
    PartitionTable,
    Scope,
    TypeRequest,
    minors_of,
)
from koord.core.model.device_names import GPU

MOST_TREES = 1024


# --- by place ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScopeNode:
    """A part of a machine, the GPUs in it, and its parts in order."""

    scope: Scope
    minors: Minors
    parts: tuple["ScopeNode", ...] = ()


@dataclass(slots=True)
class _ScopeChoice:
    """A scope that holds a request, and how it compares with others: greater is better."""

    picked: Picked
    rank: tuple[int, int, int, int]


@dataclass(slots=True)
class _ScopeSearch:
    request: TypeRequest
    candidates: Mapping[int, Candidate]
    used: Minors
    choices: list[_ScopeChoice] = field(default_factory=list)

    def walk(self, node: ScopeNode, depth: int, in_use: int) -> None:
        count = len(self.request.parts)
        if node.minors.bit_count() < count:
            return
        in_use += bool(node.minors & self.used)
        for part in node.parts:
            self.walk(part, depth + 1, in_use)
        wanted = self.request.hint.scope
        if wanted is not None and not _is_within(node.scope, wanted, count):
            return
        inside = [
            candidate for minor, candidate in self.candidates.items() if node.minors >> minor & 1
        ]
        if self.request.is_shared:
            inside = in_order(inside)
        else:
            inside.sort(key=lambda candidate: not candidate.is_preferred)
        picked = pick(inside, self.request)
        if picked is not None:
            points = picked[0][0].points if self.request.is_shared else 0
            rank = (count_preferred(picked), depth, in_use, points)
            self.choices.append(_ScopeChoice(picked, rank))


def _is_within(scope: Scope, wanted: Scope, count: int) -> bool:
    # One device is in a scope of its own.
    return scope >= wanted or (wanted is Scope.DEVICE and count == 1)


def choose_by_scope(
    ledger: DeviceLedger, request: TypeRequest, candidates: Sequence[Candidate], rules: DeviceRules
) -> DeviceCause | list[Picked]:
    """Return ways to meet a request, the best one first; or why there is none."""
    tree = make_tree(ledger.inventory, has_all_places=not rules.uses_partial_topology)
    if tree is None:
        return DeviceCause(NO_TOPOLOGY, GPU)
    if request.is_shared and len(request.parts) > 1 and not rules.shares_in_scopes:
        return DeviceCause(SHARES_IN_SCOPE, GPU)
    used = ledger.minors_in_use(GPU)
    search = _ScopeSearch(
        request, {candidate.device.minor: candidate for candidate in candidates}, used
    )
    search.walk(tree, 1, 0)
    if not search.choices:
        cause = INSUFFICIENT_SCOPE if request.hint.scope is not None else INSUFFICIENT_GPUS
        return DeviceCause(cause, GPU, len(request.parts), len(candidates))
    # Stable: the first one of equals, in the order of the tree, stays first.
    ways = sorted(
        enumerate(search.choices),
        key=lambda numbered: (*(-n for n in numbered[1].rank), numbered[0]),
    )
    return [choice.picked for _, choice in ways]


def parts_within(inventory: Inventory, wanted: Scope | None, rules: DeviceRules) -> list[Minors]:
    """Return the GPUs of each part of a node in which a request with this scope must stay."""
    tree = make_tree(inventory, has_all_places=not rules.uses_partial_topology)
    if tree is None:
        return []
    if wanted is None:
        return [tree.minors]
    return [part.minors for part in _largest(tree, wanted)]


def _largest(node: ScopeNode, wanted: Scope) -> Iterator[ScopeNode]:
    if node.scope >= wanted:
        yield node
        return
    for part in node.parts:
        yield from _largest(part, wanted)


@lru_cache(maxsize=MOST_TREES)
def make_tree(inventory: Inventory, *, has_all_places: bool) -> ScopeNode | None:
    """Return where the GPUs of a node are; None if nothing is known.

    With ``has_all_places`` the place of every GPU must be known, and there are no sockets.
    """
    gpus = inventory.of(GPU)
    placed = [device for device in gpus if device.place is not None]
    if not placed or (has_all_places and len(placed) < len(gpus)):
        return None
    numa = list(_split(placed, Scope.NUMA_NODE))
    parts = numa if has_all_places else list(_group_by_socket(placed, numa))
    return ScopeNode(Scope.NODE, minors_of(device.minor for device in gpus), tuple(parts))


def _split(devices: Sequence[NodeDevice], scope: Scope) -> Iterator[ScopeNode]:
    keys = sorted({_key(device, scope) for device in devices})
    for key in keys:
        inside = [device for device in devices if _key(device, scope) == key]
        parts = _split(inside, Scope.PCIE) if scope is Scope.NUMA_NODE else ()
        yield ScopeNode(scope, minors_of(device.minor for device in inside), tuple(parts))


def _key(device: NodeDevice, scope: Scope) -> tuple[int, str]:
    place = device.place or DeviceLocation()
    match scope:
        case Scope.NUMA_NODE:
            return place.numa, ""
        case Scope.SOCKET:
            return place.socket, ""
        case _:
            return 0, place.pcie


def _group_by_socket(devices: Sequence[NodeDevice], numa: list[ScopeNode]) -> Iterator[ScopeNode]:
    """Put NUMA nodes into sockets, if there are several sockets and they are known."""
    sockets = sorted({_key(device, Scope.SOCKET) for device in devices})
    if len(sockets) < 2 or sockets[0][0] < 0 or len(sockets) == len(numa):
        yield from numa
        return
    for socket in sockets:
        inside = minors_of(
            device.minor for device in devices if _key(device, Scope.SOCKET) == socket
        )
        parts = tuple(part for part in numa if part.minors & inside == part.minors)
        yield ScopeNode(Scope.SOCKET, inside, parts)


_SIZE_WEIGHT = 100
"""A larger partition that stays whole outweighs all smaller ones."""


# --- by partition table --------------------------------------------------------------------------


def must_honor(ledger: DeviceLedger, request: DeviceRequest) -> bool:
    """Whether GPUs may be given out by the partition table only."""
    table = ledger.inventory.table
    return request.partition is not None or (table is not None and table.is_honored)


def choose_by_partition(
    ledger: DeviceLedger,
    request: DeviceRequest,
    gpus: TypeRequest,
    candidates: Sequence[Candidate],
    rules: DeviceRules,
) -> DeviceCause | list[Picked]:
    """Return the free partitions of the right size, the best one first; or why there is none."""
    table = ledger.inventory.table
    count = len(gpus.parts)
    if table is None:
        return DeviceCause(NO_PARTITION_TABLE, GPU)
    listed = table.by_size.get(count, ())
    if not listed and count == 1 and rules.allows_single_cards:
        listed = tuple(Partition(1 << device.minor) for device in ledger.inventory.of(GPU))
    if not listed:
        return DeviceCause(PARTITION_SIZE, GPU, count)
    used = ledger.minors_in_use(GPU)
    free = minors_of(
        candidate.device.minor
        for candidate in candidates
        if not candidate.is_used and candidate.fits(gpus.parts[0])
    )
    partition_hint = request.partition
    bandwidth = partition_hint.bandwidth if partition_hint is not None else None
    ways: list[Partition] = []
    ordered = sorted(listed, key=lambda partition: -partition.score)
    for _, group in groupby(ordered, key=lambda partition: partition.score):
        feasible = [partition for partition in group if _is_feasible(partition, free, bandwidth)]
        ways += sorted(
            feasible, key=lambda partition: -count_whole(table, used | partition.minors, count)
        )
        if partition_hint is not None and partition_hint.is_restricted:
            break
    if not ways:
        return DeviceCause(INSUFFICIENT_PARTITION, GPU, count, free.bit_count())
    by_minor = {candidate.device.minor: candidate for candidate in candidates}
    picks = [
        [
            (candidate, gpus.parts[0])
            for minor, candidate in by_minor.items()
            if way.minors >> minor & 1
        ]
        for way in ways
    ]
    return sorted(picks, key=lambda picked: -count_preferred(picked))


def _is_feasible(partition: Partition, free: Minors, bandwidth: int | None) -> bool:
    if partition.minors & ~free:
        return False
    if bandwidth is None:
        return True
    return partition.bandwidth is not None and partition.bandwidth >= bandwidth


def count_whole(table: PartitionTable, used: Minors, smallest: int) -> int:
    """Weigh the partitions of at least ``smallest`` GPUs that have no used GPU."""
    sizes = sorted(size for size in table.by_size if size > 1)
    return sum(
        _SIZE_WEIGHT**rank * max(1, partition.score)
        for rank, size in enumerate(sizes)
        if size >= smallest
        for partition in table.by_size[size]
        if not partition.minors & used
    )
