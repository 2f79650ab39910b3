"""A permanent load on the operators, and checks of the result."""

import threading
from collections import Counter, deque
from contextlib import suppress
from http.client import HTTPException
from typing import Any, Self

from tests.operators.conftest import Cluster, make_pod

from koord_sandbox.errors import SandboxApiError

NODES = 8
GPUS = 8
MEMBERS = 2
PERIOD_SECONDS = 0.25
"""Between two looks; each is a list of all pods, which costs the API server most of its time."""


class Load:
    """Creates gangs and deletes complete ones all the time, and checks nodes and bindings.

    Every check is based on one list, so on one consistent state. There are more gangs than room, so
    every node is always in demand. Failed requests are retried, so no gang stays half created or
    half deleted.
    """

    members = MEMBERS
    gpus = GPUS
    full = NODES * GPUS
    """GPUs in use above which a gang is deleted."""

    def __init__(self, cluster: Cluster) -> None:
        self.faults: list[str] = []
        self.bound: dict[str, str] = {}
        """Pod uid -> node, of every pod that was ever observed with a node."""
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{cluster.namespace}/pods"
        self._gangs = 0
        self._todo: deque[tuple[str, str, dict[str, Any] | None]] = deque()
        """Requests that have not succeeded yet: method, path, body."""
        self._is_creating = True
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def settle(self) -> None:
        """Stop creating and deleting gangs."""
        self._is_creating = False

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_SECONDS):
            with suppress(OSError, HTTPException, SandboxApiError):
                self._work_off()
                pods = self._cluster.box.client.get(self._path)["items"]
                self._check(pods)
                if self._is_creating:
                    self._churn(count_bound(pods))

    def _work_off(self) -> None:
        """Send pending requests; those that fail stay pending."""
        while self._todo:
            method, path, body = self._todo[0]
            try:
                self._cluster.box.client.request(method, path, body)
            except SandboxApiError as error:
                if error.status not in {404, 409}:  # 404 and 409: it succeeded before
                    raise
            self._todo.popleft()

    def _check(self, pods: list[dict[str, Any]]) -> None:
        used: Counter[str] = Counter()
        for pod in pods:
            node = pod["spec"].get("nodeName")
            if node is None:
                continue
            used[node] += self.gpus
            before = self.bound.setdefault(pod["metadata"]["uid"], node)
            if before != node:
                self.faults.append(f"{pod['metadata']['name']} moved from {before} to {node}")
        self.faults += [f"{node} holds {gpus}" for node, gpus in used.items() if gpus > GPUS]

    def _churn(self, gangs: Counter[str]) -> None:
        whole = sorted(gang for gang, bound in gangs.items() if bound == self.members)
        if len(gangs) - len(whole) < NODES:
            self._create(f"g{self._gangs}")
            self._gangs += 1
        if len(whole) * self.members * self.gpus >= self.full:
            for at in range(self.members):
                self._todo.append(("DELETE", f"{self._path}/{whole[0]}-{at}", None))

    def _create(self, gang: str) -> None:
        group = self._cluster.make_group(gang, self.members)
        self._todo.append(("POST", self._cluster.groups_path, group))
        options = self.pod_options(gang)
        for at in range(self.members):
            name = f"{gang}-{at}"
            pod = make_pod(self._cluster.namespace, name, group=gang, gpus=self.gpus, **options)
            self._todo.append(("POST", self._path, pod))

    def pod_options(self, gang: str) -> dict[str, Any]:
        """Return more options of the pods of a gang."""
        return {}


def count_bound(pods: list[dict[str, Any]]) -> Counter[str]:
    """Return the number of bound members per gang."""
    bound: Counter[str] = Counter()
    for pod in pods:
        bound[pod["metadata"]["name"].partition("-")[0]] += "nodeName" in pod["spec"]
    return bound
