"""Pods that use GPUs without a record of which ones: what they take from others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.cluster import make_unit
from tests.device.nodes import MEMORY
from tests.device.test_plugin import gpu_cluster, part, whole
from tests.support.laws import examples

from koord.core.device.ledger import UnrecordedUse, find_unrecorded
from koord.core.model.device_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED

if TYPE_CHECKING:
    from tests.builders import PodBuilder
    from tests.cluster import FakeCluster


def foreign(name: str, **amounts: int) -> PodBuilder:
    names = {"core": GPU_CORE, "ratio": GPU_MEMORY_RATIO, "memory": GPU_MEMORY, "gpus": GPU_SHARED}
    requests = {names[key]: amount for key, amount in amounts.items()}
    return make_pod(name).requests(**requests).not_ours().bound("n0")


def fits(cluster: FakeCluster, pod: PodBuilder) -> bool:
    return bool(cluster.plan(make_unit("u", [pod.build()])).placements)


def test_a_hundredth_of_each_gpu_takes_one_gpu_of_the_node() -> None:
    """Eight times 1 % in each pod: it took the whole node."""
    cluster = gpu_cluster(1)
    cluster.pods(*(foreign(f"f{at}", core=8, ratio=8, gpus=8) for at in range(12)))
    assert fits(cluster, whole("a", 7))
    assert not fits(cluster, whole("b", 8))


def test_parts_of_others_leave_gpus_to_share() -> None:
    cluster = gpu_cluster(1)
    cluster.pods(foreign("f", core=8, ratio=8, gpus=8))
    plan = cluster.plan(make_unit("u", [part(f"p{at}", 100) for at in range(7)]))
    assert len(plan.placements[0].assignments) == 7
    assert not fits(gpu_cluster(1).pods(foreign("f", core=800, ratio=800, gpus=8)), part("p", 1))


PARTS = st.tuples(st.integers(0, 120), st.integers(0, 2 * MEMORY))


@settings(max_examples=examples(30))
@given(st.lists(PARTS, max_size=12))
def test_pods_take_the_fewest_gpus_that_hold_what_they_request(
    requests: list[tuple[int, int]],
) -> None:
    cluster = gpu_cluster(1)
    cluster.pods(*(foreign(f"f{at}", core=c, memory=m) for at, (c, m) in enumerate(requests)))
    hundredths = sum(core for core, _ in requests)
    memory = sum(bytes_ for _, bytes_ in requests)
    fewest = max(-(-hundredths // 100), -(-memory // MEMORY))
    for gpus in {max(1, 8 - fewest), min(8, max(1, 9 - fewest))}:
        assert fits(cluster, whole("a", gpus)) == (gpus <= 8 - fewest)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 900), st.integers(0, 9)), max_size=8))
def test_use_is_a_sum_that_is_taken_back(pods: list[tuple[int, int, int]]) -> None:
    total = UnrecordedUse()
    for use in pods:
        total = total.plus(UnrecordedUse(*use))
    for use in reversed(pods):
        total = total.plus(UnrecordedUse(*use), -1)
    assert total == UnrecordedUse()


def test_cards_are_counted_one_by_one() -> None:
    assert find_unrecorded((("nvidia.com/gpu", 2),)) == UnrecordedUse(2)
    assert find_unrecorded((("huawei.com/npu-core", 3),)) == UnrecordedUse(1)
    assert find_unrecorded(((GPU_SHARED, 8),)) == UnrecordedUse(0, 8)
    assert find_unrecorded((("cpu", 8),)) == UnrecordedUse()
