"""Describes the routes as an OpenAPI document, made from the table and the types of its values.

A value with a form of its own is described by the ``TypedDict`` that its encoder returns, every
other one by its fields. Names that an asker may not see are null, so where ``redaction`` lists a
field that is said.
"""

import dataclasses
import types
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Final, Union, get_args, get_origin, get_type_hints, is_typeddict

from koord.answers.encoding import Encoded, encode, name_of_field
from koord.answers.envelope import VERSION, EnvelopeDocument
from koord.answers.redaction import NameKind, kind_of
from koord.see.paging import BOUNDS, MOST_ROWS, MOST_SEARCHED, ROWS, ListForm, PageDocument
from koord.see.route import KINDS, Route

_PLAIN: Final[Mapping[type, dict[str, Any]]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    types.NoneType: {"type": "null"},
}
PAGE: Final = "Page"
_DOCUMENT: Final = "Document"
"""Ends the name of the type of a document; in the schemas it is left out."""
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
    schemas.of(EnvelopeDocument)
    schemas.of(PageDocument)
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
        items = {"items": {"type": "array", "items": value}}
        value = {"allOf": [_ref(PAGE), {"properties": items}]}
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


class _Schemas:
    """Schemas of dataclasses by name, each described once."""

    def __init__(self) -> None:
        self.all: dict[str, dict[str, Any]] = {}

    def of(self, kind: Any) -> dict[str, Any]:  # noqa: PLR0911 - one for each kind of type
        """Return the schema of a type, or a reference to it."""
        origin, parts = get_origin(kind), get_args(kind)
        if origin in {Union, types.UnionType}:
            return {"anyOf": [self.of(part) for part in parts]}
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if origin is Encoded:
            return self.of(parts[0])
        if origin in {tuple, list} or (isinstance(origin, type) and issubclass(origin, list)):
            return {"type": "array", "items": self.of(parts[0]) if parts else {}}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(parts[1])}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"type": "string", "enum": [str(value.value) for value in kind]}
        return self._of_class(kind) if isinstance(kind, type) else {}

    def _of_class(self, kind: type) -> dict[str, Any]:
        form = _find_form(kind)
        if not (is_typeddict(form) or dataclasses.is_dataclass(form)):
            return {}
        name = form.__name__.removesuffix(_DOCUMENT)
        if name not in self.all:
            self.all[name] = {"type": "object"}  # one that holds itself ends here
            self.all[name] = self._of_fields(form)
        return _ref(name)

    def _of_fields(self, form: Any) -> dict[str, Any]:
        hints = get_type_hints(form)
        if is_typeddict(form):
            fields = {name: self.of(hint) for name, hint in hints.items()}
            required = [name for name in fields if name in form.__required_keys__]
        else:
            fields = {
                name_of_field(form, each.name): _hide(form, each.name, self.of(hints[each.name]))
                for each in dataclasses.fields(form)
            }
            required = list(fields)
        return {"type": "object", "properties": fields, "required": required}


def _find_form(kind: type) -> type:
    """Return what says which fields the documents of a class have; ``dict``: nothing does."""
    own = encode.dispatch(kind)
    if is_typeddict(kind) or own is encode.dispatch(object):
        return kind
    returned = get_type_hints(own)["return"]
    return returned if is_typeddict(returned) else dict


def _hide(owner: type, field: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field in which names may be hidden: they are null then."""
    kind = kind_of(owner, field)
    if kind is None or kind is NameKind.OF_OTHERS:
        return schema
    if schema.get("type") == "array":
        return {**schema, "items": _hide(owner, field, schema["items"])}
    return schema if "anyOf" in schema else {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


_COMMON: Final[Mapping[str, dict[str, Any]]] = {
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
