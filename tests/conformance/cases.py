"""Reads conformance vectors: files of cases.

A file is one area: ``{"area", "fixtures"?, "cases": [{"id", "kind", "name", "input", "expected",
"optional"?, "notes"?}]}``. In a case ``{"$fixture": NAME}`` stands for an entry of ``fixtures``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.conformance.intended import INTENDED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_FIXTURE_DEPTH = 16


class BadVectorsError(Exception):
    """A folder or file does not hold vectors; the message says which and why."""


class UnsupportedCaseError(Exception):
    """Our design has no function for a case, though it has for others of the kind."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case: the adapter gets ``input``, and its answer is compared with ``expected``.

    Where a case records a defect of Koordinator, ``expected`` is what is intended instead.
    """

    area: str
    id: str
    kind: str
    name: str
    input: Any
    expected: Mapping[str, Any]
    is_optional: bool
    notes: str

    @property
    def full_kind(self) -> str:
        """``area/kind``: a kind may occur in two areas with different inputs."""
        return f"{self.area}/{self.kind}"


def load_cases(folder: Path) -> list[Case]:
    """Read every ``*.json`` of a folder, in the order of file names and of cases."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise BadVectorsError(f"no *.json in {folder}")
    return [case for file in files for case in _load_file(file)]


def _load_file(file: Path) -> list[Case]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        fixtures = document.get("fixtures", {})
        return [
            Case(
                area=document["area"],
                id=str(case["id"]),
                kind=case["kind"],
                name=case.get("name", ""),
                input=_resolve(case["input"], fixtures),
                expected=INTENDED.get(case["id"]) or _resolve(case["expected"], fixtures),
                is_optional=bool(case.get("optional", False)),
                notes=case.get("notes", ""),
            )
            for case in document["cases"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadVectorsError(f"{file} does not hold vectors: {error!r}") from error


def _resolve(value: Any, fixtures: Mapping[str, Any], depth: int = 0) -> Any:
    if isinstance(value, list):
        return [_resolve(item, fixtures, depth) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"$fixture"}:
        if depth > MAX_FIXTURE_DEPTH:
            raise ValueError(f"fixtures refer to each other in a circle: {value}")
        return _resolve(fixtures[value["$fixture"]], fixtures, depth + 1)
    return {key: _resolve(item, fixtures, depth) for key, item in value.items()}
