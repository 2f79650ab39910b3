"""The policy ``koord-protect`` against a user with every right on pods who wants to bypass it."""

import secrets

import pytest
from tests.manifests.attacks import (
    CREATING,
    HAMI,
    ON_HELD,
    ON_PLACED,
    PLAN,
    Attack,
    Ends,
    make_pod,
)
from tests.manifests.scene import Scene, protected_annotations, protected_state
from tests.manifests.someone import MERGE
from tests.manifests.waiting import wait_for

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def scene(guarded):
    scene = Scene(guarded)
    yield scene
    scene.close()


@pytest.fixture(scope="module")
def open_scene(unprotected):
    """The same without the policy."""
    scene = Scene(unprotected)
    yield scene
    scene.close()


ATTACKS = [
    *(pytest.param(Scene.hold, attack, id=f"held: {attack.name}") for attack in ON_HELD),
    *(pytest.param(Scene.place, attack, id=f"placed: {attack.name}") for attack in ON_PLACED),
]


@pytest.mark.parametrize(("prepare", "attack"), ATTACKS)
def test_attacks_are_denied(scene, prepare, attack: Attack):
    pod = prepare(scene)
    answer = attack.launch(scene.mallory, pod)
    after = scene.mallory.get_pod(pod["metadata"]["name"])
    assert protected_state(after) == protected_state(pod)
    match attack.ends:
        case Ends.DENIED:
            assert answer.status == 403, answer
            assert "koord-protect" in answer.message
        case Ends.INVALID:
            assert answer.status in {409, 422}, answer
        case Ends.IGNORED:
            assert answer.status == 200, answer


@pytest.mark.parametrize(("prepare", "attack"), ATTACKS)
def test_attacks_work_without_the_policy(open_scene, prepare, attack: Attack):
    """Shows for every attack that the test above can fail."""
    pod = prepare(open_scene)
    attack.launch(open_scene.mallory, pod)
    after = open_scene.mallory.get_pod(pod["metadata"]["name"])
    has_changed = protected_state(after) != protected_state(pod)
    assert has_changed == (attack.ends is Ends.DENIED)


@pytest.mark.parametrize("attack", CREATING, ids=lambda attack: attack.name)
def test_pods_cannot_be_created_with_results(scene, open_scene, attack):
    pod = make_pod(f"p-{secrets.token_hex(3)}")
    assert attack.launch(open_scene.mallory, pod).status == 201
    answer = attack.launch(scene.mallory, pod)
    assert answer.status == 403
    assert "out of a pod that you create" in answer.message


@pytest.mark.parametrize("key", sorted({*protected_annotations(), HAMI}))
def test_each_result_is_protected_and_named(scene, key):
    path = f"{scene.mallory.pods}/{scene.hold()['metadata']['name']}"
    where = "labels" if key == HAMI else "annotations"
    body = {"metadata": {where: {key: "forged"}}}
    answer = scene.mallory.send("PATCH", path, body, MERGE)
    assert answer.status == 403
    assert f"may write {key}:" in answer.message


def test_controllers_cannot_create_pods_with_results(scene):
    template = make_pod("x", annotations={PLAN: "forged"})
    template["spec"]["restartPolicy"] = "Never"
    job = {"metadata": {"name": "j"}, "spec": {"template": template}}
    path = f"/apis/batch/v1/namespaces/{scene.namespace}/jobs"
    assert scene.mallory.send("POST", path, job).status == 201
    events = f"/api/v1/namespaces/{scene.namespace}/events?fieldSelector=involvedObject.name=j"
    wait_for(
        lambda: any(
            "koord-protect" in event["message"] for event in scene.box.client.get(events)["items"]
        ),
        "the Job says why it has no pods",
    )
    selected = f"{scene.mallory.pods}?labelSelector=job-name=j"
    assert scene.mallory.send("GET", selected).body["items"] == []
