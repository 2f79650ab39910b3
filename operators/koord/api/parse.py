"""From the JSON of an object to its model, or to the list of what is wrong with it.

A refusal is a value: each `Problem` names the field, the value and the way out, and the same
problems become conditions, events and the output of ``koord crds lint``. Nothing is defaulted
silently and nothing is raised.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from koord.api.model import Model
from koord.api.openapi import JsonSchema, make_schema

MAX_PROBLEMS: Final = 16
"""More are cut off: the first ones are what a user can act on."""
_MAX_VALUE_TEXT: Final = 80
_FIELD_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

M = TypeVar("M", bound=Model)
T = TypeVar("T")
Location = tuple[int | str, ...]
UnknownFields = Literal["ignore", "forbid"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an object."""

    field: str
    """Where, as ``spec.devices[3].minor``."""
    value: str
    """What stands there, as JSON, cut if long; empty if nothing does."""
    message: str
    """What is wrong, and the way out."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.field, self.value, self.message) if part)


@dataclass(frozen=True, slots=True)
class InvalidObject:
    """The object cannot be used; `problems` say why, in the order of the fields."""

    problems: tuple[Problem, ...]


def parse(
    model: type[M], body: Mapping[str, Any], *, unknown_fields: UnknownFields = "ignore"
) -> M | InvalidObject:
    """Read an object as the API server delivers it, or say what is wrong with it."""
    return parse_value(_adapter(model), dict(body), unknown_fields=unknown_fields)


def parse_value(
    adapter: TypeAdapter[T],
    value: Any,
    *,
    unknown_fields: UnknownFields = "ignore",
    at: Location = (),
) -> T | InvalidObject:
    """Read a value that stands at some place of an object."""
    try:
        return adapter.validate_python(value, extra=unknown_fields)
    except ValidationError as error:
        details = error.errors(include_url=False)[:MAX_PROBLEMS]
        return InvalidObject(tuple(_make_problem(adapter, detail, at) for detail in details))


def format_field(location: Sequence[int | str]) -> str:
    """Write a location as Kubernetes does: ``metadata.labels[a.b/c]``, ``spec.devices[3].id``."""
    text = ""
    for step in location:
        if isinstance(step, str) and _FIELD_NAME.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{step}]"
    return text


def cut(text: str) -> str:
    """Shorten a value for a message."""
    return text if len(text) <= _MAX_VALUE_TEXT else f"{text[:_MAX_VALUE_TEXT]}…"


def _make_problem(adapter: TypeAdapter[Any], detail: ErrorDetails, at: Location) -> Problem:
    location, value = (*at, *detail["loc"]), detail["input"]
    path: Location = detail.get("ctx", {}).get("path", ())
    for step in path:
        value = value[step] if isinstance(value, Mapping) and step in value else None
    missing = detail["type"] == "missing" or (path and value is None)
    return Problem(
        field=format_field((*location, *path)),
        value="" if missing else _format_value(value),
        message=_explain(adapter, detail),
    )


def _format_value(value: Any) -> str:
    return cut(json.dumps(value, default=str, ensure_ascii=False))


_EXPLANATIONS: Final = {
    "missing": "is required",
    "int_type": "must be a whole number, without quotes",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false, without quotes",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "datetime_type": "must be a time like 2026-01-31T12:00:00Z",
    "datetime_parsing": "must be a time like 2026-01-31T12:00:00Z",
    "datetime_from_date_parsing": "must be a time like 2026-01-31T12:00:00Z",
}


def _explain(adapter: TypeAdapter[Any], detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return _explain_unknown(adapter, detail["loc"])
        case "string_type":
            # A list or mapping where a text belongs is JSON that somebody forgot to quote.
            return f"must be a text; write it in quotes: '{_format_value(detail['input'])}'"
        case "literal_error":
            return f"must be {context['expected']}"
        case "string_pattern_mismatch":
            return f"must look like {context['pattern']}"
        case "value_error":
            return str(context["error"])
        case kind:
            return _EXPLANATIONS.get(kind, detail["msg"])


def _explain_unknown(adapter: TypeAdapter[Any], location: Location) -> str:
    *above, name = location
    known = _known_fields(adapter, tuple(above))
    close = get_close_matches(str(name), known, n=1)
    if close:
        return f"is not a field here; did you mean {close[0]}?"
    return f"is not a field here; fields are {', '.join(known)}"


def _known_fields(adapter: TypeAdapter[Any], location: Location) -> list[str]:
    schema: Any = _schema(adapter)
    for step in location:
        if isinstance(step, int):
            schema = schema.get("items", {})
        else:
            values = schema.get("additionalProperties", {})
            schema = schema.get("properties", {}).get(step, values)
    return sorted(schema.get("properties", {}))


@cache
def _schema(adapter: TypeAdapter[Any]) -> JsonSchema:
    return make_schema(adapter)


@cache
def _adapter(model: type[M]) -> TypeAdapter[M]:
    return TypeAdapter(model)
