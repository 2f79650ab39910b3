"""The parts of the debug page that domains bring; quotas under the names of Koordinator's API."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from koord.core.quota.ledger import Ledger
from koord.core.quota.model import NO_USAGE, QuotaName
from koord.core.quota.reclaim import find_overuse
from koord.core.quota.status import summarise
from koord.core.state import ClusterState

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts

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
    "nonPreemptibleRequest": "non_preemptible_request",
    "nonPreemptibleUsed": "non_preemptible_used",
    "selfRequest": "demand",
}
"""Koordinator's name -> field of the summary."""


def describe_placement(parts: "Parts") -> dict[str, object]:
    """Return the queue of the planner, the room it keeps, and what delays writes in flight."""
    placement = parts.placement
    if placement is None:
        return {}
    queue = placement.queue
    return {
        "ready": len(queue),
        "blocked": {key: one.reason.code for key, one in queue.blocked.items()},
        "waiting": {key: reason.code for key, reason in queue.waiting.items()},
        "kept": placement.holds.reserved_pods(),
        "held_up": {uid: reason.text() for uid, reason in placement.flights.held_up().items()},
    }


def describe_quota_state(parts: "Parts") -> dict[str, object]:
    """Return all quotas, if there are any."""
    state = parts.reader.state
    return {"quotas": describe_quotas(state)} if state.quotas.is_in_use else {}


def describe_quotas(state: ClusterState) -> dict[str, object]:
    """Return all active quotas and the problems of others; amounts in canonical units."""
    ledger = state.open_ledger()
    return {
        "quotas": [_describe(ledger, name) for name in ledger.names()],
        "over": find_overuse(ledger),
        "problems": state.quotas.catalog.problems,
        "failures": {tree: repr(error) for tree, error in state.quotas.failures.items()},
        "outside": state.quotas.outside(),
    }


def _describe(ledger: Ledger, name: QuotaName) -> dict[str, Any]:
    summary = summarise(ledger, name)
    usage = ledger.solution(name).inputs.usage.get(name, NO_USAGE)
    return {
        **{there: _plain(getattr(summary, here)) for there, here in _NAMES.items()},
        "allowLentResource": ledger.account(name).spec.lends,
        "selfUsed": _plain(usage.used),
        "submitted": _plain(usage.submitted),
    }


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value
