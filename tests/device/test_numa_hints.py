"""NUMA hints of devices: the sets of NUMA nodes that can give a pod its devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.device.nodes import a100x8, gpu, make_node, whole, wish
from tests.device.test_counting import requests

from koord.core.device.allocate import allocate
from koord.core.device.causes import INSUFFICIENT_GPUS, DeviceCause
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import DeviceLocation, DeviceRequest, DeviceShare, DeviceTerms
from koord.core.device.numa_hints import find_hints
from koord.core.model.device_names import NVIDIA_GPU, RDMA_SHARE
from koord.core.model.zone_hints import NumaHint, list_sets, make_hints
from koord.core.numa.policy import NumaPolicy, align

ONE_GPU = wish({NVIDIA_GPU: 1})


def hint(nodes: int, score: int, *, is_preferred: bool = True) -> NumaHint:
    return NumaHint(nodes, is_preferred, score)


def test_sets_with_the_best_gpus_have_the_higher_score():
    hints = find_hints(DeviceLedger(a100x8()), wish({NVIDIA_GPU: 1, RDMA_SHARE: 2}, joint=""))
    expected = hint(1, 500), hint(2, 0), hint(3, 500, is_preferred=False)
    assert hints == {"gpu": expected, "rdma": expected}


def test_sets_with_too_few_devices_are_left_out():
    ledger = DeviceLedger(a100x8()).with_shares([whole(0)])
    hints = find_hints(ledger, wish({NVIDIA_GPU: 4}))
    assert hints == {"gpu": (hint(2, 500), hint(3, 500, is_preferred=False))}


def test_node_without_enough_devices_says_what_is_lacking():
    ledger = DeviceLedger(a100x8()).with_shares([whole(n) for n in range(8)])
    hints = find_hints(ledger, ONE_GPU)
    assert isinstance(hints, DeviceCause)
    assert hints.cause == INSUFFICIENT_GPUS


@pytest.mark.parametrize("number", [-1, 1 << 31])
def test_devices_without_a_numa_node_have_no_preference(number):
    hints = find_hints(DeviceLedger(make_node([gpu(0, DeviceLocation(0, number, "a"))])), ONE_GPU)
    assert hints == {"gpu": None}
    assert align(NumaPolicy.RESTRICTED, 0b11, list(hints.items())).cause is None


@given(st.lists(requests(), max_size=4), requests())
def test_hints_are_those_of_trying_every_set(
    before: list[DeviceRequest], request: DeviceRequest
) -> None:
    """Sets that contain a feasible one are not tried; there may be hundreds."""
    places = [DeviceLocation(0, at // 2, f"pcie{at}") for at in range(8)]
    ledger = DeviceLedger(make_node([gpu(at, place) for at, place in enumerate(places)]))
    for earlier in before:
        shares = allocate(ledger, earlier)
        if not isinstance(shares, DeviceCause):
            ledger = ledger.with_shares(shares)
    hints = find_hints(ledger, request)
    if isinstance(hints, DeviceCause):
        return
    all_nodes = DeviceTerms(numa=frozenset(range(4)))
    best = gpus_of(allocate(ledger, request, all_nodes))
    feasible = []
    for nodes in list_sets(0b1111):
        numbers = frozenset(at for at in range(4) if nodes >> at & 1)
        shares = allocate(ledger, request, DeviceTerms(numa=numbers))
        if not isinstance(shares, DeviceCause):
            feasible.append((nodes, 500 if gpus_of(shares) == best else 0))
    assert hints["gpu"] == make_hints(feasible)


def gpus_of(shares: tuple[DeviceShare, ...] | DeviceCause) -> list[int]:
    assert not isinstance(shares, DeviceCause)
    return [share.minor for share in shares if share.kind == "gpu"]
