"""The Device object: what was found, and what was reported before."""

import json
from dataclasses import replace

from tests.agent.machine import make_switched

from koord.agent.reading import DeviceReading, Fault, ObservedDevice, PciPlace
from koord.agent.report import make_device, reported_faults
from koord.api.device import Device
from koord.api.keys.device import GPU_PARTITIONS

NODE = {"name": "n", "uid": "u"}
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
NICS = [
    ObservedDevice("rdma", f"0000:0{n}:00.0", PciPlace(f"0000:0{n}:00.0"), {}) for n in range(3)
]
XID = Fault("Xid79", "the driver reported XID 79")


def make(devices, faults=None, before=None, now=NOW, fault=None):
    findings = DeviceReading(tuple(devices), fault=fault)
    return make_device(NODE, findings, faults or {}, before or {}, now)


def entries(device):
    return {entry["id"]: entry for entry in device["spec"]["devices"]}


def test_the_object_is_valid_and_goes_with_its_node(make_nvidia) -> None:
    reading = make_nvidia("two-switches", make_switched()).read()
    made = make_device(NODE, reading, {"GPU-1": XID}, {}, NOW)
    Device.model_validate(made)
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert made["metadata"]["annotations"].keys() == {"scheduling.koordinator.sh/gpu-partitions"}
    assert [device["health"] for device in made["spec"]["devices"]] == [True, False, True, True]
    assert entries(made)["GPU-1"]["conditions"] == [
        {
            "type": "Healthy",
            "status": "False",
            "reason": "Xid79",
            "message": "the driver reported XID 79",
            "lastTransitionTime": NOW,
        }
    ]
    assert reported_faults(made) == {"GPU-1": XID}


def test_the_partitions_stay_while_a_gpu_is_missing(make_nvidia, nvml) -> None:
    nvidia = make_nvidia("two-switches", make_switched())
    before = make_device(NODE, nvidia.read(), {}, {}, NOW)
    nvml.state["gpus"][1]["lost"] = True
    after = make_device(NODE, nvidia.read(), {}, before, LATER)
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    first = make_device(NODE, nvidia.read(), {}, {}, NOW)
    assert first["metadata"]["annotations"] != before["metadata"]["annotations"]


def test_partitions_are_made_anew_when_gpus_are_numbered_anew() -> None:
    """The table names minors: with others it would name other GPUs."""
    kept = json.dumps({"2": [{"minors": [0, 1]}]})
    gpus = [
        ObservedDevice("gpu", f"GPU-{n}", PciPlace(f"0000:0{n}:00.0"), {}, minor=n)
        for n in range(4)
    ]
    before = make(gpus)
    before["metadata"]["annotations"] = {GPU_PARTITIONS: kept}
    left = [replace(gpu, minor=at) for at, gpu in enumerate(gpus[1:3])]
    assert "annotations" not in make(left, before=before)["metadata"]
    assert make(gpus[:3], before=before)["metadata"]["annotations"] == {GPU_PARTITIONS: kept}


def test_nics_keep_their_numbers() -> None:
    before = make(NICS[1:])
    assert [device["minor"] for device in before["spec"]["devices"]] == [0, 1]
    after = entries(make(NICS, before=before))
    assert [after[nic.id]["minor"] for nic in NICS] == [2, 0, 1]


def test_a_missing_device_stays_unhealthy_until_another_has_its_minor() -> None:
    gpus = [
        ObservedDevice("gpu", f"GPU-{n}", PciPlace(f"0000:0{n}:00.0"), {}, minor=n)
        for n in range(2)
    ]
    before = make(gpus)
    lost = entries(make(gpus[:1], faults={"GPU-1": XID}, before=before, now=LATER))["GPU-1"]
    assert (lost["health"], lost["minor"]) == (False, 1)
    assert lost["conditions"][0]["reason"] == "Xid79"
    assert lost["conditions"][0]["lastTransitionTime"] == LATER
    replaced = make([gpus[0], replace(gpus[1], id="GPU-new")], before=before)
    assert entries(replaced).keys() == {"GPU-0", "GPU-new"}


def test_times_of_conditions_change_with_their_status_only() -> None:
    first = make(NICS, now=NOW)
    second = make(NICS, faults={NICS[0].id: XID}, before=first, now=LATER)
    third = make(
        NICS, faults={NICS[0].id: replace(XID, reason="Xid95")}, before=second, now="later"
    )
    times = [
        [device["conditions"][0]["lastTransitionTime"] for device in made["spec"]["devices"]]
        for made in (first, second, third)
    ]
    assert times == [[NOW] * 3, [LATER, NOW, NOW], [LATER, NOW, NOW]]
    assert third["spec"]["devices"][0]["conditions"][0]["reason"] == "Xid95"
