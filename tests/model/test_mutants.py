"""Every mutant breaks a rule of the model.

What finds most is tried first: what went wrong once, scenarios played to their end, then random
operations, then crashes.
"""

import pytest
from tests.model.crashes import Tally, judge, try_all
from tests.model.machine import RuleBroken
from tests.model.mutants import MUTANTS, mutant
from tests.model.scenarios import KINDS, make_scenario
from tests.model.soak import check_round
from tests.model.steps import Story, play
from tests.model.test_stories import STORIES

pytestmark = pytest.mark.slow
SCENARIOS = 6 * KINDS
ROUNDS = 5
CRASHED = KINDS // 4
"""Scenarios that run with every crash: one per family and capacity."""


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_defect_is_found(name: str) -> None:
    with mutant(name):
        assert (
            any(map(play, STORIES.values()))
            or is_found_by_scenarios()
            or is_found_by_machine()
            or is_found_by_crashes()
        )


def is_found_by_scenarios() -> bool:
    return any(is_broken(make_scenario(seed).story) for seed in range(SCENARIOS))


def is_broken(story: Story) -> bool:
    tally = Tally()
    judge(story, tally)
    return bool(tally.broken)


def is_found_by_machine() -> bool:
    try:
        for seed in range(ROUNDS):
            check_round(seed)
    except RuleBroken:
        return True
    return False


def is_found_by_crashes() -> bool:
    tally = Tally()
    for seed in range(CRASHED):
        try_all(make_scenario(seed), tally)
        if tally.broken:
            return True
    return False
