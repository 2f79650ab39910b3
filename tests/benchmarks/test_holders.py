"""The check that no device is held twice finds what it should find."""

import json
from typing import Any

import pytest
from benchmarks.holders import ALLOCATED, HeldTwiceError, read_holders

CORE = "koordinator.sh/gpu-core"
MEMORY = "koordinator.sh/gpu-memory"
TOTAL = {CORE: "100", MEMORY: "80Gi"}
NODE = {
    "metadata": {"name": "n0"},
    "spec": {
        "devices": [
            *({"type": "gpu", "minor": minor, "resources": TOTAL} for minor in range(2)),
            {"type": "rdma", "minor": 0, "resources": {"koordinator.sh/rdma": "100"}},
        ]
    },
}


def pod(name: str, given: Any, phase: str = "Running", node: str = "n0") -> dict[str, Any]:
    annotations = {ALLOCATED: json.dumps(given)}
    meta = {"namespace": "default", "name": name, "annotations": annotations}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}


def gpu(minor: int, core: int = 100, memory: str = "40Gi") -> dict[str, Any]:
    return {"gpu": [{"minor": minor, "resources": {CORE: str(core), MEMORY: memory}}]}


def nic(*functions: str) -> dict[str, Any]:
    vfs = [{"minor": 0, "busID": one} for one in functions]
    return {"rdma": [{"minor": 0, "resources": {}, "extension": {"vfs": vfs}}]}


def test_parts_of_one_device_have_several_holders() -> None:
    pods = [
        pod("a", gpu(0, 60)),
        pod("b", gpu(0, 40)),
        pod("c", gpu(1)),
        pod("ended", gpu(1), phase="Failed"),
        pod("waits", gpu(1), node=""),
        pod("d", nic("0000:01:00.1")),
    ]
    assert read_holders([NODE], pods) == {
        ("n0", "gpu", 0): ["default/a", "default/b"],
        ("n0", "gpu", 1): ["default/c"],
        ("n0", "rdma", 0): ["default/d"],
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([gpu(0, 60), gpu(0, 50)], "110 of koordinator.sh/gpu-core"),
        ([gpu(0, 0, "81Gi")], "koordinator.sh/gpu-memory is held"),
        ([gpu(7)], "is no device of its node"),
        ([nic("0000:01:00.1"), nic("0000:01:00.1")], "is held 2 times"),
    ],
)
def test_what_is_held_twice_is_named(given: list[Any], message: str) -> None:
    pods = [pod(f"p{at}", one) for at, one in enumerate(given)]
    with pytest.raises(HeldTwiceError, match=message):
        read_holders([NODE], pods)


def test_a_device_is_that_with_the_id_of_the_record() -> None:
    ids = [{"type": "gpu", "minor": at, "id": name} for at, name in enumerate("BA")]
    node = {"metadata": {"name": "n0"}, "spec": {"devices": ids}}
    given = [{"gpu": [{"minor": 0, "id": name}]} for name in ("A", "B", "C")]
    pods = [pod(f"p{at}", one) for at, one in enumerate(given)]
    assert read_holders([node], pods) == {
        ("n0", "gpu", 1): ["default/p0"],
        ("n0", "gpu", 0): ["default/p1"],
    }
