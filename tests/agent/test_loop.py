"""The agent: faults of earlier processes count, and objects of others are found out."""

import time
from typing import Any

import pytest
from tests.agent.machine import make_switched

from koord.agent.loop import DeviceAgent, Health, find_owner
from koord.agent.reading import Fault


def make_agent(nvidia, quiet: float = 60) -> DeviceAgent:
    return DeviceAgent("n", nvidia._sysfs, [nvidia], Health(quiet))


def sick(device: dict[str, Any]) -> dict[str, str]:
    return {
        entry["id"]: entry["conditions"][0]["reason"]
        for entry in device["spec"]["devices"]
        if not entry["health"]
    }


def test_faults_that_an_earlier_process_saw_count_until_it_was_quiet(make_nvidia) -> None:
    nvidia = make_nvidia("two-switches", make_switched())
    first = make_agent(nvidia)
    first.health.note({"GPU-2": Fault("Xid79", "x")}, time.monotonic())
    written = first.make(first.read(), {"name": "n"}, {})
    written["metadata"]["uid"] = "u"
    down = {"0000:9c:00.0": "LinkDown"}
    assert sick(written) == {"GPU-2": "Xid79"} | down
    second = make_agent(nvidia)
    assert sick(second.make(second.read(), {"name": "n"}, written)) == {"GPU-2": "Xid79"} | down


def test_a_gpu_that_is_lost_says_why(make_nvidia, nvml) -> None:
    agent = make_agent(make_nvidia("two-switches", make_switched()))
    written = agent.make(agent.read(), {"name": "n"}, {})
    nvml.state["gpus"][1]["lost"] = True
    assert sick(agent.make(agent.read(), {"name": "n"}, written))["GPU-1"] == "NvmlError"
    nvml.state["gpus"][1]["lost"] = False
    assert sick(agent.make(agent.read(), {"name": "n"}, written))["GPU-1"] == "NvmlError"


def owned(manager: str, *fields: str) -> dict[str, Any]:
    entry = {'k:{"type":"gpu","minor":0}': {field: {} for field in fields}}
    written = {"manager": manager, "fieldsV1": {"f:spec": {"f:devices": entry}}}
    return {"metadata": {"managedFields": [written]}}


@pytest.mark.parametrize(
    ("device", "owner"),
    [
        ({}, ""),
        (owned("koordlet", "f:health", "f:id"), "koordlet"),
        (owned("koord-device-agent", "f:health"), ""),
        (owned("kubectl-label", "f:labels"), ""),
        (
            {
                "metadata": {
                    "managedFields": [{"manager": "koord-device", "fieldsV1": {"f:status": {}}}]
                }
            },
            "",
        ),
    ],
)
def test_who_reports_health_owns_the_devices(device: dict[str, Any], owner: str) -> None:
    assert find_owner(device) == owner
