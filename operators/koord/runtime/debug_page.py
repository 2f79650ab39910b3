"""The state of all quotas for the debug page, under the names of Koordinator's debug API."""

from collections.abc import Mapping
from typing import Any, Final

from koord.core.quota.ledger import Ledger
from koord.core.quota.model import NO_USAGE, QuotaName
from koord.core.quota.overuse import find_overuse
from koord.core.quota.status import summarise
from koord.core.state import ClusterState

_NAMES: Final[Mapping[str, str]] = {
    "name": "name",
    "parentName": "parent",
    "isParent": "is_parent",
    "tree": "tree",
    "max": "max",
    "min": "min",
    "autoScaleMin": "scaled_min",
    "sharedWeight": "weight",
    "request": "request",
    "childRequest": "child_request",
    "used": "used",
    "runtime": "share",
    "allocated": "allocated",
    "guaranteed": "guaranteed",
    "nonPreemptibleRequest": "fixed_request",
    "nonPreemptibleUsed": "fixed_used",
    "selfRequest": "demand",
}
"""Name there -> field of the summary."""


def describe_quotas(state: ClusterState) -> dict[str, object]:
    """Return all quotas in force, and why others are not; amounts in canonical units."""
    ledger = state.open_ledger()
    return {
        "quotas": [_describe(ledger, name) for name in ledger.names()],
        "over": find_overuse(ledger),
        "problems": state.quotas.book.problems,
        "failures": {tree: repr(error) for tree, error in state.quotas.failures.items()},
        "outside": state.quotas.outside(),
    }


def _describe(ledger: Ledger, name: QuotaName) -> dict[str, Any]:
    summary = summarise(ledger, name)
    usage = ledger.solution(name).snapshot.usage.get(name, NO_USAGE)
    return {
        **{there: _plain(getattr(summary, here)) for there, here in _NAMES.items()},
        "allowLentResource": ledger.account(name).spec.lends,
        "selfUsed": _plain(usage.used),
        "submitted": _plain(usage.submitted),
    }


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value
