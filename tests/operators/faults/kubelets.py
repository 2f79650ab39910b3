"""Fakes of components that a sandbox lacks: admission by kubelets, and a controller.

kwok runs every bound pod. A kubelet rejects pods that do not fit: they are marked ``Failed`` with
the reason ``OutOfcpu``, and their controller creates replacements.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.operators.conftest import GROUP_LABEL, Cluster

OVER = frozenset({"Succeeded", "Failed"})


@dataclass
class Kubelets:
    """Admits bound pods in the order in which they are observed.

    ``to_reject`` members are rejected although they fit, as when a device cannot be allocated.
    ``replace`` creates the replacement of a rejected member.
    """

    cluster: Cluster
    room: dict[str, int]
    """Node -> capacity in milli-CPU."""
    replace: Callable[[dict[str, Any], str], None]
    seen: set[str] = field(default_factory=set)
    """Uids of pods that were ever observed with a node."""
    rejected: int = 0
    over_committed: int = 0
    repaired_seconds: list[float] = field(default_factory=list)
    to_reject: int = 0
    """Number of gang members to reject although they fit."""
    _admitted: set[str] = field(default_factory=set)
    _missing: dict[str, float] = field(default_factory=dict)
    """Name of a replacement without a node -> time of the rejection."""

    def look(self) -> list[dict[str, Any]]:
        """Admit or reject new pods; return all pods as they are afterwards."""
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
        """Whether every replacement is bound."""
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
        # Otherwise its gang counts as whole and may be deleted, and the replacement waits for ever.
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
    """Return the requested milli-CPU; only quantities with suffix ``m`` are supported."""
    return sum(
        int(one["resources"]["requests"]["cpu"].removesuffix("m"))
        for one in pod["spec"]["containers"]
    )
