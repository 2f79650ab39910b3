"""The examples of devices run as documented; what is wrong with samples as published is named."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support.operators import run_operators

from koord_sandbox import Sandbox
from koord_sandbox.errors import KubectlError
from koord_sandbox.node_reports import report_devices, report_numa

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.sandbox

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/devices"
COMMAND = re.compile(r"^\$ kubectl (.*)$", re.MULTILINE)
PODS = "/api/v1/namespaces/default/pods"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox() as box:
        for shape, count in (("h20x8", 2), ("ascend910bx8", 1), ("mlu370x8", 1)):
            box.add_nodes(count, shape)
        box.apply(ROOT / "crds")
        box.create_namespace("koord-system")
        report_devices(box.client)
        report_numa(box.client)
        with run_operators(box.kubeconfig, tmp_path_factory.mktemp("operators")):
            yield box


def given_to(box: Sandbox, pod: str) -> dict[str, Any]:
    annotations = box.client.get(f"{PODS}/{pod}")["metadata"]["annotations"]
    found: dict[str, Any] = json.loads(annotations["scheduling.koordinator.sh/device-allocated"])
    return found


@pytest.mark.timeout(300)
def test_the_examples_run_as_documented(box: Sandbox) -> None:
    commands = COMMAND.findall((EXAMPLE / "README.md").read_text(encoding="utf-8"))
    for command in commands:
        if "--server-side" not in command:
            box.kubectl(*shlex.split(command.replace("examples/", f"{ROOT}/examples/")))
    minors = [one["minor"] for one in given_to(box, "two-gpus-one-numa-node")["gpu"]]
    annotations = box.client.get(f"{PODS}/two-gpus-one-numa-node")["metadata"]["annotations"]
    (share,) = json.loads(annotations["scheduling.koordinator.sh/resource-status"])[
        "numaNodeResources"
    ]
    assert share["resources"] == {"cpu": "64", "memory": "500Gi"}
    assert {minor // 4 for minor in minors} == {share["node"]}
    pair = given_to(box, "gpu-with-nic")
    assert len(pair["gpu"]) == len(pair["rdma"]) == 1
    assert pair["rdma"][0]["extension"]["vfs"][0]["busID"]
    assert len(given_to(box, "whole-gpu")["gpu"]) == 1
    linked = sorted(one["minor"] for one in given_to(box, "four-npus")["gpu"])
    assert linked in ([0, 1, 2, 3], [4, 5, 6, 7])
    (slice_,) = given_to(box, "npu-slice")["gpu"]
    assert slice_["extension"]["gpuSharedResourceTemplate"] == "vir05_1c_16g"
    annotations = box.client.get(f"{PODS}/virtual-mlu")["metadata"]["annotations"]
    assert annotations["CAMBRICON_DSMLU_PROFILE"].endswith("_10_4")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(yaml.safe_load_all((EXAMPLE / name).read_text(encoding="utf-8")))
    return found


def refusal_of(box: Sandbox, manifest: dict[str, Any]) -> str:
    with pytest.raises(KubectlError) as error:
        box.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    return str(error.value)


def test_pods_without_name_or_image_are_refused(box: Sandbox) -> None:
    """As they are published, to show annotations and amounts only."""
    pod = read("numa.yaml")
    del pod["metadata"]["name"]
    assert "name" in refusal_of(box, pod)
    pod = read("old-names.yaml")
    del pod["spec"]["containers"][0]["image"]
    pod["metadata"]["name"] = "demo-pod"
    assert "spec.containers[0].image: Required value" in refusal_of(box, pod)


def wait_for(find: Any, seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < deadline, f"not seen within {seconds} s"
        time.sleep(0.2)
    return found


def test_partitions_of_a_device_that_is_not_there_are_named(box: Sandbox) -> None:
    """The published table lists four NPUs, its score is a text, and the object has one NPU."""
    device = read("ascend-device.yaml")
    device["metadata"]["name"] = "ascend910bx8-0000"
    table = '{"4": [{"minors": [0,1,2,3,3], "gpuLinkType": "HCCS", "allocationScore": "1"}]}'
    device["metadata"]["annotations"]["scheduling.koordinator.sh/gpu-partitions"] = table

    def problem() -> str:
        found = box.client.get(f"{DEVICES}/ascend910bx8-0000").get("status", {})
        return next(
            (
                one["message"]
                for one in found.get("conditions", ())
                if one["type"] == "Ready" and one["reason"] == "InvalidEntries"
            ),
            "",
        )

    box.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(device))
    assert "gpu-partitions" in wait_for(problem)


def test_a_misspelled_resource_is_named(box: Sandbox) -> None:
    """Published text writes gpu-shared where the resource is gpu.shared."""
    pod = read("isolated.yaml")
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    limits["koordinator.sh/gpu-shared"] = limits.pop("koordinator.sh/gpu.shared")
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    pod["metadata"]["name"] = "misspelled"
    box.client.create(PODS, pod)

    def message() -> str:
        conditions = box.client.get(f"{PODS}/misspelled").get("status", {}).get("conditions", ())
        return next((one["message"] for one in conditions if one["type"].endswith("/Placed")), "")

    assert "koordinator.sh/gpu-shared" in wait_for(message)
