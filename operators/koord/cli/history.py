"""Since when, and what the operators have said so far: read from the conditions of the object."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from koord.api.keys import operators
from koord.cli.cluster import Sighting, TargetKind
from koord.core.explain import PlacementState
from koord.core.gang.status import ConditionType

_TRUE: Final = "True"
_FALSE: Final = "False"

_Signs: TypeAlias = tuple[tuple[str, str], ...]
"""(Condition type, status) that tell of a standing, in the order of looking."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What the operators wrote on the object."""

    condition: str
    status: str
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True)
class History:
    """Since when a standing lasts (as the API writes times, or empty), and the last report."""

    since: str = ""
    reported: Reported | None = None


_WAITING_POD: Final[_Signs] = ((operators.PLACED, _FALSE),)
_INCOMPLETE_GANG: Final[_Signs] = ((ConditionType.QUORUM_REACHED, _FALSE),)
_WAITING_GANG: Final[_Signs] = (
    (ConditionType.PLACED, _FALSE),
    (ConditionType.QUORUM_REACHED, _TRUE),
)
_SIGNS: Final[Mapping[tuple[TargetKind, PlacementState], _Signs]] = {
    (TargetKind.POD, PlacementState.WAITING): _WAITING_POD,
    (TargetKind.POD, PlacementState.PLACEABLE): _WAITING_POD,
    (TargetKind.POD, PlacementState.BOUND): (("PodScheduled", _TRUE),),
    (TargetKind.POD_GROUP, PlacementState.WAITING): _WAITING_GANG,
    (TargetKind.POD_GROUP, PlacementState.PLACEABLE): _WAITING_GANG,
    (TargetKind.POD_GROUP, PlacementState.NOTHING_WAITS): ((ConditionType.BOUND, _TRUE),),
}
_SINCE_CREATION: Final = {PlacementState.WAITING, PlacementState.PLACEABLE, PlacementState.NOT_OURS}


def look_back(
    kind: TargetKind,
    standing: PlacementState,
    sighting: Sighting,
    *,
    created: float,
    is_complete: bool = True,
) -> History:
    """Tell since when; a gang that is not complete waits for members, not for a place."""
    signs = _SIGNS.get((kind, standing), ()) if is_complete else _INCOMPLETE_GANG
    return History(_find_since(signs, sighting, created, standing), _find_report(signs, sighting))


def _find_since(signs: _Signs, sighting: Sighting, created: float, standing: PlacementState) -> str:
    for kind, status in signs:
        condition = sighting.conditions.get(kind)
        if condition is not None and condition.status == status and condition.last_transition_time:
            return condition.last_transition_time
    if standing not in _SINCE_CREATION or not created:
        return ""
    return datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _find_report(signs: _Signs, sighting: Sighting) -> Reported | None:
    for kind, _ in signs:
        condition = sighting.conditions.get(kind)
        if condition is not None and condition.reason:
            return Reported(
                condition.type,
                condition.status,
                condition.reason,
                condition.message,
                condition.last_transition_time or "",
            )
    return None
