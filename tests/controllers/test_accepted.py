"""What is found out about objects that the API server has taken."""

from typing import Any

import kopf
import pytest

from koord.api.elasticquota import ElasticQuota
from koord.api.networktopology import ClusterNetworkTopology
from koord.api.podgroup import PodGroup
from koord.api.resource import Resource
from koord.controllers.validation import AcceptedController, Judge, Verdict, judge

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
def test_what_cannot_be_used_is_named_by_its_field(
    resource: type[Resource], spec: dict[str, Any], annotations: dict[str, str], field: str
) -> None:
    verdict = judge(resource, make_body(resource, spec, **annotations))
    assert verdict.reason == "Invalid"
    assert verdict.message.startswith(f"{field}: ")


def test_what_can_be_used_is_valid_whatever_its_status() -> None:
    body = make_body(ElasticQuota, {"max": {"cpu": "3"}}) | {"status": {"conditions": [{}]}}
    verdict = judge(ElasticQuota, body)
    assert (verdict.reason, verdict.message) == ("Valid", "the object is valid")


class Sink:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def accept(self, _resource: type[Resource], body: dict[str, Any], verdict: Verdict) -> None:
        self.told.append(f"{body['metadata']['uid']} {verdict.reason}")

    def forget(self, uid: str) -> None:
        self.told.append(f"{uid} gone")

    def forget_all(self) -> None:
        self.told.append("all may be gone")


async def test_an_object_is_told_once_per_generation_and_verdict() -> None:
    sink = Sink()
    controller = AcceptedController(ElasticQuota, sink, lambda call, *told: call(*told))
    body = make_body(ElasticQuota, {})
    await controller.on_event({"type": None}, body)
    said = {
        "type": "Accepted",
        "reason": "Valid",
        "message": "the object is valid",
        "observedGeneration": 3,
    }
    body["status"] = {"conditions": [said]}
    await controller.on_event({"type": "MODIFIED"}, body)
    body["metadata"]["generation"] = 4
    await controller.on_event({"type": "MODIFIED"}, body)
    await controller.on_event({"type": "DELETED"}, body)
    assert sink.told == ["u Valid", "u Valid", "u gone"]


def test_only_what_a_user_may_have_changed_is_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Any] = []

    def note(_: type[Resource], body: dict[str, Any]) -> Verdict:
        judged.append(body)
        return Verdict()

    monkeypatch.setattr("koord.controllers.validation.judge", note)
    known = Judge(ElasticQuota)
    body = make_body(ElasticQuota, {})

    def see(status: str = "", **meta: Any) -> int:
        known.judge(body | {"metadata": body["metadata"] | meta, "status": {"x": status}})
        return len(judged)

    assert (see(), see("new")) == (1, 1)
    assert see(generation=4) == 2
    assert see(generation=4, annotations={"a": "b"}) == 3
    assert see(generation=4, labels={"a": "b"}) == 4
    assert see(generation=4, uid="another") == 5
    assert (see(generation=None), see(generation=None)) == (6, 7), "nobody counts its versions"
    known.forget("another")
    assert see(generation=4, uid="another") == 8


async def test_what_went_away_while_nobody_watched_is_forgotten() -> None:
    sink = Sink()
    controller = AcceptedController(ElasticQuota, sink, lambda call, *told: call(*told))
    await controller.on_event({"type": None}, make_body(ElasticQuota, {}))
    controller.register(kopf.OperatorRegistry())
    assert not controller._judge._known
    assert sink.told == ["u Valid", "all may be gone"]
