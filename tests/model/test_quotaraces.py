"""One gang gets all of the last GPUs, and no quota exceeds its limit."""

from dataclasses import replace
from typing import Any

import pytest
from tests.model.quotaraces import make_race, run_race
from tests.support.laws import examples

from koord.core.model.pods import Pod
from koord.core.quota.cache import QuotaCache
from koord.core.quota.session import QuotaSession

IN_CI = 16
"""Races in every run; some of them show each defect."""
ALL = 1000

_count = QuotaCache.count_pod


def race_all(seeds: range) -> int:
    """Run races; return the number of those with a crash."""
    crashes = 0
    for seed in seeds:
        race = make_race(seed)
        result = run_race(race)
        assert not result.violations, f"{race.story}\n{result.violations}"
        crashes += result.has_crashed
    return crashes


@pytest.mark.timeout(0)
def test_two_gangs_and_the_last_gpus() -> None:
    assert race_all(range(count := examples(IN_CI))) >= count // 2


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_two_gangs_and_the_last_gpus_a_thousand_times() -> None:
    assert race_all(range(ALL)) >= ALL // 2


def count_without_place(self: QuotaCache, pod: Pod, **more: Any) -> None:
    """Count released and bound pods as waiting."""
    _count(self, replace(pod, node="", recorded=None), **more)


DEFECTS = {
    "nothing is charged": (QuotaSession, "_charges_of", lambda *_: []),
    "no quota is in use": (QuotaCache, "is_in_use", False),
    "what runs does not count": (QuotaCache, "count_pod", count_without_place),
}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    assert any(run_race(make_race(seed)).violations for seed in range(IN_CI))
