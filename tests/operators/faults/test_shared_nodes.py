"""kube-scheduler and the operators bind pods to the same nodes, which are 90 % full.

Neither sees decisions of the other before they are written, so both sometimes use the same room,
and a kubelet rejects a pod. Measured are the share of such pods and the time to repair gangs.
"""

import time
from collections import defaultdict
from typing import Any

import pytest
from tests.operators.conftest import GROUP_LABEL, Cluster, make_pod
from tests.operators.faults.kubelets import OVER, Kubelets
from tests.support.figures import write_figures

from koord_sandbox.errors import SandboxApiError

NODES = 20
ROOM = 64_000
"""Milli-CPU of a node."""
FILLERS, FILLER = 6, 8_000
"""Number and milli-CPU of permanent pods per node: three quarters of its capacity."""
SMALL = 2_000
MEMBERS = 4
LOAD = 0.9
REPAIRED_WITHIN = 5.0
OVER_COMMITTED_AT_MOST = 0.001


class Tenants:
    """Gangs for the operators and single pods for kube-scheduler, half of the room each."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._count = 0
        self._path = f"/api/v1/namespaces/{cluster.namespace}/pods"
        room = NODES * (LOAD * ROOM - FILLERS * FILLER)
        self._singles = int(room / 2 / SMALL)
        self._gangs = int(room / 2 / SMALL / MEMBERS)

    def settle_in(self) -> dict[str, int]:
        """Add nodes that are three quarters full; return their capacity."""
        names = self.cluster.add_nodes(NODES)
        for name in names:
            for at in range(FILLERS):
                body = self._pod(f"filler-{name}-{at}", FILLER, gated=False, nodeName=name)
                self.cluster.box.client.create(self._path, body)
        return dict.fromkeys(names, ROOM)

    def turn_over(self, pods: list[dict[str, Any]]) -> None:
        """Delete the oldest pods, and create new ones up to the intended load."""
        alive = [pod for pod in pods if pod["status"].get("phase") not in OVER]
        groups = defaultdict(list)
        singles = []
        for pod in alive:
            if group := pod["metadata"].get("labels", {}).get(GROUP_LABEL):
                groups[group].append(pod)
            elif pod["metadata"]["name"].startswith("single"):
                singles.append(pod)
        placed = [one for one in groups.values() if len(one) == MEMBERS and all(map(is_bound, one))]
        gone = [pod for pod in singles if is_bound(pod)][:4]
        gone += [pod for group in sorted(placed, key=age_of)[:1] for pod in group]
        for pod in gone:
            self._delete(pod["metadata"]["name"])
        for _ in range(self._singles - len(singles)):
            self._count += 1
            body = self._pod(f"single-{self._count}", SMALL, gated=False)
            self.cluster.box.client.create(self._path, body)
        for _ in range(self._gangs - len(groups)):
            self._count += 1
            self.cluster.pod_group(f"g{self._count}", MEMBERS)
            for at in range(MEMBERS):
                self.join(f"g{self._count}", f"g{self._count}-{at}")

    def join(self, group: str, name: str) -> None:
        """Create a member of a gang."""
        body = self._pod(name, SMALL, group=group, scheduler="koord-scheduler")
        self.cluster.box.client.create(self._path, body)

    def replace(self, pod: dict[str, Any], name: str) -> None:
        """Create the replacement of a rejected pod, as its controller does."""
        self.join(pod["metadata"]["labels"][GROUP_LABEL], name)

    def _pod(self, name: str, cpu: int, **options: Any) -> dict[str, Any]:
        made = make_pod(
            self.cluster.namespace, name, **{"scheduler": "default-scheduler", **options}
        )
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{cpu}m"}}
        return made

    def _delete(self, name: str) -> None:
        try:
            self.cluster.box.client.delete(f"{self._path}/{name}")
        except SandboxApiError as error:
            if error.status != 404:
                raise


def is_bound(pod: dict[str, Any]) -> bool:
    return "nodeName" in pod["spec"]


def age_of(group: list[dict[str, Any]]) -> str:
    created: str = group[0]["metadata"]["creationTimestamp"]
    return created


def share(cluster: Cluster, seconds: float, name: str) -> dict[str, Any]:
    """Let both schedulers place pods until some are rejected; return the figures."""
    tenants = Tenants(cluster)
    kubelets = Kubelets(cluster, tenants.settle_in(), tenants.replace)
    kubelets.look()
    fillers = len(kubelets.seen)
    end, next_reject = time.monotonic() + seconds, 0.0
    while time.monotonic() < end or not kubelets.rejected:
        if time.monotonic() > next_reject:
            kubelets.to_reject, next_reject = 1, time.monotonic() + 2.0
        tenants.turn_over(kubelets.look())
    kubelets.to_reject = 0
    cluster.expect(lambda: bool(kubelets.look()) and kubelets.is_whole, "all gangs are whole")
    binds = len(kubelets.seen) - fillers
    figures = {
        "binds": binds,
        "over_committed": kubelets.over_committed,
        "over_committed_share": kubelets.over_committed / binds,
        "rejected": kubelets.rejected,
        "repaired_seconds": sorted(kubelets.repaired_seconds),
    }
    write_figures(name, figures)
    return figures


@pytest.mark.timeout(120)
def test_gangs_are_repaired_after_kubelet_rejections(cluster: Cluster) -> None:
    figures = share(cluster, 8.0, "shared-nodes-short")
    assert figures["rejected"]
    assert len(figures["repaired_seconds"]) >= figures["rejected"] - figures["over_committed"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_double_booking_is_rare(cluster: Cluster) -> None:
    figures = share(cluster, 240.0, "shared-nodes")
    assert figures["over_committed_share"] <= OVER_COMMITTED_AT_MOST, figures
    assert figures["repaired_seconds"][-1] <= REPAIRED_WITHIN, figures
