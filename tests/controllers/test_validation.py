"""Validation of objects that the API server has accepted."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import kopf
import pytest

from koord.api.elasticquota import ElasticQuota
from koord.api.networktopology import ClusterNetworkTopology
from koord.api.parse import Problem
from koord.api.podgroup import PodGroup
from koord.api.resource import Resource
from koord.controllers.status_publishing import AcceptedPublisher
from koord.controllers.validation import Validation, ValidationController, Validator, judge
from koord.kube.objects import ObjectRef
from koord.kube.status import Present

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


class Sink:
    """Records the calls of the controller."""

    def __init__(self, *, is_news: bool = True) -> None:
        self.calls: list[str] = []
        self._is_news = is_news

    def is_news(self, _body: Mapping[str, Any], _verdict: Validation) -> bool:
        return self._is_news

    def write(self, body: Mapping[str, Any], verdict: Validation) -> None:
        self.calls.append(f"{body['metadata']['uid']} {verdict.reason}")

    def forget(self, body: Mapping[str, Any]) -> None:
        self.calls.append(f"{body['metadata']['uid']} gone")

    def forget_all(self) -> None:
        self.calls.append("all gone")


@pytest.mark.parametrize(("is_news", "calls"), [(True, ["u Valid", "u gone"]), (False, ["u gone"])])
async def test_verdicts_are_written_if_they_are_news(*, is_news: bool, calls: list[str]) -> None:
    sink = Sink(is_news=is_news)
    controller = ValidationController(ElasticQuota, sink, lambda call, *told: call(*told))
    body = make_body(ElasticQuota, {})
    await controller.on_event({"type": None}, body)
    await controller.on_event({"type": "DELETED"}, body)
    assert sink.calls == calls


def test_accepted_is_written_once_per_generation_and_verdict() -> None:
    publisher = AcceptedPublisher(ElasticQuota, lambda _: Mock())
    body = make_body(ElasticQuota, {})
    assert publisher.is_news(body, Validation())
    condition = {
        "type": "Accepted",
        "reason": "Valid",
        "message": "the object is valid",
        "observedGeneration": 3,
    }
    body["status"] = {"conditions": [condition]}
    assert not publisher.is_news(body, Validation())
    assert publisher.is_news(body, Validation((Problem("spec", "", "is odd"),)))
    body["metadata"]["generation"] = 4
    assert publisher.is_news(body, Validation())


def test_accepted_of_a_deleted_object_is_forgotten() -> None:
    shown: list[Present] = []

    def make_writer(present: Present) -> Mock:
        shown.append(present)
        return Mock()

    publisher = AcceptedPublisher(ElasticQuota, make_writer)
    body = make_body(ElasticQuota, {})
    publisher.write(body, Validation())
    ref = ObjectRef("", "", "", "", body["metadata"]["uid"])
    assert shown[0](ref) == {}
    publisher.forget(body)
    assert shown[0](ref) is None


def test_object_is_validated_again_only_after_a_user_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged: list[Any] = []

    def note(_: type[Resource], body: dict[str, Any]) -> Validation:
        judged.append(body)
        return Validation()

    monkeypatch.setattr("koord.controllers.validation.judge", note)
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


async def test_objects_deleted_while_kopf_was_down_are_forgotten() -> None:
    sink = Sink()
    controller = ValidationController(ElasticQuota, sink, lambda call, *told: call(*told))
    await controller.on_event({"type": None}, make_body(ElasticQuota, {}))
    controller.register(kopf.OperatorRegistry())
    assert not controller._judge._validations
    assert sink.calls == ["u Valid", "all gone"]
