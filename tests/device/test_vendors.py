"""Vendors: models, sharing, and what device plugins are handed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.api.keys import device as keys
from koord.core.device import device_plugins
from koord.core.device.allocate import allocate
from koord.core.device.causes import Lacking
from koord.core.device.device_plugins import (
    LOCKS,
    AdapterRejected,
    AllocatedGpu,
    HandOff,
    NodeLocked,
    NoInventory,
    PluginNode,
    hand_off,
)
from koord.core.device.inventory import make_inventory
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import OURS, Device, DeviceReport, DeviceRequest, make_part
from koord.core.device.names import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
)
from koord.core.device.request import Wishes, read_request
from koord.core.device.vendors import (
    HAMI_CORE,
    ISOLATION_LABEL,
    MODEL_LABEL,
    TEMPLATES,
    VENDOR_LABEL,
    VENDORS,
    has_nvswitch,
    index_templates,
    is_of_family,
    is_same_model,
    normalise_model,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NANO = int(NOW.timestamp()) * 10**9
MI, GI = 1 << 20, 1 << 30
PLUGIN_KEYS = {"bind-timestamp", "gpu-minors"}


def make_node(
    vendor: str, model: str = "", held: str | None = None, pods: tuple[str, ...] = ("ns/other",)
) -> PluginNode:
    annotations = {} if held is None else {LOCKS[vendor]: held}
    return PluginNode(
        "n0", annotations, {VENDOR_LABEL: vendor, MODEL_LABEL: model}, pods.__contains__
    )


def make_gpu(minor: int = 0, core: int = 5, memory: int = GI) -> AllocatedGpu:
    return AllocatedGpu(minor, {GPU_CORE: core, GPU_MEMORY: memory}, id=f"GPU-{minor}")


def own_annotations(done: HandOff) -> dict[str, str]:
    """Return what is written besides the annotations that every pod with GPUs gets."""
    general = {f"{keys.PREFIX}{one}" for one in PLUGIN_KEYS}
    assert general <= done.annotations.keys()
    return {key: text for key, text in done.annotations.items() if key not in general}


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
    assert len({one.pci for one in VENDORS.values()}) == len(VENDORS)


# Templates


def test_templates_of_a_model() -> None:
    assert TEMPLATES["huawei-Ascend-310P3"]["vir04"] == {
        NPU_CORE: 4, NPU_CPU: 4, NPU_DVPP: 50, GPU_MEMORY: 12 * GI,
    }  # fmt: skip
    assert NPU_DVPP not in TEMPLATES["huawei-Ascend-310P"]["vir04_3c_ndvpp"]
    assert set(TEMPLATES["huawei-Ascend-910B3"]) == {"vir05_1c_16g", "vir10_3c_32g"}


def test_templates_of_a_model_differ() -> None:
    for templates in TEMPLATES.values():
        assert len({tuple(sorted(one.items())) for one in templates.values()}) == len(templates)


def test_templates_are_found_by_amounts_and_the_first_name_wins() -> None:
    amounts = {NPU_CORE: 1, GPU_MEMORY: GI}
    found = index_templates({"huawei-x": {"b": amounts, "a": dict(amounts), "c": {NPU_CORE: 2}}})
    assert found == {"huawei-x": {make_part(amounts): "a", make_part({NPU_CORE: 2}): "c"}}
    assert sum(map(len, index_templates().values())) == sum(map(len, TEMPLATES.values()))


# Sharing


def make_report(**labels: str) -> DeviceReport:
    gpu = Device(0, make_part({GPU_CORE: 100, GPU_MEMORY: GI, GPU_MEMORY_RATIO: 100}))
    keys = {"vendor": VENDOR_LABEL, "model": MODEL_LABEL}
    return DeviceReport("n0", ((GPU, (gpu,)),), {}, labels={keys[k]: v for k, v in labels.items()})


def share(report: DeviceReport, provider: str = "", installed: str = "") -> str:
    """Try to share a GPU; return why not."""
    request = read_request({GPU_MEMORY_RATIO: 50}, Wishes(isolation=provider), OURS)
    assert isinstance(request, DeviceRequest)
    inventory = make_inventory(report, {ISOLATION_LABEL: installed})
    found = allocate(DeviceLedger(inventory), request)
    return f"{found.cause}: {found.describe()}" if isinstance(found, Lacking) else ""


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
    assert device_plugins.BIND_TIMESTAMP == keys.BIND_TIMESTAMP
    assert device_plugins.GPU_MINORS == keys.GPU_MINORS


def test_pod_without_gpus_gets_the_time_only() -> None:
    done = hand_off("ns/a", HAMI_CORE, [], make_node("cambricon", held="no lock"), NANO)
    assert done == HandOff({keys.BIND_TIMESTAMP: str(NANO)})


@pytest.mark.parametrize("vendor", ["nvidia", "test", ""])
def test_other_vendors_read_minors_only(vendor: str) -> None:
    done = hand_off("ns/a", "", [make_gpu(0), make_gpu(3)], make_node(vendor), NANO)
    assert done == HandOff({keys.BIND_TIMESTAMP: str(NANO), keys.GPU_MINORS: "0,3"})


def test_hami_reads_the_node_from_a_label() -> None:
    done = hand_off("ns/a", HAMI_CORE, [make_gpu()], make_node("nvidia"), NANO)
    assert done.labels == {"hami.io/vgpu-node": "n0"}


def test_node_without_device_is_refused() -> None:
    node = replace(make_node("nvidia"), labels=None)
    done = hand_off("ns/a", "", [make_gpu()], node, NANO)
    assert done.refusal == NoInventory("n0")
    assert done.annotations[keys.GPU_MINORS] == "0"


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
    done = hand_off("ns/a", "", gpus, make_node("huawei", model), NANO)
    assert own_annotations(done) == {"predicate-time": str(NANO), key: text}
    assert done.lock is None


def test_cambricon() -> None:
    done = hand_off("ns/a", "", [make_gpu(2, 10, GI + MI)], make_node("cambricon"), NANO)
    assert own_annotations(done) == {
        "CAMBRICON_DSMLU_ASSIGHED": "false",
        "CAMBRICON_DSMLU_PROFILE": "2_10_4",
    }
    assert done.lock == ("cambricon.com/dsmlu.lock", "2026-03-01T12:00:00Z,ns,a")
    assert done.refusal is None


def test_metax() -> None:
    done = hand_off("ns/a", "", [make_gpu(0), make_gpu(1, 7)], make_node("metax"), NANO)
    (text,) = own_annotations(done).values()
    assert json.loads(text) == [
        [
            {"uuid": "GPU-0", "compute": 5, "vRam": 1024},
            {"uuid": "GPU-1", "compute": 7, "vRam": 1024},
        ]
    ]
    assert " " not in text
    assert done.lock == ("hami.io/mutex.lock", "2026-03-01T12:00:00Z,ns,a")


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
    done = hand_off("ns/a", "", gpus, make_node(vendor), NANO)
    assert isinstance(done.refusal, AdapterRejected)
    assert fault in done.refusal.describe()
    assert f'"{vendor}"' in done.refusal.describe()
    assert done.lock is None
    assert own_annotations(done) == {}


# The lock of a node


def lock_at(age: timedelta, holder: str = "ns,other") -> str:
    return f"{(NOW - age).isoformat()},{holder}"


def try_lock(held: str, pods: tuple[str, ...] = ("ns/other", "ns/a")) -> HandOff:
    return hand_off("ns/a", "", [make_gpu()], make_node("cambricon", held=held, pods=pods), NANO)


@pytest.mark.parametrize(
    "held",
    [
        lock_at(timedelta()),
        lock_at(timedelta(minutes=5)),
        lock_at(timedelta(minutes=-1)),
        "2026-03-01T13:00:00+01:00,ns,other",
        lock_at(timedelta(), "").rstrip(","),
        "",
        "yesterday,ns,other",
        "2026-03-01T12:00:00,ns,other",
    ],
)
def test_node_is_locked(held: str) -> None:
    done = try_lock(held)
    assert done.refusal == NodeLocked("n0", "cambricon.com/dsmlu.lock", held)
    assert 'node "n0" has been locked' in done.refusal.describe()
    assert done.lock is None


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
    done = try_lock(held, pods)
    assert done.refusal is None
    assert done.lock == ("cambricon.com/dsmlu.lock", "2026-03-01T12:00:00Z,ns,a")


@given(st.text(max_size=40))
def test_any_text_of_a_lock_is_locked_or_taken_over(held: str) -> None:
    done = try_lock(held)
    assert (done.lock is None) == isinstance(done.refusal, NodeLocked)


def test_lock_that_was_taken_is_held() -> None:
    first = hand_off("ns/other", "", [make_gpu()], make_node("cambricon"), NANO)
    assert first.lock is not None
    assert isinstance(try_lock(first.lock[1]).refusal, NodeLocked)
