"""Chooses GPUs by the partition table of a node (NVSwitch, HCCS).

Partitions with most of the preferred devices come first, then those of a higher score. Among
equals the one is chosen that leaves the most partitions whole, large ones first; then the one that
is listed first.
"""

from collections.abc import Sequence
from itertools import groupby

from koord.core.device.causes import (
    INSUFFICIENT_PARTITION,
    NO_PARTITION_TABLE,
    PARTITION_SIZE,
    DeviceCause,
)
from koord.core.device.choice import Candidate, Picked, count_preferred
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import (
    DeviceRequest,
    DeviceRules,
    Minors,
    Partition,
    PartitionTable,
    TypeRequest,
    minors_of,
)
from koord.core.model.device_names import GPU

_WEIGHT = 100
"""A larger partition that stays whole outweighs all smaller ones."""


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
    wish = request.partition
    bandwidth = wish.bandwidth if wish is not None else None
    ways: list[Partition] = []
    ordered = sorted(listed, key=lambda partition: -partition.score)
    for _, group in groupby(ordered, key=lambda partition: partition.score):
        feasible = [partition for partition in group if _is_feasible(partition, free, bandwidth)]
        ways += sorted(
            feasible, key=lambda partition: -count_whole(table, used | partition.minors, count)
        )
        if wish is not None and wish.is_restricted:
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
        _WEIGHT**rank * max(1, partition.score)
        for rank, size in enumerate(sizes)
        if size >= smallest
        for partition in table.by_size[size]
        if not partition.minors & used
    )
