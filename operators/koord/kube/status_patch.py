"""What a writer has to say in the status of an object, and what of it is new.

Pure: compares a statement with the status that is there and makes the status that should be.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

_TRANSITION: Final = "lastTransitionTime"


@dataclass(frozen=True, slots=True)
class ConditionPatch:
    """One condition as it should be; when it last changed its status is kept by the writer."""

    type: str
    status: bool
    reason: str
    message: str
    observed_generation: int | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """Everything that one writer says about one object: other fields, and its conditions.

    ``fields`` stand beside ``conditions`` in the status, as JSON; what is left out is not said.
    """

    conditions: tuple[ConditionPatch, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    is_urgent: bool = False
    """Whether somebody has to do something about it: then it makes room for nothing."""


def render(statement: Statement, present: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the status to write; transition times are kept where the status of a condition is."""
    known = conditions_of(present)
    conditions = [_render_condition(c, known.get(c.type), now) for c in statement.conditions]
    return {**statement.fields, **({"conditions": conditions} if conditions else {})}


def is_said(status: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    """Whether all of a rendered status already stands in ``present``."""
    known = conditions_of(present)
    return all(
        _holds(known.get(condition["type"]), condition)
        for condition in status.get("conditions", ())
    ) and all(present.get(name) == value for name, value in status.items() if name != "conditions")


def _holds(present: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    return present is not None and all(present.get(key) == wanted[key] for key in wanted)


def conditions_of(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the conditions of a status, by type."""
    conditions: Iterable[Any] = status.get("conditions") or ()
    return {c["type"]: c for c in conditions if isinstance(c, Mapping) and "type" in c}


def _render_condition(
    condition: ConditionPatch, present: Mapping[str, Any] | None, now: float
) -> dict[str, Any]:
    status = "True" if condition.status else "False"
    since = present.get(_TRANSITION) if present and present.get("status") == status else None
    rendered = {
        "type": condition.type,
        "status": status,
        "reason": condition.reason,
        "message": condition.message,
        _TRANSITION: since or format_time(now),
    }
    if condition.observed_generation is not None:
        rendered["observedGeneration"] = condition.observed_generation
    return rendered


def format_time(seconds: float) -> str:
    """Write a time as the API does, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
