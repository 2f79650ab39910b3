"""Work that never ends for the operators, and a look at what they make of it."""

import threading
from collections import Counter, deque
from contextlib import suppress
from http.client import HTTPException
from typing import Any, Self

from tests.operators.conftest import Cluster, make_pod

from koord.sandbox.errors import SandboxApiError

NODES = 8
GPUS = 8
MEMBERS = 2


class Load:
    """Creates gangs and takes whole ones away again, all the time, and looks at what is there.

    Every look is one list, so it is a moment of the cluster as it really was. More is asked for
    than there is, so that every node is wanted at every moment. Whatever the API server does not
    answer is asked again, so no gang is left half created or half deleted.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.faults: list[str] = []
        self.bound: dict[str, str] = {}
        """Pod uid -> its node, of every pod that was ever seen with one."""
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{cluster.namespace}/pods"
        self._gangs = 0
        self._todo: deque[tuple[str, str, dict[str, Any] | None]] = deque()
        """Requests that have yet to be answered: method, path, body."""
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
        """Create and take away no more."""
        self._is_creating = False

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            with suppress(OSError, HTTPException, SandboxApiError):
                self._work_off()
                pods = self._cluster.box.client.get(self._path)["items"]
                self._check(pods)
                if self._is_creating:
                    self._churn(count_bound(pods))

    def _work_off(self) -> None:
        """Send what is to be sent; what has no answer stays."""
        while self._todo:
            method, path, body = self._todo[0]
            try:
                self._cluster.box.client.request(method, path, body)
            except SandboxApiError as error:
                if error.status not in {404, 409}:  # else it was carried out before
                    raise
            self._todo.popleft()

    def _check(self, pods: list[dict[str, Any]]) -> None:
        used: Counter[str] = Counter()
        for pod in pods:
            node = pod["spec"].get("nodeName")
            if node is None:
                continue
            used[node] += GPUS
            before = self.bound.setdefault(pod["metadata"]["uid"], node)
            if before != node:
                self.faults.append(f"{pod['metadata']['name']} moved from {before} to {node}")
        self.faults += [f"{node} holds {gpus}" for node, gpus in used.items() if gpus > GPUS]

    def _churn(self, gangs: Counter[str]) -> None:
        whole = sorted(gang for gang, bound in gangs.items() if bound == MEMBERS)
        if len(gangs) - len(whole) < NODES:
            self._create(f"g{self._gangs}")
            self._gangs += 1
        if len(whole) * MEMBERS >= NODES:
            for at in range(MEMBERS):
                self._todo.append(("DELETE", f"{self._path}/{whole[0]}-{at}", None))

    def _create(self, gang: str) -> None:
        self._todo.append(
            ("POST", self._cluster.groups_path, self._cluster.make_group(gang, MEMBERS))
        )
        for at in range(MEMBERS):
            pod = make_pod(self._cluster.namespace, f"{gang}-{at}", group=gang, gpus=GPUS)
            self._todo.append(("POST", self._path, pod))


def count_bound(pods: list[dict[str, Any]]) -> Counter[str]:
    """Return how many members of each gang have a node."""
    bound: Counter[str] = Counter()
    for pod in pods:
        bound[pod["metadata"]["name"].partition("-")[0]] += "nodeName" in pod["spec"]
    return bound
