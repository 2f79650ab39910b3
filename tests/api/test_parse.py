"""Problems of objects are values that name field, value and fix."""

import json
from types import MappingProxyType

import pytest
from tests.api.cases import make_object

from koord.api.device import Device
from koord.api.elasticquota import ElasticQuota
from koord.api.parse import MAX_PROBLEMS, InvalidObject, Problem, format_field, parse
from koord.api.podgroup import PodGroup
from koord.api.reservation import Reservation


def test_a_valid_object_becomes_its_model() -> None:
    body = make_object("PodGroup", minMember=3, minResources={"cpu": "500m", "memory": "1Gi"})

    group = parse(PodGroup, MappingProxyType(body))

    assert isinstance(group, PodGroup)
    assert group.spec.min_member == 3
    assert group.spec.min_resources is not None
    assert group.spec.min_resources["cpu"].milli == 500
    assert group.spec.min_resources["memory"].whole == 2**30
    assert group.encode() | {"status": 0} == body | {
        "metadata": group.metadata.encode(),
        "status": 0,
    }


def test_unknown_fields_are_ignored_by_operators() -> None:
    body = make_object("PodGroup", future={"a": 1})

    assert isinstance(parse(PodGroup, body), PodGroup)
    assert isinstance(parse(PodGroup, body, unknown_fields="forbid"), InvalidObject)


def test_status_of_koordinator_is_parsed() -> None:
    body = make_object("Reservation") | {
        "status": {
            "phase": "Available",
            "conditions": [
                {"type": "Ready", "status": "True", "lastProbeTime": "2026-01-31T12:00:00Z"}
            ],
            "currentOwners": [{"namespace": "ml", "name": "a", "uid": "1"}],
            "allocatable": {"cpu": "32"},
        }
    }

    reservation = parse(Reservation, body)

    assert isinstance(reservation, Reservation)
    assert reservation.spec.ttl == "24h"
    assert reservation.status.conditions is not None
    assert reservation.status.conditions[0].type == "Ready"


def test_problems_read_as_one_line() -> None:
    parsed = parse(ElasticQuota, make_object("ElasticQuota", min={"cpu": 5}, max={"cpu": "1"}))

    assert isinstance(parsed, InvalidObject)
    assert [str(problem) for problem in parsed.problems] == [
        "spec.min.cpu: 5: min must not exceed max for cpu: raise max or lower min"
    ]


def test_a_missing_field_has_no_value() -> None:
    parsed = parse(PodGroup, make_object("PodGroup", minMember=None))

    assert parsed == InvalidObject((Problem("spec.minMember", "", "is required"),))


@pytest.mark.parametrize(
    ("field", "hint"),
    [("minMembers", "did you mean minMember?"),
     ("zzz", "fields are minMember, minResources, scheduleTimeoutSeconds")],
)  # fmt: skip
def test_unknown_field_lists_the_known_ones(field: str, hint: str) -> None:
    parsed = parse(PodGroup, make_object("PodGroup", **{field: 3}), unknown_fields="forbid")

    assert isinstance(parsed, InvalidObject)
    assert parsed.problems == (Problem(f"spec.{field}", "3", f"is not a field here; {hint}"),)


def test_unknown_fields_are_found_below_lists() -> None:
    device = {"type": "gpu", "topology": {"busId": "0000:3b:00.0"}}

    parsed = parse(Device, make_object("Device", devices=[device]), unknown_fields="forbid")

    assert isinstance(parsed, InvalidObject)
    (problem,) = parsed.problems
    assert problem.field == "spec.devices[0].topology.busId"
    assert "did you mean busID?" in problem.message


def test_list_in_an_annotation_is_shown_quoted() -> None:
    body = make_object("PodGroup")
    body["metadata"]["annotations"] = {"gang.scheduling.koordinator.sh/groups": ["a/b"]}

    parsed = parse(PodGroup, body)

    assert isinstance(parsed, InvalidObject)
    assert parsed.problems[0].field == "metadata.annotations[gang.scheduling.koordinator.sh/groups]"
    assert parsed.problems[0].message == "must be a string; write it in quotes: '[\"a/b\"]'"


def test_long_values_and_long_lists_are_cut() -> None:
    devices = [{"type": "g" * 500} for _ in range(MAX_PROBLEMS * 2)]

    parsed = parse(Device, make_object("Device", devices=devices))

    assert isinstance(parsed, InvalidObject)
    assert len(parsed.problems) == MAX_PROBLEMS
    assert max(len(problem.value) for problem in parsed.problems) < 100


@pytest.mark.parametrize("spec", [None, 3, "x", [], {"minMember": None}, {"minMember": {"a": 1}}])
def test_malformed_objects_are_problems_not_exceptions(spec: object) -> None:
    body = make_object("PodGroup") | {"spec": spec}

    parsed = parse(PodGroup, body)

    assert isinstance(parsed, InvalidObject)
    assert parsed.problems[0].field.startswith("spec")
    json.dumps([str(problem) for problem in parsed.problems])


@pytest.mark.parametrize(
    ("location", "text"),
    [((), ""), (("spec", "devices", 3, "minor"), "spec.devices[3].minor"),
     (("metadata", "labels", "a.b/c"), "metadata.labels[a.b/c]"), (("a", 1, 2), "a[1][2]")],
)  # fmt: skip
def test_field_paths_have_the_kubernetes_form(location: tuple[str | int, ...], text: str) -> None:
    assert format_field(location) == text
