"""The search finds the fewest and cheapest moves of all; ``tests.defrag.soak`` tries more."""

from __future__ import annotations

import pytest
from tests.defrag.soak import check
from tests.support.laws import examples

CLUSTERS = examples(48)
SLICES = 4


@pytest.mark.parametrize("part", range(SLICES))
def test_no_other_moves_are_fewer_or_cheaper_in_any_order_to_any_nodes(part: int) -> None:
    for seed in range(part, CLUSTERS, SLICES):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_two_thousand_clusters(part: int) -> None:
    for seed in range(10_000 + part, 12_400, 8):
        check(seed)
