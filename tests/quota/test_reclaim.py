"""Over-use, and the units that are evicted for it."""

from __future__ import annotations

import pytest
from tests.quota.scene import KOORDINATOR, OURS, make_ledger, quota, wants

from koord.core.quota.reclaim import (
    Overuse,
    OveruseTimer,
    RunningUnit,
    choose_victims,
    find_overuse,
)


def unit(key: str, priority: int, cpu: int, memory: int = 0, **more) -> RunningUnit:
    return RunningUnit(key, {"cpu": cpu, "memory": memory}, priority, **more)


FOUR = [unit("1", 10, 20), unit("2", 9, 10, 1), unit("3", 8, 20), unit("4", 7, 40)]


def revoked(units, rules=OURS, **limit: int) -> list[str]:
    used = {key: sum(unit.request[key] for unit in units) for key in ("cpu", "memory")}
    return [victim.key for victim in choose_victims(units, used, limit, rules)]


@pytest.mark.parametrize("rules", [OURS, KOORDINATOR])
def test_the_least_important_units_go_and_units_that_still_fit_stay(rules) -> None:
    assert revoked(FOUR, rules, cpu=50, memory=0) == ["2", "4"]


def test_no_unit_goes_within_the_limit() -> None:
    assert revoked(FOUR, cpu=90, memory=1) == []


@pytest.mark.parametrize("rules", [OURS, KOORDINATOR])
def test_all_preemptible_units_go_if_they_are_not_enough(rules) -> None:
    assert revoked(FOUR, rules, cpu=-1, memory=0) == ["1", "2", "3", "4"]


def test_units_that_use_nothing_of_the_shortage_stay() -> None:
    units = [unit("small", 1, 0, 5), unit("big", 2, 9, 0)]
    assert revoked(units, cpu=0, memory=9) == ["big"]
    assert revoked(units, KOORDINATOR, cpu=0, memory=9) == ["big"]
    assert revoked(units, cpu=-1, memory=9) == ["big"]
    assert revoked(units, KOORDINATOR, cpu=-1, memory=9) == ["big", "small"]


def test_non_preemptible_units_stay() -> None:
    assert revoked([unit("1", 1, 5, is_non_preemptible=True), unit("2", 2, 5)], cpu=5) == ["2"]


def test_among_equals_the_youngest_unit_goes() -> None:
    units = [unit("old", 1, 5, started=1.0), unit("new", 1, 5, started=2.0)]
    assert revoked(units, cpu=5) == ["new"]


def test_over_use_names_quota_resource_and_amount() -> None:
    specs = [quota("a", min=2), quota("b", min=5)]
    ledger = make_ledger(specs, 10, {"a": wants(9, 9), "b": 5})
    (over,) = find_overuse(ledger)
    assert over == Overuse("a", "cpu", used=9, entitled=5)
    assert over.over == 4
    assert find_overuse(make_ledger(specs, 10, {"a": wants(9, 5), "b": 5})) == ()


def test_usage_within_the_guarantee_is_no_over_use() -> None:
    specs = [quota("p", min=5), quota("c", "p", max=2)]
    ledger = make_ledger(specs, 10, {"c": wants(4, 4)})
    assert ledger.account("p").share == {"cpu": 2}
    assert find_overuse(ledger) == (Overuse("c", "cpu", used=4, entitled=2),)


def test_only_quotas_over_for_longer_than_the_delay_are_due() -> None:
    patience = OveruseTimer(120)
    assert patience.note({"a"}, 0) == []
    assert patience.note({"a", "b"}, 120) == []
    assert patience.note({"a", "b"}, 121) == ["a"]
    assert patience.note({"a", "b"}, 240) == [], "the clock of a started again"
    assert patience.note({"a", "b"}, 241) == ["b"]
    assert patience.note({"a"}, 242) == ["a"]


def test_the_timer_restarts_once_a_quota_is_within_its_share() -> None:
    patience = OveruseTimer(10)
    patience.note({"a"}, 0)
    patience.note(set(), 9)
    assert patience.note({"a"}, 11) == []
    assert patience.note({"a"}, 22) == ["a"]


def part(gang: str, at: int, cpu: int, **more) -> RunningUnit:
    return RunningUnit(f"{gang}/{at}", {"cpu": cpu}, gang=gang, part=at, **more)


class TestGang:
    """Surplus 2 and 1, then the core."""

    GANG = (part("g", 0, 8), part("g", 1, 2), part("g", 2, 2))

    def revoked(self, limit: int, *more_units: RunningUnit) -> list[str]:
        units = (*self.GANG, *more_units)
        used = {"cpu": sum(unit.request["cpu"] for unit in units)}
        return [victim.key for victim in choose_victims(units, used, {"cpu": limit}, OURS)]

    def test_surplus_goes_first_and_from_the_end(self) -> None:
        assert self.revoked(12) == []
        assert self.revoked(11) == ["g/2"]
        assert self.revoked(9) == ["g/1", "g/2"]

    def test_nothing_of_it_stays_without_its_core(self) -> None:
        assert self.revoked(7) == ["g/0", "g/1", "g/2"]

    def test_surplus_comes_back_if_the_core_does(self) -> None:
        young = RunningUnit("young", {"cpu": 8}, priority=-1)
        assert self.revoked(12, young) == ["young"]
        assert self.revoked(10, young) == ["g/2", "young"]

    def test_surplus_that_does_not_help_goes_with_its_core(self) -> None:
        idle = RunningUnit("g/3", {"cpu": 0}, gang="g", part=3)
        assert self.revoked(7, idle) == ["g/0", "g/1", "g/2", "g/3"]
