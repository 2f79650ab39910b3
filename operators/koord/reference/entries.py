"""Collects the entries of the reference. Links in texts are relative to ``docs``."""

import ast
import inspect
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from importlib import import_module
from importlib.resources import files
from itertools import pairwise
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NamedTuple

from pydantic import BaseModel

from koord import reference
from koord.answers.conditions import list_conditions
from koord.api import keys
from koord.api.crdgen import RESOURCES, make_resource_schema
from koord.domains.section import parse_seconds
from koord.runtime.address import Address
from koord.runtime.settings import Settings


class EntryKind(StrEnum):
    """What an entry is about; the value is the title of its page."""

    KEY = "Labels, annotations and names"
    FIELD = "Fields"
    CONDITION = "Conditions and reasons"
    SERIES = "Metrics"
    ALERT = "Alerts"
    SETTING = "Configuration"
    COMMAND = "Commands"


class Entry(NamedTuple):
    """One name that users meet; ``where`` says on what, and ``facts`` such as type and default."""

    key: str
    kind: EntryKind
    where: str
    means: str
    helps: str = ""
    facts: Mapping[str, str] = {}


def list_entries() -> list[Entry]:
    """Return all entries but those of commands."""
    return [*_list_keys(), *_list_fields(), *_list_conditions(), *_list_series(), *_list_settings()]


def _list_keys() -> Iterator[Entry]:
    for module_info in iter_modules(keys.__path__):
        module = import_module(f"{keys.__name__}.{module_info.name}")
        documented = _docstrings(module)
        for name, value in vars(module).items():
            if name in documented and isinstance(value, str):
                where, _, text = documented[name].partition(": ")
                where = where if text else "value"
                yield Entry(value, EntryKind.KEY, where, _sentence(text or documented[name]))


def _docstrings(module: ModuleType) -> dict[str, str]:
    """Return the docstrings of constants, which exist in the source only."""
    body = ast.parse(inspect.getsource(module)).body
    return {
        statement.target.id: " ".join(docstring.value.value.split())
        for statement, docstring in pairwise(body)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(docstring, ast.Expr)
        and isinstance(docstring.value, ast.Constant)
        and isinstance(docstring.value.value, str)
    }


def _list_fields() -> Iterator[Entry]:
    for resource in RESOURCES:
        schema = make_resource_schema(resource)
        for part in ("spec", "status"):
            below = schema["properties"].get(part, {})
            yield from _walk(f"{resource.names.kind}.{part}", resource.names.kind, below)


def _walk(path: str, kind: str, schema: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield a field and those below it."""
    is_list = schema.get("type") == "array"
    facts = {"type": _type_of(schema)}
    if "default" in schema:
        facts["default"] = str(schema["default"])
    yield Entry(path, EntryKind.FIELD, kind, schema.get("description", ""), facts=facts)
    inner = schema.get("items", {}) if is_list else schema
    for name, below in inner.get("properties", {}).items():
        yield from _walk(f"{path}{'[]' if is_list else ''}.{name}", kind, below)


def _type_of(schema: Mapping[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_type_of(schema.get('items', {}))}"
    if isinstance(below := schema.get("additionalProperties"), Mapping):
        return f"map of {_type_of(below)}"
    return str(schema.get("type", "object"))


def _list_conditions() -> Iterator[Entry]:
    for name, _, where, means, helps in list_conditions():
        yield Entry(name, EntryKind.CONDITION, where, means, helps)


def _list_series() -> Iterator[Entry]:
    text = files(reference).joinpath("metrics.toml").read_text(encoding="utf-8")
    documented = tomllib.loads(text)
    for series in documented["series"]:
        labels = ", ".join(series.get("labels", ()))
        facts = {"labels": labels} if labels else {}
        yield Entry(series["name"], EntryKind.SERIES, "/metrics", series["means"], facts=facts)
    for alert in documented["alert"]:
        yield Entry(alert["name"], EntryKind.ALERT, "Prometheus", alert["means"], alert["helps"])


def _list_settings() -> Iterable[Entry]:
    schema = Settings.model_json_schema(by_alias=True)
    return _walk_settings("", Settings(), schema, schema["$defs"])


def _walk_settings(
    path: str, section: BaseModel, schema: Mapping[str, Any], named: Mapping[str, Any]
) -> Iterator[Entry]:
    values = section.model_dump(mode="json", by_alias=True)
    for field, info in type(section).model_fields.items():
        name = info.alias or field
        property_schema, value = schema["properties"][name], getattr(section, field)
        below = named.get(property_schema.get("$ref", "").rpartition("/")[2], {})
        text = property_schema.get("description") or below.get("description", "")
        if isinstance(value, BaseModel) and "properties" in below:
            yield Entry(f"{path}{name}", EntryKind.SETTING, "koord run --config", _sentence(text))
            yield from _walk_settings(f"{path}{name}.", value, below, named)
            continue
        facts = {"type": _type_of(below or property_schema), "default": _write(values[name])}
        if isinstance(value, Address):
            facts = {"type": "address and port", "default": f"{value.host}:{value.port}"}
        elif any(
            getattr(constraint, "func", None) is parse_seconds for constraint in info.metadata
        ):
            facts = {"type": "duration", "default": f"{value:g}s"}
        where = "koord run --config"
        yield Entry(f"{path}{name}", EntryKind.SETTING, where, _sentence(text), facts=facts)


def _write(value: object) -> str:
    if isinstance(value, dict):
        parts = ", ".join(f"{name}: {_write(field_value)}" for name, field_value in value.items())
        return f"{{{parts}}}" if parts else "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sentence(text: str) -> str:
    """Return a docstring as one line of plain text."""
    return " ".join(text.replace("``", "`").split())
