"""A few rounds of the state machine of ``make soak``, the same each time."""

import pytest
from tests.model.soak import ROUNDS_IN_CI, check_round


@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(ROUNDS_IN_CI))
def test_no_rule_is_broken_by_random_operations(seed: int) -> None:
    check_round(seed)
