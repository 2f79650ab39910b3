"""Counts everything that is known of quotas anew, and tells where that is not what was kept.

What quotas use is kept up to date change by change, and their shares are taken over from the time
before where nothing seems to have changed. Both must give what counting all pods gives.
"""

from dataclasses import dataclass
from typing import Final

from koord.core.quota.ledger import Ledger
from koord.core.quota.model import QuotaName
from koord.core.quota.status import MEASURED, Summary, summarise
from koord.core.state import ClusterState

_FIELDS: Final = {**MEASURED, "submitted": "submitted", "demand": "demand"}
AUDITED: Final = tuple(name for name in _FIELDS if name not in {"min", "max", "sharedWeight"})
"""The numbers that are compared, under the names that metrics give them."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A number that was kept, and is another one when it is counted."""

    quota: QuotaName
    field: str
    resource: str
    kept: int
    counted: int


def find_drift(state: ClusterState) -> tuple[Drift, ...]:
    """Return every difference; none is expected."""
    kept = _summarise_all(state.open_ledger())
    counted = _summarise_all(state.open_ledger_anew())
    return tuple(
        difference
        for name in sorted({*kept, *counted})
        for difference in _compare(
            name, kept.get(name, Summary(name)), counted.get(name, Summary(name))
        )
    )


def _summarise_all(ledger: Ledger) -> dict[QuotaName, Summary]:
    return {name: summarise(ledger, name) for name in ledger.names()}


def _compare(name: QuotaName, kept: Summary, counted: Summary) -> list[Drift]:
    found = []
    for field in AUDITED:
        one, other = (getattr(summary, _FIELDS[field]) for summary in (kept, counted))
        found += [
            Drift(name, field, key, one.get(key, 0), other.get(key, 0))
            for key in sorted({*one, *other})
            if one.get(key, 0) != other.get(key, 0)
        ]
    return found
