"""The operators with all policies active: they place pods, and no request of theirs is refused."""

import json
import secrets

import pytest
import yaml
from tests.manifests.scene import protected_annotations
from tests.manifests.waiting import wait_for
from tests.support.namespaces import empty
from tests.support.operators import run_operators

from koord.api.keys import operators

pytestmark = pytest.mark.sandbox

GANG = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: train}
spec: {minMember: 3}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 3
  completions: 3
  template:
    metadata:
      labels: {pod-group.scheduling.sigs.k8s.io: train}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 8}}}]
"""
ALL = "koord-operators"
# A claim that gets its volume from whoever binds its first pod: only kube-scheduler can. The volume
# is kept for it; otherwise a gang would wait, because another could take it.
STORAGE = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: late}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: "NAME"}
spec:
  storageClassName: late
  accessModes: [ReadWriteMany]
  capacity: {storage: 1Gi}
  nfs: {server: nfs.example.com, path: /}
  claimRef: {namespace: "NAME", name: share}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: share}
spec:
  storageClassName: late
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Gi}}
"""
VOLUMES = [{"name": "share", "persistentVolumeClaim": {"claimName": "share"}}]


def gang(**spec) -> str:
    group, job = yaml.safe_load_all(GANG)
    job["spec"]["template"]["spec"] |= spec
    return yaml.safe_dump_all([group, job])


@pytest.fixture
def namespace(guarded):
    """A namespace with injection enabled, with room for one gang."""
    name = f"test-{secrets.token_hex(3)}"
    guarded.create_namespace(name)
    guarded.kubectl("label", "namespace", name, "operators.koordinator.sh/inject=enabled")
    guarded.add_nodes(3, "a100x8")
    yield name
    empty(guarded.client, name)


@pytest.fixture(params=[ALL, "koord-placement --operator=placement"])
def user(guarded, tmp_path, request):
    """The user name of the running operators."""
    account, *arguments = request.param.split()
    kubeconfig = guarded.kubeconfig_for("koord-system", account)
    with run_operators(kubeconfig, tmp_path, *arguments):
        yield f"system:serviceaccount:koord-system:{account}"


@pytest.mark.parametrize(
    ("spec", "binder"),
    [({}, None), ({"volumes": VOLUMES}, "system:kube-scheduler")],
    ids=["bound by us", "bound by kube-scheduler"],
)
def test_a_gang_is_placed_with_the_policies_installed(guarded, namespace, user, spec, binder):
    for objects in (STORAGE.replace("NAME", namespace), gang(**spec)):
        guarded.kubectl("apply", "--filename=-", f"--namespace={namespace}", stdin=objects)
    wait_for(lambda: len(bound(guarded, namespace)) == 3, "the gang is bound")
    pods = bound(guarded, namespace)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 3
    assert_results_are_protected(pods)
    writes = [one for one in guarded.writes() if one.namespace == namespace]
    assert {one.user for one in writes if one.subresource == "binding"} == {binder or user}
    assert not [one for one in writes if one.user == user and one.code == 403]


PLAIN = """
apiVersion: batch/v1
kind: Job
metadata: {name: sweep}
spec:
  parallelism: 2
  completions: 2
  completionMode: Indexed
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: x}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: x}]}}
"""


@pytest.mark.parametrize("user", [ALL], indirect=True)
def test_a_label_of_the_namespace_is_enough(guarded, namespace, user):
    guarded.kubectl("label", "namespace", namespace, f"{operators.INJECT}=all", "--overwrite")
    probe = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    wait_for(
        lambda: "schedulingGates" in guarded.client.create(path, probe)["spec"], "it is in force"
    )
    guarded.kubectl("apply", "--filename=-", f"--namespace={namespace}", stdin=PLAIN)
    wait_for(lambda: len(placed_by(guarded, namespace, user)) == 3, "Job and Deployment are placed")
    kinds = {
        pod["metadata"]["ownerReferences"][0]["kind"]: pod["spec"]["schedulerName"]
        for pod in guarded.client.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    }
    ours = operators.SCHEDULER_NAME
    assert kinds == {"Job": ours, "ReplicaSet": ours, "DaemonSet": "default-scheduler"}


def placed_by(box, namespace, user):
    writes = [one for one in box.writes(user) if one.namespace == namespace]
    return [one for one in writes if one.subresource == "binding" and one.code < 300]


def bound(box, namespace):
    pods = box.client.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [pod for pod in pods if "nodeName" in pod["spec"]]


def assert_results_are_protected(pods):
    """Check that all fields that the operators write on pods are protected."""
    for pod in pods:
        annotations = pod["metadata"]["annotations"]
        assert json.loads(annotations["operators.koordinator.sh/plan"])["members"] == 3
        written = {key for key in annotations if "koordinator.sh/" in key}
        assert written <= protected_annotations()
