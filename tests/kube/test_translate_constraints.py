"""Translation of pod constraints and volumes, from JSON as the API server writes it."""

from typing import Any

import msgspec
import pytest

from koord.api.keys import operators
from koord.core.device.model import DeviceResourceClaim
from koord.core.model.constraints import (
    AffinityTerm,
    ClaimUse,
    PodConstraints,
    PodSelector,
    SpreadConstraint,
    WeightedTerm,
)
from koord.core.model.pods import Handling, Pod
from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm
from koord.core.plugins.late_volumes import StorageClass, VolumeOffer, WantedVolume
from koord.core.plugins.volumes import Volume, VolumeClaim
from koord.domains.registry import make_pod_translator
from koord.kube.kind import TranslatorOptions
from koord.kube.plan_keys import AnySignature
from koord.kube.translate.cluster_objects import (
    translate_storage_class,
    translate_volume,
    translate_volume_claim,
)
from koord.kube.translate.devices import translate_resource_claim
from koord.kube.wire import (
    WirePod,
    WireResourceClaim,
    WireStorageClass,
    WireVolume,
    WireVolumeClaim,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = (Requirement("app", SelectorOperator.IN, ("web",)),)
BY_APP = {"matchLabels": {"app": "web"}}


def read(wire: type[Any], body: dict[str, Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body), type=wire)


def translate(spec: dict[str, Any], **meta: Any) -> Pod:
    metadata = {"name": "p", "namespace": "ns", "uid": "u", **meta}
    body = {"metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}}
    return make_pod_translator(TranslatorOptions(plans=AnySignature())).translate(
        read(WirePod, body)
    )


def near(term: dict[str, Any]) -> AffinityTerm:
    pod = translate({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone", **term}]}}})
    assert pod.shape.constraints is not None
    return pod.shape.constraints.affinity[0]


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ({"labelSelector": BY_APP}, PodSelector(WEB, ("ns",))),
        ({}, PodSelector(None, ("ns",))),
        ({"labelSelector": {}}, PodSelector((), ("ns",))),
        ({"labelSelector": BY_APP, "namespaces": ["b", "a"]}, PodSelector(WEB, ("a", "b"))),
        ({"labelSelector": BY_APP, "namespaceSelector": {}}, PodSelector(WEB, (), ())),
        (
            {"labelSelector": BY_APP, "namespaces": ["a"], "namespaceSelector": BY_APP},
            PodSelector(WEB, ("a",), WEB),
        ),
    ],
)
def test_terms_name_pods_and_namespaces(term: dict[str, Any], expected: PodSelector) -> None:
    assert near(term) == AffinityTerm(expected, "zone")


def test_all_kinds_of_affinity() -> None:
    term = {"topologyKey": "zone", "labelSelector": BY_APP}
    weighted = [{"weight": 7, "podAffinityTerm": term}]
    parsed = AffinityTerm(PodSelector(WEB, ("ns",)), "zone")
    preference = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
    shape = translate(
        {
            "affinity": {
                "nodeAffinity": {PREFERRED: [{"weight": 3, "preference": preference}]},
                "podAffinity": {REQUIRED: [term], PREFERRED: weighted},
                "podAntiAffinity": {REQUIRED: [term], PREFERRED: weighted},
            }
        }
    ).shape
    assert shape.constraints == PodConstraints(
        (parsed,), (parsed,), (WeightedTerm(parsed, 7), WeightedTerm(parsed, -7))
    )
    assert shape.preferences == ((3, SelectorTerm(WEB)),)
    assert shape.needs_kube_scheduler == ()


def test_spread() -> None:
    hard = {
        "maxSkew": 2,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": BY_APP,
        "matchLabelKeys": ["hash", "none"],
        "minDomains": 3,
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
    }
    soft = {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway"}
    labels = {"app": "web", "hash": "1"}
    constraints = translate({"topologySpreadConstraints": [hard, soft]}, labels=labels).shape
    merged = PodSelector((*WEB, Requirement("hash", SelectorOperator.IN, ("1",))), ("ns",))
    assert constraints.constraints == PodConstraints(
        spread=(SpreadConstraint(merged, "zone", 2, 3, honors_affinity=False, honors_taints=True),),
        even=(SpreadConstraint(PodSelector(None, ("ns",)), "host", 1),),
    )


def test_shapes_differ_only_by_fields_that_constraints_depend_on() -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": BY_APP,
        "matchLabelKeys": ["hash"],
    }
    translator = make_pod_translator()

    def shape_of(spec: dict[str, Any], namespace: str, **labels: str) -> Any:
        meta = {"name": "p", "namespace": namespace, "uid": "u", "labels": labels}
        return translator.translate(read(WirePod, {"metadata": meta, "spec": spec})).shape

    one = shape_of({"topologySpreadConstraints": [spread]}, "a", hash="1", index="1")
    assert shape_of({"topologySpreadConstraints": [spread]}, "a", hash="1", index="2") is one
    assert shape_of({"topologySpreadConstraints": [spread]}, "a", hash="2") != one
    assert shape_of({"topologySpreadConstraints": [spread]}, "b", hash="1") != one
    assert shape_of({}, "a", app="x") is shape_of({}, "b", app="y")


def test_profiles_are_shared() -> None:
    translator = make_pod_translator()
    body = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "web"}}}
    first, second = (translator.translate(read(WirePod, body)) for _ in range(2))
    assert first.profile is second.profile
    assert (first.profile.namespace, first.profile.labels) == ("ns", {"app": "web"})


def test_pinned_pod_with_a_claim_is_left_to_kube_scheduler() -> None:
    volumes = [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "c", "ephemeral": {"volumeClaimTemplate": {}}},
    ]
    pod = translate({"volumes": volumes})
    assert pod.claims == (ClaimUse("ns/data", 1), ClaimUse("ns/p-c", 2, is_own=True))
    assert [use.field for use in pod.claims] == [
        "spec.volumes[1].persistentVolumeClaim",
        "spec.volumes[2].ephemeral",
    ]
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    pin = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}
    plan = '{"node":"n1","plan":"x1","group":"ns/a","members":2}'
    note = {operators.PLAN: plan, operators.PLAN_SIGNATURE: "any"}
    assert translate({"affinity": pin}, annotations=note).handling is Handling.BIND
    with_claim = translate({"affinity": pin, "volumes": volumes}, annotations=note)
    assert with_claim.handling is Handling.NOT_OURS


def test_claims() -> None:
    owner = {"kind": "Pod", "name": "p", "uid": "u1", "controller": True}
    meta = {
        "name": "data",
        "namespace": "ns",
        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        "ownerReferences": [{"uid": "u0"}, owner],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    spec = {"volumeName": "v", "storageClassName": "s", "accessModes": ["ReadWriteOncePod"]}
    wire = read(WireVolumeClaim, {"metadata": meta, "spec": spec, "status": {"phase": "Lost"}})
    assert translate_volume_claim(wire) == VolumeClaim(
        "ns/data", "v", True, True, True, True, "s", "u1"
    )
    plain = read(WireVolumeClaim, {"metadata": {"name": "data", "namespace": "ns"}, "spec": spec})
    assert not translate_volume_claim(plain).is_bound
    old = {"volume.beta.kubernetes.io/storage-class": "beta"}
    meta = {"name": "data", "namespace": "ns", "annotations": old}
    assert (
        translate_volume_claim(
            read(WireVolumeClaim, {"metadata": meta, "spec": spec})
        ).storage_class
        == "beta"
    )


def test_volumes_and_classes() -> None:
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    expression = {"key": "app", "operator": "In", "values": ["web"]}
    terms = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    meta = {"name": "v", "labels": {zone: "b__ a", region: "r__"}}
    wire = read(WireVolume, {"metadata": meta, "spec": {"nodeAffinity": terms}})
    expected = Volume("v", (SelectorTerm(WEB),), ((zone, ("a", "b")),))
    assert translate_volume(wire) == expected
    disk = {"metadata": {"name": "v"}, "spec": {"awsElasticBlockStore": {"volumeID": "x"}}}
    assert translate_volume(read(WireVolume, disk)) == Volume("v", is_in_tree=True)
    late = {"metadata": {"name": "s"}, "volumeBindingMode": "WaitForFirstConsumer"}
    assert translate_storage_class(read(WireStorageClass, late)) == StorageClass(
        "s", is_delayed=True
    )
    now = {"metadata": {"name": "s"}, "volumeBindingMode": "Immediate"}
    assert translate_storage_class(read(WireStorageClass, now)) == StorageClass("s")


def test_what_claims_want_and_volumes_offer() -> None:
    asked = {
        "storageClassName": "s",
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Block",
        "resources": {"requests": {"storage": "5Gi"}},
        "selector": {"matchLabels": {"app": "web"}},
    }
    meta = {"name": "data", "namespace": "ns"}
    claim = translate_volume_claim(read(WireVolumeClaim, {"metadata": meta, "spec": asked}))
    assert claim.wanted == WantedVolume(5 << 30, ("ReadWriteOnce",), "Block", WEB)
    modes = ["ReadWriteOnce", "ReadOnlyMany"]
    spec = {"storageClassName": "s", "accessModes": modes, "capacity": {"storage": "9Gi"}}
    wire = {"metadata": {"name": "v", "labels": {"app": "web"}}, "spec": spec}
    assert translate_volume(read(WireVolume, wire)).offer is None
    free = {**wire, "status": {"phase": "Available"}}
    offer = VolumeOffer("s", 9 << 30, ("ReadOnlyMany", "ReadWriteOnce"), labels=(("app", "web"),))
    assert translate_volume(read(WireVolume, free)).offer == offer
    assert not offer.serves(claim.wanted)
    kept = {**free, "spec": {**spec, "claimRef": {"namespace": "ns", "name": "data"}}}
    found = translate_volume(read(WireVolume, kept)).offer
    assert found is not None
    assert found.claim == "ns/data"
    gone = {**free, "metadata": {"name": "v", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert translate_volume(read(WireVolume, gone)).offer is None


def test_where_a_class_makes_volumes() -> None:
    zones = {"key": "zone", "values": ["a", "b"]}
    wire = {
        "metadata": {"name": "s"},
        "provisioner": "example.com/csi",
        "allowedTopologies": [{"matchLabelExpressions": [zones]}],
    }
    terms = (SelectorTerm((Requirement("zone", SelectorOperator.IN, ("a", "b")),)),)
    assert translate_storage_class(read(WireStorageClass, wire)) == StorageClass(
        "s", terms=terms, provisioner="example.com/csi"
    )
    static = {"metadata": {"name": "s"}, "provisioner": "kubernetes.io/no-provisioner"}
    assert translate_storage_class(read(WireStorageClass, static)) == StorageClass(
        "s", is_static=True, provisioner="kubernetes.io/no-provisioner"
    )


def claimed(driver: str = "gpu.nvidia.com", **more: object) -> dict[str, object]:
    return {"request": "r", "driver": driver, "pool": "n0", "device": "gpu-0", **more}


ON_N0 = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]
ANYWHERE = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]


@pytest.mark.parametrize(
    ("results", "terms", "expected"),
    [
        ([claimed(), claimed("gpu.amd.com")], ON_N0, ("n0", 2)),
        ([claimed(), claimed("dra.net")], ON_N0, ("n0", 1)),
        ([claimed(adminAccess=True)], ON_N0, ("", 0)),
        ([claimed()], ANYWHERE, ("", 1)),
        ([], ON_N0, ("", 0)),
    ],
)
def test_gpus_of_a_resource_claim_are_counted_on_its_node(
    results: list[object], terms: list[object], expected: tuple[str, int]
) -> None:
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}}
    meta: dict[str, Any] = {"namespace": "ns", "name": "c"}
    wire = {"metadata": meta, "status": {"allocation": allocation}}
    found = translate_resource_claim(read(WireResourceClaim, wire))
    assert (found.key, found.node, found.gpus) == ("ns/c", *expected)
    waiting = read(WireResourceClaim, {"metadata": meta})
    assert translate_resource_claim(waiting) == DeviceResourceClaim("ns/c")
    meta["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert translate_resource_claim(read(WireResourceClaim, wire)) == DeviceResourceClaim("ns/c")
