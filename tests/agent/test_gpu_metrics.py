"""What GPUs do, from the stand-in library: series, deadlines, what cards do not support."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.agent.machine import make_switched
from tests.agent.region_file import UUID, Process, RegionFile

from koord.agent.gpu_samples import GpuSampler
from koord.agent.holders import GpuHolder
from koord.agent.regions import RegionReader
from koord.runtime.gpu_series import GpuCollector

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from koord.agent.nvidia import Nvidia

MODEL = "A100-SXM4-80GB"
BUSY = {"used": 5 << 30, "load": [93, 41], "temperature": 61, "power": 312_000, "ecc": 2}


@pytest.fixture
def nvidia(make_nvidia) -> Nvidia:
    state = make_switched()
    state["gpus"][1] |= BUSY
    made: Nvidia = make_nvidia("two-switches", state)
    made.read()
    return made


def list_samples(collector: GpuCollector) -> list[tuple[str, dict[str, str], float]]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    text = generate_latest(registry).decode()
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def scrape(collector: GpuCollector) -> dict[str, dict[str, float]]:
    """Return the samples by name, and by UUID."""
    found: dict[str, dict[str, float]] = {}
    for name, labels, value in list_samples(collector):
        found.setdefault(name, {})[labels.get("uuid", labels.get("deviceuuid", ""))] = value
    return found


def test_each_card_has_the_series_that_it_supports(nvidia: Nvidia) -> None:
    found = scrape(GpuCollector("n", GpuSampler(nvidia)))
    assert found["koord_gpu_up"] == {f"GPU-{at}": 1 for at in range(4)}
    assert found["koord_gpu_memory_used_bytes"]["GPU-1"] == 5 << 30
    assert found["koord_gpu_memory_total_bytes"]["GPU-1"] == 80 << 30
    assert found["koord_gpu_utilization_percent"] == {"GPU-1": 93}
    assert found["koord_gpu_memory_controller_percent"] == {"GPU-1": 41}
    assert found["koord_gpu_temperature_celsius"] == {"GPU-1": 61}
    assert found["koord_gpu_power_milliwatts"] == {"GPU-1": 312_000}
    assert found["koord_gpu_ecc_errors_total"] == {"GPU-1": 2}
    assert "HostGPUMemoryUsage" not in found


def test_labels_are_those_of_the_series_of_allocations(nvidia: Nvidia) -> None:
    labels = {"minor": "1", "model": MODEL, "node": "n", "uuid": "GPU-1"}
    assert ("koord_gpu_up", labels, 1) in list_samples(GpuCollector("n", GpuSampler(nvidia)))


def test_without_the_library_there_is_no_card(make_nvidia) -> None:
    nvidia = make_nvidia("workstation", {})
    nvidia.read()
    assert "koord_gpu_up" not in scrape(GpuCollector("n", GpuSampler(nvidia)))


def test_a_lost_card_hides_no_other(nvidia: Nvidia, nvml) -> None:
    original = nvml.nvmlDeviceGetMemoryInfo

    def fail(handle: dict[str, Any]) -> Any:
        if handle["uuid"] == "GPU-2":
            raise nvml.NVMLError_GpuIsLost("GPU is lost")
        return original(handle)

    nvml.nvmlDeviceGetMemoryInfo = fail
    found = scrape(GpuCollector("n", GpuSampler(nvidia)))
    assert set(found["koord_gpu_memory_used_bytes"]) == {"GPU-0", "GPU-1", "GPU-3"}
    assert found["koord_gpu_utilization_percent"] == {"GPU-1": 93}


@pytest.fixture
def hanging(nvml) -> Iterator[threading.Event]:
    """Card 3 does not answer until the event is set."""
    answers, original = threading.Event(), nvml.nvmlDeviceGetMemoryInfo

    def hang(handle: dict[str, Any]) -> Any:
        if handle["uuid"] == "GPU-3":
            answers.wait()
        return original(handle)

    nvml.nvmlDeviceGetMemoryInfo = hang
    yield answers
    answers.set()


def test_a_card_that_hangs_is_down_and_is_called_once(
    make_nvidia, nvml, hanging: threading.Event
) -> None:
    hanging.set()
    nvidia = make_nvidia("two-switches", make_switched())
    nvidia.read()
    hanging.clear()
    sampler = GpuSampler(nvidia, deadline=0.05)
    collector = GpuCollector("n", sampler)
    up = {"GPU-0": 1, "GPU-1": 1, "GPU-2": 1, "GPU-3": 0}
    assert scrape(collector)["koord_gpu_up"] == up
    (thread,) = [one for one in sampler._hanging.values() if one.is_alive()]
    assert scrape(collector)["koord_gpu_up"] == up
    assert [one for one in sampler._hanging.values() if one.is_alive()] == [thread]
    hanging.set()
    thread.join()
    sampler.deadline = 60
    assert scrape(collector)["koord_gpu_up"]["GPU-3"] == 1


def test_xids_are_counted_with_those_of_applications(make_nvidia) -> None:
    state = make_switched()
    state["events"] = [(1, 31), (1, 31), (1, 79)]
    nvidia = make_nvidia("two-switches", state)
    nvidia.read()
    for _ in range(3):
        nvidia.wait(0.001)
    assert nvidia.xids == {("GPU-1", 31): 2, ("GPU-1", 79): 1}
    assert scrape(GpuCollector("n", GpuSampler(nvidia)))["koord_gpu_xid_errors_total"]


def test_names_of_hami_have_the_same_values_and_their_own_labels(
    nvidia: Nvidia, tmp_path: Path, make_nvidia, nvml
) -> None:
    nvml.state["gpus"][1]["uuid"] = UUID
    nvidia.read()
    pod = "0a0a0a0a-1111-2222-3333-444444444444"
    (tmp_path / f"{pod}_main").mkdir()
    made = RegionFile(processes=[Process([7 << 20])], last_kernel=90).make()
    (tmp_path / f"{pod}_main/a.cache").write_bytes(made)
    holder = GpuHolder("team-a", "train", pod, frozenset({1}))
    regions = RegionReader(tmp_path, lambda: {pod: holder}, lambda: nvidia.cards)
    collector = GpuCollector("n", GpuSampler(nvidia), regions, True, clock=lambda: 100.0)
    card = {"deviceidx": "1", "deviceuuid": UUID, "devicetype": f"NVIDIA-NVIDIA {MODEL}"}
    host = card | {"nodeid": "n", "zone": "vGPU"}
    in_pod = {"podnamespace": "team-a", "podname": "train", "ctrname": "main"}
    held = in_pod | {"vdeviceid": "0", "deviceuuid": UUID, "zone": "vGPU"}
    pod_labels = {"node": "n", "namespace": "team-a", "pod": "train", "container": "main"}
    samples = list_samples(collector)
    assert ("HostGPUMemoryUsage", host, 5 << 30) in samples
    assert ("HostCoreUtilization", host, 93) in samples
    assert ("vGPU_device_memory_usage_in_bytes", held, 7 << 20) in samples
    assert (
        "koord_gpu_container_memory_used_bytes",
        pod_labels | {"uuid": UUID},
        7 << 20,
    ) in samples
    assert ("koord_gpu_container_last_kernel_seconds", pod_labels, 10) in samples
    refused = {"node": "n", "reason": "Truncated"}
    assert ("koord_gpu_container_claims_refused_total", refused, 0) in samples
