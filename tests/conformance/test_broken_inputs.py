"""Cases with inputs that are missing or cannot be read: adapters ask our decoders."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.adapters import AREAS
from tests.conformance.cases import load_cases

ALLOCATE = AREAS["device"]["allocate"]
HINTS = "scheduling.koordinator.sh/device-allocate-hint"
CASES = {
    case.id: case
    for case in load_cases(Path(__file__).parent / "vectors")
    if (case.area, case.kind) == ("device", "allocate")
}


def make(**changes: Any) -> dict[str, Any]:
    """Return the input of a case of GPUs with NICs in which some parts are others."""
    return {**copy.deepcopy(CASES["dev-005"].input), **changes}


def test_the_case_fits_as_it_is() -> None:
    assert ALLOCATE(make())["fits"]


@pytest.mark.parametrize("device", [None, "{", {"metadata": {"labels": {"a": 1}}}])
def test_without_a_device_nothing_is_given_out(device: Any) -> None:
    """Koordinator leaves it to the kubelet."""
    assert ALLOCATE(make(device=device)) == {"allocations": {}, "fits": True}


@pytest.mark.parametrize("spec", [None, {}, {"devices": None}, {"devices": []}])
def test_a_device_without_devices_refuses(spec: Any) -> None:
    found = ALLOCATE(make(device={"metadata": {"name": "n"}, "spec": spec}))
    assert found["code"] == "UnschedulableAndUnresolvable"
    assert "Insufficient" in found["error"]


def test_entries_that_cannot_be_read_are_left_out() -> None:
    case = make()
    for one in case["device"]["spec"]["devices"]:
        one["resources"] = dict.fromkeys(one["resources"], "many")
    assert "Insufficient" in ALLOCATE(case)["error"]


def test_an_annotation_that_cannot_be_read_is_an_error() -> None:
    case = make()
    case["pod"]["annotations"] = {HINTS: "{"}
    assert HINTS in ALLOCATE(case)["error"]


@pytest.mark.parametrize("amount", ["many", None])
def test_an_amount_that_cannot_be_read_is_an_error(amount: Any) -> None:
    case = make()
    case["pod"]["requests"] = {"koordinator.sh/rdma": amount}
    assert "is not a quantity" in ALLOCATE(case)["error"]


def test_a_pod_that_asks_for_nothing_gets_nothing() -> None:
    assert ALLOCATE(make(pod=None)) == {"allocations": {}, "fits": True}


@pytest.mark.parametrize("allocations", [None, {}, {"gpu": [{}]}, {"gpu": "x"}])
def test_a_record_that_cannot_be_read_says_nothing(allocations: Any) -> None:
    assert ALLOCATE(make(used=[{"allocations": allocations}])) == ALLOCATE(make())


VALIDATE = AREAS["elasticquota"]["validation_self"]


def judge(**quota: Any) -> str:
    return VALIDATE({"quota": {"name": "q", "max": {"cpu": 1000}, **quota}}).get("errorKind") or ""


@pytest.mark.parametrize(
    ("quota", "kind"),
    [
        ({}, ""),
        ({"max": None, "min": None}, ""),
        ({"min": {"cpu": -1}}, "MinNegative"),
        ({"sharedWeight": "{"}, "InvalidSharedWeight"),
        ({"sharedWeight": {"cpu": "many"}}, "InvalidSharedWeight"),
        ({"sharedWeight": {"cpu": -1}}, "SharedWeightNegative"),
        ({"sharedWeight": ""}, ""),
        ({"maxStrictCheckResourceKeys": "cpu"}, "InvalidStrictKeys"),
    ],
)
def test_quotas_are_read_by_our_decoder(quota: dict[str, Any], kind: str) -> None:
    assert judge(**quota).endswith(kind) if kind else judge(**quota) == ""


@pytest.mark.parametrize("quota", [{"max": {"cpu": "many"}}, {"min": {"cpu": "1e"}}])
def test_an_amount_of_a_quota_that_cannot_be_read_is_refused(quota: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        judge(**quota)
