"""Validation of objects that the API server has accepted."""

from typing import Any

import pytest

from koord.api.elasticquota import ElasticQuota
from koord.api.networktopology import ClusterNetworkTopology
from koord.api.podgroup import PodGroup
from koord.api.resource import Resource
from koord.controllers.status_author import Validation, Validator, judge

SHARED_WEIGHT = "quota.scheduling.koordinator.sh/shared-weight"
TOPOLOGY = "gang.scheduling.koordinator.sh/network-topology-spec"


def make_body(resource: type[Resource], spec: dict[str, Any], **annotations: str) -> dict[str, Any]:
    names = resource.names
    return {
        "apiVersion": names.api_version,
        "kind": names.kind,
        "metadata": {"name": "x", "uid": "u", "generation": 3, "annotations": annotations},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("resource", "spec", "annotations", "field"),
    [
        (ElasticQuota, {"min": {"x/y": "5"}, "max": {"x/y": "3"}}, {}, "spec.min[x/y]"),
        (ElasticQuota, {}, {SHARED_WEIGHT: "much"}, f"metadata.annotations[{SHARED_WEIGHT}]"),
        (ClusterNetworkTopology, {}, {}, "spec.networkTopologySpec"),
        (PodGroup, {"minMember": 1}, {TOPOLOGY: "{"}, f"metadata.annotations[{TOPOLOGY}]"),
    ],
)
def test_invalid_field_is_named(
    resource: type[Resource], spec: dict[str, Any], annotations: dict[str, str], field: str
) -> None:
    verdict = judge(resource, make_body(resource, spec, **annotations))
    assert verdict.reason == "Invalid"
    assert verdict.message.startswith(f"{field}: ")


def test_status_does_not_affect_the_verdict() -> None:
    body = make_body(ElasticQuota, {"max": {"cpu": "3"}}) | {"status": {"conditions": [{}]}}
    verdict = judge(ElasticQuota, body)
    assert (verdict.reason, verdict.message) == ("Valid", "the object is valid")


def test_object_is_validated_again_only_after_a_user_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged: list[Any] = []

    def note(_: type[Resource], body: dict[str, Any]) -> Validation:
        judged.append(body)
        return Validation()

    monkeypatch.setattr("koord.controllers.status_author.judge", note)
    known = Validator(ElasticQuota)
    body = make_body(ElasticQuota, {})

    def see(status: str = "", **meta: Any) -> int:
        known.judge(body | {"metadata": body["metadata"] | meta, "status": {"x": status}})
        return len(judged)

    assert (see(), see("new")) == (1, 1)
    assert see(generation=4) == 2
    assert see(generation=4, annotations={"a": "b"}) == 3
    assert see(generation=4, labels={"a": "b"}) == 4
    assert see(generation=4, uid="another") == 5
    assert (see(generation=None), see(generation=None)) == (6, 7), "it has no generation"
    known.forget("another")
    assert see(generation=4, uid="another") == 8
