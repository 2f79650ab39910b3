"""Manifests as people have them, without a word of ours, and the frameworks' real controllers.

A label of the namespace opts the pods in. Each job needs more GPUs than there are, so that a gang
that is not whole would show: none of its pods has a node until the last one fits.
"""

import json
import subprocess
import sys
import time
from collections import Counter

import pytest
import yaml

pytestmark = [
    pytest.mark.controllers,
    pytest.mark.sandbox,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

GATE = "operators.koordinator.sh/placement"
PLAN = "operators.koordinator.sh/plan"
CONTAINER = "{name: c, image: 'busybox:1.37', resources: {limits: {nvidia.com/gpu: 4}}}"
JOBSET = f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: js}}
spec:
  failurePolicy: {{maxRestarts: 2}}
  replicatedJobs:
    - name: driver
      template:
        spec:
          backoffLimit: 0
          template: {{spec: {{restartPolicy: Never, containers: [{CONTAINER}]}}}}
    - name: workers
      replicas: 2
      template:
        spec:
          parallelism: 2
          completions: 2
          backoffLimit: 0
          template: {{spec: {{restartPolicy: Never, containers: [{CONTAINER}]}}}}
"""
LWS = f"""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: llm}}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 3
    workerTemplate: {{spec: {{containers: [{CONTAINER}]}}}}
"""
LEADERS = f"""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: llm}}
spec:
  replicas: 2
  startupPolicy: LeaderReady
  leaderWorkerTemplate:
    size: 3
    workerTemplate: {{spec: {{containers: [{CONTAINER}]}}}}
"""
MPI = f"""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: cfd}}
spec:
  slotsPerWorker: 1
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template: {{spec: {{containers: [{{name: launcher, image: 'busybox:1.37'}}]}}}}
    Worker:
      replicas: 3
      template: {{spec: {{containers: [{CONTAINER}]}}}}
"""
PYTORCH = f"""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: gpt}}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template: {{spec: {{containers: [{CONTAINER.replace("name: c", "name: pytorch")}]}}}}
    Worker:
      replicas: 3
      restartPolicy: OnFailure
      template: {{spec: {{containers: [{CONTAINER.replace("name: c", "name: pytorch")}]}}}}
"""
RAY = f"""
apiVersion: ray.io/v1
kind: RayCluster
metadata: {{name: ray}}
spec:
  rayVersion: 2.46.0
  headGroupSpec:
    rayStartParams: {{}}
    template: {{spec: {{containers: [{CONTAINER.replace("name: c", "name: ray-head")}]}}}}
  workerGroupSpecs:
    - groupName: gpu
      replicas: 3
      minReplicas: 3
      maxReplicas: 3
      rayStartParams: {{}}
      template: {{spec: {{containers: [{CONTAINER.replace("name: c", "name: ray-worker")}]}}}}
"""


def real(name):
    return pytest.mark.parametrize("controller", [name], indirect=True)


def apply(cluster, text):
    cluster.box.kubectl("apply", "-n", cluster.namespace, "-f", "-", stdin=text)


def uids_of(cluster):
    return {name: pod["metadata"]["uid"] for name, pod in cluster.pods().items()}


def labels_of(cluster, key):
    return Counter(pod["metadata"]["labels"].get(key) for pod in cluster.pods().values())


def expect_made(cluster, count):
    """Wait until the controller has made all pods; all of them opted in."""
    cluster.expect(lambda: len(cluster.pods()) == count, f"{count} pods are made")
    for pod in cluster.pods().values():
        assert pod["spec"]["schedulerName"] == "koord-scheduler"


def expect_nothing_bound(cluster, seconds=5.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert not cluster.bound()
        time.sleep(0.5)


def members_of_plans(cluster):
    """Return with how many members each pod was placed, pod by pod."""
    plans = [json.loads(pod["metadata"]["annotations"][PLAN]) for pod in cluster.pods().values()]
    return Counter(plan["members"] for plan in plans)


def explain(cluster, name):
    command = [sys.executable, "-m", "koord", "explain", name, "-n", cluster.namespace]
    command += ["--kubeconfig", str(cluster.box.kubeconfig)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def fail(cluster, name):
    """End a pod as its node would."""
    path = f"{cluster.pods_path}/{name}/status"
    cluster.box.client.patch(path, {"status": {"phase": "Failed"}})


@real("jobset")
def test_a_job_set_is_one_gang_and_restarts_as_a_whole(cluster):
    cluster.add_nodes(2)
    apply(cluster, JOBSET)
    expect_made(cluster, 5)
    expect_nothing_bound(cluster)
    roles = labels_of(cluster, "jobset.sigs.k8s.io/replicatedjob-name")
    assert roles == {"driver": 1, "workers": 4}
    assert "Waiting InsufficientNodes" in explain(cluster, "jobset/js")
    cluster.add_nodes(1)
    cluster.expect(lambda: len(cluster.bound()) == 5, "all of them run")
    assert members_of_plans(cluster) == {5: 5}
    before = uids_of(cluster)
    fail(cluster, next(name for name in before if "driver" in name))
    attempts = "jobset.sigs.k8s.io/restart-attempt"
    cluster.expect(lambda: labels_of(cluster, attempts) == {"1": 5}, "all are made again")
    cluster.expect(lambda: len(cluster.bound()) == 5, "and placed again")
    assert not set(before.values()) & set(uids_of(cluster).values())
    assert members_of_plans(cluster) == {5: 5}


@real("lws")
def test_each_group_of_a_leader_worker_set_is_a_gang_and_restarts_as_a_whole(cluster):
    cluster.add_nodes(2)
    apply(cluster, LWS)
    expect_made(cluster, 6)
    group = "leaderworkerset.sigs.k8s.io/group-index"
    assert labels_of(cluster, group) == {"0": 3, "1": 3}
    cluster.expect(lambda: len(cluster.bound()) == 3, "one group has its places")
    (placed,) = {cluster.pods()[name]["metadata"]["labels"][group] for name in cluster.bound()}
    cluster.add_nodes(1)
    cluster.expect(lambda: len(cluster.bound()) == 6, "the other, too")
    assert members_of_plans(cluster) == {3: 6}
    before = uids_of(cluster)
    cluster.delete_pod(f"llm-{placed}-1")

    def is_made_again():
        uids = uids_of(cluster)
        again = [name for name in before if uids.get(name) not in {None, before[name]}]
        return len(uids) == 6 and sorted(again) == [
            f"llm-{placed}{end}" for end in ("", "-1", "-2")
        ]

    cluster.expect(is_made_again, "the whole group is made again, and no other")
    cluster.expect(lambda: len(cluster.bound()) == 6, "and placed again")


def make_ready(cluster, name):
    """Have a pod become ready as its node would."""
    patch = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    cluster.box.kubectl(
        *("patch", "pod", name, "-n", cluster.namespace, "--subresource", "status"),
        *("--type", "strategic", "-p", json.dumps({"status": patch})),
    )


@real("lws")
def test_leaders_whose_workers_come_later_do_not_take_the_room_of_each_others(cluster):
    """There is room for four pods: two leaders would start, and leave none for three of one."""
    cluster.add_nodes(2)
    apply(cluster, LEADERS)
    leaders = {"llm-0", "llm-1"}
    cluster.expect(lambda: leaders & cluster.bound().keys(), "a leader has its place")
    (leader,) = leaders & cluster.bound().keys()
    make_ready(cluster, leader)
    group = {leader, f"{leader}-1", f"{leader}-2"}
    cluster.expect(lambda: cluster.bound().keys() == group, "its workers take their room")
    (other,) = leaders - {leader}
    assert "starts with room for 2 pods of role worker" in explain(cluster, f"pod/{other}")
    cluster.add_nodes(1)
    cluster.expect(lambda: other in cluster.bound(), "the other leader starts, too")
    make_ready(cluster, other)
    cluster.expect(lambda: len(cluster.bound()) == 6, "with its workers")


@real("mpi-operator")
def test_launcher_and_workers_of_an_mpi_job_start_together(cluster):
    cluster.add_nodes(1)
    apply(cluster, MPI)
    expect_made(cluster, 4)
    expect_nothing_bound(cluster)
    assert labels_of(cluster, "training.kubeflow.org/job-role") == {"launcher": 1, "worker": 3}
    cluster.add_nodes(1)
    cluster.expect(lambda: len(cluster.bound()) == 4, "all of them run")
    assert members_of_plans(cluster) == {4: 4}
    before = uids_of(cluster)
    cluster.delete_pod("cfd-worker-1")
    cluster.expect(
        lambda: uids_of(cluster).get("cfd-worker-1") not in {None, before["cfd-worker-1"]},
        "the worker is made again",
    )
    cluster.expect(lambda: len(cluster.bound()) == 4, "and placed again")
    after = uids_of(cluster)
    assert {name for name in before if before[name] != after[name]} == {"cfd-worker-1"}


@real("training-operator")
def test_master_and_workers_of_a_pytorch_job_start_together_and_return_alone(cluster):
    cluster.add_nodes(1)
    apply(cluster, PYTORCH)
    expect_made(cluster, 4)
    expect_nothing_bound(cluster)
    assert labels_of(cluster, "training.kubeflow.org/replica-type") == {"master": 1, "worker": 3}
    cluster.add_nodes(1)
    cluster.expect(lambda: len(cluster.bound()) == 4, "all of them run")
    assert members_of_plans(cluster) == {4: 4}
    before = uids_of(cluster)
    cluster.delete_pod("gpt-worker-1")
    cluster.expect(
        lambda: uids_of(cluster).get("gpt-worker-1") not in {None, before["gpt-worker-1"]},
        "the worker is made again",
    )
    cluster.expect(lambda: len(cluster.bound()) == 4, "and placed again")
    after = uids_of(cluster)
    assert {name for name in before if before[name] != after[name]} == {"gpt-worker-1"}


@real("kuberay")
def test_head_and_workers_of_a_ray_cluster_start_together_and_return_alone(cluster):
    cluster.add_nodes(1)
    apply(cluster, RAY)
    expect_made(cluster, 4)
    expect_nothing_bound(cluster)
    assert labels_of(cluster, "ray.io/node-type") == {"head": 1, "worker": 3}
    cluster.add_nodes(1)
    cluster.expect(lambda: len(cluster.bound()) == 4, "all of them run")
    assert members_of_plans(cluster) == {4: 4}
    before = uids_of(cluster)
    lost = next(name for name in before if "worker" in name)
    cluster.delete_pod(lost)
    cluster.expect(lambda: len(cluster.bound()) == 4 and lost not in cluster.pods(), "it is back")
    after = uids_of(cluster)
    assert {name for name in before if before[name] != after.get(name)} == {lost}


def test_the_manifests_name_nothing_of_ours():
    for text in (JOBSET, LWS, LEADERS, MPI, PYTORCH, RAY):
        assert "koord" not in yaml.safe_dump(yaml.safe_load(text))
