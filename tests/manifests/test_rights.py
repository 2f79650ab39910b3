"""The roles grant exactly the requests that the operators send.

The requests of a run are read from the audit log. A run does not meet every case, so a grant may
instead have a reason below; one that has neither must be removed.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.manifests.conftest import MANIFESTS, ROOT
from tests.manifests.waiting import wait_for
from tests.support.operators import run_operators

from koord.api.crdgen import RESOURCES
from koord.api.nodeslo import NodeSLO
from koord.api.podgroup import PodGroup
from koord.operators.names import PLACEMENT
from koord.runtime.registry import OPERATORS
from koord_sandbox import Component, Sandbox

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(400)]
"""One fixture starts every operator, and plays what all of them do."""

Grant: TypeAlias = tuple[str, str, str]
"""API group, resource with subresource, verb."""

SAMPLES = ROOT / "tests/api/samples"
POLICY = Path(__file__).parent / "audit-policy.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
GANGS = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: fits}
spec: {minMember: 2}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: waits}
spec: {minMember: 2}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: team}
spec: {max: {nvidia.com/gpu: 16}}
"""
DEVICE = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata: {name: a100x8-0000, labels: {node.koordinator.sh/gpu-vendor: cambricon}}
spec:
  devices:
    - type: gpu
      minor: 0
      health: true
      resources: {koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory: 24Gi}
"""
SERVED = {"koordinator.sh/gpu-core": 10, "koordinator.sh/gpu-memory": "1Gi", "cambricon.com/mlu": 1}
"""A request that a device plugin serves, which locks its node."""
SETTINGS = """
elasticQuota: {delayEvictTime: 0s}
"""

NEVER_IN_A_RUN_LIKE_THIS: dict[Grant, str] = {
    ("", "pods", "get"): "finds out what became of a write that was refused or not answered",
    ("scheduling.koordinator.sh", "reservations", "delete"): "a day after their end",
    ("scheduling.koordinator.sh", "reservations", "patch"): "records devices and CPUs it holds",
    ("scheduling.sigs.k8s.io", "elasticquotas", "create"): "applying what is not there needs it; "
    "the log calls that a patch",
    ("scheduling.k8s.io", "podgroups", "watch"): "this server has no PodGroups of its own to list",
    ("topology.node.k8s.io", "noderesourcetopologies", "watch"): "nor NodeResourceTopologies",
    ("slo.koordinator.sh", "nodemetrics", "watch"): "nor NodeMetrics",
    ("metrics.k8s.io", "nodes", "list"): "only where load counts",
    ("metrics.k8s.io", "pods", "list"): "only where load counts",
    **dict.fromkeys(
        (
            ("scheduling.koordinator.sh", "podmigrationjobs", "get"),
            ("scheduling.koordinator.sh", "podmigrationjobs", "patch"),
            ("scheduling.koordinator.sh", "podmigrationjobs", "delete"),
            ("scheduling.koordinator.sh", "podmigrationjobs", "create"),
            ("scheduling.koordinator.sh", "reservations", "create"),
            ("scheduling.sigs.k8s.io", "podgroups", "get"),
            ("apps", "deployments", "get"),
            ("apps", "replicasets", "get"),
            ("apps", "statefulsets", "get"),
            ("batch", "jobs", "get"),
            ("", "replicationcontrollers", "get"),
        ),
        "no pod is moved here; tests/cases/test_migration.py does that",
    ),
}

EVENTS: Grant = ("events.k8s.io", "events", "create")
"""Operators that run without placement have events only about objects that are not valid."""
GRANTED_TO_ALL: set[Grant] = {("authorization.k8s.io", "selfsubjectaccessreviews", "create")}
"""What the ClusterRole system:basic-user lets everyone do who is authenticated."""
MAY_BE_REFUSED: set[Grant] = {("admissionregistration.k8s.io", "mutatingadmissionpolicies", "list")}
"""Asked where profiles are off, to take back what was published before; an overlay grants it."""


def make_pod(group: str, number: int, gpus: int) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": gpus}}
    return {
        "metadata": {
            "name": f"{group}-{number}",
            "labels": {
                "pod-group.scheduling.sigs.k8s.io": group,
                "quota.scheduling.koordinator.sh/name": "team" if group == "fits" else "",
            },
        },
        "spec": {
            "schedulerName": "koord-scheduler",
            "schedulingGates": [{"name": "operators.koordinator.sh/placement"}],
            "containers": [{"name": "c", "image": "x", "resources": resources}],
        },
    }


def read_requests(log: Path) -> Iterator[tuple[str, Grant]]:
    """Yield the user and the grant that each request needs, from whole lines of an audit log."""
    for line in log.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            event = json.loads(line)
            if reference := event.get("objectRef"):
                parts = (reference["resource"], reference.get("subresource", ""))
                what = "/".join(filter(None, parts))
                yield (
                    event["user"]["username"],
                    (reference.get("apiGroup", ""), what, event["verb"]),
                )


class Rights:
    """The grants of each account, read from the API server."""

    def __init__(self, box: Sandbox) -> None:
        self._client = box.client

    def of(self, account: str) -> set[Grant]:
        subject = ("ServiceAccount", "koord-system", account)
        return {
            grant
            for binding in self._bindings()
            for one in binding.get("subjects", ())
            if (one["kind"], one.get("namespace"), one["name"]) == subject
            for grant in self._grants_of(binding)
        }

    def _bindings(self) -> Iterator[dict[str, Any]]:
        yield from self._client.get(f"{RBAC}/clusterrolebindings")["items"]
        yield from self._client.get(f"{RBAC}/namespaces/koord-system/rolebindings")["items"]

    def _grants_of(self, binding: dict[str, Any]) -> Iterator[Grant]:
        reference = binding["roleRef"]
        where = (
            "clusterroles"
            if reference["kind"] == "ClusterRole"
            else "namespaces/koord-system/roles"
        )
        for rule in self._client.get(f"{RBAC}/{where}/{reference['name']}")["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield from ((group, resource, verb) for verb in rule["verbs"])


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    """A cluster that also records what the operators read."""
    arguments = {Component.APISERVER: [f"--audit-policy-file={POLICY}"]}
    with Sandbox(arguments=arguments) as box:
        box.apply(ROOT / "crds")
        box.kubectl("apply", "-k", str(MANIFESTS / "overlays/separate"))
        box.add_nodes(4, "a100x8")
        yield box


@pytest.fixture(scope="module")
def used(box, tmp_path_factory) -> dict[str, set[Grant]]:
    """The requests of each operator while one gang is placed and evicted and another waits."""
    with ExitStack() as stack:
        for name in OPERATORS:
            kubeconfig = box.kubeconfig_for("koord-system", f"koord-{name}")
            folder = tmp_path_factory.mktemp(name)
            stack.enter_context(
                run_operators(kubeconfig, folder, f"--operator={name}", settings=SETTINGS)
            )
        play(box)
    asked: dict[str, set[Grant]] = {}
    for user, grant in read_requests(box.audit_log):
        asked.setdefault(user.rpartition(":")[2], set()).add(grant)
    return asked


def play(box: Sandbox) -> None:
    box.kubectl("apply", "--filename=-", stdin=GANGS)
    for group, gpus in (("fits", 8), ("waits", 16)):
        for number in range(2):
            box.client.create("/api/v1/namespaces/default/pods", make_pod(group, number, gpus))
    box.kubectl("apply", "--filename=-", stdin=DEVICE)
    published = "--for=jsonpath={.status.allocatable.koordinator\\.sh/gpu-core}=100"
    box.kubectl("wait", published, "node/a100x8-0000", "--timeout=30s")
    plugin = {"status": {kind: {"cambricon.com/mlu": "8"} for kind in ("capacity", "allocatable")}}
    box.client.patch("/api/v1/nodes/a100x8-0000/status", plugin)
    served = make_pod("", 0, 0)
    served["metadata"] = {"name": "served"}
    served["spec"]["containers"][0]["resources"] = {"limits": SERVED}
    box.client.create("/api/v1/namespaces/default/pods", served)
    box.kubectl("wait", "--for=condition=PodScheduled", "pod/served", "--timeout=30s")
    accepted = [one.names for one in RESOURCES if one not in {PodGroup, NodeSLO}]
    for names in accepted:
        box.kubectl("apply", f"--filename={find_sample(names.kind)}", "--namespace=default")
    for names in accepted:
        box.kubectl("wait", "--for=condition=Accepted", "--all", "--timeout=30s", names.crd_name)
    box.kubectl("wait", "--for=condition=Ready", "--all", "--timeout=30s", "elasticquotaprofiles")
    available = "--for=jsonpath={.status.phase}=Available"
    box.kubectl("wait", available, "--all", "--timeout=30s", "reservations")
    groups = "podgroups.scheduling.sigs.k8s.io"
    box.kubectl("wait", "--for=condition=Bound", f"{groups}/fits", "--timeout=30s")
    reason = "--for=jsonpath={.status.conditions[?(@.type=='Placed')].reason}=NoSuitableNode"
    box.kubectl("wait", reason, f"{groups}/waits", "--timeout=30s")
    events = "/apis/events.k8s.io/v1/namespaces/default/events"
    wait_for(lambda: has_event(box.client.get(events), "waits"), "an event on the gang that waits")
    patch = '{"spec": {"max": {"nvidia.com/gpu": 0}}}'
    box.kubectl("patch", "elasticquota", "team", "--type=merge", f"--patch={patch}")
    box.kubectl("wait", "--for=delete", "pod/fits-0", "pod/fits-1", "--timeout=30s")
    preempt(box)


def preempt(box: Sandbox) -> None:
    """Have a pod take the place of another, on a node that no reservation holds."""
    path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
    held = {one["status"].get("nodeName") for one in box.client.get(path)["items"]}
    node = min({"a100x8-0002", "a100x8-0003"} - held)
    for name, more in (("low", {}), ("high", {"priorityClassName": "system-cluster-critical"})):
        pod = make_pod("", 0, 8)
        pod["metadata"] = {"name": name}
        pod["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": node}, **more}
        box.client.create("/api/v1/namespaces/default/pods", pod)
        box.kubectl("wait", "--for=condition=PodScheduled", f"pod/{name}", "--timeout=30s")


def find_sample(kind: str) -> Path:
    """Return the plainest sample of a kind: that with the shortest name."""
    line = f"\nkind: {kind}\n"
    samples = [path for path in SAMPLES.glob("*.yaml") if line in f"\n{path.read_text()}"]
    return min(samples, key=lambda path: (len(path.name), path.name))


def has_event(events: dict[str, Any], name: str) -> bool:
    return any(event["regarding"]["name"] == name for event in events["items"])


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_grant_is_used(box, used, operator):
    granted = Rights(box).of(f"koord-{operator}")
    asked = used[f"koord-{operator}"]
    assert granted
    unused = granted - asked - NEVER_IN_A_RUN_LIKE_THIS.keys()
    assert unused <= (set() if operator == PLACEMENT else {EVENTS})


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_request_is_granted(box, used, operator):
    granted = Rights(box).of(f"koord-{operator}") | GRANTED_TO_ALL | MAY_BE_REFUSED
    assert used[f"koord-{operator}"] - granted == set()


def test_reasons_are_only_given_for_unused_grants(box, used):
    everything = {grant for name in OPERATORS for grant in Rights(box).of(f"koord-{name}")}
    asked = {grant for grants in used.values() for grant in grants}
    assert everything - asked >= NEVER_IN_A_RUN_LIKE_THIS.keys()
