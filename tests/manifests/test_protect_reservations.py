"""The policy ``koord-protect-reservations``: who may reserve, for which namespace, and change what.

A tenant here has every verb on reservations, which are cluster-wide, and ``edit`` in one namespace.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.manifests.scene import Scene
from tests.manifests.someone import APPLY, JSON_PATCH, MERGE, Someone

pytestmark = pytest.mark.sandbox

PATH = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: may-reserve}
rules:
  - apiGroups: [scheduling.koordinator.sh]
    resources: [reservations, reservations/status]
    verbs: [create, get, list, watch, update, patch, delete, deletecollection]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "may-reserve-NAMESPACE"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: may-reserve}
subjects: [{kind: ServiceAccount, name: mallory, namespace: "NAMESPACE"}]
"""
OWNERS = [{"labelSelector": {"matchLabels": {"job": "mine"}}}]


def make_reservation(name: str, namespace: str | None, **more: Any) -> dict[str, Any]:
    metadata = {} if namespace is None else {"metadata": {"namespace": namespace}}
    template = {**metadata, "spec": {"containers": [{"name": "c", "image": "x"}], **more}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {"owners": OWNERS, "template": template},
    }


def template(**metadata: Any) -> dict[str, Any]:
    return {"spec": {"template": {"metadata": metadata}}}


@pytest.fixture(scope="module")
def scene(guarded) -> Iterator[Scene]:
    scene = Scene(guarded)
    guarded.kubectl("apply", "--filename=-", stdin=RIGHTS.replace("NAMESPACE", scene.namespace))
    yield scene
    scene.close()


@pytest.fixture
def theirs(scene: Scene) -> Iterator[str]:
    """A reservation of a namespace in which the tenant may do nothing."""
    path = f"{PATH}/theirs-{scene.namespace}"
    body = make_reservation(path.rpartition("/")[2], "kube-public", priorityClassName="")
    scene.box.client.create(PATH, body)
    yield path
    scene.box.client.patch(path, {"metadata": {"finalizers": None}})
    scene.box.client.delete(path)


@pytest.fixture
def own(scene: Scene) -> Iterator[str]:
    """A reservation of the tenant, for which an administrator has chosen the PriorityClass."""
    path = f"{PATH}/own-{scene.namespace}"
    name = path.rpartition("/")[2]
    body = make_reservation(name, scene.namespace, priorityClassName="system-node-critical")
    scene.box.client.create(PATH, body)
    yield path
    if scene.mallory.send("GET", path).status == 200:
        scene.box.client.delete(path)


CHANGES: dict[str, tuple[str, Any]] = {
    "namespace": (MERGE, template(namespace="NAMESPACE")),
    "no namespace": (MERGE, template(namespace=None)),
    "owners": (MERGE, {"spec": {"owners": [{"object": {"name": "a", "namespace": "NAMESPACE"}}]}}),
    "lifetime": (MERGE, {"spec": {"ttl": "1s"}}),
    "expiry": (MERGE, {"spec": {"expires": "2020-01-01T00:00:00Z"}}),
    "closed": (MERGE, {"spec": {"unschedulable": True}}),
    "resources": (MERGE, {"spec": {"template": {"spec": {"containers": []}}}}),
    "quota": (MERGE, {"metadata": {"labels": {"quota.scheduling.koordinator.sh/name": "q"}}}),
    "annotation": (MERGE, {"metadata": {"annotations": {"a": "b"}}}),
    "finalizer": (MERGE, {"metadata": {"finalizers": ["example.com/f"]}}),
    "owner": (
        JSON_PATCH,
        [
            {
                "op": "add",
                "path": "/metadata/ownerReferences",
                "value": [{"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "1"}],
            }
        ],
    ),
    "applied": (APPLY, make_reservation("theirs-NAMESPACE", "NAMESPACE")),
}


def fill_in(value: Any, namespace: str) -> Any:
    match value:
        case dict():
            return {key: fill_in(one, namespace) for key, one in value.items()}
        case list():
            return [fill_in(one, namespace) for one in value]
        case str():
            return value.replace("NAMESPACE", namespace)
    return value


def change(who: Someone, path: str, what: str, namespace: str) -> Any:
    media, body = CHANGES[what]
    options = "?fieldManager=tenant&force=true" if media == APPLY else ""
    return who.send("PATCH", path + options, fill_in(body, namespace), media)


@pytest.mark.parametrize("what", CHANGES)
def test_no_change_of_the_reservation_of_others(scene: Scene, theirs: str, what: str) -> None:
    answer = change(scene.mallory, theirs, what, scene.namespace)
    assert answer.status == 403, answer
    assert "allowed to create pods there" in answer.message


@pytest.mark.parametrize("path", ["", "/status"])
def test_no_replacement_of_the_reservation_of_others(scene: Scene, theirs: str, path: str) -> None:
    body = scene.mallory.send("GET", theirs).body
    body["spec"]["template"]["metadata"]["namespace"] = scene.namespace
    body["status"] = {"phase": "Failed"}
    answer = scene.mallory.send("PUT", theirs + path, body)
    assert answer.status == 403, answer
    assert "allowed to create pods there" in answer.message


@pytest.mark.parametrize("path", ["{}", f"{PATH}?fieldSelector=metadata.name%3D{{}}"])
def test_no_deletion_of_the_reservation_of_others(scene: Scene, theirs: str, path: str) -> None:
    name = theirs if path == "{}" else theirs.rpartition("/")[2]
    answer = scene.mallory.send("DELETE", path.format(name))
    assert answer.status == 403, answer
    assert scene.mallory.send("GET", theirs).status == 200


@pytest.mark.parametrize("namespace", ["kube-public", "", None])
def test_no_reservation_for_others(scene: Scene, namespace: str | None) -> None:
    body = make_reservation(f"r-{scene.namespace}", namespace)
    assert scene.mallory.send("POST", PATH, body).status == 403
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = "r-"
    assert scene.mallory.send("POST", PATH, body).status == 403


def test_own_reservations_are_made_changed_and_deleted(scene: Scene) -> None:
    path = f"{PATH}/r-{scene.namespace}"
    body = make_reservation(path.rpartition("/")[2], scene.namespace)
    assert scene.mallory.send("POST", PATH, body).status == 201
    for what in ("owners", "lifetime", "quota", "resources"):
        assert change(scene.mallory, path, what, scene.namespace).status == 200
    answer = scene.mallory.send("PATCH", path, template(namespace="kube-public"), MERGE)
    assert answer.status == 403
    assert f"{scene.namespace} and kube-public" in answer.message
    assert scene.mallory.send("DELETE", path).status == 200


def test_what_others_chose_a_priority_for_is_not_changed(scene: Scene, own: str) -> None:
    """A right to use the PriorityClass that somebody had for a small reservation is not theirs."""
    answer = change(scene.mallory, own, "resources", scene.namespace)
    assert answer.status == 403
    assert "allowed to use the PriorityClass" in answer.message
    assert change(scene.mallory, own, "annotation", scene.namespace).status == 200
    assert scene.mallory.send("DELETE", own).status == 200


def test_reservations_of_owners_that_are_gone_are_deleted(scene: Scene, own: str) -> None:
    """The garbage collector may not create pods, and is not limited."""
    collector = "system:serviceaccount:kube-system:generic-garbage-collector"
    scene.box.kubectl("delete", f"--as={collector}", "reservation", own.rpartition("/")[2])


@pytest.mark.parametrize("phase", ["Available", "", "Succeeded"])
def test_operators_delete_only_reservations_that_are_over(
    scene: Scene, own: str, phase: str
) -> None:
    if phase:
        scene.box.client.patch(f"{own}/status", {"status": {"phase": phase}})
    finalizer = {"metadata": {"finalizers": ["example.com/f"]}}
    assert scene.operators.send("PATCH", own, finalizer, MERGE).status == 403
    answer = scene.operators.send("DELETE", own)
    assert answer.status == (200 if phase == "Succeeded" else 403), answer
