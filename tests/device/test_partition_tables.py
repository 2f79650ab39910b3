"""Partition tables and templates as users write them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.laws import examples

from koord.api.device_partitions import (
    MAX_PARTITIONS,
    PartitionEntry,
    PartitionTableResult,
    parse_partitions,
)
from koord.api.device_templates import parse_templates
from koord.api.keys.device import GPU_PARTITIONS
from koord.api.parse import InvalidObject
from koord.core.device.inventory import HOPPER_PARTITIONS
from koord.core.device.vendors import TEMPLATES
from koord.core.model.device_names import GPU_MEMORY, NPU_CORE, NPU_CPU, NPU_DVPP

ROOT = f"metadata.annotations[{GPU_PARTITIONS}]"
GI = 1 << 30


def read(text: str) -> PartitionTableResult:
    return parse_partitions({GPU_PARTITIONS: text})


def problems_of(text: str) -> list[tuple[str, str]]:
    return [(problem.field.removeprefix(ROOT), problem.message) for problem in read(text).problems]


def test_published_table_with_a_score_in_quotes() -> None:
    text = '{"4": [{"minors": [0,1,2,3], "gpuLinkType": "HCCS", "allocationScore": "1"}]}'
    assert read(text) == PartitionTableResult({4: (PartitionEntry((0, 1, 2, 3), "HCCS", score=1),)})


def test_numbers_given_twice_are_joined_in_order() -> None:
    text = '{"2": [{"minors": [2,3]}], "1": [{"minors": [0]}], "2": [{"minors": [0,1]}]}'
    partitions = read(text).partitions
    assert partitions is not None
    assert [share.minors for share in partitions[2]] == [(2, 3), (0, 1)]
    assert list(partitions) == [1, 2]
    assert partitions[1][0] == PartitionEntry((0,))


def test_bandwidth_is_a_quantity() -> None:
    partitions = read('{"2": [{"minors": [0,1], "ringBusBandwidth": "400G"}]}').partitions
    assert partitions is not None
    assert partitions[2][0].bandwidth == 400 * 10**9


def test_without_annotation_there_is_no_table() -> None:
    assert parse_partitions({}) == PartitionTableResult(None)
    assert read("{}") == PartitionTableResult({})


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("[", "", "is not JSON"),
        ('{"2": [{"minors": "0,1"}]}', "[2][0].minors", "must be a list"),
        ('{"2": [{"minors": [0, -1]}]}', "[2][0].minors[1]", "greater than or equal to 0"),
        ('{"2": [{"minors": [0,1], "allocationScore": "high"}]}', "[2][0].allocationScore", ""),
        ('{"2": [{"gpuLinkType": "NVLink"}]}', "[2][0].minors", "is required"),
        ('{"2": {"minors": [0,1]}}', "[2]", "must be a list"),
    ],
)
def test_table_that_cannot_be_read(text: str, where: str, message: str) -> None:
    assert read(text).partitions is None
    ((field, message_text),) = problems_of(text)
    assert field == where
    assert message in message_text


@pytest.mark.parametrize(
    ("key", "minors", "where", "message"),
    [
        ("2", [0, 0], "[2][0].minors", "name a GPU twice"),
        ("2", [0, 1, 2], "[2][0].minors", "must be 2, as the key says"),
        ("1", [1024], "[1][0].minors", "must not be above 1023"),
        ("0", [1], "[0]", "must be a number of GPUs from 1 to 64"),
        ("65", list(range(65)), "[65]", "must be a number of GPUs from 1 to 64"),
        ("two", [0, 1], ".two", "must be a number of GPUs"),
        ("9" * 5000, [0], f"[{'9' * 80}…]", "must be a number of GPUs"),
    ],
)
def test_entry_that_cannot_be_used_is_left_out(
    key: str, minors: list[int], where: str, message: str
) -> None:
    text = json.dumps({"8": [{"minors": list(range(8))}], key: [{"minors": minors}]})
    assert read(text).partitions == {8: (PartitionEntry(tuple(range(8))),)}
    ((field, message_text),) = problems_of(text)
    assert field == where
    assert message in message_text


def test_number_of_gpus_in_two_spellings_is_one() -> None:
    partitions = read('{"2": [{"minors": [0, 1]}], "02": [{"minors": [2, 3]}]}').partitions
    assert partitions is not None
    assert [share.minors for share in partitions[2]] == [(0, 1), (2, 3)]


def test_table_is_bounded() -> None:
    reading = read(json.dumps({"1": [{"minors": [0]}] * (MAX_PARTITIONS + 1)}))
    assert reading.partitions is not None
    assert len(reading.partitions[1]) == MAX_PARTITIONS
    assert reading.problems[0].message.startswith(f"has more than {MAX_PARTITIONS} partitions")


json_drawn = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
).map(json.dumps)


@settings(max_examples=examples(40))
@given(st.text(max_size=60) | json_drawn)
def test_any_text_is_a_table_or_a_problem(text: str) -> None:
    reading = read(text)
    for size, partitions in (reading.partitions or {}).items():
        assert all(len(set(partition.minors)) == size for partition in partitions)
    assert reading.partitions is not None or reading.problems or not text


def test_built_in_table() -> None:
    table = {size: [partition.minors for partition in listed] for size, listed in HOPPER_PARTITIONS}
    assert table[1] == [1 << minor for minor in range(8)]
    assert table[2] == [0b11, 0b1100, 0b110000, 0b11000000]
    assert table[4] == [0b1111, 0b11110000]
    assert table[8] == [0b11111111]
    assert {partition.score for _, listed in HOPPER_PARTITIONS for partition in listed} == {1}


# Templates of NPUs


TEMPLATES_TEXT = """
huawei-Ascend-310P:
  vir01:
    koordinator.sh/gpu-memory: 3Gi
    huawei.com/npu-core: "1"
    huawei.com/npu-cpu: 1
    huawei.com/npu-dvpp: 12
  vir04_3c_ndvpp: {koordinator.sh/gpu-memory: 12Gi, huawei.com/npu-core: 4, huawei.com/npu-cpu: 3,
                   huawei.com/npu-dvpp: 0}
"""


def test_templates_of_a_config_map() -> None:
    templates = parse_templates(TEMPLATES_TEXT)
    assert templates == {
        "huawei-Ascend-310P": {
            "vir01": {GPU_MEMORY: 3 * GI, NPU_CORE: 1, NPU_CPU: 1, NPU_DVPP: 12},
            "vir04_3c_ndvpp": {GPU_MEMORY: 12 * GI, NPU_CORE: 4, NPU_CPU: 3},
        }
    }


def test_built_in_templates_survive_the_config_map() -> None:
    assert parse_templates(json.dumps(TEMPLATES)) == TEMPLATES


def test_empty_text_has_no_templates() -> None:
    assert parse_templates("") == {}


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("a: [", "data[data.yaml]", "is not YAML"),
        ("a: &x {b: {c: 1}}\nd: *x", "data[data.yaml]", "references (*) are not allowed"),
        ("a: {b: {c: 1}}\na: {}", "data[data.yaml]", '"a" is given twice'),
        ("[]", "data[data.yaml]", "must be a mapping"),
        ("a: b", "data[data.yaml].a", "must be a mapping"),
        ("a: {b: {huawei.com/npu-core: -1}}", "", "must not be negative"),
        ("a: {b: {huawei.com/npu-core: 1.5}}", "", "is not a quantity"),
        ("a: {b: {huawei.com/npu-core: much}}", "", "is not a quantity"),
        ("a: {b: {huawei.com/npu-core: yes}}", "", "is not a quantity"),
        ("[" * 700, "data[data.yaml]", "is not YAML"),
        ("#" * 70000, "data[data.yaml]", "is longer than"),
        ("!!python/object:os.system {}", "data[data.yaml]", "is not YAML"),
    ],
)
def test_templates_that_cannot_be_used(text: str, field: str, message: str) -> None:
    templates = parse_templates(text)
    assert isinstance(templates, InvalidObject)
    problem = templates.problems[0]
    assert problem.field.startswith(field or "data[data.yaml].a.b[huawei.com/npu-core]")
    assert message in problem.message


@given(st.text(max_size=60))
def test_any_text_has_templates_or_a_problem(text: str) -> None:
    parse_templates(text)
