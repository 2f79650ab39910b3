"""Anything may happen: a share of ``make soak`` for every change, the same rounds each time."""

import pytest
from tests.model.soak import ROUNDS_IN_CI, check_round


@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(ROUNDS_IN_CI))
def test_anything_may_happen(seed: int) -> None:
    check_round(seed)
