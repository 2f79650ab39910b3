"""CRDs follow from the models and have everything that Koordinator's have."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import Field

from koord.api.crdgen import (
    RESOURCE_BY_KIND,
    RESOURCES,
    file_name,
    make_crd,
    make_resource_schema,
    render_crd,
)
from koord.api.model import ATOMIC, DEFAULTED, ListMap, Model, Rule, make_schema, to_kubernetes_name
from koord.api.resource import Int32, Resource, ResourceQuantity

CRDS = Path(__file__).parents[2] / "crds"


class Part(Model):
    """A part."""

    markers = (ATOMIC,)

    part_id: str
    """Its id."""


class Sample(Model):
    """A sample."""

    rules = (Rule("has(self.count)", "count is missing", lambda _: True, ".count"),)

    count: Annotated[Int32, Field(gt=0), Rule("self != 7", "not 7", lambda n: n != 7)] | None = None
    """How many."""
    mode: Annotated[Literal["A", "B"], DEFAULTED] = "A"
    only: Literal["x"] = "x"
    amount: ResourceQuantity | None = None
    parts: Annotated[list[Part], ListMap(("part_id",)), Field(min_length=1)] | None = None
    one: Part | None = None
    """The one."""
    free: dict[str, Any] | None = None
    names: dict[str, str] = Field(default_factory=dict)


PART = {
    "type": "object",
    "description": "A part.",
    "x-kubernetes-map-type": "atomic",
    "properties": {"partID": {"type": "string", "description": "Its id."}},
    "required": ["partID"],
}


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        (
            "count",
            {
                "type": "integer",
                "format": "int32",
                "minimum": 0,
                "exclusiveMinimum": True,
                "description": "How many.",
                "x-kubernetes-validations": [{"rule": "self != 7", "message": "not 7"}],
            },
        ),
        ("mode", {"type": "string", "enum": ["A", "B"], "default": "A"}),
        ("only", {"type": "string", "enum": ["x"]}),
        ("one", PART | {"description": "The one."}),
        (
            "parts",
            {
                "type": "array",
                "items": PART,
                "minItems": 1,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["partID"],
            },
        ),
        ("free", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        ("names", {"type": "object", "additionalProperties": {"type": "string"}}),
    ],
)
def test_json_schema_becomes_openapi(field: str, schema: dict[str, Any]) -> None:
    assert make_schema(Sample)["properties"][field] == schema


def test_quantities_are_int_or_string() -> None:
    schema = make_schema(Sample)["properties"]["amount"]

    assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert schema["x-kubernetes-int-or-string"] is True
    assert "type" not in schema


def test_rules_of_a_model_are_in_its_schema() -> None:
    assert make_schema(Sample)["x-kubernetes-validations"] == [
        {"rule": "has(self.count)", "message": "count is missing", "fieldPath": ".count"}
    ]


@pytest.mark.parametrize(
    ("name", "kubernetes"),
    [("min_member", "minMember"), ("plan_id", "planID"), ("id", "id"), ("ttl", "ttl"),
     ("pcie_id", "pcieID"), ("x_identity", "xIdentity")],
)  # fmt: skip
def test_names_are_those_of_kubernetes(name: str, kubernetes: str) -> None:
    assert to_kubernetes_name(name) == kubernetes


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.names.kind)
def test_committed_crds_are_current(resource: type[Resource]) -> None:
    assert (CRDS / file_name(resource)).read_text(encoding="utf-8") == render_crd(resource)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.names.kind)
def test_yaml_equals_the_crd(resource: type[Resource]) -> None:
    assert yaml.safe_load(render_crd(resource)) == make_crd(resource)


def walk(schema: dict[str, Any], path: str = "") -> Any:
    yield path, schema
    for name, value in schema.get("properties", {}).items():
        yield from walk(value, f"{path}.{name}" if path else name)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from walk(schema[key], path + mark)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.names.kind)
def test_every_field_is_described(resource: type[Resource]) -> None:
    fields = [
        (path, schema)
        for path, schema in walk(make_resource_schema(resource))
        if path and not path.endswith(("]", "}")) and path != "metadata"
    ]

    assert fields
    assert [path for path, schema in fields if not schema.get("description")] == []


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.names.kind)
def test_schemas_are_structural(resource: type[Resource]) -> None:
    foreign = {"$ref", "$defs", "title", "const", "oneOf", "allOf", "x-koord-keep-default"}

    for path, schema in walk(make_resource_schema(resource)):
        assert not foreign & set(schema), path
        assert "type" in schema or "x-kubernetes-int-or-string" in schema, path


UPSTREAM = yaml.safe_load((Path(__file__).parent / "upstream-fields.yaml").read_text())


def describe(schema: dict[str, Any]) -> str:
    if "x-kubernetes-int-or-string" in schema:
        return "quantity"
    kind = schema.get("type", "any")
    return f"{kind}/{schema['format']}" if "format" in schema else kind


@pytest.mark.parametrize("kind", sorted(UPSTREAM))
def test_all_fields_of_koordinator_exist_with_the_same_type(kind: str) -> None:
    ours = {path: describe(s) for path, s in walk(make_resource_schema(RESOURCE_BY_KIND[kind]))}

    assert {path: ours.get(path) for path in UPSTREAM[kind]["fields"]} == UPSTREAM[kind]["fields"]


@pytest.mark.parametrize("kind", sorted(UPSTREAM))
def test_only_defaults_of_koordinator_are_in_the_crds(kind: str) -> None:
    ours = {
        path: schema["default"]
        for path, schema in walk(make_resource_schema(RESOURCE_BY_KIND[kind]))
        if "default" in schema
    }

    assert ours == UPSTREAM[kind]["defaults"] | UPSTREAM[kind]["our-defaults"]


@pytest.mark.parametrize("kind", sorted(UPSTREAM))
def test_additional_required_fields_are_listed(kind: str) -> None:
    ours = {
        f"{path}.{name}" if path else name
        for path, schema in walk(make_resource_schema(RESOURCE_BY_KIND[kind]))
        for name in schema.get("required", [])
        if f"{path}.{name}" in UPSTREAM[kind]["fields"] or not path
    }

    assert ours - set(UPSTREAM[kind]["required"]) == set(UPSTREAM[kind]["our-required"])
