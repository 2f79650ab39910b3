"""A few hundred of the random states that ``make soak`` checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.quota import soak, trees
from tests.quota.soak import CHECKS, check_states
from tests.support.laws import examples

from koord.core.quota import fair_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from koord.core.quota.ledger import Ledger
    from koord.core.quota.model import QuotaCharge

STATES = 300
"""States some of which show each defect."""


def test_every_check_holds_for_some_hundred_states() -> None:
    counts = check_states(0, states := examples(80), lambda _: None)
    assert counts == {check.__name__: states for check in CHECKS}


def generous(total: int, level: Any) -> list[int]:
    """Give the first one more than there is."""
    first, *later = trees.share_level(total, level)
    return [first + 1, *later]


def keep(levels: Any, total: Any, minimum: Any, is_scaled: Any) -> Any:
    return minimum


class Everybody:
    """Grants leftovers to everybody."""

    def try_charge(self, ledger: Ledger, _: str, charges: Sequence[QuotaCharge]) -> None:
        ledger.charge(charges[0])


DEFECTS = {
    "shares exceed what there is": (soak, "share_level", generous),
    "guarantees are not scaled": (fair_share, "scale_guarantees", keep),
    "nothing is refused": (soak, "try_charge", lambda ledger, units: ledger.charge(units[0])),
    "leftovers are given to all": (soak, "grant_leftovers", lambda *_: Everybody()),
    "what others wait for is always there": (soak, "has_more_room", lambda *_: True),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    with pytest.raises(AssertionError):
        check_states(0, STATES, lambda _: None)
