"""Describes the routes as an OpenAPI document, made from the table and the types of its values.

Types with a form of their own in documents are described as objects: their fields are those that
the pages about the commands list.
"""

import dataclasses
import types
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from koord.answers.encoding import encode, name_of_field
from koord.answers.envelope import VERSION, AnswerSource, GapCause
from koord.see.paging import BOUNDS, MOST_ROWS, MOST_SEARCHED, ROWS, ListForm
from koord.see.route import KINDS, Route

_PLAIN: Final[Mapping[type, dict[str, Any]]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    types.NoneType: {"type": "null"},
}
_ERRORS: Final = {
    "400": "a parameter or the body is wrong",
    "401": "the key is missing",
    "404": "it does not exist",
    "410": "the list was begun otherwise",
    "429": "too much is asked for",
    "503": "the cluster is not read yet",
}


def make_document(routes: Collection[Route], base: str) -> dict[str, Any]:
    """Return the document for routes below a base path."""
    schemas = _Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths[f"{base}/{route.path}"] = {route.method.lower(): _describe(route, schemas)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Answers of koord",
            "version": VERSION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {**schemas.all, **_COMMON},
        },
    }


def _describe(route: Route, schemas: "_Schemas") -> dict[str, Any]:
    value = schemas.of(route.value)
    if route.form is not None:
        value = _page_of(value)
    content = {"allOf": [_ref("Envelope"), {"properties": {"value": value}}]}
    operation: dict[str, Any] = {
        "operationId": route.answer,
        "summary": route.summary,
        "parameters": [
            *_path_parameters(route),
            *_list_parameters(route.form),
            *_parameters_of(route.params),
        ],
        "responses": {
            "200": {"description": "the answer", "content": _json(content)},
            **{
                status: {"description": what, "content": _json(_ref("Error"))}
                for status, what in _ERRORS.items()
            },
        },
    }
    if route.body:
        fields = {
            name: {"type": "string", **route.schemas.get(name, {}), "description": what}
            for name, what in route.body.items()
        }
        required = [next(iter(fields))]
        schema = {"type": "object", "properties": fields, "required": required}
        operation["requestBody"] = {"required": True, "content": _json(schema)}
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    schemas: dict[str, Any] = {"kind": {"type": "string", "enum": list(KINDS)}}
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": schemas.get(name, {"type": "string"}),
        }
        for name in names
    ]


def _parameters_of(params: Mapping[str, str]) -> list[dict[str, Any]]:
    schema = {"type": "string"}
    return [
        {"name": name, "in": "query", "description": what, "schema": schema}
        for name, what in params.items()
    ]


def _list_parameters(form: ListForm | None) -> list[dict[str, Any]]:
    if form is None:
        return []
    sorts = [*form.sorts, *(f"-{name}" for name in form.sorts)]
    limit = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": ROWS}
    schemas: dict[str, Any] = {
        "limit": limit,
        "continue": {"type": "string"},
        "fields": {"type": "string", "description": "Names of fields, with commas between them."},
        "sort": {"type": "string", "enum": sorts, "default": sorts[0]},
        "search": {"type": "string", "maxLength": MOST_SEARCHED},
        **{name: {"type": "string"} for name in form.filters},
        **(
            {name: {"type": "string", "format": "date-time"} for name in BOUNDS}
            if form.time
            else {}
        ),
    }
    return [{"name": name, "in": "query", "schema": schema} for name, schema in schemas.items()]


def _page_of(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["items", "total", "remaining", "continue"],
        "properties": {
            "items": {"type": "array", "items": row},
            "total": {"type": "integer"},
            "remaining": {"type": "integer"},
            "continue": {"type": "string"},
        },
    }


class _Schemas:
    """Schemas of dataclasses by name, each described once."""

    def __init__(self) -> None:
        self.all: dict[str, dict[str, Any]] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type, or a reference to it."""
        origin, parts = get_origin(kind), get_args(kind)
        if origin in {Union, types.UnionType}:
            return {"anyOf": [self.of(part) for part in parts]}
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if origin in {tuple, list} or (isinstance(origin, type) and issubclass(origin, list)):
            return {"type": "array", "items": self.of(parts[0]) if parts else {}}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"type": "string", "enum": [str(value.value) for value in kind]}
        is_described = isinstance(kind, type) and dataclasses.is_dataclass(kind)
        return self._of_dataclass(kind) if is_described else {}

    def _of_dataclass(self, kind: type) -> dict[str, Any]:
        if kind.__name__ not in self.all:
            self.all[kind.__name__] = {"type": "object"}  # one that holds itself ends here
            if not _has_own_form(kind):
                hints = get_type_hints(kind)
                fields = {
                    name_of_field(kind, each.name): self.of(hints[each.name])
                    for each in dataclasses.fields(kind)
                }
                schema = {"type": "object", "properties": fields, "required": list(fields)}
                self.all[kind.__name__] = schema
        return _ref(kind.__name__)


def _has_own_form(kind: type) -> bool:
    return encode.dispatch(kind) is not encode.dispatch(object)


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


_COMMON: Final[Mapping[str, dict[str, Any]]] = {
    "Envelope": {
        "type": "object",
        "required": ["answer", "version", "asOf", "gaps", "value"],
        "properties": {
            "answer": {"type": "string"},
            "version": {"type": "string"},
            "asOf": {
                "type": "object",
                "properties": {
                    "at": {"type": "string", "format": "date-time"},
                    "state": {"type": ["integer", "null"]},
                    "instance": {"type": ["string", "null"]},
                    "source": {"type": "string", "enum": list(AnswerSource)},
                    "lagSeconds": {"type": "integer", "minimum": 0},
                    "leader": {"type": ["string", "null"]},
                    "term": {"type": ["integer", "null"]},
                },
            },
            "gaps": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["missing", "because", "then"],
                    "properties": {
                        "missing": {"type": "string"},
                        "because": {"type": "string", "enum": list(GapCause)},
                        "then": {"type": "string"},
                    },
                },
            },
            "value": {},
        },
    },
    "Error": {
        "type": "object",
        "required": ["error", "message", "retryAfterSeconds"],
        "properties": {
            "error": {"type": "string"},
            "message": {"type": "string"},
            "retryAfterSeconds": {"type": ["integer", "null"]},
        },
    },
}
