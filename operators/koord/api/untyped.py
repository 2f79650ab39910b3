"""Reads values of documents that nobody has checked: one of another type reads as empty."""

from collections.abc import Mapping
from typing import Any


def to_map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def to_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
