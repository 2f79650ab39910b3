"""GPUs and their faults, from the stand-in library."""

import pytest
from tests.agent.machine import TWO_SWITCHES, make_gpus, make_switched

from koord.agent.nvidia import IGNORED_XIDS, load_nvml
from koord.agent.reading import SWITCH, Fault


def test_gpus_have_names_amounts_places_and_links(make_nvidia) -> None:
    reading = make_nvidia("two-switches", make_switched()).read()
    first = reading.devices[0]
    assert (first.kind, first.id, first.minor, first.fault) == ("gpu", "GPU-0", 0, None)
    assert first.resources == {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory": str(80 << 30),
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    assert [device.place.pcie for device in reading.devices] == ["0000:17:00.0"] * 2 + [
        "0000:98:00.0"
    ] * 2
    assert reading.labels == {
        "node.koordinator.sh/gpu-vendor": "nvidia",
        "node.koordinator.sh/gpu-model": "A100-SXM4-80GB",
        "node.koordinator.sh/gpu-driver-version": "570.86.15",
    }
    assert set(reading.links) == {(minor, SWITCH) for minor in range(4)}


def test_gpus_of_different_models_have_no_model(make_nvidia) -> None:
    state = make_switched()
    state["gpus"][2]["name"] = "NVIDIA H20"
    labels = make_nvidia("two-switches", state).read().labels
    assert "node.koordinator.sh/gpu-model" not in labels


def test_names_of_models_become_valid_labels(make_nvidia) -> None:
    state = make_gpus("0000:01:00.0")
    state["gpus"][0]["name"] = (
        "Quadro RTX 6000/8000 a name that is far longer than labels are, and on"
    )
    model = make_nvidia("workstation", state).read().labels["node.koordinator.sh/gpu-model"]
    assert model == "Quadro-RTX-6000-8000-a-name-that-is-far-longer-than-labels-are"


def test_a_lost_gpu_is_missing_and_the_others_are_read(make_nvidia) -> None:
    state = make_switched()
    state["gpus"][1]["lost"] = True
    reading = make_nvidia("two-switches", state).read()
    assert [device.id for device in reading.devices] == ["GPU-0", "GPU-2", "GPU-3"]
    assert reading.fault == Fault("NvmlError", "GPU 1 of 4: GPU is lost")


def test_a_gpu_divided_by_mig_is_unhealthy(make_nvidia) -> None:
    state = make_switched()
    state["gpus"][0]["mig"], state["gpus"][1]["mig"] = 1, 0
    faults = [
        device.fault and device.fault.reason
        for device in make_nvidia("two-switches", state).read().devices
    ]
    assert faults == ["MigEnabled", None, None, None]


def test_without_the_library_gpus_are_named_only_if_there_are_any(make_nvidia, tmp_path) -> None:
    nvidia = make_nvidia("workstation", {})
    assert nvidia.read().fault == Fault("NvmlUnavailable", "NVML Shared Library Not Found")
    assert nvidia.wait(0.001) == {}
    for vendor in (tmp_path / "sys").glob("devices/pci*/**/vendor"):
        vendor.write_text("0x8086\n")
    assert nvidia.read().fault is None


def test_a_driver_that_is_loaded_later_is_found(make_nvidia, nvml) -> None:
    nvidia = make_nvidia("workstation", {})
    assert nvidia.read().devices == ()
    nvml.state.update(make_gpus("0000:01:00.0"))
    assert [device.id for device in nvidia.read().devices] == ["GPU-0"]


def test_xids_are_faults_unless_applications_cause_them(make_nvidia) -> None:
    state = make_switched()
    state["events"] = [*((1, xid) for xid in sorted(IGNORED_XIDS)), (2, 79)]
    nvidia = make_nvidia("two-switches", state)
    nvidia.read()
    reported = [nvidia.wait(0.001) for _ in range(len(IGNORED_XIDS) + 2)]
    assert reported[-2:] == [{"GPU-2": Fault("Xid79", "the driver reported XID 79")}, {}]
    assert not any(reported[:-2])


def test_an_xid_of_a_gpu_without_a_name_is_a_fault_of_all(make_nvidia, nvml) -> None:
    nvidia = make_nvidia("two-switches", make_switched())
    nvidia.read()
    nvml.state["gpus"][3]["lost"] = True
    nvml.state["events"] = [(3, 79)]
    assert nvidia.wait(0.001).keys() == {"GPU-0", "GPU-1", "GPU-2", "GPU-3"}


def test_the_stand_in_has_nothing_that_the_real_bindings_lack(nvml) -> None:
    real = pytest.importorskip("pynvml")
    names = {name for name in vars(nvml) if name.lower().startswith("nvml")}
    assert len(TWO_SWITCHES) == 4
    assert {name for name in names if not hasattr(real, name)} == set()
    assert load_nvml() is real
