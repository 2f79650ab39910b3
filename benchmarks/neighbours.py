"""Hostile pods beside ordinary ones: what they cost the others.

    python -m benchmarks.neighbours

Ordinary single pods are created all the time: first alone, then while another namespace creates
gangs with as many different affinity terms as may be, pods that request names that no node has, a
group of many gangs that all list each other, and a deep tree of sub-groups. Latencies are those of
the ordinary pods, from creation to binding.
"""

import argparse
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import msgspec

from benchmarks.cluster import Cluster, open_cluster
from benchmarks.measure import Laboratory, percentile
from benchmarks.objects import Pod, groups_path, make_group, make_namespace, make_pod, pods_path
from benchmarks.outage import find_latencies, spread
from benchmarks.processes import ROOT
from benchmarks.scenarios import CPU, Who
from koord.api.keys import gang, operators

ORDINARY, HOSTILE = "ordinary", "hostile"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/koord-system/leases/koord-operators"
TERMS, SIZE, GANGS, DEPTH = 64, 30, 250, 8


class Figures(msgspec.Struct, frozen=True):
    """The result; latencies are of ordinary pods."""

    nodes: int
    pods: int
    hostile_objects: int
    not_bound: int
    p50_ms_alone: float
    p99_ms_alone: float
    p50_ms_beside: float
    p99_ms_beside: float
    leader_stays: bool


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neighbours", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each of both phases")
    parser.add_argument(
        "--json", type=Path, default=ROOT / "build" / "faults" / "neighbours.json", metavar="FILE"
    )
    options = parser.parse_args()
    with open_cluster() as cluster:
        figures = measure_hostile(cluster, options.nodes, options.seconds)
    text = msgspec.json.format(msgspec.json.encode(figures), indent=2)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(text + b"\n")
    print(text.decode())


def measure_hostile(cluster: Cluster, nodes: int, seconds: float) -> Figures:
    """Run the operators with ordinary pods alone, then with hostile ones beside them."""
    for name in (ORDINARY, HOSTILE):
        cluster.box.client.create("/api/v1/namespaces", make_namespace(name))
    cluster.furnish(nodes, 0)
    with Laboratory(cluster).make_contender(Who.OPERATORS) as contender:
        contender.wait_ready()
        leader = _read_leader(cluster)
        alone = _look(cluster, contender.scheduler, "a", seconds)
        attack = _Attack(cluster, contender.scheduler, seconds)
        attack.start()
        beside = _look(cluster, contender.scheduler, "b", seconds)
        attack.join()
        stays = _read_leader(cluster) == leader
        contender.check()
    pods = int(seconds * 4)
    return Figures(
        nodes=nodes,
        pods=pods,
        hostile_objects=attack.created,
        not_bound=2 * pods - len(alone) - len(beside),
        p50_ms_alone=percentile(alone, 50) * 1000,
        p99_ms_alone=percentile(alone, 99) * 1000,
        p50_ms_beside=percentile(beside, 50) * 1000,
        p99_ms_beside=percentile(beside, 99) * 1000,
        leader_stays=stays,
    )


def _read_leader(cluster: Cluster) -> tuple[str, int]:
    """Return who leads, and how often that has changed."""
    spec = cluster.box.client.get(LEASE)["spec"]
    return spec["holderIdentity"], spec.get("leaseTransitions", 0)


def _look(cluster: Cluster, scheduler: str, prefix: str, seconds: float) -> list[float]:
    """Create ordinary pods, four a second; return how long each waited."""
    cluster.forget_writes()
    for number in spread(int(seconds * 4), seconds):
        pod = Pod(ORDINARY, f"{prefix}-{number}", CPU, scheduler, gated=True)
        cluster.box.client.create(pods_path(ORDINARY), make_pod(pod))
    sleep(5.0)
    return list(find_latencies(cluster.read_writes(), ORDINARY))


class _Attack(threading.Thread):
    """Creates hostile objects, evenly over the time."""

    def __init__(self, cluster: Cluster, scheduler: str, seconds: float) -> None:
        super().__init__(name="attack", daemon=True)
        self.created = 0
        self._client = cluster.box.client
        self._scheduler = scheduler
        self._seconds = seconds

    def run(self) -> None:
        bodies = [*self._make_all()]
        for at in spread(len(bodies), self._seconds * 0.9):
            path, body = bodies[at]
            self._client.create(path, body)
            self.created += 1

    def _make_all(self) -> Iterator[tuple[str, dict[str, Any]]]:
        names = [f"{HOSTILE}/closure-{at:03}" for at in range(GANGS)]
        for at in range(GANGS):
            yield _make_group(f"closure-{at:03}", 1, {gang.GROUPS: json.dumps(names)})
            yield pods_path(HOSTILE), self._make_pod(f"closure-{at:03}-0", f"closure-{at:03}")
            made_up = self._make_pod(f"made-up-{at:03}")
            requests = {f"example.com/r{at}-{more}": "1" for more in range(50)}
            resources = {"requests": requests, "limits": requests}
            made_up["spec"]["containers"][0]["resources"] = resources
            yield pods_path(HOSTILE), made_up
        for job in range(4):
            yield _make_group(f"terms-{job}", SIZE, {})
            for member in range(SIZE):
                body = self._make_pod(f"terms-{job}-{member}", f"terms-{job}")
                terms = [_make_term(f"{job}-{member}-{at}") for at in range(TERMS)]
                body["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: terms}}
                yield pods_path(HOSTILE), body
        tree = [
            {"name": f"s{at}", "minMember": 1, "parent": f"s{at - 100}" if at >= 100 else ""}
            for at in range(100 * DEPTH)
        ]
        yield _make_group("tree", 10, {operators.SUB_GROUPS: json.dumps({"groups": tree})})
        for at in range(50):
            body = self._make_pod(f"tree-{at}", "tree")
            body["metadata"]["annotations"] = {operators.SUB_GROUP: f"s{at * 16}"}
            yield pods_path(HOSTILE), body

    def _make_pod(self, name: str, group: str = "") -> dict[str, Any]:
        return make_pod(Pod(HOSTILE, name, CPU, self._scheduler, group=group, gated=True))


def _make_group(name: str, members: int, annotations: dict[str, str]) -> tuple[str, dict[str, Any]]:
    group = make_group(name, members)
    group["metadata"] |= {"namespace": HOSTILE, "annotations": annotations}
    return groups_path(HOSTILE), group


def _make_term(key: str) -> dict[str, Any]:
    """Return a term that differs from all others and selects all pods of the namespace."""
    lacking = {"key": f"no-{key}", "operator": "DoesNotExist"}
    return {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchExpressions": [lacking]},
    }


if __name__ == "__main__":
    main()
