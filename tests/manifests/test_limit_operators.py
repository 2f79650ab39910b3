"""What the policies of the base keep the operators' own credentials from."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.builders import make_pod as make_core_pod
from tests.manifests.attacks import GATE, PLAN, make_pod
from tests.manifests.conftest import MANIFESTS
from tests.manifests.scene import Scene
from tests.manifests.someone import APPLY, JSON_PATCH, MERGE, STRATEGIC
from tests.manifests.waiting import wait_for

from koord.api.keys import operators
from koord.core.quota.status import RECORDED
from koord.core.reservation.model import ReservationInfo, ReservationPhase, ReservationState
from koord.kube.placeholders import make_guard, make_placeholder
from koord.kube.scale_up_placeholders import make_placeholder as make_scale_up_placeholder

pytestmark = pytest.mark.sandbox

QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/elasticquotas"
PROFILES = "elasticquotaprofiles"
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
    "limited release": (
        JSON_PATCH,
        [FREE, {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 60}],
        "",
    ),
    "limit without gate": (MERGE, change(activeDeadlineSeconds=1), ""),
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


def test_what_runs_is_given_no_limit(scene: Scene) -> None:
    body = make_pod(f"p-{secrets.token_hex(3)}", gates=())
    body["spec"]["nodeName"] = "somewhere"
    assert scene.mallory.send("POST", scene.mallory.pods, body).status == 201
    path = f"{scene.mallory.pods}/{body['metadata']['name']}"
    answer = scene.operators.send("PATCH", path, change(activeDeadlineSeconds=1), MERGE)
    assert (answer.status, "koord-limit-operators" in answer.message) == (403, True)


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


def make_profile(name: str, quota: str) -> dict[str, Any]:
    return {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {"name": name},
        "spec": {"quotaName": quota, "nodeSelector": {"matchLabels": {"a": "b"}}},
    }


def apply(scene: Scene, quota: dict[str, Any]) -> Any:
    path = f"{QUOTAS.format(scene.namespace)}/{quota['metadata']['name']}"
    return scene.operators.send("PATCH", f"{path}?fieldManager=koord&force=true", quota, APPLY)


def test_only_quotas_of_profiles_are_created_and_changed(scene: Scene) -> None:
    plain, generated = make_quota(), make_quota(labels={f"{PREFIX}profile": "p"})
    assert scene.operators.send("POST", QUOTAS.format(scene.namespace), plain).status == 403
    assert apply(scene, generated).status == 422, "there is no profile"
    profiles = f"/apis/quota.koordinator.sh/v1alpha1/namespaces/{scene.namespace}/{PROFILES}"
    name = generated["metadata"]["name"]
    uid = scene.box.client.create(profiles, make_profile("p", name))["metadata"]["uid"]
    for most in ("1", "2"):
        generated["spec"]["max"]["cpu"] = most
        wait_for(lambda: apply(scene, generated).status in {200, 201}, "the profile is seen")
    metadata = generated["metadata"]
    metadata["ownerReferences"] = [
        {
            "apiVersion": "quota.koordinator.sh/v1alpha1",
            "kind": "ElasticQuotaProfile",
            "name": "p",
            "uid": uid,
        }
    ]
    assert apply(scene, generated).status == 200
    metadata["ownerReferences"][0]["uid"] = "another"
    assert apply(scene, generated).status == 403
    del metadata["ownerReferences"]
    assert apply(scene, generated).status == 200
    for change in ({"finalizers": ["example.com/f"]}, {"labels": {f"{PREFIX}profile": "q"}}):
        assert apply(scene, {**generated, "metadata": metadata | change}).status == 403
    other = make_quota(labels={f"{PREFIX}profile": "p"})
    assert apply(scene, other).status == 403, "not the name that the profile gives"
    # Results are written also when the profile is gone.
    scene.box.client.delete(f"{profiles}/p")
    path = f"{QUOTAS.format(scene.namespace)}/{name}"
    result = {"metadata": {"annotations": {f"{PREFIX}runtime": "{}"}}}
    assert scene.operators.send("PATCH", path, result, MERGE).status == 200


def test_only_marked_pods_are_evicted(scene: Scene) -> None:
    pod = scene.hold()["metadata"]
    path = f"{scene.mallory.pods}/{pod['name']}"
    eviction: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {
            "name": pod["name"],
            "namespace": scene.namespace,
            "labels": {operators.EVICTS_MARKED: "true"},
        },
        "deleteOptions": {"preconditions": {"uid": pod["uid"]}},
    }

    def evict(**options: Any) -> Any:
        body = {**eviction, "deleteOptions": eviction["deleteOptions"] | options}
        return scene.operators.send("POST", f"{path}/eviction", body)

    answer = evict()
    assert answer.status == 403, answer
    assert "koord-limit-evictions" in answer.message
    assert evict(dryRun=["All"]).status == 201
    mark = condition("operators.koordinator.sh/OverEntitlement")
    assert scene.operators.send("PATCH", f"{path}/status", mark, STRATEGIC).status == 200
    assert evict(gracePeriodSeconds=0).status == 403
    assert evict(preconditions={}).status == 403
    labels = eviction["metadata"].pop("labels")
    assert evict().status == 403, "it asks not to be looked at"
    eviction["metadata"]["labels"] = labels
    wait_for(lambda: evict().status == 201, "the mark is seen")


@pytest.fixture(scope="module")
def placeholders(guarded) -> Iterator[None]:
    overlay = str(MANIFESTS / "overlays/placeholders")
    guarded.kubectl("apply", "-k", overlay)
    yield
    guarded.kubectl("delete", "-k", overlay)


OTHER_PLACEHOLDERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "image": lambda spec: spec["containers"][0].update(image="example.com/anything"),
    "command": lambda spec: spec["containers"][0].update(command=["sh"]),
    "arguments": lambda spec: spec["containers"][0].update(args=["x"]),
    "environment": lambda spec: spec["containers"][0].update(env=[{"name": "a", "value": "b"}]),
    "two": lambda spec: spec["containers"].append(spec["containers"][0] | {"name": "other"}),
    "first": lambda spec: spec.update(initContainers=[spec["containers"][0] | {"name": "i"}]),
    "token": lambda spec: spec.update(automountServiceAccountToken=True),
    "volume": lambda spec: spec.update(volumes=[{"name": "v", "emptyDir": {}}]),
    "network": lambda spec: spec.update(hostNetwork=True),
    "priority": lambda spec: spec.update(priorityClassName="system-node-critical"),
    "anywhere": lambda spec: spec.pop("nodeName"),
    "low": lambda spec: spec.update(priorityClassName="koord-scale-up"),
}


@pytest.mark.usefixtures("placeholders")
def test_only_placeholders_are_created(scene: Scene) -> None:
    path = "/api/v1/namespaces/koord-placeholders/pods?dryRun=All"
    reservation = ReservationInfo(
        "r", "u", None, status=ReservationState(ReservationPhase.AVAILABLE, node="n")
    )
    member = make_core_pod("train-0").gpu(8).requests(cpu=1000).build()
    for_autoscalers = make_scale_up_placeholder(member, {"spec": {"containers": []}})
    held = make_placeholder(reservation, {"cpu": 1000, "memory": 1})
    for pod in (make_guard("n"), held, for_autoscalers):
        wait_for(lambda pod=pod: scene.operators.send("POST", path, pod).status == 201, "allowed")
    odd = make_guard("n")
    odd["spec"]["containers"][0]["image"] = "example.com/anything"
    wait_for(lambda: scene.operators.send("POST", path, odd).status == 403, "it is in force")
    for name, change in OTHER_PLACEHOLDERS.items():
        pod = make_guard("n")
        change(pod["spec"])
        answer = scene.operators.send("POST", path, pod)
        assert answer.status == 403, (name, answer)


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


@pytest.mark.usefixtures("placeholders")
@pytest.mark.parametrize(
    "policy",
    [
        "koord-limit-operators",
        "koord-limit-bindings",
        "koord-limit-evictions",
        "koord-limit-evictions-to-marked",
        "koord-limit-generated-quotas",
        "koord-limit-placeholders",
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
