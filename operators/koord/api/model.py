"""The base of all models: field names, strictness, validation rules, and their OpenAPI schema.

A `Rule` is declared once and checked twice: by the API server as CEL (``crdgen`` writes it into the
CRD) and here by pydantic, for clusters with older CRDs and for ``koord lint``.

``make_schema`` converts pydantic's JSON Schema (2020-12) to the structural OpenAPI 3.0 schema of a
CRD: references are inlined, ``null`` alternatives and titles removed, and keywords converted.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import override

VALIDATIONS: Final = "x-kubernetes-validations"
KEEP_DEFAULT: Final = "x-koord-keep-default"
"""Marks a default that is written into the CRD; other defaults are only Python's."""


def to_kubernetes_name(name: str) -> str:
    """Convert a Python name: ``min_member`` -> ``minMember``, ``bus_id`` -> ``busID``."""
    camel = to_camel(name)
    return f"{camel[:-2]}ID" if name.endswith("_id") else camel


@dataclass(frozen=True, slots=True)
class Rule:
    """A validation rule, as CEL for the server and as a predicate for Python."""

    cel: str
    message: str
    """Names the field and the fix; both sides show it unchanged."""
    holds: Callable[[Any], bool] | None = None
    """None: Python checks it elsewhere (see the class with the rule)."""
    field_path: str = ""
    """Field that the server reports, relative to the object with the rule."""

    def check(self, value: Any) -> Any:
        if self.holds is not None and not self.holds(value):
            raise refuse(self.message)
        return value

    def to_schema(self) -> dict[str, str]:
        entry = {"rule": self.cel, "message": self.message}
        return entry | {"fieldPath": self.field_path} if self.field_path else entry

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        json_schema = handler(schema)
        json_schema.setdefault(VALIDATIONS, []).append(self.to_schema())
        return json_schema


@dataclass(frozen=True, slots=True)
class Marker:
    """OpenAPI keys that pydantic does not support, such as ``x-kubernetes-list-type``."""

    keys: dict[str, Any] = field(hash=False)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | self.keys


DEFAULTED: Final = Marker({KEEP_DEFAULT: True})
"""The API server fills in the default of this field."""
ATOMIC: Final = Marker({"x-kubernetes-map-type": "atomic"})


@dataclass(frozen=True, slots=True)
class ListMap:
    """Makes a list of type map: no two items are equal in all key fields."""

    keys: tuple[str, ...]

    def check(self, items: Any) -> Any:
        seen: dict[tuple[Any, ...], int] = {}
        for index, item in enumerate(items):
            identity = tuple(getattr(item, key) for key in self.keys)
            first = seen.setdefault(identity, index)
            if first != index:
                fields = " and ".join(to_kubernetes_name(key) for key in self.keys)
                raise refuse(f"repeats item {first}: {fields} must be unique", index)
        return items

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [to_kubernetes_name(key) for key in self.keys],
        }


def refuse(message: str, *path: str | int) -> PydanticCustomError:
    """Make the error for a value that violates a rule; `path` starts at the validated object."""
    # A template with context would have its braces replaced.
    template = message.replace("{", "{{").replace("}", "}}") if path else message
    return PydanticCustomError("rule", template, {"path": path} if path else None)


class Documented(BaseModel):
    """A model whose schema has the docstrings of its fields.

    They are read when a schema is made. pydantic would read them when it makes the class, and
    every command starts later.
    """

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        json_schema = handler(schema)
        docs = _read_docs(cls)
        properties = handler.resolve_ref_schema(json_schema).get("properties", {})
        for name, made in zip(cls.model_fields, properties.values(), strict=True):
            if name in docs:
                made["description"] = docs[name]
        return json_schema


def _read_docs(model: type[BaseModel]) -> dict[str, str]:
    """Return the texts below the fields of a model, by name."""
    docs: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            docs |= _read_module(base.__module__).get(base.__qualname__, {})
    return docs


@cache
def _read_module(module: str) -> dict[str, dict[str, str]]:
    """Return the texts below fields by class."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        part.name: dict(_read_class(part)) for part in tree.body if isinstance(part, ast.ClassDef)
    }


def _read_class(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement, following in pairwise(definition.body):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)
            case _:
                pass


class Model(Documented):
    """A part of a resource.

    Validation is strict in types, like the API server's, and ignores unknown fields, so that older
    operators accept newer objects.
    """

    model_config = ConfigDict(
        alias_generator=to_kubernetes_name,
        validate_by_alias=True,
        validate_by_name=True,
        extra="ignore",
        frozen=True,
        strict=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    markers: ClassVar[tuple[Marker, ...]] = ()

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.rules:
            rule.check(self)
        return self

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        json_schema = super().__get_pydantic_json_schema__(schema, handler)
        target = handler.resolve_ref_schema(json_schema)
        if cls.rules:
            target[VALIDATIONS] = [rule.to_schema() for rule in cls.rules]
        for marker in cls.markers:
            target.update(marker.keys)
        return json_schema

    def encode(self) -> dict[str, Any]:
        """Return the JSON form for the API server, without unset fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def encode_set(self) -> dict[str, Any]:
        """Return the JSON form of what was given: the part of a status that one writer owns."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


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
    beside = {key: value for key, value in schema.items() if key != "anyOf"}
    rules: list[Any] = [*choice.get(VALIDATIONS, []), *beside.get(VALIDATIONS, [])]
    return choice | beside | ({VALIDATIONS: rules} if rules else {})


def _convert_bounds(schema: JsonSchema) -> None:
    """Convert exclusive bounds, which are flags in OpenAPI 3.0."""
    for bound in ("minimum", "maximum"):
        exclusive = "exclusive" + bound.capitalize()
        if exclusive in schema:
            schema[bound] = schema[exclusive]
            schema[exclusive] = True
