"""Vendors: models, sharing, and what device plugins are handed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.api.keys import device as keys
from koord.core.device import vendors
from koord.core.device.allocate import allocate
from koord.core.device.causes import DeviceCause
from koord.core.device.inventory import make_inventory
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import OURS, DeviceReport, DeviceRequest, NodeDevice, make_part
from koord.core.device.request import DeviceAllocationHints, read_request
from koord.core.device.vendors import (
    DEVICE_PLUGINS,
    HAMI_CORE,
    ISOLATION_LABEL,
    MODEL_LABEL,
    TEMPLATES,
    VENDOR_LABEL,
    VENDORS,
    AdapterRejected,
    AllocatedGpu,
    HandOff,
    Locked,
    find_plugins,
    hand_off,
    has_nvswitch,
    index_templates,
    is_of_family,
    is_same_model,
    normalise_model,
    take_lock,
)
from koord.core.model.device_names import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MI, GI = 1 << 20, 1 << 30


def make_gpu(minor: int = 0, core: int = 5, memory: int = GI) -> AllocatedGpu:
    return AllocatedGpu(minor, {GPU_CORE: core, GPU_MEMORY: memory}, id=f"GPU-{minor}")


# Models


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB-HBM3"),
        ("NVIDIA-H20", "H20"),
        ("Ascend-910B3", "Ascend-910B3"),
        ("", ""),
    ],
)
def test_model_as_label(model: str, label: str) -> None:
    assert normalise_model(model) == label


@pytest.mark.parametrize("model", ["H20", "NVIDIA-H20", "nvidia h20", "H100-80GB-HBM3", "H800"])
def test_models_with_nvswitch_in_any_form_factor(model: str) -> None:
    assert has_nvswitch("nvidia", model)
    assert has_nvswitch("", model)
    assert not has_nvswitch("huawei", model)


@pytest.mark.parametrize("model", ["H200", "H1000", "A100-SXM4-80GB", "L20", "", "GH200-480GB"])
def test_models_without_nvswitch_table(model: str) -> None:
    assert not has_nvswitch("nvidia", model)


@given(st.text("aAbB19- ", max_size=12), st.sampled_from(["", "-80GB", " 80GB HBM3"]))
def test_brand_case_and_form_factor_do_not_matter(name: str, form: str) -> None:
    assert is_same_model(f"NVIDIA {name}", f"nvidia-{name.upper()}".replace(" ", "-"))
    assert is_of_family(f"H100{form}", "h100")


def test_pci_ids_are_unique() -> None:
    assert VENDORS["nvidia"].pci == "0x10de"
    assert VENDORS["huawei"].pci == "0x19e5"
    assert len({entry.pci for entry in VENDORS.values()}) == len(VENDORS)


# Templates


def test_templates_of_a_model() -> None:
    assert TEMPLATES["huawei-Ascend-310P3"]["vir04"] == {
        NPU_CORE: 4, NPU_CPU: 4, NPU_DVPP: 50, GPU_MEMORY: 12 * GI,
    }  # fmt: skip
    assert NPU_DVPP not in TEMPLATES["huawei-Ascend-310P"]["vir04_3c_ndvpp"]
    assert set(TEMPLATES["huawei-Ascend-910B3"]) == {"vir05_1c_16g", "vir10_3c_32g"}


def test_templates_of_a_model_differ() -> None:
    for templates in TEMPLATES.values():
        assert len({tuple(sorted(template.items())) for template in templates.values()}) == len(
            templates
        )


def test_templates_are_found_by_amounts_and_the_first_name_wins() -> None:
    amounts = {NPU_CORE: 1, GPU_MEMORY: GI}
    templates = index_templates(
        {"huawei-x": {"b": amounts, "a": dict(amounts), "c": {NPU_CORE: 2}}}
    )
    assert templates == {"huawei-x": {make_part(amounts): "a", make_part({NPU_CORE: 2}): "c"}}
    assert sum(map(len, index_templates().values())) == sum(map(len, TEMPLATES.values()))


# Sharing


def make_report(**labels: str) -> DeviceReport:
    gpu = NodeDevice(0, make_part({GPU_CORE: 100, GPU_MEMORY: GI, GPU_MEMORY_RATIO: 100}))
    keys = {"vendor": VENDOR_LABEL, "model": MODEL_LABEL}
    return DeviceReport("n0", ((GPU, (gpu,)),), {}, labels={keys[k]: v for k, v in labels.items()})


def share(report: DeviceReport, provider: str = "", installed: str = "") -> str:
    """Try to share a GPU; return why not."""
    request = read_request({GPU_MEMORY_RATIO: 50}, DeviceAllocationHints(isolation=provider), OURS)
    assert isinstance(request, DeviceRequest)
    inventory = make_inventory(report, {ISOLATION_LABEL: installed})
    cause = allocate(DeviceLedger(inventory), request)
    return f"{cause.cause}: {cause.describe()}" if isinstance(cause, DeviceCause) else ""


def test_isolation_provider_must_be_on_the_node() -> None:
    assert share(make_report(), "HAMi-core") == (
        "GPUIsolationProviderMismatch: GPUIsolationProviderHAMICore not found on the node"
    )
    assert share(make_report(), "HAMi-core", installed="HAMi-core") == ""
    assert share(make_report(), "hami", installed="HAMi-core").startswith("GPUIsolationProvider")
    assert share(make_report()) == ""


def test_model_that_cannot_be_shared() -> None:
    assert share(make_report(vendor="huawei", model="Ascend-310P3-300I-DUO")) == (
        'SharingUnsupported: model "Ascend-310P3-300I-DUO" of vendor "huawei" '
        "does not support GPU Share"
    )
    assert share(make_report(vendor="huawei", model="Ascend-310P3")) == ""
    assert share(make_report(vendor="nvidia", model="Ascend-310P3-300I-DUO")) == ""


# Device plugins


def test_keys_are_those_of_the_api() -> None:
    assert vendors.BIND_TIMESTAMP == keys.BIND_TIMESTAMP


@pytest.mark.parametrize("vendor", ["nvidia", "test", "", "huawei"])
def test_other_vendors_read_the_time_only(vendor: str) -> None:
    gpus = [] if vendor == "huawei" else [make_gpu(0), make_gpu(3)]
    assert hand_off(gpus, vendor, "", "", "n0") == HandOff(timestamps=(keys.BIND_TIMESTAMP,))


def test_hami_reads_the_node_from_a_label_and_the_limits_of_each_gpu() -> None:
    parts = [make_gpu(2, 30, 4 * GI), AllocatedGpu(3, {GPU_MEMORY: GI})]
    done = hand_off(parts, "nvidia", "", HAMI_CORE, "n0")
    assert done.labels == {"hami.io/vgpu-node": "n0"}
    assert done.annotations == {
        f"{keys.PREFIX}gpu-memory-limit-0": str(4 * GI),
        f"{keys.PREFIX}gpu-core-limit-0": "30",
        f"{keys.PREFIX}gpu-memory-limit-1": str(GI),
    }


@pytest.mark.parametrize(
    ("gpus", "model", "key", "text"),
    [
        ([AllocatedGpu(0), AllocatedGpu(1)], "Ascend-910B3", "huawei.com/npu-core", "0,1"),
        ([AllocatedGpu(0, template="vir02")], "Ascend-310P", "huawei.com/npu-core", "0-vir02"),
        (
            [AllocatedGpu(0), AllocatedGpu(1)],
            "Ascend-310P3-300I-DUO",
            "huawei.com/Ascend310P",
            "Ascend310P-0,Ascend310P-1",
        ),
    ],
)
def test_huawei(gpus: list[AllocatedGpu], model: str, key: str, text: str) -> None:
    done = hand_off(gpus, "huawei", model, "", "n0")
    assert done == HandOff({key: text}, timestamps=(keys.BIND_TIMESTAMP, "predicate-time"))


def test_cambricon() -> None:
    done = hand_off([make_gpu(2, 10, GI + MI)], "cambricon", "", "", "n0")
    assert done.annotations == {
        "CAMBRICON_DSMLU_ASSIGHED": "false",
        "CAMBRICON_DSMLU_PROFILE": "2_10_4",
    }


def test_metax() -> None:
    done = hand_off([make_gpu(0), make_gpu(1, 7)], "metax", "", "", "n0")
    (text,) = done.annotations.values()
    assert json.loads(text) == [
        [
            {"uuid": "GPU-0", "compute": 5, "vRam": 1024},
            {"uuid": "GPU-1", "compute": 7, "vRam": 1024},
        ]
    ]
    assert " " not in text


@pytest.mark.parametrize(
    ("vendor", "gpus", "fault"),
    [
        ("cambricon", [make_gpu(0), make_gpu(1)], "multiple gpu share is not supported on"),
        ("cambricon", [AllocatedGpu(0, {GPU_MEMORY: GI})], "gpu core resource is required"),
        ("cambricon", [make_gpu(memory=255 * MI)], "gpu memory must not be less than 268435456"),
        ("metax", [make_gpu(), AllocatedGpu(1)], "gpu core resource is required"),
        ("metax", [make_gpu(memory=MI - 1)], "gpu memory must not be less than 1048576 bytes"),
    ],
)
def test_what_a_device_plugin_cannot_serve(
    vendor: str, gpus: list[AllocatedGpu], fault: str
) -> None:
    adapted = DEVICE_PLUGINS[vendor].adapt(gpus, "")
    assert isinstance(adapted, AdapterRejected)
    assert fault in adapted.describe()
    assert f'"{vendor}"' in adapted.describe()
    assert hand_off(gpus, vendor, "", "", "n0").annotations == {}


def test_pods_need_the_plugin_of_the_vendor_whose_resources_they_request() -> None:
    assert find_plugins(["cpu", "cambricon.com/mlu.smlu.vcore"]) == {"cambricon"}
    assert find_plugins(["huawei.com/npu-core", "metax-tech.com/sgpu"]) == {"huawei", "metax"}
    assert not find_plugins(["nvidia.com/gpu", "koordinator.sh/gpu-core"])


@pytest.mark.parametrize(("plugin", "fits"), [("cambricon.com/mlu.smlu.vcore", False), ("", True)])
def test_pods_go_where_the_plugin_that_they_need_can_serve_them(plugin: str, *, fits: bool) -> None:
    requests = {GPU_MEMORY_RATIO: 50} | ({plugin: 50} if plugin else {})
    request = read_request(requests, DeviceAllocationHints(), OURS)
    assert isinstance(request, DeviceRequest)
    ledger = DeviceLedger(make_inventory(make_report(vendor="cambricon"), {}))
    cause = allocate(ledger, request)
    assert isinstance(cause, DeviceCause) != fits
    if isinstance(cause, DeviceCause):
        assert "gpu core resource is required" in cause.describe()
        assert not cause.is_resolvable
    other = DeviceLedger(make_inventory(make_report(vendor="nvidia"), {}))
    assert not isinstance(allocate(other, request), DeviceCause)


# The lock of a node


def lock_at(age: timedelta, holder: str = "ns,other") -> str:
    return f"{(NOW - age).isoformat()},{holder}"


def try_lock(held: str | None, pods: tuple[str, ...] = ("ns/other", "ns/a")) -> str | Locked:
    return take_lock(held, "ns/a", lambda holder, _: holder in pods, NOW)


@pytest.mark.parametrize(
    ("held", "holder"),
    [
        (lock_at(timedelta()), "ns/other"),
        (lock_at(timedelta(minutes=5)), "ns/other"),
        (lock_at(timedelta(minutes=-1)), "ns/other"),
        ("2026-03-01T13:00:00+01:00,ns,other", "ns/other"),
        (lock_at(timedelta(), "").rstrip(","), ""),
        ("", ""),
        ("yesterday,ns,other", ""),
        ("2026-03-01T12:00:00,ns,other", ""),
    ],
)
def test_node_is_locked(held: str, holder: str) -> None:
    assert try_lock(held) == Locked(held, holder)


@pytest.mark.parametrize(
    ("held", "pods"),
    [
        (lock_at(timedelta(minutes=5, seconds=1)), ("ns/other",)),
        ("0001-01-01T00:00:00+23:59,ns,other", ("ns/other",)),
        (lock_at(timedelta(minutes=-6)), ("ns/other",)),
        (lock_at(timedelta(minutes=1)), ()),
        (lock_at(timedelta(minutes=1), "ns,a"), ("ns/a",)),
    ],
    ids=["old", "very old", "from the future", "holder is gone", "its own"],
)
def test_lock_is_taken_over(held: str, pods: tuple[str, ...]) -> None:
    assert try_lock(held, pods) == "2026-03-01T12:00:00Z,ns,a"


@given(st.text(max_size=40))
def test_any_text_of_a_lock_is_locked_or_taken_over(held: str) -> None:
    taken = try_lock(held)
    assert isinstance(taken, Locked) or taken == try_lock(None)


def test_lock_that_was_taken_is_held() -> None:
    first = take_lock(None, "ns/other", lambda *_: True, NOW)
    assert isinstance(first, str)
    assert try_lock(first) == Locked(first, "ns/other")
