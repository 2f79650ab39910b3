"""The overlay ``users``: it writes for whom a pod runs, and nobody can lie about it."""

import secrets

import pytest
from tests.manifests.conftest import MANIFESTS
from tests.manifests.someone import Someone, create_account
from tests.manifests.waiting import wait_for

from koord.api.keys import operators

pytestmark = pytest.mark.sandbox

LIE = {operators.USER: "somebody-else"}
POD_SPEC = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}


def make_pod(annotations):
    return {"metadata": {"generateName": "p-", "annotations": annotations}, "spec": POD_SPEC}


def make_template(annotations):
    metadata = {"labels": {"app": "a"}, **({"annotations": annotations} if annotations else {})}
    return {"metadata": metadata, "spec": POD_SPEC}


def make_job(annotations):
    return {"metadata": {"generateName": "j-"}, "spec": {"template": make_template(annotations)}}


def make_cron_job(annotations):
    job = {"spec": make_job(annotations)["spec"]}
    return {
        "metadata": {"generateName": "c-"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": job},
    }


KINDS = {
    "pods": ("/api/v1", make_pod, lambda made: made),
    "jobs": ("/apis/batch/v1", make_job, lambda made: made["spec"]["template"]),
    "cronjobs": (
        "/apis/batch/v1",
        make_cron_job,
        lambda made: made["spec"]["jobTemplate"]["spec"]["template"],
    ),
}


def user_of(made):
    return (made["metadata"].get("annotations") or {}).get(operators.USER)


@pytest.fixture(scope="module")
def team(guarded):
    """A namespace where users are stamped, and one of its ServiceAccounts with the role edit."""
    guarded.kubectl("apply", "-k", str(MANIFESTS / "overlays/users"))
    namespace = f"test-{secrets.token_hex(3)}"
    guarded.create_namespace(namespace)
    create_account(guarded, namespace, "robot", ["edit"])
    someone = Someone(guarded, namespace, "robot")

    def is_in_force(kind):
        api, make, template_of = KINDS[kind]
        path = f"{api}/namespaces/{namespace}/{kind}?dryRun=All"
        answer = someone.send("POST", path, make(LIE))
        return answer.status == 201 and user_of(template_of(answer.body)) is None

    for kind in KINDS:  # each is stamped by a policy of its own
        wait_for(lambda kind=kind: is_in_force(kind), f"it is in force for {kind}")
    yield someone
    guarded.kubectl("delete", "-k", str(MANIFESTS / "overlays/users"), "--ignore-not-found")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("annotations", [{}, LIE], ids=["nothing", "lie"])
def test_a_person_is_stamped_and_a_service_account_counts_as_its_namespace(
    guarded, team, kind, annotations
):
    api, make, template_of = KINDS[kind]
    path = f"{api}/namespaces/{team.namespace}/{kind}"
    admin = guarded.client.create(f"{path}?dryRun=All", make(annotations))
    name = user_of(template_of(admin))
    assert name
    assert name != "somebody-else"
    robot = team.send("POST", f"{path}?dryRun=All", make(annotations))
    assert robot.status == 201, robot
    assert user_of(template_of(robot.body)) is None


def test_pods_of_a_job_run_for_whoever_created_it_and_it_stays(guarded, team):
    made = guarded.client.create(f"/apis/batch/v1/namespaces/{team.namespace}/jobs", make_job(LIE))
    name = user_of(made["spec"]["template"])
    pods = []

    def has_pods():
        listed = guarded.client.get(team.pods)["items"]
        pods[:] = [pod for pod in listed if user_of(pod)]
        return bool(pods)

    wait_for(has_pods, "the Job has a pod")
    assert {user_of(pod) for pod in pods} == {name}
    path = f"{team.pods}/{pods[0]['metadata']['name']}?dryRun=All"

    def change_to(value):
        change = {"metadata": {"annotations": {operators.USER: value}}}
        return team.send("PATCH", path, change, media="application/merge-patch+json")

    wait_for(lambda: change_to("somebody-else").status == 403, "the check is in force, too")
    for value in ("somebody-else", None):
        answer = change_to(value)
        assert (answer.status, "cannot be changed" in answer.message) == (403, True)


def test_without_what_writes_it_nobody_writes_the_name_of_another(guarded, team):
    for part in ("pods", "templates", "cronjobs"):
        guarded.kubectl("delete", "mutatingadmissionpolicybinding", f"koord-stamp-user-{part}")

    def create(annotations):
        return team.send("POST", f"{team.pods}?dryRun=All", make_pod(annotations))

    wait_for(lambda: create(LIE).status == 403, "nothing writes it")
    assert "is for people" in create(LIE).message
    assert create({}).status == 201
