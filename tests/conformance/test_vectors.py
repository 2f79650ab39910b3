"""Every conformance vector against our functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conformance.adapters import AREAS
from tests.conformance.cases import UnsupportedCaseError
from tests.conformance.compare import find_differences

if TYPE_CHECKING:
    from tests.conformance.cases import Case


def test_vector(vector: Case) -> None:
    adapters = AREAS.get(vector.area)
    if adapters is None:
        pytest.skip(f"unsupported: no adapters for area {vector.area}")
    adapter = adapters.get(vector.kind)
    if adapter is None:
        if not vector.is_optional:
            pytest.fail(f"no adapter for {vector.full_kind}, and the kind counts")
        pytest.skip(f"unsupported: {vector.full_kind}")
    try:
        answer = adapter(vector.input)
    except UnsupportedCaseError as error:
        pytest.skip(f"unsupported: {vector.full_kind}: {error}")
    differences = find_differences(vector.expected, answer)
    if differences:
        notes = [f"notes: {vector.notes}"] if vector.notes else []
        pytest.fail("\n".join([vector.name, *differences, *notes]), pytrace=False)
