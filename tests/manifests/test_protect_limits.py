"""The limits of the policy ``koord-protect``: what stays allowed, and for whom."""

import pytest
from tests.manifests.attacks import OTHER_GATE, PLAN, make_pod, release
from tests.manifests.scene import Scene, protected_state, quoted, read_policy
from tests.manifests.someone import JSON, JSON_PATCH, MERGE, STRATEGIC

from koord_sandbox.errors import SandboxApiError


@pytest.fixture(scope="module")
def scene(guarded):
    scene = Scene(guarded)
    yield scene
    scene.close()


def operators_of_the_policy() -> set[str]:
    (condition,) = read_policy("koord-protect")["matchConditions"]
    return quoted(condition["expression"])


@pytest.mark.sandbox
def test_whoever_may_patch_pods_is_one_of_the_operators(separate):
    bindings = separate.client.get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")
    subjects = {
        f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
        for binding in bindings["items"]
        if binding["roleRef"]["name"] == "koord-placement"
        for subject in binding["subjects"]
    }
    assert subjects == operators_of_the_policy()


@pytest.mark.sandbox
def test_the_expressions_type_check(guarded):
    status = guarded.client.get(
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/koord-protect"
    )["status"]
    assert status["typeChecking"] == {}, "no warnings"


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("method", "media", "body", "path"),
    [
        ("PATCH", MERGE, {"metadata": {"labels": {"a": "b"}}}, ""),
        ("PATCH", MERGE, {"metadata": {"annotations": {"other": "x"}}}, ""),
        ("PATCH", MERGE, {"metadata": {"finalizers": ["example.com/f"]}}, ""),
        ("PATCH", MERGE, {"spec": {"activeDeadlineSeconds": 60}}, ""),
        ("PATCH", STRATEGIC, {"spec": {"containers": [{"name": "c", "image": "y"}]}}, ""),
        ("PATCH", STRATEGIC, {"spec": {"nodeSelector": {"a": "b"}}}, ""),
        (
            *("PATCH", STRATEGIC),
            {"spec": {"schedulingGates": [{"$patch": "delete", "name": OTHER_GATE}]}},
            "",
        ),
        (
            *("PATCH", STRATEGIC),
            {"status": {"conditions": [{"type": "example.com/Seen", "status": "True"}]}},
            "/status",
        ),
        ("DELETE", JSON, None, "?gracePeriodSeconds=0"),
    ],
    ids=str,
)
def test_everything_else_stays_allowed(scene, method, media, body, path):
    name = scene.hold()["metadata"]["name"]
    answer = scene.mallory.send(method, f"{scene.mallory.pods}/{name}{path}", body, media)
    assert answer.status == 200, answer


@pytest.mark.sandbox
def test_a_pod_can_be_created_again_without_the_gate(scene):
    """As the message of the denial suggests."""
    name = scene.hold()["metadata"]["name"]
    path = f"{scene.mallory.pods}/{name}?gracePeriodSeconds=0"
    assert scene.mallory.send("DELETE", path).status == 200
    assert scene.mallory.send("POST", scene.mallory.pods, make_pod(name, gates=())).status == 201


@pytest.mark.sandbox
def test_other_schedulers_bind_their_pods(scene):
    name = "of-another-scheduler"
    pod = make_pod(name, gates=())
    pod["spec"]["schedulerName"] = "volcano"
    assert scene.mallory.send("POST", scene.mallory.pods, pod).status == 201
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "somewhere"}}
    path = f"{scene.mallory.pods}/{name}/binding"
    assert scene.mallory.send("POST", path, binding).status == 201


@pytest.mark.sandbox
def test_administrators_are_denied_too(scene):
    path = f"{scene.mallory.pods}/{scene.hold()['metadata']['name']}"
    with pytest.raises(SandboxApiError, match="koord-protect") as refusal:
        scene.box.client.patch(path, {"spec": {"schedulingGates": None}})
    assert refusal.value.status == 403


@pytest.mark.sandbox
def test_accounts_are_compared_with_their_namespace(scene):
    namesake = scene.add("koord-operators", "edit")
    path = f"{scene.mallory.pods}/{scene.hold()['metadata']['name']}"
    answer = namesake.send("PATCH", path, release(), JSON_PATCH)
    namesake.close()
    assert answer.status == 403


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        (
            *("POST", "/api/v1/namespaces/koord-system/serviceaccounts/koord-operators/token"),
            {"spec": {}},
        ),
        ("POST", "/api/v1/namespaces/koord-system/pods", make_pod("guest")),
        (
            "DELETE",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/koord-protect",
            None,
        ),
    ],
    ids=["token", "pod", "policy"],
)
def test_nobody_else_gets_the_rights_of_the_operators(scene, method, path, body):
    """By RBAC; otherwise they would have all rights of the operators."""
    assert scene.mallory.send(method, path, body).status == 403


@pytest.mark.sandbox
def test_nobody_impersonates_the_operators(scene):
    headers = {"Impersonate-User": "system:serviceaccount:koord-system:koord-operators"}
    path = f"{scene.mallory.pods}/{scene.hold()['metadata']['name']}"
    answer = scene.mallory.send("PATCH", path, release(), JSON_PATCH, **headers)
    assert answer.status == 403
    assert "impersonate" in answer.message


@pytest.mark.sandbox
def test_the_operators_do_what_others_may_not(scene):
    held, results = protected_state(scene.place())
    assert not held
    assert results.keys() >= {PLAN}
