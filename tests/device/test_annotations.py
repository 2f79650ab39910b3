"""What pods and Device objects say about devices, and what is written for a pod."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.device.nodes import NIC_TOTAL, half, report, whole

from koord.core.device.allocation import ALLOCATED, GPU_MINORS, GPU_UUIDS, AllocatedDevices
from koord.core.device.inventory import NamedDevices
from koord.core.device.model import DeviceName, DeviceShare, Exclusive, Hint, Scope, make_part
from koord.core.device.vendors import BIND_TIMESTAMP
from koord.core.model.device_names import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA
from koord.kube.translate.devices import DeviceTranslator, read_allocated, read_device_hints
from koord.kube.wire import WireCustomResource

PARTS = "scheduling.koordinator.sh/gpu-request"
HINTS = "scheduling.koordinator.sh/device-allocate-hint"


def allocation() -> AllocatedDevices:
    names = report("n0").names
    shares = (whole(2), half(3), DeviceShare(RDMA, 1, NIC_TOTAL, functions=(0, 3)))
    return AllocatedDevices(
        "uid", shares, tuple(names[share.kind, share.minor] for share in shares)
    )


def test_an_allocation_is_written_in_the_form_of_koordinator() -> None:
    written = {write.key: write.value for write in allocation().writes()}
    assert json.loads(written[ALLOCATED])["rdma"] == [
        {
            "minor": 1,
            "resources": {"koordinator.sh/rdma": "100"},
            "id": "RDMA-n0-1",
            "extension": {
                "vfs": [{"busID": "0000:01:00.0"}, {"minor": 3, "busID": "0000:01:00.3"}]
            },
        }
    ]
    assert json.loads(written[ALLOCATED])["gpu"][0]["resources"] == {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory": "83201216Ki",
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    assert written[GPU_MINORS] == "2,3"
    assert written[GPU_UUIDS] == "GPU-n0-2,GPU-n0-3"


def test_what_is_written_is_read_back() -> None:
    written = {write.key: write.value for write in allocation().writes()}
    read = read_allocated("uid", written[ALLOCATED])
    assert read.numbered(NamedDevices(report("n0").names)) == allocation().shares
    assert {write.key: write.value for write in read.writes()} == written


def test_unknown_gpus_are_not_named_in_part() -> None:
    gpus = (whole(0), whole(1))
    allocated = AllocatedDevices("uid", gpus, (DeviceName("GPU-a"), DeviceName()))
    assert {write.key for write in allocated.writes()} == {ALLOCATED, GPU_MINORS, BIND_TIMESTAMP}


def test_old_names_are_read() -> None:
    text = '{"gpu":[{"minor":0,"resources":{"kubernetes.io/gpu-core":50,"kubernetes.io/gpu":"1"}}]}'
    (share,) = read_allocated("uid", text).shares
    assert dict(share.part) == {GPU_CORE: 50, "koordinator.sh/gpu": 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"gpu":[{"minor":-1}]}',
        '{"gpu":[{"minor":0,"resources":{"a":"x"}}]}',
        '{"gpu":[{"minor":1},{"minor":1}]}',
        '{"gpu":[{"minor":99999}]}',
    ],
)
def test_an_allocation_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of many sources
        read_allocated("uid", text)


def test_wishes() -> None:
    gpus = {"requiredTopologyScope": "NUMANode", "exclusivePolicy": "PCIeLevel"}
    text = json.dumps({"gpu": gpus, "rdma": {"vfSelector": {}}})
    wishes = read_device_hints({HINTS: text}, {})
    assert wishes.problems == ()
    assert dict(wishes.hints) == {
        GPU: Hint(scope=Scope.NUMA_NODE, exclusive=Exclusive.PCIE),
        RDMA: Hint(function_selector=()),
    }


def test_wishes_that_cannot_be_read_are_named() -> None:
    wishes = read_device_hints({HINTS: '{"gpu":{"requiredTopologyScope":"Rack"}}'}, {})
    assert wishes.hints == ()
    ((field, _),) = wishes.problems
    assert HINTS in field


def test_entries_of_a_device_object_that_cannot_be_used_are_left_out() -> None:
    gpu = {"type": "gpu", "health": True, "resources": {GPU_MEMORY: "8Gi", GPU_MEMORY_RATIO: 100}}
    manifest = {
        "metadata": {
            "name": "n0",
            "annotations": {
                "scheduling.koordinator.sh/gpu-partitions": json.dumps(
                    {"2": [{"minors": [0, 3], "allocationScore": "1"}, {"minors": [3]}], "x": []}
                )
            },
        },
        "spec": {
            "devices": [
                {**gpu, "minor": 0},
                {**gpu, "minor": 0},
                {**gpu, "minor": 2000},
                {**gpu, "minor": 2, "resources": {GPU_MEMORY: "many"}},
                {**gpu, "minor": 3, "health": False},
            ]
        },
    }
    wire = msgspec.json.decode(msgspec.json.encode(manifest), type=WireCustomResource)
    report = DeviceTranslator().translate(wire)
    ((kind, devices),) = report.devices
    assert kind == GPU
    assert [(device.minor, device.total) for device in devices] == [
        (0, make_part({GPU_MEMORY: 8 << 30, GPU_MEMORY_RATIO: 100})),
        (3, ()),
    ]
    assert [path for path, _ in report.problems] == [
        "spec.devices[1].minor",
        "spec.devices[2].minor",
        "spec.devices[3].resources",
        "metadata.annotations[scheduling.koordinator.sh/gpu-partitions][2][1].minors",
        "metadata.annotations[scheduling.koordinator.sh/gpu-partitions].x",
    ]


def says(
    kind: str = "Healthy", status: str = "False", time: str = "1970-01-01T00:16:40Z"
) -> list[dict[str, str]]:
    return [{"type": kind, "status": status, "lastTransitionTime": time}]


@pytest.mark.parametrize(
    ("conditions", "since"),
    [
        (says(), 1000.0),
        (says(status="True"), None),
        (says("Other"), None),
        (says(time="soon"), None),
        ([], None),
        (None, None),
        ("nonsense", None),
    ],
)
def test_since_when_a_device_is_broken_is_as_its_condition_says(
    conditions: object, since: float | None
) -> None:
    """Conditions decide nothing: those that cannot be read cost no device."""
    broken = {"type": "gpu", "minor": 1, "conditions": conditions}
    manifest = {
        "metadata": {"name": "n0"},
        "spec": {"devices": [{"type": "gpu", "health": True, "resources": {}}, broken]},
    }
    wire = msgspec.json.decode(msgspec.json.encode(manifest), type=WireCustomResource)
    report = DeviceTranslator().translate(wire)
    assert [device.minor for _, devices in report.devices for device in devices] == [0, 1]
    assert report.unhealthy_since.get((GPU, 1)) == since


def test_what_has_the_name_of_another_device_is_left_out() -> None:
    """It would be given out twice."""
    functions = [{"vfs": [{"minor": n, "busID": f"0000:1f:00.{n}"} for n in (1, 2)]}]
    nic = {"type": "rdma", "health": True, "resources": {}}
    devices = [
        {"type": "gpu", "minor": 0, "id": "GPU-a"},
        {"type": "gpu", "minor": 1, "id": "gpu-a"},
        {"type": "gpu", "minor": 2},
        {"type": "gpu", "minor": 3},
        {**nic, "minor": 0, "id": "0000:1f:00.0", "vfGroups": functions * 2},
        {**nic, "minor": 1, "id": "00000000:1F:00.0"},
        {**nic, "minor": 2, "vfGroups": functions},
    ]
    manifest = {"metadata": {"name": "n0"}, "spec": {"devices": devices}}
    wire = msgspec.json.decode(msgspec.json.encode(manifest), type=WireCustomResource)
    report = DeviceTranslator().translate(wire)
    assert [(kind, [device.minor for device in devices]) for kind, devices in report.devices] == [
        (GPU, [0, 2, 3]),
        (RDMA, [0, 2]),
    ]
    assert len(report.names[RDMA, 0].functions) == 2
    assert not report.names[RDMA, 2].functions
    assert report.problems == (
        ("spec.devices[1].id", "gpu-a is there twice for type gpu"),
        ("spec.devices[5].id", "00000000:1F:00.0 is there twice for type rdma"),
        ("spec.devices[6].vfGroups", "0000:1f:00.2 is there twice for type rdma"),
    )


def test_unequal_parts_are_read_with_errors_by_path_and_value() -> None:
    parts = '[{"core":20,"memory":"10Gi"},{"memoryRatio":50}]'
    wishes = read_device_hints({PARTS: parts}, {})
    assert wishes.gpu_parts == (
        make_part({GPU_CORE: 20, GPU_MEMORY: 10 << 30}),
        make_part({GPU_MEMORY_RATIO: 50}),
    )
    assert not wishes.problems
    for wrong, path, value in (
        ('[{"core":101}]', "[0].core", "101"),
        ('[{"memory":"much"}]', "[0].memory", "much"),
        ('{"core":1}', "", "list"),
        ("[", "", "JSON"),
    ):
        ((field, problem),) = read_device_hints({PARTS: wrong}, {}).problems
        assert path in field
        assert value in f"{field} {problem}"
