"""Some examples of the state machine of ``make soak``, the same each time."""

import pytest
from tests.model.soak import EXAMPLES_IN_CI, check_round
from tests.support.laws import examples


@pytest.mark.timeout(0)
def test_no_rule_is_broken_by_random_operations() -> None:
    check_round(0, examples(EXAMPLES_IN_CI))
