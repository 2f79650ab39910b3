"""What is read of objects that nobody has checked: types only, and what cannot be used, late."""

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.api.cases import MINIMAL
from tests.support.laws import examples

from koord.api.crdgen import RESOURCE_BY_KIND, RESOURCES
from koord.api.device import DeviceInfo, DeviceSpec
from koord.api.elasticquota import ElasticQuotaSpec
from koord.api.model import Model
from koord.api.networktopology import ClusterNetworkTopologySpec
from koord.api.podgroup import PodGroupSpec, PodGroupStatus
from koord.api.quantity import InvalidQuantityError
from koord.api.resource import Resource
from koord.api.shape import Shape

DEVICES = Shape(DeviceSpec, ("spec",), only={DeviceInfo: ("type", "minor", "resources")})


def read(shape: Shape[Any], value: object) -> Any:
    return shape.read(json.dumps(value).encode())


def test_bounds_and_rules_are_left_to_the_core() -> None:
    group = read(Shape(PodGroupSpec), {"minMember": -3})
    assert group.min_member == -3
    layer = {"topologyLayer": "ClusterTopologyLayer", "parentTopologyLayer": "ClusterTopologyLayer"}
    layers = read(Shape(ClusterNetworkTopologySpec), {"networkTopologySpec": [layer, layer]})
    assert len(layers.network_topology_spec) == 2
    quota = read(Shape(ElasticQuotaSpec), {"min": {"cpu": "-2"}, "max": {"cpu": 1}})
    assert quota.min["cpu"].whole == -2
    with pytest.raises(ValidationError):
        PodGroupSpec.model_validate({"minMember": -3})


def test_missing_and_unknown_fields_cost_nothing() -> None:
    assert Shape(PodGroupSpec).read(b"") == PodGroupSpec.model_construct(min_member=0)
    assert read(Shape(ClusterNetworkTopologySpec), {}).network_topology_spec == []
    (device,) = read(DEVICES, {"devices": [{"new": {"a": 1}}], "more": None}).devices
    assert (device.type, device.minor, device.resources) == ("", 0, None)


def test_what_is_not_read_may_be_anything() -> None:
    (device,) = read(DEVICES, {"devices": [{"type": "gpu", "conditions": 7}]}).devices
    assert device.type == "gpu"
    assert not hasattr(device, "conditions"), "it is missing, not empty"


def test_an_amount_that_is_none_fails_where_it_is_used() -> None:
    good, bad = read(DEVICES, {"devices": [{"resources": {"a": n}} for n in ("1Ki", "x")]}).devices
    assert good.resources["a"].whole == 1024
    with pytest.raises(InvalidQuantityError, match="'x' is not a quantity"):
        bad.resources["a"].whole  # noqa: B018
    assert "'x' is not a quantity" in repr(bad)


@pytest.mark.parametrize("amounts", [[], "1", {"a": None}, {"a": True}, {"a": 1.5}, {"a": {}}])
def test_amounts_of_another_type_cost_their_item_only(amounts: object) -> None:
    bad, good = read(DEVICES, {"devices": [{"resources": amounts}, {"minor": 1}]}).devices
    assert good.minor == 1
    with pytest.raises(InvalidQuantityError):
        [quantity.whole for quantity in bad.resources.values()]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"null", "spec: null: must be a mapping"),
        (b'{"devices":[{"type":3}]}', "spec.devices[0].type: 3: must be a string"),
        (b'{"devices":[{"minor":"0"}]}', 'spec.devices[0].minor: "0": must be a whole number'),
        (b'{"devices":[{"type":"\\ud800"}]}', "spec: Invalid JSON"),
        (b'{"devices":[{"type":"\xff"}]}', "spec: Invalid JSON"),
        (b'{"a":' + b"[" * 9999 + b"]" * 9999 + b"}", "spec: Invalid JSON: recursion limit"),
    ],
)
def test_a_wrong_type_is_named(text: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match="spec") as caught:
        DEVICES.read(text)
    assert str(caught.value).startswith(problem)


def test_thousands_of_bad_items_are_told_by_the_first() -> None:
    with pytest.raises(ValueError, match="spec") as caught:
        read(DEVICES, {"devices": [{"type": 3}] * 10_000})
    assert str(caught.value).startswith("spec.devices[0].type: 3")
    assert len(str(caught.value)) < 200


def test_a_field_that_is_none_of_the_model_is_a_mistake_at_once() -> None:
    with pytest.raises(KeyError):
        Shape(PodGroupStatus, only={PodGroupStatus: ("phases",)})


PARTS = [(resource, part) for resource in RESOURCES for part in ("spec", "status")]
NAMES = st.sampled_from(
    sorted(
        {
            field.alias or name
            for model in Model.__subclasses__()
            for name, field in model.model_fields.items()
        }
    )
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@cache
def shape_of(resource: type[Resource], part: str) -> tuple[Shape[Any], type[Model]]:
    model = resource.model_fields[part].annotation
    assert model is not None
    return Shape(model), model


@settings(max_examples=examples(25))
@given(value=VALUES)
@example(value={"devices": [{"type": "gpu", "resources": {"a": "1"}}, {"resources": {"a": "x"}}]})
@example(value={"min": {"cpu": "1"}, "max": {"cpu": 2}})
@example(value={"scheduleStartTime": 0})
@example(value={"scheduleStartTime": "0"})
@example(value={"history": [{"time": "2026-01-31T12:00:00Z", "what": "Preempted"}]})
def test_a_shape_reads_what_the_model_accepts_and_raises_nothing_else(value: object) -> None:
    text = json.dumps(value).encode()
    for resource, part in PARTS:
        shape, model = shape_of(resource, part)
        try:
            read_value = shape.read(text)
        except ValueError:
            read_value = None
        try:
            valid = model.model_validate_json(text)
        except ValidationError:
            continue
        assert read_value == valid


@pytest.mark.parametrize("kind", MINIMAL)
def test_valid_specs_are_read_as_the_model_reads_them(kind: str) -> None:
    shape, model = shape_of(RESOURCE_BY_KIND[kind], "spec")
    text = json.dumps(MINIMAL[kind]).encode()
    assert shape.read(text) == model.model_validate_json(text)
