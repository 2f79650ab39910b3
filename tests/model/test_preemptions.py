"""After a crash at any write of a preemption it is finished or cancelled; nobody goes in vain."""

import pytest
from tests.model.preemptions import make_contest, run_contest, try_every_crash
from tests.support.laws import examples

CALM = examples(14)
IN_CI = 6
MOST = 60


@pytest.mark.timeout(0)
def test_contests_without_a_crash() -> None:
    deleted = 0
    for seed in range(CALM):
        contest = make_contest(seed)
        outcome = run_contest(contest)
        assert not outcome.violations, f"{contest.story}\n{outcome.violations}"
        deleted += outcome.deleted
    assert deleted >= CALM // 2, "most of them need victims"


def crash_everywhere(seeds: range) -> int:
    points = 0
    for seed in seeds:
        contest = make_contest(seed)
        for crash, outcome in try_every_crash(contest):
            assert not outcome.violations, f"{contest.story}\n{crash}\n{outcome.violations}"
            points += outcome.processes > 1
    return points


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_crash_at_every_write() -> None:
    assert crash_everywhere(range(IN_CI)) >= 25 * IN_CI


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_crash_at_every_write_of_more_contests() -> None:
    assert crash_everywhere(range(IN_CI, MOST)) >= 25 * (MOST - IN_CI)
