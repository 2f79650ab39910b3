"""The overlay ``enforce``: quotas bind every pod of their namespaces, as team leads are told."""

import json
import os
import secrets
import subprocess

import pytest
from tests.manifests.conftest import MANIFESTS
from tests.manifests.waiting import wait_for
from tests.operators.conftest import delete_lease
from tests.support.forked_koord import find_koord
from tests.support.operators import run_operators

from koord.api.keys import quota
from koord_sandbox.errors import SandboxApiError

pytestmark = pytest.mark.sandbox

GPU = "nvidia.com/gpu"
VERSION = "scheduling.sigs.k8s.io/v1alpha1"
QUOTAS = f"/apis/{VERSION}/namespaces/default/elasticquotas"
OVERLAY = str(MANIFESTS / "overlays/enforce")
GATES = [{"name": "operators.koordinator.sh/placement"}]
NODE = {"nodeName": "a100x8-0000", "schedulerName": "koord-scheduler"}


def make_pod(resource=GPU, amount=8, **spec):
    resources = {"limits": {resource: amount}}
    return {
        "metadata": {"name": f"p-{secrets.token_hex(3)}"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": resources}], **spec},
    }


class Team:
    """A namespace that a quota lists, which is kept in another namespace."""

    def __init__(self, box, **more):
        self.box, self.name = box, f"team-{secrets.token_hex(3)}"
        self.pods = f"/api/v1/namespaces/{self.name}/pods"
        box.create_namespace(self.name)
        lists = {quota.NAMESPACES: json.dumps([self.name])}
        body = {
            "apiVersion": VERSION,
            "kind": "ElasticQuota",
            "metadata": {"name": f"quota-{self.name}", "annotations": lists},
            "spec": {"max": {GPU: 16, **more}},
        }
        box.client.create(QUOTAS, body)

    def refuse(self, pod):
        """Return why a pod is refused, empty if it is not."""
        try:
            self.box.client.create(f"{self.pods}?dryRun=All", pod)
        except SandboxApiError as error:
            return str(error)
        return ""

    def condition(self):
        path = f"{QUOTAS}/quota-{self.name}"
        conditions = self.box.client.get(path).get("status", {}).get("conditions", ())
        return next(({**one} for one in conditions if one["type"] == "Enforced"), {})


@pytest.fixture(scope="module")
def team(guarded, tmp_path_factory):
    delete_lease(guarded)
    guarded.add_nodes(1, "a100x8")
    kubeconfig = guarded.kubeconfig_for("koord-system", "koord-operators")
    with run_operators(kubeconfig, tmp_path_factory.mktemp("operators")):
        yield Team(guarded)


def read_status(box):
    command = [find_koord(), "status", "-o", "json"]
    environment = os.environ | {"KUBECONFIG": str(box.kubeconfig)}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return json.loads(done.stdout)["leaders"][0]


@pytest.fixture(scope="module")
def enforced(team):
    wait_for(lambda: team.condition().get("reason") == "NamespacesOpen", "it is told to be open")
    assert team.name in team.condition()["message"]
    wait_for(lambda: team.name in read_status(team.box)["openNamespaces"], "so does status")
    assert not team.refuse(make_pod())
    team.box.kubectl("apply", "-k", OVERLAY)
    wait_for(lambda: team.refuse(make_pod()), "the policy is in force")
    yield team
    team.box.kubectl("delete", "-k", OVERLAY)


def test_a_plain_pod_is_refused_with_what_to_add(enforced):
    said = enforced.refuse(make_pod())
    assert f"a quota limits {GPU} in namespace {enforced.name}" in said
    assert "schedulingGates: [{name: operators.koordinator.sh/placement}]" in said
    assert "schedulerName: koord-scheduler" in said


@pytest.mark.parametrize(
    ("pod", "is_refused"),
    [
        (make_pod(schedulingGates=GATES), False),
        (make_pod(schedulerName="koord-scheduler"), False),
        (make_pod(schedulerName="volcano"), True),
        (make_pod(**NODE), True),
        (make_pod("cpu", 8), False),  # the quota does not limit it
        (make_pod(GPU, 0), False),
        (make_pod("koordinator.sh/gpu-core", 50), True),  # another name of GPUs
        (make_pod("cpu", 1, initContainers=make_pod()["spec"]["containers"]), True),
    ],
    ids=["gate", "scheduler", "other scheduler", "node", "cpu", "none", "part of a GPU", "init"],
)
def test_pods_that_ask_for_what_the_quota_limits_opt_in(enforced, pod, is_refused):
    names = pod["spec"].get("initContainers", ())
    for number, one in enumerate(names):
        one["name"] = f"i{number}"
    assert bool(enforced.refuse(pod)) == is_refused


@pytest.mark.parametrize(
    ("cpu", "memory", "is_refused"), [(3, 1, True), (1, 1, False), (2, 2, False)]
)
def test_a_running_pod_is_not_resized_beyond_what_the_quota_was_asked(
    enforced, cpu, memory, is_refused
):
    team = Team(enforced.box, cpu=8)
    wait_for(lambda: team.refuse(make_pod("cpu", 1)), "its namespace is covered")

    def amounts(cpu, memory):
        return {"cpu": str(cpu), "memory": f"{memory}Gi"}

    pod = make_pod(schedulingGates=GATES)
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts(2, 1)}
    name = team.box.client.create(team.pods, pod)["metadata"]["name"]
    resized = {
        "spec": {"containers": [{"name": "c", "resources": {"requests": amounts(cpu, memory)}}]}
    }
    path = f"{team.pods}/{name}/resize?dryRun=All"
    if is_refused:
        with pytest.raises(SandboxApiError, match="not resized to request more"):
            team.box.client.patch(path, resized)
    else:
        team.box.client.patch(path, resized)


def test_it_is_visible_that_it_is_in_force(enforced):
    wait_for(lambda: enforced.condition().get("status") == "True", "the quota says so")
    wait_for(lambda: enforced.name not in read_status(enforced.box)["openNamespaces"], "closed")
    assert read_status(enforced.box)["enforcedNamespaceCount"] >= 1


def test_other_namespaces_are_left_alone(enforced):
    path = "/api/v1/namespaces/default/pods?dryRun=All"
    assert enforced.box.client.create(path, make_pod())


def test_a_quota_that_comes_later_binds_too_and_one_that_goes_no_longer(enforced):
    later = Team(enforced.box)
    wait_for(lambda: later.refuse(make_pod()), "its namespace is covered")
    enforced.box.client.delete(f"{QUOTAS}/quota-{later.name}")
    wait_for(lambda: not later.refuse(make_pod()), "its namespace is free again")
