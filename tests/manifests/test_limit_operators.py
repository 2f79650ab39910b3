"""What the policies of the base keep the operators' own credentials from."""

import secrets
from typing import Any

import pytest
from tests.manifests.attacks import GATE, PLAN, make_pod
from tests.manifests.scene import Scene
from tests.manifests.someone import APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC

from koord.core.quota.status import RECORDED

pytestmark = pytest.mark.sandbox

QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/elasticquotas"
SCHEDULING = "scheduling.koordinator.sh/"
PREFIX = "quota.scheduling.koordinator.sh/"
PIN = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
ANY = {"matchExpressions": [{"key": "x", "operator": "Exists"}]}
FREE = {"op": "remove", "path": "/spec/schedulingGates/0"}


@pytest.fixture(scope="module")
def scene(guarded):
    scene = Scene(guarded)
    yield scene
    scene.close()


def require(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": required}}


def condition(kind: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": "True", "reason": "R"}]}}


def change(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


REFUSED = {
    "image": (STRATEGIC, change(containers=[{"name": "c", "image": "evil"}]), ""),
    "deadline": (MERGE, change(activeDeadlineSeconds=1), ""),
    "tolerations": (
        JSON_PATCH,
        [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
        "",
    ),
    "node selector": (MERGE, change(nodeSelector={"a": "b"}), ""),
    "label": (MERGE, {"metadata": {"labels": {"a": "b"}}}, ""),
    "annotation": (MERGE, {"metadata": {"annotations": {"a": "c"}}}, ""),
    "no annotations": (JSON_PATCH, [{"op": "remove", "path": "/metadata/annotations"}], ""),
    "owner": (
        MERGE,
        {
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"},
                ]
            }
        },
        "",
    ),
    "finalizer": (MERGE, {"metadata": {"finalizers": ["example.com/f"]}}, ""),
    "gate of others": (MERGE, change(schedulingGates=[{"name": GATE}]), ""),
    "pinned while held": (JSON_PATCH, [require(PIN)], ""),
    "released for other nodes": (JSON_PATCH, [FREE, require(PIN, ANY)], ""),
    "condition of others": (STRATEGIC, condition("Ready"), "/status"),
    "phase": (MERGE, {"status": {"phase": "Failed"}}, "/status"),
    "resize": (MERGE, {"status": {"resize": "InProgress"}}, "/status"),
    "label through status": (MERGE, {"metadata": {"labels": {"a": "b"}}}, "/status"),
    "annotation through status": (MERGE, {"metadata": {"annotations": {"a": "c"}}}, "/status"),
}
ALLOWED = {
    "plan": (MERGE, {"metadata": {"annotations": {PLAN: "{}"}}}, ""),
    "for device plugins": (
        MERGE,
        {
            "metadata": {
                "labels": {"hami.io/vgpu-node": "n1"},
                "annotations": {
                    "predicate-time": "1",
                    "scheduling.koordinator.sh/gpu-memory-limit-0": "1",
                },
            }
        },
        "",
    ),
    "gate": (JSON_PATCH, [FREE], ""),
    "pinned release": (JSON_PATCH, [FREE, require(PIN)], ""),
    "placed": (STRATEGIC, condition("operators.koordinator.sh/Placed"), "/status"),
    "evicted": (STRATEGIC, condition("operators.koordinator.sh/OverEntitlement"), "/status"),
    "scheduled": (STRATEGIC, condition("PodScheduled"), "/status"),
    "preempted": (STRATEGIC, condition("operators.koordinator.sh/Preempted"), "/status"),
    "nominated": (STRATEGIC, {"status": {"nominatedNodeName": "n1"}}, "/status"),
}


def write(scene: Scene, media: str, body: Any, path: str) -> Any:
    name = scene.hold()["metadata"]["name"]
    return scene.operators.send("PATCH", f"{scene.mallory.pods}/{name}{path}", body, media)


@pytest.mark.parametrize("name", REFUSED)
def test_other_changes_of_pods_are_refused(scene: Scene, name: str) -> None:
    answer = write(scene, *REFUSED[name])
    assert answer.status == 403, answer
    assert "koord-limit-operators" in answer.message


def test_only_pods_that_are_marked_as_preempted_are_deleted(scene: Scene) -> None:
    path = f"{scene.mallory.pods}/{scene.hold()['metadata']['name']}"
    answer = scene.operators.send("DELETE", path)
    assert answer.status == 403, answer
    assert "koord-limit-deletions" in answer.message
    mark = condition("operators.koordinator.sh/Preempted")
    assert scene.operators.send("PATCH", f"{path}/status", mark, STRATEGIC).status == 200
    assert scene.operators.send("DELETE", path).status == 200


@pytest.mark.parametrize("name", ALLOWED)
def test_what_the_operators_do_is_allowed(scene: Scene, name: str) -> None:
    answer = write(scene, *ALLOWED[name])
    assert answer.status == 200, answer


def test_others_are_not_limited(scene: Scene) -> None:
    """Shows that each refused change is one that the API server accepts."""
    for media, body, path in REFUSED.values():
        name = scene.hold()["metadata"]["name"]
        answer = scene.mallory.send("PATCH", f"{scene.mallory.pods}/{name}{path}", body, media)
        assert answer.status == 200 or "koord-protect" in answer.message, answer


def test_bindings_carry_results_only(scene: Scene) -> None:
    name = f"p-{secrets.token_hex(3)}"
    assert scene.mallory.send("POST", scene.mallory.pods, make_pod(name, gates=())).status == 201
    for annotations, status in (({"a": "c"}, 403), ({PLAN: "{}"}, 201)):
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "target": {"kind": "Node", "name": "somewhere"},
        }
        path = f"{scene.mallory.pods}/{name}/binding"
        assert scene.operators.send("POST", path, body).status == status


def make_quota(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": f"q-{secrets.token_hex(3)}", **metadata},
        "spec": {"max": {"cpu": "1"}},
    }


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"spec": {"max": {"cpu": "1000"}}}, 403),
        ({"metadata": {"labels": {"a": "b"}}}, 403),
        ({"metadata": {"labels": {f"{PREFIX}profile": "p"}}}, 403),
        ({"metadata": {"annotations": {f"{PREFIX}namespaces": '["x"]'}}}, 403),
        ({"metadata": {"finalizers": ["example.com/f"]}}, 403),
        ({"metadata": {"finalizers": ["operators.koordinator.sh/in-use"]}}, 200),
        *(({"metadata": {"annotations": {f"{PREFIX}{key}": "{}"}}}, 200) for key in RECORDED),
    ],
)
def test_changes_of_quotas(scene: Scene, body: dict[str, Any], status: int) -> None:
    quota = make_quota()
    path = QUOTAS.format(scene.namespace)
    scene.box.client.create(path, quota)
    path = f"{path}/{quota['metadata']['name']}"
    answer = scene.operators.send("PATCH", path, body, MERGE)
    assert answer.status == status, answer


def test_only_quotas_of_profiles_are_created_and_changed(scene: Scene) -> None:
    path = QUOTAS.format(scene.namespace)
    plain, generated = make_quota(), make_quota(labels={f"{PREFIX}profile": "p"})
    assert scene.operators.send("POST", path, plain, JSON).status == 403
    for most in ("1", "2"):
        generated["spec"]["max"]["cpu"] = most
        where = f"{path}/{generated['metadata']['name']}?fieldManager=koord&force=true"
        answer = scene.operators.send("PATCH", where, generated, APPLY)
        assert answer.status in {200, 201}, answer


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"spec": {"ttl": "1h"}}, 403),
        ({"metadata": {"labels": {"a": "b"}}}, 403),
        ({"metadata": {"annotations": {"example.com/a": "b"}}}, 403),
        ({"metadata": {"annotations": {f"{SCHEDULING}device-allocated": "{}"}}}, 200),
        ({"metadata": {"annotations": {f"{SCHEDULING}resource-status": "{}"}}}, 200),
    ],
)
def test_changes_of_reservations(scene: Scene, body: dict[str, Any], status: int) -> None:
    path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
    template = {"metadata": {"namespace": scene.namespace}, "spec": {"containers": []}}
    spec = {"template": template, "owners": [{"labelSelector": {"matchLabels": {"a": "b"}}}]}
    manifest = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": f"{scene.namespace}-r"},
        "spec": spec,
    }
    scene.box.client.create(path, manifest)
    try:
        answer = scene.operators.send("PATCH", f"{path}/{scene.namespace}-r", body, MERGE)
        assert answer.status == status, answer
    finally:
        scene.box.client.delete(f"{path}/{scene.namespace}-r")


@pytest.mark.parametrize(
    "policy",
    [
        "koord-limit-operators",
        "koord-limit-bindings",
        "koord-limit-nodes",
        "koord-limit-quotas",
        "koord-limit-reservations",
        "koord-protect-reservations",
        "koord-placeholder-class",
    ],
)
def test_the_expressions_type_check(guarded, policy: str) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    assert guarded.client.get(f"{path}/{policy}")["status"]["typeChecking"] == {}
