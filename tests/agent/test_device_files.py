"""Devices of other vendors, from files in the form that Koordinator publishes."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.agent.machine import make_sys

from koord.agent.device_files import DeviceFiles
from koord.agent.reading import DeviceReading, Fault, PciPlace, join
from koord.agent.report import make_device
from koord.agent.sysfs import Sysfs
from koord.api.device import Device


def npu(minor: int, **more: Any) -> dict[str, Any]:
    peers = ",".join(str(other) for other in range(4) if other != minor)
    return {
        "vendor": "huawei",
        "model": "Ascend-910B3",
        "uuid": f"NPU-{minor}",
        "minor": str(minor),
        "resources": {"huawei.com/npu-core": "20", "gpu-memory": "64Gi"},
        "topology": {
            "p2pLinks": [{"peerMinor": peers, "type": "HCCS"}],
            "mustHonorPartition": True,
            "nodeID": "1",
            "busID": "0000:19:00.0",
        },
        "status": {"healthy": True},
        **more,
    }


def read(folder: Path, *files: object) -> DeviceReading:
    infos = folder / "infos"
    infos.mkdir()
    for number, content in enumerate(files):
        text = content if isinstance(content, str) else json.dumps(content)
        (infos / f"{number}.json").write_text(text)
    return DeviceFiles(infos, Sysfs(make_sys("two-switches", folder / "sys"))).read()


def test_devices_of_a_vendor(tmp_path: Path) -> None:
    reading = read(tmp_path, [npu(minor) for minor in range(3)], npu(3))
    assert reading.fault is None
    assert [device.id for device in reading.devices] == [f"NPU-{minor}" for minor in range(4)]
    assert reading.devices[0].resources == {
        "huawei.com/npu-core": "20",
        "koordinator.sh/gpu-memory": "64Gi",
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    # What the file does not say is read from /sys.
    assert reading.devices[0].place == PciPlace("0000:19:00.0", "0000:17:00.0", 1, -1 + 1)
    assert reading.labels == {
        "node.koordinator.sh/gpu-vendor": "huawei",
        "node.koordinator.sh/gpu-model": "Ascend-910B3",
        "node.koordinator.sh/gpu-partition-policy": "Honor",
    }
    entry = {"minors": [0, 1, 2, 3], "gpuLinkType": "HCCS", "allocationScore": 1}
    assert reading.table == {"4": [entry]}
    made = make_device({"name": "n"}, reading, {}, {}, "2026-01-01T00:00:00Z")
    Device.model_validate(made)
    table = made["metadata"]["annotations"]["scheduling.koordinator.sh/gpu-partitions"]
    assert json.loads(table) == {"4": [entry]}


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        ({"healthy": True, "errCode": "x"}, None),
        (
            {"healthy": False, "errCode": "XID 74", "errMessage": "NVLink error"},
            Fault("XID74", "NVLink error"),
        ),
        ({"healthy": False, "errCode": "80E0"}, Fault("Error80E0", "device is unhealthy")),
        ({}, Fault("Unknown", "device is unhealthy")),
    ],
)
def test_health_is_as_the_file_says(tmp_path: Path, status: Any, fault: Fault | None) -> None:
    (device,) = read(tmp_path, npu(0, status=status)).devices
    assert device.fault == fault


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ("{", "0.json[0]: Input data was truncated"),
        ("[1,", "0.json: Input data was truncated"),
        (npu(0) | {"minor": "x"}, "$.minor"),
        (npu(0) | {"minor": 5000}, "minor 5000 is not within 0 and 1023"),
        (npu(0, uuid=""), "a device has no uuid"),
        (npu(0, resources={"gpu-memory": "much"}), "much"),
        (npu(0, topology={"busID": "x"}), "x"),
        ({"vendor": "huawei"}, "model"),
    ],
)
def test_what_cannot_be_used_is_named_and_the_others_count(
    tmp_path: Path, broken: object, text: str
) -> None:
    reading = read(tmp_path, broken, [npu(1), npu(2)])
    assert [device.minor for device in reading.devices] == [1, 2]
    assert reading.fault is not None
    assert reading.fault.reason == "InvalidDeviceFile"
    assert text in reading.fault.message
    # A set with a device that is not there is no partition.
    assert reading.table == {}


def test_of_two_devices_with_one_minor_the_first_counts(tmp_path: Path) -> None:
    joined = join([read(tmp_path, npu(1), npu(1, uuid="other"))])
    assert [device.id for device in joined.devices] == ["NPU-1"]


def test_a_folder_that_is_not_there_has_no_devices(tmp_path: Path) -> None:
    files = DeviceFiles(tmp_path / "none", Sysfs(tmp_path))
    assert files.read() == DeviceReading()
    assert files.wait(0.001) == {}
