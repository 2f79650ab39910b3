"""However an owner and the end of its reservation meet: no room is used twice, or lost."""

from collections import Counter

import pytest
from tests.model.reservationraces import ENDS, make_race, run_race
from tests.support.laws import examples

from koord.core.reservation.choice import SingleUse
from koord.core.reservation.ledger import ReservationAccount
from koord.core.reservation.model import ReservationInfo
from koord.core.reservation.plugin import Reservations

IN_CI = 40
"""Races in every run; some of them show each defect, a rare one the last."""
ALL = 1000


def race_all(seeds: range) -> tuple[int, Counter[str]]:
    """Run races; return the number of those with a crash, and with an owner by their end."""
    crashes, owned = 0, Counter[str]()
    for seed in seeds:
        race = make_race(seed)
        result = run_race(race)
        assert not result.violations, f"{race.story}\n{result.violations}"
        crashes += result.has_crashed
        owned[race.end] += result.has_owner
    return crashes, owned


@pytest.mark.timeout(0)
def test_an_owner_and_the_end_of_its_reservation() -> None:
    crashes, owned = race_all(range(count := examples(IN_CI)))
    assert crashes >= count // 4
    for end in ENDS:
        assert owned[end] > 0, end


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_an_owner_and_the_end_of_its_reservation_a_thousand_times() -> None:
    crashes, _ = race_all(range(ALL))
    assert crashes >= ALL // 4


DEFECTS = {
    "nothing is held": (ReservationAccount, "held", lambda _: {}),
    "used once, matched again": (ReservationInfo, "is_matchable", lambda *_: True),
    "a gang waits for what it holds": (SingleUse, "is_open", lambda *_: False),
    "what ends is kept": (Reservations, "absorb", lambda *_: None),
}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    assert any(run_race(make_race(seed)).violations for seed in reversed(range(IN_CI)))
