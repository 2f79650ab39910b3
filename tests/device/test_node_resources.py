"""What a node publishes for its devices."""

from hypothesis import given
from hypothesis import strategies as st

from koord.core.device.node_resources import LABELS, PUBLISHED, Publishing, publish
from koord.core.device.vendors import DRIVER_LABEL, MODEL_LABEL, VENDOR_LABEL
from koord.core.model.device_names import (
    FPGA,
    FPGA_SHARE,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    KOORD_GPU,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    RDMA,
    RDMA_SHARE,
)

CARDS = [{GPU_CORE: 100, GPU_MEMORY: memory, GPU_MEMORY_RATIO: 100} for memory in (8000, 10000)]
NPUS = [
    {NPU_CORE: 20, NPU_CPU: 20, NPU_DVPP: 100, GPU_MEMORY: memory, GPU_MEMORY_RATIO: 100}
    for memory in (8000, 10000)
]
NVIDIA = {VENDOR_LABEL: "nvidia", MODEL_LABEL: "A100", DRIVER_LABEL: "480", "other": "label"}


def test_gpus() -> None:
    published = publish({GPU: CARDS}, NVIDIA)
    assert published.amounts == {
        KOORD_GPU: 200, GPU_CORE: 200, GPU_MEMORY: 18000, GPU_MEMORY_RATIO: 200, GPU_SHARED: 200,
    }  # fmt: skip
    assert published.labels == {VENDOR_LABEL: "nvidia", MODEL_LABEL: "A100", DRIVER_LABEL: "480"}
    assert published.removed_labels == frozenset()
    assert {NPU_CORE, NPU_CPU, NPU_DVPP, RDMA_SHARE, FPGA_SHARE} <= published.removed


def test_npus_are_no_koordinator_gpus() -> None:
    published = publish({GPU: NPUS}, {VENDOR_LABEL: "huawei"})
    assert published.amounts == {
        NPU_CORE: 40, NPU_CPU: 40, NPU_DVPP: 200,
        GPU_MEMORY: 18000, GPU_MEMORY_RATIO: 200, GPU_SHARED: 200,
    }  # fmt: skip
    assert KOORD_GPU in published.removed


def test_device_without_labels_is_nvidia() -> None:
    published = publish({GPU: CARDS}, {})
    assert published.amounts[KOORD_GPU] == 200
    assert published.labels == {}
    assert published.removed_labels == set(LABELS)


def test_shared_can_be_left_out() -> None:
    published = publish({GPU: CARDS}, NVIDIA, Publishing(shared=False))
    assert GPU_SHARED in published.removed


def test_without_healthy_gpus_their_names_go() -> None:
    published = publish({GPU: [], RDMA: [{}, {RDMA_SHARE: 7}]}, NVIDIA)
    assert published.amounts == {RDMA_SHARE: 200}
    assert set(PUBLISHED[GPU]) <= published.removed


def test_fpgas_are_summed() -> None:
    assert publish({FPGA: [{FPGA_SHARE: 100}] * 3}, {}).amounts == {FPGA_SHARE: 300}


def test_old_names_of_devices_count_and_are_published_on_request() -> None:
    cards = [{"kubernetes.io/gpu-core": 100, "kubernetes.io/gpu-memory": 5}] * 2
    published = publish({GPU: cards}, {}, Publishing(old_names=["kubernetes.io/gpu-core"]))
    assert published.amounts[GPU_CORE] == published.amounts["kubernetes.io/gpu-core"] == 200
    assert "kubernetes.io/gpu-memory" in published.removed
    assert published.amounts[GPU_MEMORY] == 10


def test_names_that_device_plugins_report_are_left_alone() -> None:
    published = publish(
        {GPU: NPUS}, {VENDOR_LABEL: "huawei"}, Publishing(foreign=[NPU_CORE, NPU_DVPP])
    )
    assert {NPU_CORE, NPU_DVPP}.isdisjoint(published.amounts)
    assert {NPU_CORE, NPU_DVPP}.isdisjoint(published.removed)


def test_devices_cannot_publish_other_resources() -> None:
    assert publish({GPU: [{"cpu": 1000, "nvidia.com/gpu": 8}]}, {}).amounts == {GPU_SHARED: 100}


@given(
    st.dictionaries(
        st.sampled_from([GPU, RDMA, FPGA]),
        st.lists(
            st.dictionaries(
                st.sampled_from([GPU_CORE, NPU_CORE, GPU_MEMORY, FPGA_SHARE, "cpu"]),
                st.integers(0, 1 << 48),
            ),
            max_size=4,
        ),
    ),
    st.sampled_from([{}, NVIDIA, {VENDOR_LABEL: "huawei"}]),
)
def test_every_name_is_either_published_or_removed(
    healthy: dict[str, list[dict[str, int]]], labels: dict[str, str]
) -> None:
    published = publish(healthy, labels)
    ours = {name for names in PUBLISHED.values() for name in names}
    assert published.amounts.keys() <= ours
    assert ours <= published.removed | published.amounts.keys()
    assert published.removed.isdisjoint(published.amounts)
    assert all(amount > 0 for amount in published.amounts.values())
