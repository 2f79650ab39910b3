"""Plans of random clusters are what they were."""

from __future__ import annotations

import pytest
from tests.recorded.recording import NUMBERS, find_differences
from tests.support.laws import sample

EVERY_CHECK = sample(NUMBERS, 36)


def test_plans_are_as_recorded() -> None:
    differences = find_differences(EVERY_CHECK)
    assert not differences, "\n".join(differences)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_plans_are_as_recorded() -> None:
    differences = find_differences(NUMBERS)
    assert not differences, "\n".join(differences)
