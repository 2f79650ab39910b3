"""The search finds the cheapest victims of all sets; ``make soak`` tries more clusters."""

from __future__ import annotations

import pytest
from tests.preemption.soak import check

CLUSTERS = 400
SLICES = 8


@pytest.mark.parametrize("part", range(SLICES))
def test_no_other_victims_are_cheaper_and_none_can_be_spared(part: int) -> None:
    for seed in range(part, CLUSTERS, SLICES):
        check(seed)
