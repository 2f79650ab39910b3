"""Checks documents against the schemas of an OpenAPI document.

Understands what such documents of ours use, and fails for any other keyword: none is passed over.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = frozenset(
    {
        *("$ref", "allOf", "anyOf", "type", "enum", "properties", "required", "items"),
        *("minimum", "maximum", "maxLength", "format", "additionalProperties"),
        *("description", "default", "title"),
    }
)


class Schemas:
    """The schemas of one document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def problems(self, value: Any, schema: Mapping[str, Any], at: str = "$") -> Iterator[str]:
        """Yield where a value is not as the schema says, and why."""
        unknown = schema.keys() - _KNOWN
        if unknown:
            raise NotImplementedError(f"{at}: {', '.join(sorted(unknown))}")
        if "$ref" in schema:
            yield from self.problems(value, self._find(schema["$ref"]), at)
        for part in schema.get("allOf", ()):
            yield from self.problems(value, part, at)
        options = schema.get("anyOf", ())
        if options:
            tried = [list(self.problems(value, option, at)) for option in options]
            if all(tried):
                yield from min(tried, key=len)
        yield from self._plain_problems(value, schema, at)
        if isinstance(value, dict):
            yield from self._field_problems(value, schema, at)
        if isinstance(value, list):
            for number, item in enumerate(value):
                yield from self.problems(item, schema.get("items", {}), f"{at}[{number}]")

    def _plain_problems(self, value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
        kinds = schema.get("type", ())
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if kinds and not any(_is_of(value, kind) for kind in kinds):
            yield f"{at}: {value!r} is no {' or '.join(kinds)}"
        if "enum" in schema and value not in schema["enum"]:
            yield f"{at}: {value!r} is none of {schema['enum']}"
        if "minimum" in schema and not value >= schema["minimum"]:
            yield f"{at}: {value!r} is less than {schema['minimum']}"
        if "maximum" in schema and not value <= schema["maximum"]:
            yield f"{at}: {value!r} is more than {schema['maximum']}"
        if "maxLength" in schema and len(value) > schema["maxLength"]:
            yield f"{at}: {value!r} is longer than {schema['maxLength']}"
        if schema.get("format") == "date-time" and not _is_time(value):
            yield f"{at}: {value!r} is no time"

    def _field_problems(
        self, value: Mapping[str, Any], schema: Mapping[str, Any], at: str
    ) -> Iterator[str]:
        properties = schema.get("properties", {})
        yield from (f"{at}: no {name}" for name in schema.get("required", ()) if name not in value)
        for name, item in value.items():
            more = schema.get("additionalProperties", {})
            yield from self.problems(item, properties.get(name, more), f"{at}.{name}")

    def _find(self, reference: str) -> Mapping[str, Any]:
        found: Any = self._document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        return found  # type: ignore[no-any-return]


def _is_of(value: Any, kind: str) -> bool:
    is_bool = isinstance(value, bool)
    return isinstance(value, _TYPES[kind]) and is_bool == (kind == "boolean")


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value).tzinfo)
    except ValueError:
        return False
