"""How many equal pods fit on the devices of a node: counted by arithmetic, never too few."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster, make_unit, nodes_of, plan_in
from tests.device.nodes import GIB, MEMORY, a100x8, report, wish
from tests.support.laws import examples

from koord.core.device.allocate import DEFAULTS, allocate
from koord.core.device.causes import DeviceCause
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import DeviceRequest, Exclusive, Hint, Scope
from koord.core.device.plugin import Devices
from koord.core.device.states import DeviceDemand, LedgerStates, count_most
from koord.core.engine.arrays import NO_LIMIT
from koord.core.model.device_names import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    RDMA_SHARE,
)

TINY = {
    "bytes": {GPU_MEMORY: 150},
    "no bytes per device": {GPU_SHARED: 2, GPU_MEMORY: 1},
    "percent of a NIC": {RDMA_SHARE: 1},
}


def give_all(ledger: DeviceLedger, request: DeviceRequest) -> int:
    count = 0
    while not isinstance(shares := allocate(ledger, request), DeviceCause):
        ledger, count = ledger.with_shares(shares), count + 1
    return count


@pytest.mark.parametrize(
    ("requests", "count"),
    [
        pytest.param({GPU_MEMORY: MEMORY // 4}, 32, id="bytes"),
        pytest.param({GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, 8, id="whole"),
        pytest.param({GPU_CORE: 300, GPU_MEMORY_RATIO: 300}, 2, id="three of eight"),
        pytest.param({GPU_CORE: 10, GPU_MEMORY_RATIO: 30}, 24, id="ratio"),
        pytest.param({RDMA_SHARE: 1}, 400, id="percent of a NIC"),
        pytest.param({GPU_MEMORY: 150}, MEMORY // 150 * 8, id="150 bytes"),
    ],
)
def test_counts_of_simple_requests_are_exact(requests: dict[str, int], count: int) -> None:
    assert count_most(DeviceLedger(a100x8()), wish(requests), DEFAULTS) == (count, True)


AMOUNTS = st.sampled_from([7, 20, 33, 50, 100])
HINTS = st.builds(
    Hint,
    scope=st.sampled_from([None, Scope.PCIE, Scope.NUMA_NODE]),
    exclusive=st.sampled_from([None, Exclusive.DEVICE, Exclusive.PCIE]),
)


@st.composite
def requests(draw: st.DrawFn) -> DeviceRequest:
    """Draw parts of GPUs by bytes or ratio, of one or several GPUs, whole ones, or with NICs."""
    count, hint = draw(st.integers(1, 4)), draw(st.one_of(st.just(Hint()), HINTS))
    amounts = {GPU_SHARED: count, GPU_CORE: count * draw(AMOUNTS)}
    if draw(st.booleans()):
        amounts[GPU_MEMORY] = count * (draw(AMOUNTS) * MEMORY // 100 + draw(st.integers(-2, 2)))
    else:
        amounts[GPU_MEMORY_RATIO] = count * draw(AMOUNTS)
    if draw(st.booleans()):
        amounts[RDMA_SHARE] = draw(AMOUNTS)
    return wish(amounts, joint=draw(st.sampled_from([None, "", "SamePCIe"])), gpu=hint)


@settings(max_examples=examples(40))
@given(st.lists(requests(), max_size=4), requests())
def test_counts_are_never_too_low_and_exact_where_they_say_so(
    before: list[DeviceRequest], request: DeviceRequest
) -> None:
    ledger = DeviceLedger(a100x8())
    for earlier in before:
        shares = allocate(ledger, earlier)
        if not isinstance(shares, DeviceCause):
            ledger = ledger.with_shares(shares)
    fitting = give_all(ledger, request)
    if not fitting:
        return
    most, is_exact = count_most(ledger, request, DEFAULTS)
    assert most == fitting if is_exact else most >= fitting
    states = LedgerStates(DEFAULTS)
    count = states.fit(states.number(ledger), DeviceDemand(request)).count
    assert count >= fitting
    assert count == fitting or fitting >= 8, "what is few is counted exactly"


@pytest.mark.parametrize("requests", TINY.values(), ids=TINY.keys())
def test_a_tiny_request_is_placed_at_the_cost_of_any_other(requests: dict[str, int]) -> None:
    """One pod that asks for 150 bytes must not have as many pods counted as bytes fit."""
    taken = []
    for amounts in ({GPU_MEMORY: 40 * GIB}, requests):
        cluster = make_cluster()
        for at in range(4):
            node = make_node(f"n{at}").resource(RDMA_SHARE, 400).resource(GPU_SHARED, 800)
            cluster.nodes(node.resource(GPU_MEMORY, 8 * MEMORY))
            cluster.state.plugin(Devices).upsert(report(f"n{at}"))
        pods = [make_pod(f"p{at}") for at in range(3)]
        for pod in pods:
            for name, amount in amounts.items():
                pod.resource(name, amount)
        cycle = cluster.open_cycle()
        outcome = plan_in(cycle, [make_unit("a", pods)])
        assert len(nodes_of(outcome)) == 3
        taken.append(cycle.steps.taken)
        assert cluster.state.plugin(Devices).states.count < 100
    usual, tiny = taken
    assert tiny < 8 * usual


def test_what_takes_no_room_at_all_fits_without_limit() -> None:
    states = LedgerStates(DEFAULTS)
    request = wish(TINY["no bytes per device"])
    assert (
        states.fit(states.number(DeviceLedger(a100x8())), DeviceDemand(request)).count == NO_LIMIT
    )
