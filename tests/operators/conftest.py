"""A sandbox with the operators running in it as shipped: own process, own ServiceAccount."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests.support.fork_server import ForkedProcess, start_server
from tests.support.namespaces import empty

from koord_sandbox import Sandbox
from koord_sandbox.binaries import find_binaries, parse_version
from koord_sandbox.build import ConsoleReporter
from koord_sandbox.components import Component
from koord_sandbox.errors import SandboxApiError
from koord_sandbox.node_reports import install_definition

ROOT = Path(__file__).parents[2]
SERVICE_ACCOUNT = "system:serviceaccount:koord-system:koord-operators"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/koord-system/leases/koord-operators"
PLAN = "operators.koordinator.sh/plan"
GATE = "operators.koordinator.sh/placement"
GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
PATIENCE_SECONDS = 45.0
LONGEST_PAUSE_SECONDS = 0.5
"""Between two looks at what a test waits for, which cost the server and the test time."""
SETTINGS = "device: {recoverySeconds: 2s}\naudit: {feed: true}\n"
"""Devices are used again soon after they have failed, and decisions are recorded; earlier releases
do not know that."""


def kubernetes_version() -> tuple[int, int]:
    """Return major and minor version of the sandbox."""
    binaries = find_binaries([Component.APISERVER], ConsoleReporter())
    return parse_version(binaries.by_name[Component.APISERVER].version)


def skip_without_prompt_retries() -> None:
    """Skip where kube-scheduler may leave pods alone that fit by now, for up to five minutes."""
    if (1, 32) <= kubernetes_version() < (1, 35):
        pytest.skip("kube-scheduler retries such pods late before 1.35: docs/compatibility.md")


class Operators:
    """The process ``koord run`` under the shipped ServiceAccount; can be killed and started.

    ``kubeconfig`` replaces the one of the ServiceAccount, for example to go through a proxy.
    ``settings`` are lines that are added to the configuration file. ``environment`` has variables
    for the process; with any, Python is started anew, and may find other sources.
    """

    environment: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self, box: Sandbox, directory: Path, kubeconfig: Path | None = None, settings: str = ""
    ) -> None:
        self.box = box
        self._kubeconfig = kubeconfig or box.kubeconfig_for("koord-system", "koord-operators")
        self._config = directory / "config.yaml"
        self._config.write_text(
            "apiVersion: operators.koordinator.sh/v1alpha1\n"
            "kind: OperatorConfiguration\n"
            f'httpAddress: "127.0.0.1:0"\n{settings}',
        )
        self.log = directory / "operators.log"
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    def start(self) -> None:
        options = ["--kubeconfig", str(self._kubeconfig), "--config", str(self._config)]
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            if not self.environment:
                self._process = start_server().start(["run", *options], self.log)
                return
            self._process = subprocess.Popen(
                [sys.executable, "-m", "koord", "run", *options],
                env={**os.environ, **self.environment},
                stderr=log,
                stdout=log,
            )

    def kill(self, *, keeps_lease: bool = False) -> None:
        """Send SIGKILL; unless ``keeps_lease``, delete the lease so that the next process can lead.

        With the lease in place the next process waits until it expires.
        """
        self._end(signal.SIGKILL)
        if not keeps_lease:
            delete_lease(self.box)

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, seconds: float = 20.0) -> int:
        """Wait for the process to end; return its exit code."""
        assert self._process is not None
        code = self._process.wait(timeout=seconds)
        self._process = None
        return code

    def terminate(self) -> None:
        self.send(signal.SIGTERM)

    def stop(self) -> int:
        """Send SIGTERM and wait; return the exit code."""
        return self._end(signal.SIGTERM)

    def read_log(self) -> str:
        """Return what the last process has logged; ``log`` has what earlier ones did, too."""
        return self.log.read_bytes()[self._log_start :].decode()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def end(self) -> None:
        """Send SIGKILL if it runs."""
        if self.is_running():
            self._end(signal.SIGKILL)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        self.send(number)
        return self.wait()


def read_lease(box: Sandbox) -> dict[str, Any]:
    """Return the spec of the operators' Lease; empty when it does not exist."""
    with suppress(SandboxApiError):
        return box.client.get(LEASE)["spec"]
    return {}


def delete_lease(box: Sandbox) -> None:
    with suppress(SandboxApiError):
        box.client.delete(LEASE)


def _holds(is_true: Callable[[], bool]) -> bool:
    try:
        return is_true()
    except KeyError:
        return False


class Cluster:
    """A namespace with nodes of its own; methods named ``expect_…`` wait and fail after 20 s."""

    patience = PATIENCE_SECONDS

    def __init__(self, box: Sandbox, operators: Operators, namespace: str) -> None:
        self.box = box
        self.operators = operators
        self.namespace = namespace
        self.began_at: str = self.box.client.get(self.pods_path)["metadata"]["resourceVersion"]
        """The version from which everything that happened to its pods can be watched again."""
        self._nodes: list[str] = []

    def add_nodes(self, count: int, gpus: int = 8) -> list[str]:
        """Add empty nodes that only pods of this namespace select."""
        names = [f"{self.namespace}-{len(self._nodes) + at}" for at in range(count)]
        for name in names:
            self.box.client.create("/api/v1/nodes", make_node(name, self.namespace, gpus))
        self._nodes += names
        self.expect(lambda: self._open_nodes().issuperset(names), "nodes are ready")
        return names

    def _open_nodes(self) -> set[str]:
        nodes = self.box.client.get(f"/api/v1/nodes?labelSelector=test%3D{self.namespace}")["items"]
        return {node["metadata"]["name"] for node in nodes if not node["spec"].get("taints")}

    def remove_nodes(self) -> None:
        for name in self._nodes:
            with suppress(SandboxApiError):  # the test may have deleted it
                self.box.client.delete(f"/api/v1/nodes/{name}")

    def pod_group(self, name: str, minimum: int, **annotations: str) -> dict[str, Any]:
        body = self.make_group(name, minimum, **annotations)
        return self.box.client.create(self.groups_path, body)

    def make_group(self, name: str, minimum: int, **annotations: str) -> dict[str, Any]:
        return {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": self.namespace, "annotations": annotations},
            "spec": {"minMember": minimum},
        }

    def get_group(self, name: str) -> dict[str, Any]:
        return self.box.client.get(f"{self.groups_path}/{name}")

    def pod(self, name: str, **options: Any) -> dict[str, Any]:
        """Create a pod; see :func:`make_pod` for the options."""
        body = make_pod(self.namespace, name, **options)
        return self.box.client.create(f"/api/v1/namespaces/{self.namespace}/pods", body)

    def suspended_job(self, name: str) -> None:
        """Create a Job that makes no pods."""
        containers = [{"name": "c", "image": "x"}]
        template = {"spec": {"restartPolicy": "Never", "containers": containers}}
        body = {"metadata": {"name": name}, "spec": {"suspend": True, "template": template}}
        self.box.client.create(f"/apis/batch/v1/namespaces/{self.namespace}/jobs", body)

    def gang(self, name: str, count: int, minimum: int | None = None, **options: Any) -> None:
        self.pod_group(name, count if minimum is None else minimum)
        for at in range(count):
            self.pod(f"{name}-{at}", group=name, **options)

    def priority_class(self, name: str, value: int, policy: str = "PreemptLowerPriority") -> None:
        """Create a PriorityClass if it is missing, and wait until the server admits pods with it.

        The admission of pods reads PriorityClasses from a cache that follows a moment later.
        """
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        with suppress(SandboxApiError):  # another test made it
            self.box.client.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
        pod = make_pod(self.namespace, "dry-run", priorityClassName=name)

        def is_admitted() -> bool:
            with suppress(SandboxApiError):
                self.box.client.create(f"{self.pods_path}?dryRun=All", pod)
                return True
            return False

        self.expect(is_admitted, f"pods with the PriorityClass {name} are admitted")

    def get_pod(self, name: str) -> dict[str, Any]:
        return self.box.client.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    def delete_pod(self, name: str) -> None:
        """Delete a pod, and wait until kwok has finished with it.

        kwok deletes by name shortly after it has seen the deletion: a pod of the same name that is
        created immediately would be deleted as well.
        """
        self.box.client.delete(f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        time.sleep(0.3)

    def pods(self) -> dict[str, dict[str, Any]]:
        items = self.box.client.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {item["metadata"]["name"]: item for item in items}

    def bound(self) -> dict[str, str]:
        """Return pod name -> node, of those that have one."""
        pods = self.pods().items()
        return {name: pod["spec"]["nodeName"] for name, pod in pods if "nodeName" in pod["spec"]}

    def condition(self, obj: dict[str, Any], kind: str) -> tuple[str, str, str]:
        """Return (status, reason, message) of a condition; empty strings when it is missing."""
        for condition in obj.get("status", {}).get("conditions") or ():
            if condition["type"] == kind:
                return (
                    condition["status"],
                    condition.get("reason", ""),
                    condition.get("message", ""),
                )
        return "", "", ""

    def pod_reason(self, name: str) -> str:
        return self.condition(self.get_pod(name), "operators.koordinator.sh/Placed")[1]

    def group_reason(self, name: str, kind: str = "Placed") -> str:
        return self.condition(self.get_group(name), kind)[1]

    def group_message(self, name: str, kind: str = "Placed") -> str:
        return self.condition(self.get_group(name), kind)[2]

    def running(self, name: str) -> int:
        return int(self.get_group(name).get("status", {}).get("running", 0))

    def expect(self, is_true: Callable[[], bool], what: str) -> None:
        """Wait until ``is_true`` returns true; fail with ``what``, the pods and the log.

        A field that it looks into may not be written yet.
        """
        deadline = time.monotonic() + self.patience
        pause = 0.05
        while not _holds(is_true):
            if time.monotonic() > deadline:
                tail = self.operators.log.read_text()[-3000:]
                pods = json.dumps(self.pods(), indent=1)[:3000]
                raise AssertionError(f"not seen: {what}\n{pods}\n{tail}")
            time.sleep(pause)
            pause = min(1.2 * pause, LONGEST_PAUSE_SECONDS)

    def expect_bound(self, *names: str) -> None:
        self.expect(lambda: set(names) <= set(self.bound()), f"{names} are bound")

    def expect_pod(self, name: str, reason: str) -> None:
        """Wait until the condition Placed of a pod has this reason."""
        self.expect(lambda: self.pod_reason(name) == reason, f"pod {name}: {reason}")

    def expect_group(self, name: str, reason: str, kind: str = "Placed") -> None:
        """Wait until a condition of a PodGroup has this reason."""
        self.expect(lambda: self.group_reason(name, kind) == reason, f"{name}: {kind} {reason}")

    def writes(self) -> list[tuple[str, str, str, str]]:
        """Return writes of the operators in the namespace: (verb, resource, subresource, name)."""
        return [
            (write.verb, write.resource, write.subresource, write.name)
            for write in self.box.writes(SERVICE_ACCOUNT)
            if write.namespace == self.namespace
        ]

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def groups_path(self) -> str:
        return f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{self.namespace}/podgroups"


def make_node(name: str, owner: str, gpus: int) -> dict[str, Any]:
    labels = {"test": owner, "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
    } | node_status(gpus)


def node_status(gpus: int) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {"status": {"capacity": amounts, "allocatable": amounts}}


def make_pod(
    namespace: str,
    name: str,
    *,
    gpus: int = 8,
    resources: Mapping[str, Any] | None = None,
    group: str = "",
    gated: bool = True,
    gates: tuple[str, ...] = (),
    scheduler: str = "koord-scheduler",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Make a pod that asks for GPUs, or ``resources``, on the nodes of its namespace's test."""
    limits = {"nvidia.com/gpu": gpus} if resources is None else dict(resources)
    names = (*gates, *((GATE,) if gated else ()))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**({GROUP_LABEL: group} if group else {}), **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {
            "schedulerName": scheduler,
            "schedulingGates": [{"name": gate} for gate in names],
            "nodeSelector": {"test": namespace},
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": "c", "image": "x", "resources": {"limits": limits}},
            ],
            **spec,
        },
    }


def install(box: Sandbox) -> None:
    """Install our CRDs and RBAC, and the definitions of NodeResourceTopology and NodeMetric.

    All before the operators start: they would find a new definition only within a minute.
    """
    box.apply(ROOT / "crds")
    box.kubectl("apply", "-k", str(ROOT / "manifests/base"))
    install_definition(box.client)
    box.apply(ROOT / "examples/colocation/nodemetrics.yaml")


def wait_until_unprotected(box: Sandbox) -> None:
    """Return when the API server has noticed that no policy is bound any more."""
    forged = make_pod("default", "forged", annotations={PLAN: "{}"})
    while True:
        with suppress(SandboxApiError):
            box.client.create("/api/v1/namespaces/default/pods?dryRun=All", forged)
            return
        time.sleep(0.2)


@contextmanager
def open_cluster(box: Sandbox, operators: Operators) -> Iterator[Cluster]:
    name = f"test-{secrets.token_hex(3)}"
    box.create_namespace(name)
    view = Cluster(box, operators, name)
    try:
        yield view
    finally:
        view.remove_nodes()
        empty(box.client, name)
