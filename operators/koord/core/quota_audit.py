"""Counts everything that is known of quotas anew, and tells where that is not what was kept.

What quotas use is kept up to date change by change, and their shares are taken over from the time
before where nothing seems to have changed. Both must give what counting all pods gives.
"""

from dataclasses import dataclass
from typing import Final

from koord.core.quota.cache import QuotaCache
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import QuotaName
from koord.core.quota.status import MEASURED, Summary, summarise
from koord.core.state import ClusterState

_FIELDS: Final = {**MEASURED, "submitted": "submitted", "demand": "demand"}
_WRITTEN: Final = {"min", "max", "sharedWeight", "unschedulable-resource"}
AUDITED: Final = tuple(name for name in _FIELDS if name not in _WRITTEN)
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
    counted = _summarise_all(count_anew(state))
    return tuple(
        difference
        for name in sorted({*kept, *counted})
        for difference in _compare(
            name, kept.get(name, Summary(name)), counted.get(name, Summary(name))
        )
    )


def count_anew(state: ClusterState) -> Ledger:
    """Return what quotas may use and use, from nothing but pods, nodes and quotas in force."""
    keeper = QuotaCache(state.quotas.rules, book=state.quotas.book)
    for node in state.table.nodes:
        if node is not None:
            keeper.upsert_node(node)
    _count_all(keeper, state)
    return Ledger(keeper.solve(state.used_on), keeper.rules)


def mend(state: ClusterState) -> None:
    """Forget what is known of the use of quotas, and count it anew."""
    for node in state.table.nodes:
        if node is not None:
            state.quotas.upsert_node(node)
    state.quotas.forget_usage()
    _count_all(state.quotas, state)


def _count_all(keeper: QuotaCache, state: ClusterState) -> None:
    keeper.count_gangs(state.gangs.keys(), state.gangs, state.is_complete)
    for pod in state.pods.values():
        if pod.gang is None:
            keeper.count_pod(pod)


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
