"""Every state of a node with eight GPUs and eight NICs, compared with brute force.

Devices that are alike are counted, so states are counts per switch; states that differ in the
order of switches or NUMA nodes are one.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING

import pytest
from tests.device.nodes import GPU_TOTAL, gpu, half, make_node, nic, whole, wish

from koord.core.device.allocate import allocate
from koord.core.device.causes import DeviceCause
from koord.core.device.inventory import HOPPER_PARTITIONS
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import (
    DeviceLocation,
    DeviceShare,
    Hint,
    PartitionTable,
    Scope,
    make_part,
)
from koord.core.model.device_names import (
    GPU,
    GPU_CORE,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NVIDIA_GPU,
    RDMA,
    RDMA_SHARE,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from koord.core.device.model import DeviceRequest

SWITCHES = 4
PLACES = [DeviceLocation(0, switch // 2, f"pcie{switch}") for switch in range(SWITCHES)]
NODE = make_node(
    (gpu(n, PLACES[n // 2]) for n in range(8)), (nic(n, PLACES[n // 2]) for n in range(8))
)
TAKEN_NIC = make_part({RDMA_SHARE: 100})
Free = tuple[tuple[int, int], ...]
"""Free GPUs and NICs of each switch."""


PART = 4
"""A part of the states in each ordinary run; `-m slow` tries the others."""
each_part = pytest.mark.parametrize(
    "first", [0, *(pytest.param(at, marks=pytest.mark.slow) for at in range(1, PART))]
)


@cache
def states() -> list[Free]:
    switches = list(product(range(3), range(3)))
    numa = list(combinations_with_replacement(switches, 2))
    return [left + right for left, right in combinations_with_replacement(numa, 2)]


def make_ledger(free: Free) -> DeviceLedger:
    used = [whole(2 * i + n) for i, (gpus, _) in enumerate(free) for n in range(2 - gpus)]
    used += [
        DeviceShare(RDMA, 2 * i + n, TAKEN_NIC)
        for i, (_, nics) in enumerate(free)
        for n in range(2 - nics)
    ]
    return DeviceLedger(NODE).with_shares(used)


def choices(most: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to take ``count`` from switches with these numbers."""
    for counts in product(*(range(n + 1) for n in most)):
        if sum(counts) == count:
            yield counts


def scope_of(taken: Sequence[int]) -> Scope:
    """Return the smallest part of the machine that has all that is taken."""
    switches = [i for i, n in enumerate(taken) if n]
    if len(switches) == 1:
        return Scope.PCIE
    return Scope.NUMA_NODE if len({i // 2 for i in switches}) == 1 else Scope.NODE


def best_scope(free: Free, count: int) -> Scope | None:
    gpus = [zone for zone, _ in free]
    return max((scope_of(taken) for taken in choices(gpus, count)), default=None)


def can_join(free: Free, count: int, nics: int, scope: Scope | None) -> bool:
    """Whether GPUs and NICs can be taken from exactly the same switches, a NIC per switch."""
    for taken in choices([zone for zone, _ in free], count):
        if scope is not None and scope_of(taken) < scope:
            continue
        switches = [i for i, n in enumerate(taken) if n]
        wanted = max(nics, len(switches))
        for given in choices([n for _, n in free], wanted):
            if {i for i, n in enumerate(given) if n} == set(switches):
                return True
    return False


def taken_by_switch(shares: Sequence[DeviceShare], kind: str) -> list[int]:
    counts = [0] * SWITCHES
    for share in shares:
        if share.kind == kind:
            counts[share.minor // 2] += 1
    return counts


def check_sound(
    ledger: DeviceLedger, request: DeviceRequest, shares: Sequence[DeviceShare]
) -> None:
    """Nothing is given twice or beyond what is free, and each type as often as asked."""
    keys = [(share.kind, share.minor) for share in shares]
    assert len(keys) == len(set(keys))
    for share in shares:
        free = ledger.free[share.kind, share.minor]
        assert all(free.get(key, 0) >= amount for key, amount in share.part)
    for type_request in request.types:
        given = sum(share.kind == type_request.kind for share in shares)
        assert (
            given == len(type_request.parts)
            if type_request.kind == GPU
            else given >= len(type_request.parts)
        )


@each_part
@pytest.mark.parametrize("scope", [None, Scope.NUMA_NODE, Scope.PCIE])
@pytest.mark.parametrize("count", range(1, 9))
def test_whole_gpus(count: int, scope: Scope | None, first: int) -> None:
    request = wish({NVIDIA_GPU: count}, gpu=Hint(scope=scope))
    for free in states()[first::PART]:
        if any(nics < 2 for _, nics in free):
            continue
        best = best_scope(free, count)
        ledger = make_ledger(free)
        shares = allocate(ledger, request)
        fits = best is not None and (scope is None or best >= scope)
        assert (not isinstance(shares, DeviceCause)) == fits, (free, shares)
        if not isinstance(shares, DeviceCause):
            check_sound(ledger, request, shares)
            assert scope_of(taken_by_switch(shares, GPU)) == best, (free, shares)


@each_part
@pytest.mark.parametrize("scope", [None, Scope.NUMA_NODE])
@pytest.mark.parametrize("nics", [1, 100, 200, 300, 400])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8])
def test_gpus_with_nics_on_the_same_switches(
    count: int, nics: int, scope: Scope | None, first: int
) -> None:
    requests = {NVIDIA_GPU: count, RDMA_SHARE: nics}
    request = wish(requests, joint="SamePCIe", gpu=Hint(scope=scope))
    for free in states()[first::PART]:
        ledger = make_ledger(free)
        shares = allocate(ledger, request)
        fits = can_join(free, count, max(1, nics // 100), scope)
        assert (not isinstance(shares, DeviceCause)) == fits, (free, shares)
        if not isinstance(shares, DeviceCause):
            check_sound(ledger, request, shares)
            gpus, given = taken_by_switch(shares, GPU), taken_by_switch(shares, RDMA)
            assert [n > 0 for n in gpus] == [n > 0 for n in given], (free, shares)


@each_part
@pytest.mark.parametrize("nics", [1, 200, 400])
@pytest.mark.parametrize("count", [1, 3, 4, 8])
def test_gpus_with_nics_anywhere(count: int, nics: int, first: int) -> None:
    request = wish({NVIDIA_GPU: count, RDMA_SHARE: nics}, joint="")
    for free in states()[first::PART]:
        ledger = make_ledger(free)
        shares = allocate(ledger, request)
        gpus, left = sum(zone for zone, _ in free), sum(zone for _, zone in free)
        fits = gpus >= count and left >= max(1, nics // 100)
        assert (not isinstance(shares, DeviceCause)) == fits, (free, shares)
        if not isinstance(shares, DeviceCause):
            check_sound(ledger, request, shares)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_partitions(count: int) -> None:
    table = PartitionTable(HOPPER_PARTITIONS, is_honored=True)
    node = make_node(NODE.of(GPU), (), table)
    request = wish({NVIDIA_GPU: count})
    for used in range(256):
        ledger = DeviceLedger(node).with_shares(whole(n) for n in range(8) if used >> n & 1)
        shares = allocate(ledger, request)
        listed = [partition.minors for partition in table.by_size[count]]
        fits = any(not partition & used for partition in listed)
        assert (not isinstance(shares, DeviceCause)) == fits, (used, shares)
        if not isinstance(shares, DeviceCause):
            check_sound(ledger, request, shares)
            assert sum(1 << share.minor for share in shares) in listed


@pytest.mark.parametrize(("count", "ratio"), [(1, 50), (1, 60), (2, 50), (4, 30)])
def test_shares(count: int, ratio: int) -> None:
    amounts = dict.fromkeys((GPU_CORE, GPU_MEMORY_RATIO), count * ratio) | {GPU_SHARED: count}
    request = wish(amounts)
    switches = list(combinations_with_replacement((0, 50, 100), 2))
    for state in combinations_with_replacement(switches, SWITCHES):
        levels = [used for pair in state for used in pair]
        used = [half(n) for n, level in enumerate(levels) if level == 50]
        used += [DeviceShare(GPU, n, GPU_TOTAL) for n, level in enumerate(levels) if level == 100]
        ledger = DeviceLedger(NODE).with_shares(used)
        shares = allocate(ledger, request)
        fits = sum(level + ratio <= 100 for level in levels) >= count
        assert (not isinstance(shares, DeviceCause)) == fits, (levels, shares)
        if not isinstance(shares, DeviceCause):
            check_sound(ledger, request, shares)
