"""What users read of started gangs that have lost members; part of ``messages``."""

from collections.abc import Callable
from typing import Any, Final

from koord.core import reasons as r
from koord.core.gang.model import OnMemberFailure

_MOST_NAMED: Final = 8
_WHAT_FOLLOWS: Final = {
    OnMemberFailure.REPLACE: "replacements go before all other pods",
    OnMemberFailure.RESTART_GANG: "what is left is evicted, so that all start anew",
    OnMemberFailure.IGNORE: "replacements come like any other pod",
}


def _below_min(reason: r.BelowMin) -> str:
    left = "1 member" if reason.bound == 1 else f"{reason.bound} members"
    return (
        f"the gang has started and has {left} left of the {reason.min_member} it needs; "
        f"{_WHAT_FOLLOWS[reason.policy]}"
    )


def _member_on_failed_node(reason: r.MemberOnFailedNode) -> str:
    members = "1 member is" if reason.members == 1 else f"{reason.members} members are"
    named = ", ".join(reason.nodes[:_MOST_NAMED])
    more = len(reason.nodes) - _MOST_NAMED
    nodes = f"{named} and {more} more" if more > 0 else named
    return f"{members} on nodes that are not ready ({nodes}), and lost if those do not come back"


def _restarting_gang(reason: r.RestartingGang) -> str:
    return f"members {_cause(reason)}: the {reason.pods} left are evicted, so that all start anew"


def _restart_protected(reason: r.RestartProtected) -> str:
    return (
        f"members {_cause(reason)}: the {reason.pods} left are to be evicted, so that all start "
        "anew, but a disruption budget, or the API server, does not let all of them go; give the "
        "budget room, or delete them"
    )


def _cause(reason: r.RestartingGang | r.RestartProtected) -> str:
    return f"{reason.lost} lost" if reason.lost else f"{reason.unbound} released and not bound"


TEXTS: Final[dict[type[r.Reason], Callable[[Any], str]]] = {
    r.BelowMin: _below_min,
    r.MemberOnFailedNode: _member_on_failed_node,
    r.RestartingGang: _restarting_gang,
    r.RestartProtected: _restart_protected,
}
"""Reason -> what is said of it."""
