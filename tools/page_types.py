"""Writes the types of answers for the page, from the OpenAPI document of the routes.

    python tools/page_types.py

What TypeScript calls ``interface`` is a schema of the document; a route is a member of ``Answers``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from koord.see.app import BASE
from koord.see.openapi import PAGE, make_document
from koord.see.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATH: Final = Path(__file__).parents[1] / "page" / "src" / "answers.ts"
_WHAT_IT_IS: Final = """\
// What answers of the server are: made by tools/page_types.py from the OpenAPI document.
// Change the types of the answers, and make it again.
"""
_PARAMETERS: Final = {"Envelope": ("value", "T"), PAGE: ("items", "T[]")}
"""Schema -> its field that differs from answer to answer, and the type of that."""
_PLAIN: Final = {
    "boolean": "boolean",
    "integer": "number",
    "number": "number",
    "string": "string",
    "null": "null",
}


def make_types() -> str:
    """Return the whole file."""
    document = make_document(ROUTES, BASE)
    schemas = document["components"]["schemas"]
    parts = [_WHAT_IT_IS, _write_answers(document["paths"])]
    parts += [_write_interface(name, schema) for name, schema in sorted(schemas.items())]
    return "\n".join(parts)


def _write_answers(paths: Mapping[str, Any]) -> str:
    lines = ["/** Answer -> its value. */", "export interface Answers {"]
    for methods in paths.values():
        for operation in methods.values():
            content = operation["responses"]["200"]["content"]["application/json"]["schema"]
            value = content["allOf"][1]["properties"]["value"]
            lines.append(f"  {operation['operationId']}: {_write_type(value)};")
    return "\n".join([*lines, "}", ""])


def _write_interface(name: str, schema: Mapping[str, Any]) -> str:
    varying, written = _PARAMETERS.get(name, ("", ""))
    if "properties" not in schema:
        return f"export type {name} = {_write_type(schema)};\n"
    lines = [f"export interface {name}{'<T>' if varying else ''} {{"]
    lines += _write_fields(schema, {varying: written})
    return "\n".join([*lines, "}", ""])


def _write_fields(schema: Mapping[str, Any], given: Mapping[str, str]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        mark = "" if name in required else "?"
        yield f"  {name}{mark}: {given.get(name) or _write_type(field)};"


def _write_type(schema: Mapping[str, Any]) -> str:  # noqa: PLR0911 - one for each form
    match schema:
        case {"$ref": str(reference)}:
            return reference.rpartition("/")[2]
        case {"allOf": [{"$ref": str(reference)}, {"properties": {"items": {"items": row}}}]}:
            return f"{reference.rpartition('/')[2]}<{_write_type(row)}>"
        case {"anyOf": list(options)}:
            return " | ".join(dict.fromkeys(map(_write_type, options)))
        case {"enum": list(values)}:
            return " | ".join(map(json.dumps, values))
        case {"type": list(kinds)}:
            return " | ".join(_PLAIN[kind] for kind in kinds)
        case {"type": "array"}:
            return _write_array(_write_type(schema.get("items", {})))
        case {"type": "object"}:
            return f"Record<string, {_write_type(schema.get('additionalProperties', {}))}>"
        case {"type": str(kind)}:
            return _PLAIN[kind]
        case _:
            return "unknown"


def _write_array(element: str) -> str:
    return f"({element})[]" if "|" in element else f"{element}[]"


def main() -> None:
    PATH.write_text(make_types(), encoding="utf-8")


if __name__ == "__main__":
    main()
