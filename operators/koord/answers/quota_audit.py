"""Audit of quotas: recounts usage and shares from all pods and compares them with the kept ones.

Usage is kept up to date change by change, and shares are taken over from the previous solution
where nothing seems to have changed. Both must equal a full recount.
"""

from dataclasses import dataclass
from typing import Final

from koord.core.engine.state import ClusterState
from koord.core.quota.cache import QuotaCache
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import QuotaName
from koord.core.quota.status import MEASURED, Summary, summarise

_FIELDS: Final = {**MEASURED, "submitted": "submitted", "demand": "demand"}
_WRITTEN: Final = {"min", "max", "sharedWeight", "unschedulable-resource"}
AUDITED: Final = tuple(name for name in _FIELDS if name not in _WRITTEN)
"""The compared numbers, under their names in metrics."""


@dataclass(frozen=True, slots=True)
class QuotaDrift:
    """A kept number that differs from the recount."""

    quota: QuotaName
    field: str
    resource: str
    kept: int
    counted: int


def find_drift(state: ClusterState) -> tuple[QuotaDrift, ...]:
    """Return every difference; none is expected."""
    kept = _summarise_all(state.open_ledger())
    counted = _summarise_all(recount(state))
    return tuple(
        difference
        for name in sorted({*kept, *counted})
        for difference in _compare(
            name, kept.get(name, Summary(name)), counted.get(name, Summary(name))
        )
    )


def recount(state: ClusterState) -> Ledger:
    """Return a ledger computed from nothing but pods, nodes and quotas in force."""
    kept = state.quotas
    quotas = QuotaCache(kept.rules, catalog=kept.catalog, charged=dict(kept.charged))
    for node in state.table.nodes:
        if node is not None:
            quotas.upsert_node(node)
    quotas.terminating.now = kept.terminating.now
    _count_all(quotas, state)
    return Ledger(quotas.solve(), quotas.rules)


def repair(state: ClusterState) -> None:
    """Replace the kept supply and usage of quotas by a recount."""
    state.quotas.forget_counted()
    for node in state.table.nodes:
        if node is not None:
            state.quotas.upsert_node(node)
    _count_all(state.quotas, state)


def _count_all(quotas: QuotaCache, state: ClusterState) -> None:
    quotas.count_gangs(state.gangs.keys(), state.gangs, state.is_complete)
    for pod in state.pods.values():
        if pod.gang is None:
            quotas.count_pod(pod)


def _summarise_all(ledger: Ledger) -> dict[QuotaName, Summary]:
    return {name: summarise(ledger, name) for name in ledger.names()}


def _compare(name: QuotaName, kept: Summary, counted: Summary) -> list[QuotaDrift]:
    drifts = []
    for field in AUDITED:
        kept_amounts, counted_amounts = (
            getattr(summary, _FIELDS[field]) for summary in (kept, counted)
        )
        drifts += [
            QuotaDrift(name, field, key, kept_amounts.get(key, 0), counted_amounts.get(key, 0))
            for key in sorted({*kept_amounts, *counted_amounts})
            if kept_amounts.get(key, 0) != counted_amounts.get(key, 0)
        ]
    return drifts
