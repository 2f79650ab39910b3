"""Kubernetes' native PodGroups beside kube-scheduler, and the deletion of our PodGroup CRD.

``v1alpha2`` is served by the API server of 1.36, with its gates on. Objects of later versions are
decoded in ``tests/gang/test_native.py``; ``tests/kube/test_reflector.py`` changes versions.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.docs.markdown import parse_page
from tests.operators.conftest import (
    ROOT,
    SERVICE_ACCOUNT,
    Cluster,
    Operators,
    kubernetes_version,
    open_cluster,
)

from koord_sandbox import Sandbox
from koord_sandbox.components import Component

PATH = "/apis/scheduling.k8s.io/v1alpha2"
SERVED = [f"--runtime-config={PATH.removeprefix('/apis/')}=true"]
GATES = "--feature-gates=" + ",".join(
    f"{gate}=true"
    for gate in (
        "GenericWorkload",
        "GangScheduling",
        "TopologyAwareWorkloadScheduling",
        "WorkloadAwarePreemption",
    )
)
CRD = "podgroups.scheduling.sigs.k8s.io"
THEIRS = {"scheduler": "default-scheduler", "schedulingGroup": {"podGroupName": "train"}}


@pytest.fixture(scope="module")
def native_box() -> Iterator[Sandbox]:
    version = kubernetes_version()
    if version < (1, 36):
        pytest.skip(f"the API of 1.36 is read, and this is {version[0]}.{version[1]}")
    arguments = {Component.APISERVER: [*SERVED, GATES], Component.SCHEDULER: [GATES]}
    with Sandbox(arguments=arguments) as box:
        box.apply(ROOT / "crds")
        box.kubectl("apply", "-k", str(ROOT / "manifests/base"))
        yield box


@pytest.fixture
def native(native_box: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Operators(native_box, tmp_path_factory.mktemp("native"))
    running.start()
    with open_cluster(native_box, running) as view:
        yield view
    assert running.stop() == 0


def create_group(cluster: Cluster, name: str, count: int, **spec: Any) -> dict[str, Any]:
    body = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}, **spec},
    }
    return cluster.box.client.create(f"{PATH}/namespaces/{cluster.namespace}/podgroups", body)


@pytest.mark.sandbox
def test_members_of_a_native_pod_group_start_together(native: Cluster) -> None:
    native.add_nodes(2)
    create_group(native, "train", 2)
    group = {"schedulingGroup": {"podGroupName": "train"}}
    native.pod("train-0", **group)
    native.expect_pod("train-0", "MissingMembers")
    assert not native.bound()
    native.pod("train-1", **group)
    native.expect_bound("train-0", "train-1")
    plan = json.loads(
        native.get_pod("train-0")["metadata"]["annotations"]["operators.koordinator.sh/plan"]
    )
    assert plan["members"] == 2
    written = {
        one.resource
        for one in native.box.writes(SERVICE_ACCOUNT)
        if one.namespace == native.namespace
    }
    assert "podgroups" not in written, "what others own is read and never written"


@pytest.mark.sandbox
def test_workload_is_not_referenced_by_pods(native: Cluster) -> None:
    """Pods reference PodGroups; this fails if a new server changes that."""
    schemas = native.box.client.get("/openapi/v3/api/v1")["components"]["schemas"]
    fields = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert "schedulingGroup" in fields
    assert "workloadRef" not in fields
    template = {"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}}
    body = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "Workload",
        "metadata": {"name": "job", "namespace": native.namespace},
        "spec": {"podGroupTemplates": [template]},
    }
    native.box.client.create(f"{PATH}/namespaces/{native.namespace}/workloads", body)
    made_from = {"workloadName": "job", "podGroupTemplateName": "workers"}
    create_group(native, "job-0", 2, podGroupTemplateRef={"workload": made_from})
    native.add_nodes(2)
    group = {"schedulingGroup": {"podGroupName": "job-0"}}
    native.pod("w-0", **group)
    native.expect_pod("w-0", "MissingMembers")
    native.pod("w-1", **group)
    native.expect_bound("w-0", "w-1")


def condition_of(cluster: Cluster, name: str) -> tuple[str, str]:
    """Return status and reason of the condition that kube-scheduler writes."""
    path = f"{PATH}/namespaces/{cluster.namespace}/podgroups/{name}"
    return cluster.condition(cluster.box.client.get(path), "PodGroupScheduled")[:2]


@pytest.mark.sandbox
def test_kube_scheduler_binds_what_is_released_and_says_so(native: Cluster) -> None:
    """The gang goes to the one rack that has room for it, and kube-scheduler agrees."""
    nodes = native.add_nodes(4)
    for at, node in enumerate(nodes):
        label = {"metadata": {"labels": {"rack": "r1" if at < 1 else "r2"}}}
        native.box.client.patch(f"/api/v1/nodes/{node}", label)
    constraints = {"topology": [{"key": "rack"}]}
    create_group(native, "train", 2, schedulingConstraints=constraints, disruptionMode="PodGroup")
    for name in ("train-0", "train-1", "train-2"):
        native.pod(name, **THEIRS)
    native.expect_bound("train-0", "train-1", "train-2")
    assert set(native.bound().values()) == set(nodes[1:])
    native.expect(lambda: condition_of(native, "train")[0] == "True", "the group is scheduled")
    bound_by_us = [write for write in native.writes() if write[2] == "binding"]
    assert not bound_by_us
    # A replacement stays in their rack, where there is no room: it is not released.
    native.delete_pod("train-0")
    native.pod("other", scheduler="default-scheduler", gated=False, nodeName=nodes[1])
    native.pod("train-3", **THEIRS)
    native.expect_pod("train-3", "NoDomainFits")


@pytest.mark.sandbox
def test_members_that_wait_without_gate_are_told(native: Cluster) -> None:
    native.add_nodes(2)
    create_group(native, "train", 2)
    native.pod("train-0", **THEIRS)
    native.pod("train-1", gated=False, **THEIRS)
    native.expect_pod("train-0", "MixedGates")
    assert not native.bound()


@pytest.mark.sandbox
def test_example_of_the_page_starts(native: Cluster) -> None:
    (example,) = (b for b in parse_page(ROOT / "docs/native-groups.md", "page") if b.title == "")
    group, job = yaml.safe_load_all(example.text)
    job["spec"]["template"]["spec"]["nodeSelector"] = {"test": native.namespace}
    native.add_nodes(4)
    client, namespace = native.box.client, native.namespace
    client.create(f"{PATH}/namespaces/{namespace}/podgroups", group)
    client.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
    native.expect(lambda: len(native.bound()) == 4, "all of the Job are bound")
    native.expect(lambda: condition_of(native, "train")[0] == "True", "the group is scheduled")


@pytest.mark.sandbox
def test_operators_keep_running_when_our_pod_group_crd_is_deleted(native: Cluster) -> None:
    native.add_nodes(2)
    native.pod_group("a", 2)
    native.pod("a-0", group="a")
    native.expect_pod("a-0", "MissingMembers")
    native.box.kubectl("delete", "crd", CRD, "--timeout=30s")
    native.pod("alone")
    native.expect_bound("alone")
    native.expect_pod("a-0", "MissingPodGroup")
    native.box.apply(ROOT / "crds")
    native.pod_group("a", 2)
    native.add_nodes(1)
    native.pod("a-1", group="a")
    native.expect_bound("a-0", "a-1")
