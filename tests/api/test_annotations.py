"""JSON annotations are parsed to models, or to problems with the nested field."""

from typing import Any

import pytest

from koord.api import annotations
from koord.api.annotations import JSON_ANNOTATIONS
from koord.api.json_text import MAX_TEXT
from koord.api.keys import device, gang, quota, reservation
from koord.api.parse import InvalidObject, JsonAnnotation

BY_KEY = {annotation.key: annotation for annotation in JSON_ANNOTATIONS}


def read(key: str, text: str, **options: Any) -> Any:
    return BY_KEY[key].read({key: text}, **options)


def test_every_definition_is_listed_once() -> None:
    defined = [value for value in vars(annotations).values() if isinstance(value, JsonAnnotation)]

    assert sorted(a.key for a in defined) == sorted(a.key for a in JSON_ANNOTATIONS)
    assert len(BY_KEY) == len(JSON_ANNOTATIONS)


@pytest.mark.parametrize("annotation", JSON_ANNOTATIONS, ids=lambda annotation: annotation.key)
def test_absent_annotation_is_none(annotation: JsonAnnotation[Any]) -> None:
    assert annotation.read({}) is None
    if annotation.key != reservation.AFFINITY:
        assert annotation.read({annotation.key: ""}) is None


def test_empty_affinity_requires_any_reservation() -> None:
    assert read(reservation.AFFINITY, "") == read(reservation.AFFINITY, "{}")
    assert not isinstance(read(reservation.AFFINITY, ""), InvalidObject | None)


@pytest.mark.parametrize("annotation", JSON_ANNOTATIONS, ids=lambda annotation: annotation.key)
@pytest.mark.parametrize("text", ["x", "{", "3", '"a"', "null", "NaN", "[" * 9000])
def test_invalid_json_is_a_problem_of_the_annotation(
    annotation: JsonAnnotation[Any], text: str
) -> None:
    value = annotation.read({annotation.key: text})

    assert isinstance(value, InvalidObject)
    assert value.problems[0].field.startswith(f"metadata.annotations[{annotation.key}]")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (gang.NETWORK_TOPOLOGY_SPEC, '{"gatherStrategy":[{"layer":"L","strategy":"MustGather"}]}'),
        (gang.NETWORK_TOPOLOGY_SPEC, "{}"),
        (device.ALLOCATE_HINT, '{"rdma": {"vfSelector": {}}}'),
        (device.ALLOCATE_HINT, '{"gpu":{"selector":{"matchLabels":{"type":"gpu"}}}}'),
        (device.ALLOCATE_HINT, '{"gpu":{"requiredTopologyScope":"NUMANode"}}'),
        (device.JOINT_ALLOCATE, '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'),
        (device.GPU_PARTITION_SPEC, '{"allocatePolicy":"Restricted","ringBusBandwidth":"200Gi"}'),
        (device.GPU_PARTITIONS, '{"2":[{"minors":[0,1],"gpuLinkType":"NVLink"}]}'),
        (device.NUMA_TOPOLOGY_SPEC, '{"numaTopologyPolicy":"SingleNUMANode"}'),
        (device.NUMA_TOPOLOGY_SPEC, '{"singleNUMANodeExclusive":"Preferred"}'),
        (device.RESOURCE_SPEC, '{"requiredCPUBindPolicy":"FullPCPUs"}'),
        (reservation.AFFINITY, '{"reservationSelector":{"pool":"train"}}'),
        (
            reservation.AFFINITY,
            (
                '{"requiredDuringSchedulingIgnoredDuringExecution":{"reservationSelectorTerms":'
                '[{"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]}]}}'
            ),
        ),
        (reservation.AFFINITY, '{"tolerations":[{"key":"k","operator":"Exists"}]}'),
        (reservation.EXACT_MATCH, '{"resourceNames":["cpu"]}'),
        (reservation.RESTRICTED_OPTIONS, '{"resources":["cpu"]}'),
        (reservation.RESIZE_ALLOCATABLE, '{"resources":{"cpu":"10"}}'),
        (reservation.INNER_RESERVED, '{"resources":{"cpu":1}}'),
        (reservation.OWNERS, '[{"labelSelector":{"matchLabels":{"a":"b"}}}]'),
        (quota.SHARED_WEIGHT, '{"cpu":"40","memory":"40Gi"}'),
        (quota.NAMESPACES, '["a","b"]'),
        (quota.ADMISSION, "{}"),
    ],
)
def test_documented_examples_are_parsed(key: str, text: str) -> None:
    assert not isinstance(read(key, text, unknown_fields="forbid"), InvalidObject | None)


def test_surrogate_pairs_are_characters() -> None:
    assert read(quota.NAMESPACES, r'["\ud83d\ude00"]') == ["\N{GRINNING FACE}"]


@pytest.mark.parametrize(
    ("key", "text", "inside", "message"),
    [
        (device.ALLOCATE_HINT, '{"gpu":{"requiredTopologyScope":"Rack"}}',
         ".gpu.requiredTopologyScope", "'PCIe'"),
        (device.ALLOCATE_HINT, '{"gpu":{"vfselector":{}}}', ".gpu.vfselector",
         "did you mean vfSelector?"),
        (device.GPU_PARTITIONS, '{"2":[{"minors":[]}]}', "[2][0].minors", "at least 1"),
        (device.GPU_PARTITIONS, '{"2":[{"minors":[0],"allocationScore":"high"}]}',
         "[2][0].allocationScore", "whole number"),
        (reservation.OWNERS, "[{}]", "[0]", "an owner must name"),
        (quota.SHARED_WEIGHT, '{"cpu":"-1"}', ".cpu", "must not be negative"),
        (quota.SHARED_WEIGHT, '{"cpu":"much"}', ".cpu", "is not a quantity"),
        (quota.NAMESPACES, '"a"', "", "must be a list"),
        (quota.NAMESPACES, "[1]", "[0]", "must be a string"),
        (quota.NAMESPACES, r'["\ud800"]', "", "half of a surrogate pair"),
        (quota.NAMESPACES, r'["a\udfff", 1]', "", "half of a surrogate pair"),
        (quota.NAMESPACES, "[" + "1," * MAX_TEXT + "1]", "", "longer than"),
    ],
)  # fmt: skip
def test_problems_name_the_nested_field(key: str, text: str, inside: str, message: str) -> None:
    value = read(key, text, unknown_fields="forbid")

    assert isinstance(value, InvalidObject)
    assert value.problems[0].field == f"metadata.annotations[{key}]{inside}"
    assert message in value.problems[0].message


def test_published_partition_tables_are_parsed() -> None:
    text = (
        '{"4":[{"minors":[0,1,2,3],"allocationScore":"1"}],"4":[{"minors":[4,5,6,7]}],'
        '"8":[{"minors":[0,1,2,3,4,5,6,7],"allocationScore":2}]}'
    )

    table = read(device.GPU_PARTITIONS, text)

    assert [partition.minors for partition in table["4"]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [partition.allocation_score for partition in table["4"] + table["8"]] == [1, 0, 2]


def test_values_are_exact() -> None:
    weight = annotations.SHARED_WEIGHT.read({quota.SHARED_WEIGHT: '{"cpu":"0.1","memory":"1Gi"}'})

    assert not isinstance(weight, InvalidObject | None)
    assert (weight["cpu"].milli, weight["memory"].whole) == (100, 2**30)


def test_unknown_fields_of_annotations_are_ignored() -> None:
    text = '{"gatherStrategy":[],"future":1}'

    assert not isinstance(read(gang.NETWORK_TOPOLOGY_SPEC, text), InvalidObject)
    assert isinstance(
        read(gang.NETWORK_TOPOLOGY_SPEC, text, unknown_fields="forbid"), InvalidObject
    )
