"""The harness itself: different answers must fail."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.adapters import AREAS
from tests.conformance.adapters.preemption import TOLD_OTHERWISE
from tests.conformance.cases import BadVectorsError, UnsupportedCaseError, load_cases
from tests.conformance.compare import IGNORED, Exact, Ordered, find_differences
from tests.conformance.intended import INTENDED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.conformance.cases import Case


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"memory": "12Gi"}, {"memory": 12884901888}),
        ({"cpu": "1500m"}, {"cpu": "1.5"}),
        ({"a": 0, "b": {}, "c": [], "d": False, "e": None, "f": ""}, {}),
        ({}, {"a": 1}),
        ({"map": {}}, {"map": {"cpu": 0}}),
        ({"map": {"cpu": 1}}, {"map": {"cpu": 1, "memory": 2}}),
        ({"map": {"cpu": 1}}, {"map": Exact({"cpu": 1, "memory": 0})}),
        ({"list": ["a", "b"]}, {"list": ("b", "a")}),
        ({"list": [{"x": 1}, {"x": 2}]}, {"list": [{"x": 2}, {"x": 1}]}),
        ({"error": True}, {"error": "anything"}),
        ({"error": "middle"}, {"error": "in the middle of it"}),
        ({"error_prefix": "in"}, {"error": "in the middle of it"}),
        ({"message": ""}, {}),
        ({"message": "x"}, {"message": IGNORED}),
        ({"a": '{"x":1,"y":[2]}'}, {"a": '{"y": [2], "x": 1}'}),
        ({"a": {"x": 1}}, {"a": '{"x": 1}'}),
        ({"at": "2026-01-01T00:00:00Z"}, {"at": "2027-02-03T04:05:06Z"}),
        ({"score": 1, "score_derived": True}, {"score": 1}),
        ({"scores_derived": {"n": 75}}, {"scores": {"n": 75}}),
        ({"contains": {"l": [{"x": 1}]}}, {"l": [{"x": 2}, {"x": 1, "y": 3}], "z": 1}),
        ({"x": ["b", "a"], "ordered": True}, {"x": ["b", "a"]}),
    ],
)
def test_same(expected: dict[str, Any], answer: dict[str, Any]) -> None:
    assert find_differences(expected, answer) == []


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ({"a": 1}, {}),
        ({"a": 1}, {"a": 2}),
        ({"a": 10**15}, {"a": 10**15 + 1}),
        ({"a": 1}, {"a": True}),
        ({"a": True}, {"a": 1}),
        ({"a": "x"}, {"a": "y"}),
        ({"a": "x"}, {"a": 1}),
        ({"a": "1Gi"}, {"a": 10**9}),
        ({"a": {}}, {"a": {"cpu": 1}}),
        ({"a": []}, {"a": ["x"]}),
        ({"a": None}, {"a": "x"}),
        ({"a": {"cpu": 1}}, {"a": {}}),
        ({"a": {"cpu": 1}}, {"a": Exact({"cpu": 1, "memory": 2})}),
        ({"list": ["a", "a", "b"]}, {"list": ["a", "b", "b"]}),
        ({"list": ["a"]}, {"list": "a"}),
        ({"order": ["a", "b"]}, {"order": ["b", "a"]}),
        ({"list": ["a", "b"]}, {"list": Ordered(["b", "a"])}),
        ({"x": ["b", "a"], "ordered": True}, {"x": ["a", "b"]}),
        ({"error": "x"}, {}),
        ({"error": True}, {}),
        ({"error": False}, {"error": "x"}),
        ({"error": ""}, {"error": "x"}),
        ({"error_prefix": "middle"}, {"error": "in the middle"}),
        ({"contains": {"l": [{"x": 1}]}}, {"l": [{"x": 2}]}),
        ({"scores_derived": {"n": 75}}, {"scores": {"n": 74}}),
        ({"a": '{"x":1}'}, {"a": '{"x":2}'}),
    ],
)
def test_different(expected: dict[str, Any], answer: dict[str, Any]) -> None:
    assert find_differences(expected, answer)


OWN = [
    case
    for case in load_cases(Path(__file__).parent / "vectors")
    if case.kind in AREAS.get(case.area, {})
]


@pytest.mark.parametrize("own", OWN, ids=[case.id for case in OWN])
def test_changed_expectation_fails(own: Case) -> None:
    try:
        answer = AREAS[own.area][own.kind](own.input)
    except UnsupportedCaseError:
        pytest.skip("no answer to compare")
    # Texts of validation are not compared, and ``ordered`` is an instruction.
    left_out = {"ordered", *(["message"] if own.kind.startswith("validation_") else ())}
    left_out |= set(TOLD_OTHERWISE.get(own.kind, ()))
    for spoiled in spoil(own.expected, left_out):
        assert find_differences(spoiled, answer), spoiled


def test_intentions_are_those_of_cases_with_notes() -> None:
    notes = {case.id: case.notes for case in OWN}
    assert all(map(notes.get, INTENDED))


def spoil(value: Any, left_out: Collection[str]) -> Iterator[Any]:
    """Yield copies of an expectation with one leaf changed."""
    if isinstance(value, dict):
        for key in value.keys() - left_out:
            for spoiled in spoil(value[key], left_out):
                yield {**copy.deepcopy(value), key: spoiled}
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            for spoiled in spoil(item, left_out):
                yield [*value[:index], spoiled, *value[index + 1 :]]
    else:
        yield change(value)


def change(leaf: Any) -> Any:
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, int):
        return leaf + 1
    return "something else"


def test_fixtures_are_resolved(tmp_path: Path) -> None:
    document = {
        "area": "x",
        "fixtures": {"node": {"cpu": 4}, "pair": [{"$fixture": "node"}]},
        "cases": [{"id": 1, "kind": "k", "input": {"$fixture": "pair"}, "expected": {}}],
    }
    (tmp_path / "x.json").write_text(json.dumps(document))
    (case,) = load_cases(tmp_path)
    assert (case.input, case.full_kind, case.is_optional) == ([{"cpu": 4}], "x/k", False)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"area": "x", "cases": [{"id": 1}]}',
        (
            '{"area": "x", "fixtures": {"a": {"$fixture": "a"}},'
            ' "cases": [{"id": 1, "kind": "k", "input": {"$fixture": "a"}, "expected": {}}]}'
        ),
    ],
)
def test_file_without_vectors_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(BadVectorsError, match=r"broken\.json"):
        load_cases(tmp_path)


def test_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadVectorsError, match="no \\*\\.json"):
        load_cases(tmp_path)
