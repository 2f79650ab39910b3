"""Converts pydantic's JSON Schema (2020-12) to the structural OpenAPI 3.0 schema of a CRD.

References are inlined, ``null`` alternatives and titles removed, and keywords converted.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from koord.api.model import KEEP_DEFAULT, VALIDATIONS

JsonSchema = dict[str, Any]

_KEEP_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"


def make_schema(kind: Any) -> JsonSchema:
    adapter = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
    raw = adapter.json_schema(by_alias=True)
    return _convert(raw, raw.get("$defs", {}))


def _convert(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> JsonSchema:
    flat = _without_null(_inline(schema, definitions))
    made = {key: value for key, value in flat.items() if key not in {"title", "$defs"}}
    if not made.pop(KEEP_DEFAULT, False):
        made.pop("default", None)
    if "const" in made:
        made["enum"] = [made.pop("const")]
    _convert_bounds(made)
    if "properties" in made:
        made["properties"] = {
            name: _convert(value, definitions) for name, value in made["properties"].items()
        }
    if "items" in made:
        made["items"] = _convert(made["items"], definitions)
    values = made.get("additionalProperties")
    if values is True:
        del made["additionalProperties"]
        made[_KEEP_UNKNOWN] = True
    elif isinstance(values, Mapping):
        made["additionalProperties"] = _convert(values, definitions)
    if "required" in made:
        made["required"] = sorted(made["required"])
    return made


def _inline(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> JsonSchema:
    """Inline the referenced schema; keywords beside the reference take precedence."""
    made = dict(schema)
    while (reference := made.pop("$ref", None)) is not None:
        made = dict(definitions[reference.removeprefix("#/$defs/")]) | made
    if "anyOf" in made:
        made["anyOf"] = [_inline(choice, definitions) for choice in made["anyOf"]]
    return made


def _without_null(schema: JsonSchema) -> JsonSchema:
    """Convert ``T | None`` to T: a CRD field is absent, not null."""
    choices = schema.get("anyOf")
    if choices is None or {"type": "null"} not in choices:
        return schema
    choice: JsonSchema
    (choice,) = (choice for choice in choices if choice != {"type": "null"})
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    rules: list[Any] = [*choice.get(VALIDATIONS, []), *rest.get(VALIDATIONS, [])]
    return choice | rest | ({VALIDATIONS: rules} if rules else {})


def _convert_bounds(schema: JsonSchema) -> None:
    """Convert exclusive bounds, which are flags in OpenAPI 3.0."""
    for bound in ("minimum", "maximum"):
        exclusive = "exclusive" + bound.capitalize()
        if exclusive in schema:
            schema[bound] = schema[exclusive]
            schema[exclusive] = True
