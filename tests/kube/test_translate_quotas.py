"""ElasticQuotas from the wire: labels, annotations, amounts, and what cannot be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
import yaml

from koord.api.keys import operators
from koord.api.keys import quota as keys
from koord.core.quota.catalog import QuotaCatalog
from koord.core.quota.model import ROOT, QuotaSpec
from koord.core.quota.spec_errors import QuotaProblem
from koord.kube.translate.quotas import (
    SHOWN,
    QuotaTranslator,
    encode_last_valid,
    make_recorded,
    read_recorded,
    translate_quota,
)
from koord.kube.wire import WireCustomResource

GI = 1 << 30

# As published with Koordinator 0.7: https://koordinator.sh
PUBLISHED = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata:
  name: parentA
  namespace: default
  labels:
    quota.scheduling.koordinator.sh/is-parent: "true"
    quota.scheduling.koordinator.sh/allow-lent-resource: "true"
spec:
  max: {cpu: 100, memory: 200Gi}
  min: {cpu: 100, memory: 200Gi}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata:
  name: childA1
  namespace: default
  labels:
    quota.scheduling.koordinator.sh/is-parent: "false"
    quota.scheduling.koordinator.sh/parent: "parentA"
    quota.scheduling.koordinator.sh/allow-lent-resource: "true"
spec:
  max: {cpu: 40, memory: 100Gi}
  min: {cpu: 20, memory: 40Gi}
"""


def translate(manifest: dict[str, Any]) -> QuotaSpec:
    wire = msgspec.json.decode(msgspec.json.encode(manifest), type=WireCustomResource)
    return translate_quota(wire)


def make(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> QuotaSpec:
    prefixed = [
        {f"{keys.PREFIX}{key}": value for key, value in (one or {}).items()}
        for one in (labels, annotations)
    ]
    metadata = {"name": "q", "namespace": "ns", "labels": prefixed[0], "annotations": prefixed[1]}
    return translate({"metadata": metadata, "spec": spec})


def test_published_quotas_are_in_force() -> None:
    book = QuotaCatalog()
    for manifest in yaml.safe_load_all(PUBLISHED):
        book.upsert(translate(manifest))
    book.settle()
    assert book.problems == {}
    child = book.registry.specs["childA1"]
    assert child.parent == "parentA"
    assert child.min == {"cpu": 20_000, "memory": 40 * GI}
    assert book.registry.specs["parentA"].is_parent


def test_defaults() -> None:
    spec = make()
    assert (spec.parent, spec.is_parent, spec.lends, spec.weight) == (ROOT, False, True, None)
    assert (spec.min, spec.max, spec.unreadable) == ({}, {}, ())


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"is-parent": "True"}, {"is_parent": False}),
        ({"allow-lent-resource": "False"}, {"lends": True}),
        ({"allow-lent-resource": "false"}, {"lends": False}),
        ({"parent": ""}, {"parent": ROOT}),
        ({"tree-id": "t", "is-root": "true"}, {"tree_id": "t", "is_tree_root": True}),
        ({"ignore-default-tree": "true"}, {"ignores_default_tree": True}),
        ({"allow-force-update": "true"}, {"is_forced": True}),
    ],
)
def test_labels(labels: dict[str, str], expected: dict[str, Any]) -> None:
    spec = make(labels)
    assert {name: getattr(spec, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (
            {"shared-weight": '{"cpu":"40","memory":"1Gi"}'},
            {"weight": {"cpu": 40_000, "memory": GI}},
        ),
        ({"shared-weight": ""}, {"weight": None}),
        ({"shared-weight": '{"cpu":"-1"}'}, {"weight": {"cpu": -1_000}, "unreadable": ()}),
        ({"shared-weight": "{"}, {"weight": None, "unreadable": (("shared-weight", "{"),)}),
        ({"namespaces": '["a","b","a"]'}, {"namespaces": ("a", "b")}),
        ({"namespaces": '"a"'}, {"namespaces": (), "unreadable": (("namespaces", '"a"'),)}),
        ({"total-resource": '{"nvidia.com/gpu": 8}'}, {"total": {"nvidia.com/gpu": 8}}),
        ({"max-strict-check-resource-keys": '["cpu"]'}, {"strict_keys": ("cpu",)}),
        ({"admission": '{"cpu": "0"}'}, {"admission": {"cpu": 0}}),
        ({"admission": "{}"}, {"admission": None}),
        ({"total-resource": "{"}, {"total": {}, "unreadable": (("total-resource", "{"),)}),
    ],
)
def test_annotations(annotations: dict[str, str], expected: dict[str, Any]) -> None:
    spec = make(annotations=annotations)
    assert {name: getattr(spec, name) for name in expected} == expected


def test_amounts_are_rounded_up_and_never_cut() -> None:
    spec = make(
        min={"cpu": "0.0001", "koordinator.sh/batch-cpu": "1"},
        max={"cpu": "4611686018427387", "nvidia.com/gpu": "500m", "memory": "-1"},
    )
    assert spec.min == {"cpu": 1, "kubernetes.io/batch-cpu": 1}
    assert spec.max == {"cpu": 4611686018427387000, "nvidia.com/gpu": 1, "memory": -1}


def test_what_cannot_be_read_is_said() -> None:
    book = QuotaCatalog()
    book.upsert(make(annotations={"shared-weight": "[1]"}))
    book.settle()
    problem = book.problem_of("q")
    assert problem is not None
    assert (problem.rule, problem.text) == (QuotaProblem.INVALID_SHARED_WEIGHT, "[1]")


def test_a_selector_that_cannot_be_read_is_not_as_if_there_were_none() -> None:
    metadata = {"name": "q", "annotations": {operators.NODE_SELECTOR: "pool=a"}}
    spec = translate({"metadata": metadata, "spec": {}})
    assert spec.unreadable == ((operators.NODE_SELECTOR, "pool=a"),)


@pytest.mark.parametrize(
    ("text", "limit"),
    [("1000", 1000), ("-5", -5), ("high", None), ("1.5", None), ("[1]", None), ("9e99", None)],
)
def test_max_priority(text: str, limit: int | None) -> None:
    metadata = {"name": "q", "annotations": {operators.MAX_PRIORITY: text}}
    spec = translate({"metadata": metadata, "spec": {}})
    unreadable = () if limit is not None else ((operators.MAX_PRIORITY, text),)
    assert (spec.max_priority, spec.unreadable) == (limit, unreadable)
    assert encode_last_valid(spec)["annotations"].get(operators.MAX_PRIORITY) == (
        None if limit is None else text
    )


def test_of_a_long_text_that_cannot_be_read_the_beginning_is_kept() -> None:
    ((key, text),) = make(annotations={"namespaces": "x" * 100_000}).unreadable
    assert (key, text) == ("namespaces", "x" * SHOWN + "…")


def test_an_amount_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="lots"):
        make(max={"cpu": "lots"})


FULL = {
    "labels": {
        "parent": "p",
        "is-parent": "true",
        "allow-lent-resource": "false",
        "tree-id": "t",
        "is-root": "true",
        "ignore-default-tree": "true",
        "allow-force-update": "true",
    },
    "annotations": {
        "shared-weight": '{"cpu":"1500m"}',
        "total-resource": '{"memory":"3Gi"}',
        "unschedulable-resource": '{"memory":"1Gi"}',
        "admission": '{"cpu":"2"}',
        "namespaces": '["a","b"]',
        "max-strict-check-resource-keys": '["cpu"]',
    },
}


@pytest.mark.parametrize("given", [FULL, {}], ids=["full", "empty"])
def test_what_is_kept_is_what_was_in_force(given: dict[str, Any]) -> None:
    spec = make(**given, min={"cpu": "1500m"}, max={"cpu": "2", "memory": "7"})
    wire = WireCustomResource(
        status=msgspec.Raw(msgspec.json.encode({"lastValidSpec": encode_last_valid(spec)}))
    )
    wire.metadata.name, wire.metadata.namespace = "q", "ns"
    kept = QuotaTranslator().translate(wire).last_valid
    assert kept is not None
    assert replace(kept, weight=kept.weight or None) == spec


@pytest.mark.parametrize(
    "status",
    [
        b"",
        b"null",
        b"{}",
        b'{"lastValidSpec": 7}',
        b"{",
        b'{"lastValidSpec": {"max": {"cpu": "x"}}}',
    ],
)
def test_a_status_that_keeps_nothing(status: bytes) -> None:
    wire = WireCustomResource(status=msgspec.Raw(status))
    assert QuotaTranslator().translate(wire).last_valid is None


def test_results_in_annotations_have_one_form_and_are_read_in_any() -> None:
    amounts = {"runtime": {"memory": 80 << 30, "cpu": 66667}, "guaranteed": {}}
    made = make_recorded(amounts)
    assert made == {f"{keys.PREFIX}runtime": '{"cpu":"66667m","memory":"80Gi"}'}
    assert read_recorded(made) == {"runtime": amounts["runtime"]}
    odd = {f"{keys.PREFIX}runtime": '{"cpu":"66.667","memory":85899345920}'}
    odd[f"{keys.PREFIX}request"] = "{"
    assert read_recorded(odd) == {"runtime": amounts["runtime"]}
