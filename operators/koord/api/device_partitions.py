"""The partition table of a Device: sets of GPUs that the fabric lets work together.

Published tables have scores in quotes and the same number of GPUs twice; both are accepted. What
cannot be used is left out and reported, the rest of the table counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from koord.api.annotations import GPU_PARTITIONS, GpuPartition
from koord.api.parse import MAX_PROBLEMS, InvalidObject, Location, Problem, cut, format_field

MAX_GPUS: Final = 64
"""GPUs of one node."""
MAX_MINOR: Final = 1023
"""The largest that a Device may have."""
MAX_PARTITIONS: Final = 1024
"""Partitions of one table; those of 64 GPUs by powers of two are 127."""

_AT: Final[Location] = ("metadata", "annotations", GPU_PARTITIONS.key)


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """One partition; a higher ``score`` is preferred.

    ``bandwidth`` is that of the ring; None if it is not known.
    """

    minors: tuple[int, ...]
    link_type: str = ""
    bandwidth: int | None = None
    score: int = 0


Partitions: TypeAlias = Mapping[int, tuple[PartitionEntry, ...]]
"""Number of GPUs -> its partitions, in the order in which they are listed."""


@dataclass(frozen=True, slots=True)
class PartitionTableResult:
    """The table of a Device, None without a usable one; and what was left out, and why."""

    partitions: Partitions | None
    problems: tuple[Problem, ...] = ()


def parse_partitions(annotations: Mapping[str, str]) -> PartitionTableResult:
    """Read the partition table among the annotations of a Device."""
    written = GPU_PARTITIONS.read(annotations)
    if written is None:
        return PartitionTableResult(None)
    if isinstance(written, InvalidObject):
        return PartitionTableResult(None, written.problems)
    table: dict[int, list[PartitionEntry]] = {}
    problems: list[Problem] = []
    left = MAX_PARTITIONS
    for key, partitions in written.items():
        size, at = _parse_size(key), (*_AT, cut(key))
        if not size:
            message = f"must be a number of GPUs from 1 to {MAX_GPUS}, in quotes"
            problems.append(Problem(format_field(at), "", message))
            continue
        for index, partition in enumerate(partitions[:left]):
            problem = _find_problem(size, partition)
            if problem:
                field = format_field((*at, index, "minors"))
                problems.append(Problem(field, cut(str(partition.minors)), problem))
            else:
                table.setdefault(size, []).append(_make_entry(partition))
        left -= min(left, len(partitions))
    if sum(map(len, written.values())) > MAX_PARTITIONS:
        message = f"has more than {MAX_PARTITIONS} partitions; only these count"
        problems.append(Problem(format_field(_AT), "", message))
    usable = {size: tuple(table[size]) for size in sorted(table)}
    return PartitionTableResult(usable, tuple(problems[:MAX_PROBLEMS]))


def _parse_size(key: str) -> int:
    """Return the number of GPUs that a key says; 0 if it is none."""
    is_number = key.isascii() and key.isdigit() and len(key) <= len(str(MAX_GPUS))
    size = int(key) if is_number else 0
    return size if size <= MAX_GPUS else 0


def _find_problem(size: int, partition: GpuPartition) -> str:
    minors = partition.minors
    if len(set(minors)) < len(minors):
        return "name a GPU twice"
    if len(minors) != size:
        return f"must be {size}, as the key says"
    if max(minors) > MAX_MINOR:
        return f"must not be above {MAX_MINOR}"
    return ""


def _make_entry(partition: GpuPartition) -> PartitionEntry:
    bandwidth = partition.ring_bus_bandwidth
    return PartitionEntry(
        minors=tuple(partition.minors),
        link_type=partition.gpu_link_type,
        bandwidth=None if bandwidth is None else bandwidth.whole,
        score=partition.allocation_score,
    )
