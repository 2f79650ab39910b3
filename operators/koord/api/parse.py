"""Parses objects and JSON annotations to models, or to a list of problems.

Each `Problem` names the field, the value and the fix; problems become conditions, events and the
output of ``koord lint``. They are returned, not raised, and nothing is defaulted silently.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from koord.api.json_text import load_json
from koord.api.model import JsonSchema, Model, make_schema
from koord.caches import cached_by_text
from koord.plain_text import escape_line

LONG: Final = 4096
"""Characters of an annotation of which only the last few are remembered: trees of sub-groups."""
MAX_PROBLEMS: Final = 16
"""More are cut off."""
_MAX_VALUE_TEXT: Final = 80
MAX_NAME: Final = 253
"""Characters of a name, as Kubernetes has it."""
_MAX_FIELD: Final = 512
_MAX_MESSAGE: Final = 2048
_FIELD_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

M = TypeVar("M", bound=Model)
T = TypeVar("T")
Location = tuple[int | str, ...]
UnknownFields = Literal["ignore", "forbid"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of an object."""

    field: str
    """Such as ``spec.devices[3].minor``."""
    value: str
    """As JSON, truncated; empty if the field is missing."""
    message: str
    """What is wrong and how to fix it."""

    def __str__(self) -> str:
        """Return one line, however long or strange what it quotes is."""
        field, message = cut(self.field, _MAX_FIELD), cut(self.message, _MAX_MESSAGE)
        return ": ".join(part for part in (field, cut(self.value), message) if part)


@dataclass(frozen=True, slots=True)
class InvalidObject:
    """An invalid object, with its problems in the order of the fields."""

    problems: tuple[Problem, ...]


def parse(
    model: type[M], body: Mapping[str, Any], *, unknown_fields: UnknownFields = "ignore"
) -> M | InvalidObject:
    return parse_value(_adapter(model), dict(body), unknown_fields=unknown_fields)


def parse_value(
    adapter: TypeAdapter[T],
    value: Any,
    *,
    unknown_fields: UnknownFields = "ignore",
    at: Location = (),
) -> T | InvalidObject:
    try:
        return adapter.validate_python(value, extra=unknown_fields)
    except ValidationError as error:
        return InvalidObject(make_problems(adapter, error, at))


def make_problems(
    adapter: TypeAdapter[Any], error: ValidationError, at: Location
) -> tuple[Problem, ...]:
    details = error.errors(include_url=False)[:MAX_PROBLEMS]
    return tuple(_make_problem(adapter, detail, at) for detail in details)


def format_field(location: Sequence[int | str]) -> str:
    """Format a location: ``metadata.labels[a.b/c]``, ``spec.devices[3].id``."""
    text = ""
    for step in location:
        if isinstance(step, str) and _FIELD_NAME.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{step}]"
    return escape_line(text)


def cut(text: str, most: int = _MAX_VALUE_TEXT) -> str:
    shown = escape_line(text[: most + 1])
    return shown if len(shown) <= most else f"{shown[:most]}…"


def _make_problem(adapter: TypeAdapter[Any], detail: ErrorDetails, at: Location) -> Problem:
    location, value = (*at, *detail["loc"]), detail["input"]
    path: Location = detail.get("ctx", {}).get("path", ())
    for step in path:
        value = value[step] if isinstance(value, Mapping) and step in value else None
    missing = detail["type"] in {"missing", "json_invalid"} or (path and value is None)
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
            # A list or mapping where a string belongs is JSON without quotes.
            return f"must be a string; write it in quotes: '{_format_value(detail['input'])}'"
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
    fields = _known_fields(adapter, tuple(above))
    close = get_close_matches(str(name), fields, n=1)
    if close:
        return f"is not a field here; did you mean {close[0]}?"
    return f"is not a field here; fields are {', '.join(fields)}"


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


@dataclass(frozen=True, slots=True)
class JsonAnnotation(Generic[T]):
    """An annotation with a JSON value of a type."""

    key: str
    adapter: TypeAdapter[T] = field(repr=False)
    when_empty: T | None = field(default=None, hash=False)
    """Meaning of an empty text; mostly the same as no annotation."""

    def read(
        self, annotations: Mapping[str, str], *, unknown_fields: UnknownFields = "ignore"
    ) -> T | InvalidObject | None:
        """Return the value of the annotation, its problems, or None if it is absent.

        The result is shared by all objects with the same text and must not be modified.
        """
        text = annotations.get(self.key)
        if not text:
            return None if text is None else self.when_empty
        read = _read if len(text) <= LONG else _read_long
        value: T | InvalidObject = read(self, text, unknown_fields)
        return value


@lru_cache(maxsize=4)  # models take up to 25 times the size of their text
def _read_long(annotation: JsonAnnotation[Any], text: str, unknown_fields: UnknownFields) -> Any:
    return _parse(annotation, text, unknown_fields)


@cached_by_text()
def _read(annotation: JsonAnnotation[Any], text: str, unknown_fields: UnknownFields) -> Any:
    return _parse(annotation, text, unknown_fields)


def _parse(annotation: JsonAnnotation[Any], text: str, unknown_fields: UnknownFields) -> Any:
    location = ("metadata", "annotations", annotation.key)
    try:
        value = load_json(text, _join_lists)
    except (ValueError, RecursionError) as error:
        return InvalidObject((Problem(format_field(location), cut(text), f"is not JSON: {error}"),))
    return parse_value(annotation.adapter, value, unknown_fields=unknown_fields, at=location)


def _join_lists(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Join lists of duplicate keys: published partition tables have them."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        earlier = made.get(key)
        if isinstance(earlier, list) and isinstance(value, list):
            made[key] = [*earlier, *value]
        else:
            made[key] = value
    return made
