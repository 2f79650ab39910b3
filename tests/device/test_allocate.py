"""Allocation on one node: the worked examples of the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.device.nodes import (
    A100_PLACES,
    GIB,
    MEMORY,
    a100x8,
    give,
    gpu,
    half,
    make_node,
    nic,
    whole,
    wish,
)

from koord.core.device.allocate import AllocationSettings, allocate
from koord.core.device.causes import (
    INSUFFICIENT,
    INSUFFICIENT_GPUS,
    INSUFFICIENT_PARTITION,
    INSUFFICIENT_SCOPE,
    JOINT,
    NO_FUNCTIONS,
    NO_PARTITION_TABLE,
    NO_SUCH_DEVICE,
    PARTITION_SIZE,
    PRIMARY,
    DeviceCause,
)
from koord.core.device.choice import DEFAULT_WEIGHTS
from koord.core.device.inventory import HOPPER_PARTITIONS
from koord.core.device.ledger import DeviceLedger, UnrecordedUse
from koord.core.device.model import (
    KOORDINATOR,
    AllocateStrategy,
    DeviceLocation,
    DeviceScoring,
    DeviceShare,
    DeviceTerms,
    Exclusive,
    Hint,
    Partition,
    PartitionHint,
    PartitionTable,
    Scope,
    make_part,
    minors_of,
)
from koord.core.model.device_names import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    KOORD_GPU,
    NPU_CORE,
    NVIDIA_GPU,
    RDMA,
    RDMA_SHARE,
)

ANY_FUNCTION = Hint(function_selector=())
PACKED = AllocationSettings(scoring=DeviceScoring(DEFAULT_WEIGHTS, packs=True))
COMPAT = AllocationSettings(KOORDINATOR)


def on(*used: DeviceShare) -> DeviceLedger:
    return DeviceLedger(a100x8()).with_shares(used)


def cause_of(answer: object) -> object:
    assert isinstance(answer, DeviceCause), answer
    return answer.cause


@pytest.mark.parametrize(
    ("used", "count", "scope", "expected"),
    [
        ((), 1, None, [0]),
        ((), 2, None, [0, 1]),
        ((), 3, None, [0, 1, 2]),
        ((), 6, None, [0, 1, 2, 3, 4, 5]),
        ((0,), 2, None, [2, 3]),
        ((0,), 3, None, [1, 2, 3]),
        ((5,), 1, None, [4]),
        ((5,), 2, Scope.PCIE, [6, 7]),
        ((5,), 4, Scope.NUMA_NODE, [0, 1, 2, 3]),
        ((), 1, Scope.DEVICE, [0]),
    ],
)
def test_gpus_are_close_to_each_other_and_leave_unused_parts_whole(
    used: tuple[int, ...], count: int, scope: Scope | None, expected: list[int]
) -> None:
    request = wish({NVIDIA_GPU: count}, gpu=Hint(scope=scope))
    assert give(on(*map(whole, used)), request)[1] == {GPU: expected}


@pytest.mark.parametrize(("count", "scope"), [(4, Scope.NUMA_NODE), (2, Scope.DEVICE)])
def test_a_scope_that_no_part_of_the_node_meets(count: int, scope: Scope) -> None:
    request = wish({NVIDIA_GPU: count}, gpu=Hint(scope=scope))
    assert cause_of(allocate(on(whole(0), whole(5)), request)) is INSUFFICIENT_SCOPE


def test_shares_go_to_the_fuller_gpu_of_the_most_used_path() -> None:
    request = wish({GPU_CORE: 50, GPU_MEMORY_RATIO: 50})
    assert give(on(whole(5), half(7)), request, PACKED)[1] == {GPU: [7]}


def test_sockets_count_between_numa_nodes_and_the_node() -> None:
    places = [DeviceLocation(n // 4, n // 2, f"pcie{n}") for n in range(8)]
    ledger = DeviceLedger(make_node(gpu(n, place) for n, place in enumerate(places)))
    used = ledger.with_shares([whole(0)])
    assert give(used, wish({NVIDIA_GPU: 3}))[1] == {GPU: [1, 2, 3]}
    assert give(used, wish({NVIDIA_GPU: 4}))[1] == {GPU: [4, 5, 6, 7]}


def test_gpus_of_unknown_place_do_not_keep_the_others_from_being_chosen_by_theirs() -> None:
    gpus = [gpu(0), *(gpu(n, place) for n, place in enumerate(A100_PLACES) if n)]
    ledger = DeviceLedger(make_node(gpus))
    assert give(ledger, wish({NVIDIA_GPU: 2}))[1] == {GPU: [2, 3]}
    assert give(ledger, wish({NVIDIA_GPU: 8}))[1] == {GPU: list(range(8))}
    assert give(ledger, wish({NVIDIA_GPU: 2}), COMPAT)[1] == {GPU: [0, 1]}


def test_four_pods_one_after_the_other() -> None:
    ledger = DeviceLedger(a100x8(), is_exact=False)
    steps = [
        ({KOORD_GPU: 200, RDMA_SHARE: 100}, "SamePCIe", {GPU: [0, 1], RDMA: [1]}),
        ({KOORD_GPU: 100, RDMA_SHARE: 100}, "SamePCIe", {GPU: [2], RDMA: [2]}),
        ({GPU_CORE: 50, GPU_MEMORY: 16 * GIB}, None, {GPU: [3]}),
        ({GPU_CORE: 50, GPU_MEMORY: 16 * GIB}, None, {GPU: [3]}),
    ]
    for requests, joint, expected in steps:
        hints = {RDMA: ANY_FUNCTION} if joint else {}
        ledger, minors = give(ledger, wish(requests, joint=joint, **hints), PACKED)
        assert minors == expected
    assert give(ledger, wish({GPU_CORE: 50, GPU_MEMORY: 16 * GIB}))[1] == {GPU: [4]}
    near = wish({NVIDIA_GPU: 4}, gpu=Hint(scope=Scope.NUMA_NODE))
    assert give(ledger, near)[1] == {GPU: [4, 5, 6, 7]}
    assert cause_of(allocate(ledger, wish({NVIDIA_GPU: 5}))) is INSUFFICIENT_GPUS


def test_memory_and_ratio_complete_each_other() -> None:
    (share,) = allocate(on(), wish({GPU_CORE: 50, GPU_MEMORY: 16 * GIB}))  # type: ignore[misc]
    assert dict(share.part) == {GPU_CORE: 50, GPU_MEMORY: 16 * GIB, GPU_MEMORY_RATIO: 20}
    (share,) = allocate(on(), wish({GPU_MEMORY_RATIO: 50}))  # type: ignore[misc]
    assert dict(share.part) == {GPU_MEMORY: MEMORY // 2, GPU_MEMORY_RATIO: 50}


def test_rounded_ratios_do_not_add_up_to_memory_that_is_not_there() -> None:
    total = make_part({GPU_CORE: 100, GPU_MEMORY: 24 * GIB, GPU_MEMORY_RATIO: 100})
    ledger = DeviceLedger(make_node([gpu(0, total=total)]))
    for _ in range(8):
        ledger, _minors = give(ledger, wish({GPU_MEMORY: 3 * GIB}))
    assert ledger.free[GPU, 0][GPU_MEMORY_RATIO] == 0
    assert isinstance(allocate(ledger, wish({GPU_MEMORY_RATIO: 4})), DeviceCause)


def test_unequal_parts_get_a_gpu_each() -> None:
    parts = (
        make_part({GPU_CORE: 20, GPU_MEMORY: 10 * GIB}),
        make_part({GPU_CORE: 50, GPU_MEMORY: 60 * GIB}),
    )
    request = wish({GPU_SHARED: 2, GPU_CORE: 70, GPU_MEMORY: 70 * GIB}, gpu_parts=parts)
    # The switch of GPU 0 and 1 is used; the larger part does not fit on GPU 0 beside its half.
    shares = allocate(on(half(0)), request)
    assert not isinstance(shares, DeviceCause)
    assert [(share.minor, dict(share.part)[GPU_CORE]) for share in shares] == [(0, 20), (1, 50)]


def test_a_resource_that_a_device_does_not_have_is_none_of_it() -> None:
    cause = allocate(on(), wish({NPU_CORE: 20, GPU_MEMORY_RATIO: 100}))
    assert cause_of(cause) is INSUFFICIENT_GPUS


def test_unhealthy_devices_give_nothing_and_their_use_stays() -> None:
    inventory = a100x8()
    gpus = tuple(
        replace(device, total=()) if device.minor < 4 else device for device in inventory.of(GPU)
    )
    sick = DeviceLedger(make_node(gpus)).with_shares([whole(0)])
    assert give(sick, wish({NVIDIA_GPU: 1}))[1] == {GPU: [4]}
    assert sick.with_inventory(inventory).free[GPU, 0][GPU_CORE] == 0


def test_gpus_of_pods_that_nobody_knows_are_left_free() -> None:
    ledger = on(half(0)).with_unrecorded(UnrecordedUse(3))
    assert give(ledger, wish({NVIDIA_GPU: 4}))[1] == {GPU: [4, 5, 6, 7]}
    assert isinstance(allocate(ledger, wish({NVIDIA_GPU: 5})), DeviceCause)
    assert give(ledger, wish({GPU_MEMORY_RATIO: 50}))[1] == {GPU: [0]}
    assert isinstance(allocate(ledger, wish({GPU_MEMORY_RATIO: 60})), DeviceCause)


class TestPartitions:
    """GPU partitions."""

    @staticmethod
    def hopper(*used: int, is_honored: bool = True) -> DeviceLedger:
        table = PartitionTable(HOPPER_PARTITIONS, is_honored)
        return DeviceLedger(replace(a100x8(), table=table)).with_shares(map(whole, used))

    @pytest.mark.parametrize(
        ("used", "count", "expected"),
        [
            ((), 1, [0]),
            ((4,), 1, [5]),
            ((4,), 2, [6, 7]),
            ((0, 1), 2, [2, 3]),
            ((2, 3), 2, [0, 1]),
            ((0, 6), 2, [2, 3]),
            ((0,), 4, [4, 5, 6, 7]),
        ],
    )
    def test_the_most_partitions_stay_whole(
        self, used: tuple[int, ...], count: int, expected: list[int]
    ) -> None:
        assert give(self.hopper(*used), wish({NVIDIA_GPU: count}))[1] == {GPU: expected}

    def test_a_size_that_is_not_listed(self) -> None:
        request = wish({NVIDIA_GPU: 3})
        assert give(self.hopper(2, 3, is_honored=False), request)[1] == {GPU: [4, 5, 6]}
        assert cause_of(allocate(self.hopper(), request)) is PARTITION_SIZE

    def test_none_is_free(self) -> None:
        cause = allocate(self.hopper(0, 4), wish({NVIDIA_GPU: 4}))
        assert cause_of(cause) is INSUFFICIENT_PARTITION

    def test_a_wish_without_a_table(self) -> None:
        request = replace(wish({NVIDIA_GPU: 1}), partition=PartitionHint())
        assert cause_of(allocate(on(), request)) is NO_PARTITION_TABLE

    def test_one_card_where_only_larger_ones_are_listed(self) -> None:
        quads = (Partition(minors_of(range(4))), Partition(minors_of(range(4, 8))))
        table = PartitionTable(((4, quads),), is_honored=True)
        ledger = DeviceLedger(replace(a100x8(), table=table)).with_shares([whole(5)])
        assert give(ledger, wish({NVIDIA_GPU: 1}))[1] == {GPU: [4]}
        cause = allocate(ledger, wish({NVIDIA_GPU: 1}), settings=COMPAT)
        assert cause_of(cause) is PARTITION_SIZE

    def test_scores_and_bandwidth(self) -> None:
        pairs = (
            Partition(0b0011, score=1, bandwidth=100),
            Partition(0b1100, score=2, bandwidth=200),
            Partition(0b110000, score=1, bandwidth=400),
        )
        table = PartitionTable(((2, pairs),), is_honored=True)
        ledger = DeviceLedger(replace(a100x8(), table=table))
        request = wish({NVIDIA_GPU: 2})
        assert give(ledger, request)[1] == {GPU: [2, 3]}
        fast = replace(request, partition=PartitionHint(bandwidth=300))
        assert give(ledger, fast)[1] == {GPU: [4, 5]}
        strict = replace(request, partition=PartitionHint(is_restricted=True, bandwidth=300))
        assert cause_of(allocate(ledger, strict)) is INSUFFICIENT_PARTITION


class TestJoint:
    """GPUs with NICs."""

    @pytest.mark.parametrize(
        ("count", "gpus", "nics"),
        [
            (1, [0], [1]),
            (2, [0, 1], [1]),
            (3, [0, 1, 2], [1, 2]),
            (6, [0, 1, 2, 3, 4, 5], [1, 2, 3]),
            (8, list(range(8)), [1, 2, 3, 4]),
        ],
    )
    def test_a_nic_per_switch(self, count: int, gpus: list[int], nics: list[int]) -> None:
        request = wish({NVIDIA_GPU: count, RDMA_SHARE: 1}, joint="", rdma=ANY_FUNCTION)
        assert give(on(), request)[1] == {GPU: gpus, RDMA: nics}

    def test_functions_are_given_once(self) -> None:
        request = wish({RDMA_SHARE: 1}, rdma=ANY_FUNCTION)
        ledger = DeviceLedger(make_node((), [nic(0)]))
        taken = []
        for _ in range(8):
            (share,) = allocate(ledger, request)  # type: ignore[misc]
            taken += share.functions
            ledger = ledger.with_shares([share])
        assert taken == list(range(8))
        assert cause_of(allocate(ledger, request)) is INSUFFICIENT

    def test_other_gpus_are_tried_where_the_nics_of_the_first_are_taken(self) -> None:
        full = DeviceShare(RDMA, 1, make_part({RDMA_SHARE: 100}))
        request = wish({NVIDIA_GPU: 3, RDMA_SHARE: 1}, joint="SamePCIe")
        ledger = on(whole(0), full)
        assert give(ledger, request)[1] == {GPU: [4, 5, 6], RDMA: [3, 4]}
        assert cause_of(allocate(ledger, request, settings=COMPAT)) is JOINT

    def test_too_few_gpus(self) -> None:
        request = wish({NVIDIA_GPU: 8, RDMA_SHARE: 1}, joint="SamePCIe")
        assert cause_of(allocate(on(whole(0)), request)) is PRIMARY

    def test_fewer_nics_suffice_without_a_required_scope(self) -> None:
        node = make_node(a100x8().of(GPU), [nic(1, A100_PLACES[0])])
        request = wish({NVIDIA_GPU: 4, RDMA_SHARE: 1}, joint="")
        assert give(DeviceLedger(node), request)[1] == {GPU: [0, 1, 2, 3], RDMA: [1]}

    def test_several_nics_are_spread_over_the_switches(self) -> None:
        nics = [nic(n, A100_PLACES[n % 2 * 2]) for n in range(6)]
        node = make_node(a100x8().of(GPU), nics)
        request = wish({NVIDIA_GPU: 4, RDMA_SHARE: 300}, joint="")
        assert give(DeviceLedger(node), request)[1] == {GPU: [0, 1, 2, 3], RDMA: [0, 1, 2]}


class TestNics:
    """How many devices a request is for."""

    @pytest.mark.parametrize(
        ("amount", "hint", "count", "each"),
        [
            (100, Hint(), 1, 100),
            (400, Hint(), 4, 100),
            (1, Hint(strategy=AllocateStrategy.APPLY_FOR_ALL), 4, 1),
            (3, Hint(strategy=AllocateStrategy.REQUESTS_AS_COUNT), 3, 1),
            (
                3,
                Hint(strategy=AllocateStrategy.REQUESTS_AS_COUNT, exclusive=Exclusive.DEVICE),
                3,
                100,
            ),
        ],
    )
    def test_count_and_amount(self, amount: int, hint: Hint, count: int, each: int) -> None:
        shares = allocate(on(), wish({RDMA_SHARE: amount}, rdma=hint))
        assert not isinstance(shares, DeviceCause)
        assert [dict(share.part)[RDMA_SHARE] for share in shares] == [each] * count

    def test_no_device_and_no_function(self) -> None:
        bare = DeviceLedger(make_node([gpu(0)]))
        assert cause_of(allocate(bare, wish({RDMA_SHARE: 1}))) is NO_SUCH_DEVICE
        plain = DeviceLedger(make_node((), [replace(nic(0), groups=())]))
        request = wish({RDMA_SHARE: 1}, rdma=ANY_FUNCTION)
        assert cause_of(allocate(plain, request)) is NO_FUNCTIONS


class TestExclusive:
    """Devices and switches that a pod has for itself."""

    def test_a_device(self) -> None:
        alone = wish({GPU_MEMORY_RATIO: 50}, gpu=Hint(exclusive=Exclusive.DEVICE))
        ledger, minors = give(on(half(0)), alone)
        assert minors == {GPU: [1]}
        assert ledger.free[GPU, 1][GPU_MEMORY_RATIO] == 0

    def test_a_switch_before_and_afterwards(self) -> None:
        alone = wish({NVIDIA_GPU: 1}, gpu=Hint(exclusive=Exclusive.PCIE))
        ledger, minors = give(on(half(0)), alone)
        assert minors == {GPU: [2]}
        assert isinstance(allocate(ledger, wish({NVIDIA_GPU: 6})), DeviceCause)
        assert give(ledger, wish({NVIDIA_GPU: 5}))[1] == {GPU: [1, 4, 5, 6, 7]}


class TestTerms:
    """What restricts an attempt besides the request."""

    def test_numa_nodes(self) -> None:
        terms = DeviceTerms(numa=frozenset({1}))
        (share,) = allocate(on(), wish({NVIDIA_GPU: 1}), terms)  # type: ignore[misc]
        assert share.minor == 4
        assert isinstance(
            allocate(DeviceLedger(make_node([gpu(0)])), wish({NVIDIA_GPU: 1}), terms), DeviceCause
        )

    def test_required_devices_as_far_as_their_amounts_go(self) -> None:
        left = make_part({GPU_CORE: 70, GPU_MEMORY: MEMORY, GPU_MEMORY_RATIO: 70})
        terms = DeviceTerms(required={(GPU, 6): left})
        (share,) = allocate(on(), wish({GPU_CORE: 50, GPU_MEMORY_RATIO: 50}), terms)  # type: ignore[misc]
        assert share.minor == 6
        cause = allocate(on(), wish({GPU_CORE: 80, GPU_MEMORY_RATIO: 80}), terms)
        assert isinstance(cause, DeviceCause)

    def test_preferred_devices_come_first(self) -> None:
        terms = DeviceTerms(preferred=frozenset({(RDMA, 3)}))
        (share,) = allocate(on(), wish({RDMA_SHARE: 1}), terms)  # type: ignore[misc]
        assert share.minor == 3
