"""Kueue itself beside the operators: it admits and counts, they place, and each has its turn."""

import pytest
from tests.frameworks.test_real_controllers import (
    CONTAINER,
    apply,
    expect_made,
    expect_nothing_bound,
    members_of_plans,
    real,
)
from tests.frameworks.test_real_controllers import (
    pytestmark as of_real_controllers,
)

from koord_sandbox.errors import KubectlError

pytestmark = of_real_controllers

HOST = "kubernetes.io/hostname"
QUEUE = "kueue.x-k8s.io/queue-name: team"
QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {{name: {namespace}-hosts}}
spec: {{levels: [{{nodeLabel: kubernetes.io/hostname}}]}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: {namespace}-gpus}}
spec: {{nodeLabels: {{test: {namespace}}}{topology}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {namespace}}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{{name: {namespace}-gpus, resources: [{{name: nvidia.com/gpu, nominalQuota: 16}}]}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: team, namespace: {namespace}}}
spec: {{clusterQueue: {namespace}}}
"""


def make_job(name, pods, gpus, annotations="{}"):
    container = CONTAINER.replace("nvidia.com/gpu: 4", f"nvidia.com/gpu: {gpus}")
    return f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, labels: {{{QUEUE}}}}}
spec:
  completionMode: Indexed
  parallelism: {pods}
  completions: {pods}
  template:
    metadata: {{annotations: {annotations}}}
    spec: {{restartPolicy: Never, containers: [{container}]}}
"""


def make_group_pod(name):
    container = CONTAINER.replace("nvidia.com/gpu: 4", "nvidia.com/gpu: 8")
    return f"""
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{{QUEUE}, kueue.x-k8s.io/pod-group-name: pair}}
  annotations: {{kueue.x-k8s.io/pod-group-total-count: "2"}}
spec: {{restartPolicy: Never, containers: [{container}]}}
"""


STATEFUL_SET = f"""
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: web, labels: {{{QUEUE}}}}}
spec:
  replicas: 2
  serviceName: web
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{CONTAINER}]}}
"""


@pytest.fixture
def queues(cluster):
    """Return what makes the queues of 16 GPUs; what is in them goes with the test."""

    def make(*, topology):
        named = f", topologyName: {cluster.namespace}-hosts" if topology else ""
        text = QUEUES.format(namespace=cluster.namespace, topology=named)
        cluster.expect(lambda: _is_applied(cluster, text), "Kueue takes its queues")

    yield make
    cluster.box.kubectl(
        "delete", "statefulsets,jobs,pods", "--all", "-n", cluster.namespace, "--wait=false"
    )


def _is_applied(cluster, text):
    try:
        cluster.box.kubectl("apply", "-f", "-", stdin=text)
    except KubectlError:  # its webhook is about to be registered
        return False
    return True


def placed_text(cluster, name):
    return cluster.condition(cluster.get_pod(name), "operators.koordinator.sh/Placed")[2]


@real("kueue")
def test_kueue_admits_and_the_operators_place(cluster, queues):
    queues(topology=False)
    cluster.add_nodes(1)
    apply(cluster, make_job("first", 2, 8))
    expect_made(cluster, 2)
    apply(cluster, make_job("second", 1, 8))
    # It is admitted, and lacks a node: none of it starts.
    expect_nothing_bound(cluster)
    cluster.add_nodes(1)
    cluster.expect(lambda: len(cluster.bound()) == 2, "all of it run")
    assert members_of_plans(cluster) == {2: 2}
    assert all(name.startswith("first") for name in cluster.pods()), "the other has no pods"
    # A group of plain pods waits with the gate of Kueue, and it is said whose turn it is.
    apply(cluster, make_group_pod("pair-0"))
    apply(cluster, make_group_pod("pair-1"))
    cluster.expect_pod("pair-0", "WaitingForForeignGate")
    assert "it is the turn of Kueue" in placed_text(cluster, "pair-0")
    cluster.box.kubectl("delete", "job", "first", "second", "-n", cluster.namespace)
    cluster.expect(lambda: {"pair-0", "pair-1"} <= set(cluster.bound()), "the group is admitted")


@real("kueue")
def test_where_kueue_chooses_nodes_these_are_the_ones(cluster, queues):
    names = cluster.add_nodes(2)
    for name in names:
        ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}
        cluster.box.client.patch(f"/api/v1/nodes/{name}/status", {"status": ready})
    queues(topology=True)
    required = "{kueue.x-k8s.io/podset-required-topology: kubernetes.io/hostname}"
    apply(cluster, make_job("near", 2, 4, required))
    cluster.expect(lambda: len(cluster.bound()) == 2, "both run")
    chosen = {name: pod["spec"]["nodeSelector"][HOST] for name, pod in cluster.pods().items()}
    assert len(set(chosen.values())) == 1
    assert cluster.bound() == chosen


@real("kueue")
def test_pods_of_a_stateful_set_start_as_they_are_made(cluster, queues):
    """It makes the second one when the first one runs, and Kueue admits both with the first."""
    queues(topology=False)
    cluster.add_nodes(1)
    apply(cluster, STATEFUL_SET)
    cluster.expect(lambda: list(cluster.bound()) == ["web-0"], "the first one has its node")
