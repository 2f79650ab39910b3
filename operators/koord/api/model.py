"""The ground of every model: naming, strictness, and rules that hold in two places.

A `Rule` is declared once and checked twice: by the API server as CEL (``crdgen`` writes it into the
CRD) and by pydantic here, for clusters whose CRDs are older than ours and for ``koord crds lint``.
This module knows no resource.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import override

VALIDATIONS: Final = "x-kubernetes-validations"
KEEP_DEFAULT: Final = "x-koord-keep-default"
"""Marks a default that belongs into the CRD; all others are Python's alone."""


def to_kubernetes_name(name: str) -> str:
    """Python name to Kubernetes name: ``min_member`` -> ``minMember``, ``bus_id`` -> ``busID``."""
    camel = to_camel(name)
    return f"{camel[:-2]}ID" if name.endswith("_id") else camel


@dataclass(frozen=True, slots=True)
class Rule:
    """What one value must satisfy, as CEL for the server and as a predicate for Python."""

    cel: str
    message: str
    """Names the field and the way out; both sides show it unchanged."""
    holds: Callable[[Any], bool] | None = None
    """None: Python checks it another way (see the class that carries the rule)."""
    field_path: str = ""
    """Where the server shows the error, relative to the carrier of the rule."""

    def check(self, value: Any) -> Any:
        """Return the value, or refuse it as pydantic does."""
        if self.holds is not None and not self.holds(value):
            raise refuse(self.message)
        return value

    def to_schema(self) -> dict[str, str]:
        """Make the entry of ``x-kubernetes-validations``."""
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
    """OpenAPI keys that pydantic has no word for, such as ``x-kubernetes-list-type``."""

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
    """Makes a list whose items are told apart by some fields, so that no two are equal in them."""

    keys: tuple[str, ...]

    def check(self, items: Any) -> Any:
        """Return the list, or refuse the first item that repeats an earlier one."""
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
    """Make the error for a value that breaks a rule; `path` leads from the carrier to the value."""
    # A template with context would have its braces replaced.
    template = message.replace("{", "{{").replace("}", "}}") if path else message
    return PydanticCustomError("rule", template, {"path": path} if path else None)


class Model(BaseModel):
    """A part of a resource.

    Reading is strict in types (the API server is, too) and lenient in unknown fields, so that an
    older operator reads newer objects.
    """

    model_config = ConfigDict(
        alias_generator=to_kubernetes_name,
        validate_by_alias=True,
        validate_by_name=True,
        extra="ignore",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
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
        json_schema = handler(schema)
        target = handler.resolve_ref_schema(json_schema)
        if cls.rules:
            target[VALIDATIONS] = [rule.to_schema() for rule in cls.rules]
        for marker in cls.markers:
            target.update(marker.keys)
        return json_schema

    def encode(self) -> dict[str, Any]:
        """Make the JSON form for the API server: Kubernetes names, unset fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
