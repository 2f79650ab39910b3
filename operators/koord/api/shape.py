"""Reads the JSON of objects that nobody may have checked, as the models that describe them.

``parse`` checks all that the API server checks, and refuses an object as a whole. But objects also
come from clusters with other or older CRDs, and what one bad item costs is decided field by field
in the core. So a ``Shape`` checks types only: it is the validator of a model without bounds,
patterns, choices and rules, in which a missing field reads as empty. Amounts that are no quantities
fail when they are used.

It is derived from the schema that pydantic has made of the model, so a field is declared once.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from koord.api.model import Model
from koord.api.parse import Location, make_problems
from koord.api.quantity import read_quantities, to_quantity

M = TypeVar("M", bound=Model)
Fields = Mapping[type[Model], Collection[str]]

_BOUNDS: Final = {"min_length", "max_length", "pattern", "ge", "gt", "le", "lt"}
_AROUND: Final = frozenset({"definitions", "definition-ref", "function-after", "function-before"})
_DROPPED: Final = _BOUNDS | {"ref", "metadata", "serialization"}
_INNER: Final = ("schema", "items_schema", "keys_schema", "values_schema")
_EMPTY: Final = {"str": str, "int": int, "bool": bool, "list": list}


class Shape(Generic[M]):
    """Reads one model; of the models in ``only`` nothing but these fields."""

    def __init__(self, model: type[M], at: Location = (), *, only: Fields | None = None) -> None:
        self._model = model
        self._at = at
        schema: Any = model.__pydantic_core_schema__
        self._validator = SchemaValidator(_Relaxed(only or {}).convert(schema))

    def read(self, raw: bytes) -> M:
        """Return what JSON says, nothing if it is empty. Raises ValueError, which names fields."""
        try:
            value: M = self._validator.validate_json(raw or b"{}")
        except ValidationError as error:
            problems = make_problems(TypeAdapter(self._model), error, self._at)
            raise ValueError("; ".join(map(str, problems))) from error
        return value


def _is_quantity(schema: Any) -> bool:
    return schema["type"] == "function-plain" and schema["function"]["function"] is to_quantity


class _Relaxed:
    """Converts the schema of a validator, from the outside to the inside."""

    def __init__(self, only: Fields) -> None:
        self._only = only
        self._definitions: dict[str, Any] = {}

    def convert(self, schema: Any) -> Any:
        schema = self._unwrap(schema)
        kind = schema["type"]
        if kind == "literal":
            return {"type": "str"}
        if kind == "dict" and _is_quantity(self._unwrap(schema["values_schema"])):
            function = {"type": "no-info", "function": read_quantities}
            return {"type": "function-plain", "function": function}
        bare = {key: value for key, value in schema.items() if key not in _DROPPED}
        if kind == "list":
            bare["fail_fast"] = True
        if kind == "datetime":
            bare["strict"] = True  # a number is no time
        if kind == "model":
            fields = bare["schema"]["fields"]
            names = self._only.get(bare["cls"], fields)
            made = {name: self._convert_field(fields[name]) for name in names}
            return bare | {"schema": bare["schema"] | {"fields": made}}
        return bare | {key: self.convert(bare[key]) for key in _INNER if key in bare}

    def _unwrap(self, schema: Any) -> Any:
        """Return a schema without references to shared parts, and without rules around it."""
        while schema["type"] in _AROUND:
            if schema["type"] == "definition-ref":
                schema = self._definitions[schema["schema_ref"]]
                continue
            for part in schema.get("definitions", ()):
                self._definitions[part["ref"]] = part
            schema = schema["schema"]
        return schema

    def _convert_field(self, field: Any) -> Any:
        schema = self.convert(field["schema"])
        if schema["type"] in _EMPTY:
            empty = _EMPTY[schema["type"]]
            schema = {"type": "default", "schema": schema, "default_factory": empty}
        return field | {"schema": schema}
