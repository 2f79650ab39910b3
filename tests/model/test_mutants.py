"""The model can fail: every defect that is put in on purpose breaks a rule."""

import pytest
from tests.model.crashes import Tally, try_all
from tests.model.machine import Broken
from tests.model.mutants import MUTANTS, mutant
from tests.model.scenarios import make_scenario
from tests.model.soak import run_round

pytestmark = pytest.mark.slow
SCENARIOS = 48
ROUNDS = 20


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_defect_is_found(name: str) -> None:
    with mutant(name):
        assert is_found_by_crashes() or is_found_by_machine()


def is_found_by_crashes() -> bool:
    tally = Tally()
    for seed in range(SCENARIOS):
        try_all(make_scenario(seed), tally)
        if tally.broken:
            return True
    return False


def is_found_by_machine() -> bool:
    try:
        for seed in range(ROUNDS):
            run_round(seed)
    except Broken:
        return True
    return False
