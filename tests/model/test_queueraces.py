"""Whoever was told of reserved room gets it, whatever process decides; no promise moves unasked."""

import pytest
from tests.model.queueraces import make_race, run_race
from tests.support.laws import examples

from koord.core.queue.plugin import Queues
from koord.core.queue.protection import RoundOfTurns
from koord.core.queue.restored import EarlierRoom

IN_CI = 10
"""Races in every run; the last of them show each defect."""
ALL = 1000


def race_all(seeds: range) -> tuple[int, int]:
    """Run races; return how many had a crash, and how many told of reserved room."""
    crashes = told = 0
    for seed in seeds:
        race = make_race(seed)
        result = run_race(race)
        assert not result.violations, f"{race.story}\n{result.violations}"
        crashes += result.processes > 1
        told += result.told > 0
    return crashes, told


@pytest.mark.timeout(0)
def test_a_promise_and_a_crash() -> None:
    crashes, told = race_all(range(count := examples(IN_CI)))
    assert crashes == count
    assert told >= count // 2


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_promise_and_a_crash_a_thousand_times() -> None:
    crashes, _ = race_all(range(ALL))
    assert crashes == ALL


@pytest.mark.timeout(0)
def test_it_is_found_when_nothing_binds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoundOfTurns, "binding", lambda *_: [])
    assert any(run_race(make_race(seed)).violations for seed in reversed(range(IN_CI)))


@pytest.mark.timeout(0)
@pytest.mark.parametrize("forgets", [(Queues, "memory_of"), (EarlierRoom, "find")])
def test_it_is_found_when_a_new_process_restores_nothing(
    monkeypatch: pytest.MonkeyPatch, forgets: tuple[type, str]
) -> None:
    monkeypatch.setattr(*forgets, lambda *_: None)
    assert any(run_race(make_race(seed)).violations for seed in reversed(range(IN_CI)))
