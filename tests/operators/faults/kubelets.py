"""Stand-ins for what a sandbox has not: the admission of kubelets, and a controller.

kwok runs every pod that is bound, whether it fits or not. A kubelet looks first: what does not fit
beside the pods that it has admitted is marked ``Failed`` with the reason ``OutOfcpu`` and never
started, and the controller of the pod makes another one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.operators.conftest import GROUP_LABEL, Cluster

OVER = frozenset({"Succeeded", "Failed"})


@dataclass
class Kubelets:
    """Admits bound pods in the order in which they are seen, node by node.

    ``rejects`` are turned down whatever room there is, as when a device cannot be allocated.
    ``replace`` makes another pod in the place of a rejected member of a gang.
    """

    cluster: Cluster
    room: dict[str, int]
    """Node -> milli-CPU that it has."""
    replace: Callable[[dict[str, Any], str], None]
    seen: set[str] = field(default_factory=set)
    """Uids of pods that were ever seen with a node."""
    rejected: int = 0
    over_committed: int = 0
    repaired_seconds: list[float] = field(default_factory=list)
    to_reject: int = 0
    """How many members of gangs are to be turned down although there is room."""
    _admitted: set[str] = field(default_factory=set)
    _missing: dict[str, float] = field(default_factory=dict)
    """Name of a replacement that has no node yet -> when the pod before was rejected."""

    def look(self) -> list[dict[str, Any]]:
        """Look at all pods once; return them as they are after that, rejected ones included."""
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods"
        pods: list[dict[str, Any]] = self.cluster.box.client.get(path)["items"]
        alive = [pod for pod in pods if pod["status"].get("phase") not in OVER]
        bound = [pod for pod in alive if "nodeName" in pod["spec"]]
        self._note_repairs(bound)
        known = {uid_of(pod) for pod in bound} & self._admitted
        self._admitted = known
        used = dict.fromkeys(self.room, 0)
        for pod in bound:
            if uid_of(pod) in known:
                used[pod["spec"]["nodeName"]] += cpu_of(pod)
        for pod in bound:
            if uid_of(pod) not in known:
                self._admit(pod, used)
        return pods

    @property
    def is_whole(self) -> bool:
        """Whether every replacement has its node."""
        return not self._missing

    def _admit(self, pod: dict[str, Any], used: dict[str, int]) -> None:
        node = pod["spec"]["nodeName"]
        self.seen.add(uid_of(pod))
        fits = used[node] + cpu_of(pod) <= self.room[node]
        is_member = GROUP_LABEL in pod["metadata"].get("labels", {})
        is_bad = fits and is_member and self.to_reject > 0
        if fits and not is_bad:
            used[node] += cpu_of(pod)
            self._admitted.add(uid_of(pod))
            return
        self.to_reject -= is_bad
        self.over_committed += not fits
        self.rejected += 1
        self._reject(pod, "UnexpectedAdmissionError" if is_bad else "OutOfcpu")

    def _reject(self, pod: dict[str, Any], reason: str) -> None:
        name = pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods/{name}/status"
        status = {"phase": "Failed", "reason": reason, "message": "Pod was rejected"}
        self.cluster.box.client.patch(path, {"status": status})
        # Taken for whole, its gang could be deleted, and the replacement would be alone for ever.
        pod["status"] |= status
        if GROUP_LABEL in pod["metadata"].get("labels", {}):
            other = f"{name.partition('.')[0]}.{self.rejected}"
            self._missing[other] = time.monotonic()
            self.replace(pod, other)

    def _note_repairs(self, bound: list[dict[str, Any]]) -> None:
        for pod in bound:
            since = self._missing.pop(pod["metadata"]["name"], None)
            if since is not None:
                self.repaired_seconds.append(time.monotonic() - since)


def uid_of(pod: dict[str, Any]) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid


def cpu_of(pod: dict[str, Any]) -> int:
    """Return the milli-CPU that a pod asks for, in the only form that these tests use."""
    return sum(
        int(one["resources"]["requests"]["cpu"].removesuffix("m"))
        for one in pod["spec"]["containers"]
    )
