"""What quotas count for pods that use devices."""

from __future__ import annotations

import pytest
from tests.device.nodes import GIB, MEMORY, whole

from koord.core.device.allocation import AllocatedDevices, count_given, count_possible
from koord.core.device.model import DeviceShare, Exclusive, Hint, make_part
from koord.core.device.request import NO_ALLOCATION_HINTS, DeviceAllocationHints
from koord.core.model.device_names import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NVIDIA_GPU,
    RDMA,
    RDMA_SHARE,
)
from koord.core.quota.model import QuotaRules
from koord.core.quota.usage import count_devices

ALONE = DeviceAllocationHints(hints=((GPU, Hint(exclusive=Exclusive.DEVICE)),))


def cards(counted: tuple[tuple[str, int], ...], requests: dict[str, int]) -> int:
    return count_devices(dict(counted) or requests, QuotaRules())[NVIDIA_GPU]


@pytest.mark.parametrize(
    ("requests", "wishes", "expected"),
    [
        ({NVIDIA_GPU: 2}, NO_ALLOCATION_HINTS, 2),
        ({GPU_CORE: 150, GPU_MEMORY_RATIO: 150, GPU_SHARED: 3}, NO_ALLOCATION_HINTS, 2),
        ({GPU_CORE: 10, GPU_MEMORY_RATIO: 10}, NO_ALLOCATION_HINTS, 1),
        ({GPU_CORE: 30, GPU_MEMORY_RATIO: 30, GPU_SHARED: 3}, ALONE, 3),
        # How much of a GPU that is depends on its model.
        ({GPU_MEMORY: 40 * GIB}, NO_ALLOCATION_HINTS, 1),
        ({GPU_MEMORY: 40 * GIB, GPU_SHARED: 4}, NO_ALLOCATION_HINTS, 4),
        ({GPU_CORE: 5, GPU_MEMORY: 40 * GIB}, NO_ALLOCATION_HINTS, 1),
    ],
)
def test_what_a_waiting_pod_may_be_given(
    requests: dict[str, int], wishes: DeviceAllocationHints, expected: int
) -> None:
    counted = count_possible(tuple(sorted(requests.items())), wishes)
    assert cards(counted, requests) == expected


def test_a_pod_without_devices_counts_as_it_requests() -> None:
    assert count_possible((("cpu", 1000),), NO_ALLOCATION_HINTS) == ()
    assert count_given((("cpu", 1000),), ()) == ()


def test_what_a_pod_was_given_counts() -> None:
    third = DeviceShare(
        GPU, 0, make_part({GPU_CORE: 5, GPU_MEMORY: MEMORY // 3, GPU_MEMORY_RATIO: 33})
    )
    nics = tuple(DeviceShare(RDMA, minor, make_part({RDMA_SHARE: 1})) for minor in (1, 2))
    requests = {"cpu": 1000, GPU_CORE: 5, GPU_MEMORY: MEMORY // 3, RDMA_SHARE: 1}
    given = AllocatedDevices("uid", (third, *nics), ())
    assert dict(count_given(tuple(sorted(requests.items())), (given,))) == {
        **requests,
        GPU_MEMORY_RATIO: 33,
        RDMA_SHARE: 2,
    }


def test_a_device_for_itself_alone_counts_whole() -> None:
    requests = {GPU_CORE: 10, GPU_MEMORY_RATIO: 10}
    counted = count_given(tuple(requests.items()), (AllocatedDevices("uid", (whole(0),), ()),))
    assert dict(counted) == {GPU_CORE: 100, GPU_MEMORY: MEMORY, GPU_MEMORY_RATIO: 100}
