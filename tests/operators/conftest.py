"""A cluster of their own for the operators, which run as shipped: process and ServiceAccount."""

import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from koord.sandbox import Sandbox
from koord.sandbox.errors import SandboxApiError

ROOT = Path(__file__).parents[2]
SERVICE_ACCOUNT = "system:serviceaccount:koord-system:koord-operators"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/koord-system/leases/koord-operators"
GATE = "operators.koordinator.sh/placement"
GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
PATIENCE_SECONDS = 20.0


class Operators:
    """The process ``koord run`` under the shipped ServiceAccount; can be killed and started.

    ``kubeconfig`` is for those that reach the API server on another way, ``settings`` are lines of
    the configuration.
    """

    def __init__(
        self, box: Sandbox, directory: Path, kubeconfig: Path | None = None, settings: str = ""
    ) -> None:
        self._box = box
        self._kubeconfig = kubeconfig or box.kubeconfig_for("koord-system", "koord-operators")
        self._config = directory / "config.yaml"
        self._config.write_text(
            "apiVersion: operators.koordinator.sh/v1alpha1\n"
            "kind: OperatorConfiguration\n"
            f'httpAddress: "127.0.0.1:0"\n{settings}',
        )
        self.log = directory / "operators.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "koord", "run"]
        options = ["--kubeconfig", str(self._kubeconfig), "--config", str(self._config)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*command, *options], stderr=log, stdout=log)

    def kill(self, *, is_waited_out: bool = False) -> None:
        """End it without warning.

        Its lease is taken away, or else whoever comes next has to wait until it is over.
        """
        self._end(signal.SIGKILL)
        if not is_waited_out:
            delete_lease(self._box)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, seconds: float = 20.0) -> int:
        """Return the exit code of a process that ends by itself."""
        assert self._process is not None
        code = self._process.wait(timeout=seconds)
        self._process = None
        return code

    def terminate(self) -> None:
        """Tell it to end."""
        self.send(signal.SIGTERM)

    def stop(self) -> int:
        """End it in good order; return the exit code."""
        return self._end(signal.SIGTERM)

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def end(self) -> None:
        """End it if it runs, whatever state it is in."""
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
    """Return the spec of the operators' lease; empty if there is none."""
    with suppress(SandboxApiError):
        return box.client.get(LEASE)["spec"]
    return {}


def delete_lease(box: Sandbox) -> None:
    with suppress(SandboxApiError):
        box.client.delete(LEASE)


class Cluster:
    """One test's view: a namespace, nodes of its own, and short ways to say things."""

    def __init__(self, box: Sandbox, operators: Operators, namespace: str) -> None:
        self.box = box
        self.operators = operators
        self.namespace = namespace
        self._nodes: list[str] = []

    def add_nodes(self, count: int, gpus: int = 8) -> list[str]:
        """Add empty nodes that only this test's pods select."""
        names = [f"{self.namespace}-{len(self._nodes) + at}" for at in range(count)]
        for name in names:
            self.box.client.create("/api/v1/nodes", make_node(name, self.namespace, gpus))
            self.box.client.patch(f"/api/v1/nodes/{name}/status", node_status(gpus))
        self._nodes += names
        self.wait_for(lambda: all(self._is_open(name) for name in names), "nodes are ready")
        return names

    def _is_open(self, name: str) -> bool:
        node = self.box.client.get(f"/api/v1/nodes/{name}")
        return not node["spec"].get("taints")

    def remove_nodes(self) -> None:
        for name in self._nodes:
            with suppress(SandboxApiError):  # a test may have done so
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

    def gang(self, name: str, count: int, minimum: int | None = None, **options: Any) -> None:
        self.pod_group(name, count if minimum is None else minimum)
        for at in range(count):
            self.pod(f"{name}-{at}", group=name, **options)

    def get_pod(self, name: str) -> dict[str, Any]:
        return self.box.client.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    def delete_pod(self, name: str) -> None:
        """Delete a pod; return when the stand-in of the kubelet is through with it.

        It deletes by name, a moment after it saw the deletion: a pod of the same name that came
        at once would go too.
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
        """Return (status, reason, message) of a condition; empty when it is not there."""
        for one in obj.get("status", {}).get("conditions") or ():
            if one["type"] == kind:
                return one["status"], one.get("reason", ""), one.get("message", "")
        return "", "", ""

    def pod_reason(self, name: str) -> str:
        return self.condition(self.get_pod(name), "operators.koordinator.sh/Placed")[1]

    def group_reason(self, name: str, kind: str = "Placed") -> str:
        return self.condition(self.get_group(name), kind)[1]

    def group_message(self, name: str, kind: str = "Placed") -> str:
        return self.condition(self.get_group(name), kind)[2]

    def running(self, name: str) -> int:
        return int(self.get_group(name).get("status", {}).get("running", 0))

    def wait_for(self, is_true: Callable[[], bool], what: str) -> None:
        """Wait until something holds; fail with what the operators said if it does not."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_true():
            if time.monotonic() > deadline:
                tail = self.operators.log.read_text()[-3000:]
                pods = json.dumps(self.pods(), indent=1)[:3000]
                raise AssertionError(f"not seen: {what}\n{pods}\n{tail}")
            time.sleep(0.05)

    def wait_bound(self, *names: str) -> None:
        self.wait_for(lambda: set(names) <= set(self.bound()), f"{names} are bound")

    def writes(self) -> list[tuple[str, str, str, str]]:
        """Return what the operators wrote here: (verb, resource, subresource, name)."""
        return [
            (one.verb, one.resource, one.subresource, one.name)
            for one in self.box.writes(SERVICE_ACCOUNT)
            if one.namespace == self.namespace
        ]

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
    group: str = "",
    gated: bool = True,
    gates: tuple[str, ...] = (),
    scheduler: str = "koord-scheduler",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Make a pod that asks for GPUs on the nodes of its namespace's test."""
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
                {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus}}},
            ],
            **spec,
        },
    }


@pytest.fixture(scope="session")
def operators_box() -> Iterator[Sandbox]:
    """A sandbox in which CRDs, RBAC and nothing else of ours is installed."""
    with Sandbox() as box:
        box.apply(ROOT / "crds")
        box.kubectl("apply", "-k", str(ROOT / "manifests/base"))
        yield box


@pytest.fixture(scope="session")
def operators(
    operators_box: Sandbox,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Operators]:
    """The operators, running for the whole session; who kills them starts them again."""
    running = Operators(operators_box, tmp_path_factory.mktemp("operators"))
    running.start()
    yield running
    if running.is_running():
        running.stop()


@pytest.fixture
def cluster(operators_box: Sandbox, operators: Operators) -> Iterator[Cluster]:
    """A namespace with nodes of its own, and the operators running."""
    if not operators.is_running():
        operators.start()
    with open_cluster(operators_box, operators) as view:
        yield view
    assert operators.is_running(), operators.log.read_text()[-3000:]


@pytest.fixture
def quiet_cluster(operators_box: Sandbox, operators: Operators) -> Iterator[Cluster]:
    """A namespace with nodes of its own, and no operators: the test runs its own."""
    operators.stop()
    with open_cluster(operators_box, operators) as view:
        yield view


@contextmanager
def open_cluster(box: Sandbox, operators: Operators) -> Iterator[Cluster]:
    name = f"test-{secrets.token_hex(3)}"
    box.create_namespace(name)
    view = Cluster(box, operators, name)
    try:
        yield view
    finally:
        view.remove_nodes()
        box.client.delete(f"/api/v1/namespaces/{name}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"cluster", "quiet_cluster"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.sandbox)
