"""Compares the answer of our functions with the expectation of a vector.

Only named fields count. Quantities are compared as numbers, texts of errors by substring, lists as
sets unless they state an order, timestamps not at all; what is missing equals zero or empty.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from koord.api.quantity import InvalidQuantityError, parse_quantity

ORDERED_KEYS = frozenset(
    {
        "after",
        "detailStatus",
        "nodeOrder",
        "order",
        "paths",
        "results",
        "revoke",
        "states",
        "steps",
    }
)
TEXT_KEYS = frozenset({"error", "error_message", "message"})
PREFIX = "_prefix"
DERIVED = "_derived"

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


class Exact(dict[str, Any]):
    """A mapping in an answer that must have no entries besides the expected ones."""


class Ordered(list[Any]):
    """A list in an answer whose order is compared."""


class _Ignored:
    """Placeholder for a field that is not compared."""


IGNORED = _Ignored()

Differences = list[str]


def find_differences(expected: Mapping[str, Any], answer: Mapping[str, Any]) -> Differences:
    """Return one line per difference; the case passes if there is none."""
    return _compare_fields("", expected, answer)


def _compare_fields(
    path: str, expected: Mapping[str, Any], actual: Mapping[str, Any]
) -> Differences:
    differences: Differences = []
    is_ordered = expected.get("ordered") is True
    for key, value in expected.items():
        here = f"{path}.{key}" if path else key
        if (key == "ordered" and is_ordered) or (key.endswith(DERIVED) and value is True):
            continue
        if key == "contains":
            differences += _compare_contained(here, value, actual.get(key, actual))
        elif key in TEXT_KEYS or key.endswith(PREFIX):
            differences += _compare_text(here, key, value, actual)
        else:
            derived = actual.get(key.removesuffix(DERIVED))
            differences += _compare(
                here, value, actual.get(key, derived), in_order=is_ordered or key in ORDERED_KEYS
            )
    return differences


def _compare(path: str, expected: Any, actual: Any, *, in_order: bool = False) -> Differences:
    if actual is IGNORED or (is_empty(expected) and is_empty(actual)):
        return []
    if isinstance(expected, Mapping):
        return _compare_mapping(path, expected, actual)
    if isinstance(expected, list):
        if not isinstance(actual, (list, tuple, set, frozenset)):
            return [_differ(path, expected, actual)]
        if in_order or isinstance(actual, Ordered):
            return _compare_in_order(path, expected, list(actual))
        return _compare_as_sets(path, expected, list(actual))
    return [] if _is_same_scalar(expected, actual) else [_differ(path, expected, actual)]


def _compare_mapping(path: str, expected: Mapping[str, Any], actual: Any) -> Differences:
    if isinstance(actual, str):
        actual = _decode(actual)
    if actual is None:
        actual = {}
    if not isinstance(actual, Mapping):
        return [_differ(path, expected, actual)]
    differences = _compare_fields(path, expected, actual)
    if isinstance(actual, Exact) or not expected:
        extra = [key for key in actual if key not in expected and not is_empty(actual[key])]
        differences += [_differ(f"{path}.{key}", None, actual[key]) for key in extra]
    return differences


def _compare_in_order(path: str, expected: list[Any], actual: Sequence[Any]) -> Differences:
    if len(expected) != len(actual):
        return [_differ(path, expected, actual)]
    pairs = enumerate(zip(expected, actual, strict=True))
    return [
        difference
        for i, (one, other) in pairs
        for difference in _compare(f"{path}[{i}]", one, other)
    ]


def _compare_as_sets(path: str, expected: list[Any], actual: Sequence[Any]) -> Differences:
    left = list(actual)
    missing = [item for item in expected if not _take(item, left)]
    if not missing and not left:
        return []
    return [f"{path}: missing {_show(missing)}, unexpected {_show(left)}"]


def _take(item: Any, left: list[Any]) -> bool:
    """Remove the first equal entry from ``left``."""
    for index, candidate in enumerate(left):
        if not _compare("", item, candidate):
            del left[index]
            return True
    return False


def _compare_contained(path: str, expected: Any, actual: Any) -> Differences:
    """Compare, but allow additional entries in lists."""
    if isinstance(expected, Mapping):
        if not isinstance(actual, Mapping):
            return [_differ(path, expected, actual)]
        return [
            difference
            for key, value in expected.items()
            for difference in _compare_contained(f"{path}.{key}", value, actual.get(key))
        ]
    if isinstance(expected, list):
        items = list(actual or ())
        lacking = [
            one for one in expected if all(_compare_contained(path, one, other) for other in items)
        ]
        return [f"{path}: missing {_show(lacking)}"] if lacking else []
    return _compare(path, expected, actual)


def _compare_text(path: str, key: str, expected: Any, answer: Mapping[str, Any]) -> Differences:
    actual = answer.get(key, answer.get(key.removesuffix(PREFIX)))
    if actual is IGNORED:
        return []
    if not isinstance(expected, str) or not expected:
        return [] if bool(expected) == bool(actual) else [_differ(path, expected, actual)]
    text = actual if isinstance(actual, str) else ""
    is_same = text.startswith(expected) if key.endswith(PREFIX) else expected in text
    return [] if is_same else [_differ(path, expected, actual)]


def is_empty(value: Any) -> bool:
    """Whether a value equals a missing one: null, zero, false, empty text or collection."""
    if isinstance(value, Mapping):
        return all(is_empty(item) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return not value
    return value is None or value is False or value == "" or _number(value) == 0


def _is_same_scalar(expected: Any, actual: Any) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, str) and isinstance(actual, str):
        return expected == actual or _is_same_text(expected, actual)
    return _is_same_number(expected, actual)


def _is_same_text(expected: str, actual: str) -> bool:
    if _TIMESTAMP.fullmatch(expected) and _TIMESTAMP.fullmatch(actual):
        return True
    if _is_same_number(expected, actual):
        return True
    decoded = _decode(expected)
    return decoded is not None and not _compare("", decoded, _decode(actual))


def _is_same_number(expected: Any, actual: Any) -> bool:
    """Compare exactly, except for rounding of floating point numbers."""
    one, other = _number(expected), _number(actual)
    if one is None or other is None:
        return False
    return one == other or (
        isinstance(one, float) and isinstance(other, float) and math.isclose(one, other)
    )


def _number(value: Any) -> float | int | None:
    """Read a number or a quantity; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    if not isinstance(value, str):
        return None
    try:
        nano = parse_quantity(value).nano
    except InvalidQuantityError:
        return None
    return nano // 10**9 if nano % 10**9 == 0 else nano / 10**9


def _decode(text: str) -> Any:
    """Read the JSON of an annotation; None if it is invalid."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _differ(path: str, expected: Any, actual: Any) -> str:
    return f"{path}: expected {_show(expected)}, got {_show(actual)}"


def _show(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 600 else f"{text[:600]}…"
