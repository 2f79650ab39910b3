"""Pods are moved while processes crash, requests are lost, and people interfere.

A ReplicaSet has pods on the nodes, which jobs move: alone, in a group, or in ways that cannot come
to an end. A crash may come before or after any write. Judged from objects alone: nobody is evicted
without a place that is reserved for what replaces it, no more pods than the limits say are away,
and in the end every job is over and no reservation is left.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.model.network import CrashPoint, Fault
from tests.model.objects import (
    NAMESPACE,
    PodPlan,
    condition_of,
    is_alive,
    is_terminating,
    name_of,
    node_of,
    uid_of,
)
from tests.model.steps import quiet
from tests.model.store import MIGRATION_JOBS, PODS, REPLICA_SETS, RESERVATIONS, Event, Obj
from tests.model.world import World, open_world

from koord.api.keys import migration as keys
from koord.kube.client import Media
from koord.operators.names import PLACEMENT, POD_GROUP, RESERVATION
from koord.runtime.settings import Settings

PATH: Final = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
_SETS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
KINDS: Final = (
    "one",
    "two",
    "group",
    "no room",
    "pause",
    "deleted",
    "pod deleted",
    "short ttl",
    "late group",
)
_TTL: Final = 60
_OVER: Final = ("Succeeded", "Failed")
FAULTS: Final = (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.UNAVAILABLE, Fault.SLOW)


@dataclass(frozen=True, slots=True)
class Move:
    """What is to be moved, and what happens meanwhile; everything is made from a seed."""

    seed: int
    crash: CrashPoint | None = None
    has_faults: bool = False

    @property
    def kind(self) -> str:
        return KINDS[self.seed % len(KINDS)]


@dataclass(slots=True)
class MoveResult:
    """How a move ended."""

    violations: list[str] = field(default_factory=list)
    writes: int = 0
    """Of the first process."""
    phases: dict[str, str] = field(default_factory=dict)
    evicted: int = 0
    has_crashed: bool = False


@dataclass(slots=True)
class _Cluster:
    """A ReplicaSet with its controller, and a witness of all evictions."""

    world: World
    result: MoveResult
    replicas: int
    replacements: int = 0
    _seen: set[str] = field(default_factory=set)

    def control(self) -> None:
        """Create what is missing, and have what runs become ready."""
        pods = [pod for pod in self.world.pods() if _is_of_set(pod) and is_alive(pod)]
        for pod in pods:
            ready = condition_of(pod, "Ready")
            if pod["status"]["phase"] == "Running" and ready is None:
                patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
                path = f"{_PODS}/{name_of(pod)}/status"
                self.world.request("PATCH", path, patch, Media.STRATEGIC_MERGE_PATCH)
        for _ in range(len(pods), self.replicas):
            self.replacements += 1
            self.create(f"new-{self.replacements}")

    def create(self, name: str) -> None:
        body = PodPlan(name, gpus=4).render()
        (owner,) = self.world.server.store.all(REPLICA_SETS)
        body["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "web",
                "uid": uid_of(owner),
                "controller": True,
            }
        ]
        body["metadata"]["labels"] = {"app": "web"}
        self.world.request("POST", _PODS, body)

    def witness(self, event: Event) -> None:
        """Judge an eviction in the moment in which the server takes it."""
        pod = event.obj
        if event.kind != PODS or not is_terminating(pod) or uid_of(pod) in self._seen:
            return
        self._seen.add(uid_of(pod))
        reason = condition_of(pod, "DisruptionTarget")
        if reason is None or reason["status"] != "True":
            return  # by a user
        self.result.evicted += 1
        if self._count_places(node_of(pod)) < self._count_missing():
            self.result.violations.append(f"{name_of(pod)} was evicted without a reserved place")

    def _count_places(self, node: str) -> int:
        """Count places elsewhere; what replaces one pod of a workload may use that of another."""
        statuses = (one.get("status") or {} for one in self.world.server.store.all(RESERVATIONS))
        return sum(
            status.get("phase") == "Available" and status.get("nodeName") not in {None, node}
            for status in statuses
        )

    def _count_missing(self) -> int:
        """Count replicas that have no node, the evicted pod among them."""
        pods = [pod for pod in self.world.pods() if _is_of_set(pod) and is_alive(pod)]
        return self.replicas - sum(bool(node_of(pod)) for pod in pods)


def _is_of_set(pod: Obj) -> bool:
    return bool(pod["metadata"].get("ownerReferences"))


def _make_job(name: str, pod: str, group: str = "", size: int = 0, ttl: int = _TTL) -> Obj:
    labels = {keys.GROUP: group} if group else {}
    annotations = {keys.GROUP_SIZE: str(size)} if group else {}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"podRef": {"namespace": NAMESPACE, "name": pod}, "ttl": f"{ttl}s"},
    }


def _make_jobs(move: Move, rng: random.Random) -> list[Obj]:
    if move.kind in {"group", "late group"}:
        ttls = [_TTL, _TTL] if move.kind == "group" else [rng.randint(2, 5) for _ in range(2)]
        return [_make_job(f"job-{at}", f"web-{at}", "both", 2, ttls[at]) for at in range(2)]
    if move.kind == "two":
        return [_make_job(f"job-{at}", f"web-{at}") for at in range(2)]
    ttl = rng.randint(1, 6) if move.kind == "short ttl" else _TTL
    return [_make_job("job-0", "web-0", ttl=ttl)]


def run_move(move: Move) -> MoveResult:
    """Run a move to its end."""
    rng, result = random.Random(f"move {move.seed}"), MoveResult()
    with quiet(), open_world(move.seed) as world:
        world.operators = (PLACEMENT, POD_GROUP, RESERVATION, "podmigrationjob")
        world.settings = Settings.model_validate(
            {
                "elasticQuota": {"reclaim": False},
                "migration": {
                    "enabled": True,
                    "memory": "5s",
                    "evictBurst": 4,
                    "objectLimiters": {"workload": None},
                },
            }
        )
        cluster = _Cluster(world, result, replicas=4)
        world.server.store.listeners.append(cluster.witness)
        body = {"metadata": {"name": "web"}, "spec": {"replicas": 4}}
        world.request("POST", _SETS, body)
        for at in range(2 if move.kind == "no room" else 4):
            world.add_node(f"n{at}", 8)
        world.start()
        for at in range(4):
            cluster.create(f"web-{at}")
        _pass(world, cluster, 6.0)
        first = world.processes[-1]
        result.writes -= first.writes
        if move.crash is not None:
            at = CrashPoint(first.writes + move.crash.write, move.crash.is_before)
            first.crash = at
        if move.has_faults:
            world.inject_faults(FAULTS, 0.1, rng.choice((0.02, 0.3)))
        for job in _make_jobs(move, rng):
            world.request("POST", PATH, job)
        _pass(world, cluster, rng.uniform(0.2, 4.0))
        _interfere(world, move.kind)
        _pass(world, cluster, 10.0)
        if move.kind == "pause":
            _set_paused(world, is_paused=False)
        _pass(world, cluster, 20.0)
        world.network.injected = type(world.network.injected)()
        _pass(world, cluster, 40.0)
        result.writes += first.writes
        result.has_crashed = len(world.processes) > 1
        _judge(world, result)
        if any(_find_left(world)):  # at the latest when the jobs are forgotten
            _pass(world, cluster, 700.0, every=10.0)
        result.violations += _find_left(world)
    return result


def _pass(world: World, cluster: _Cluster, seconds: float, every: float = 0.5) -> None:
    until = world.loop.time() + seconds
    while world.loop.time() < until:
        world.advance(min(every, until - world.loop.time()))
        cluster.control()


def _interfere(world: World, kind: str) -> None:
    if kind == "pause":
        _set_paused(world, is_paused=True)
    elif kind == "deleted":
        world.request("DELETE", f"{PATH}/job-0")
    elif kind == "pod deleted":
        world.delete_pod("web-0")


def _set_paused(world: World, *, is_paused: bool) -> None:
    world.request("PATCH", f"{PATH}/job-0", {"spec": {"paused": is_paused}}, Media.MERGE_PATCH)


def _judge(world: World, result: MoveResult) -> None:
    """Judge what must hold when all have had their time."""
    for job in world.server.store.all(MIGRATION_JOBS):
        phase = (job.get("status") or {}).get("phase", "Pending")
        result.phases[name_of(job)] = phase
        if phase not in _OVER:
            result.violations.append(f"{name_of(job)} is not over: {job.get('status')}")
        place = world.server.store.get(RESERVATIONS, ("", uid_of(job)))
        holds = place is not None and (place.get("status") or {}).get("phase") not in _OVER
        if phase == "Failed" and not _was_evicted(world, job) and holds:
            result.violations.append(f"{name_of(job)} has failed, and keeps a place")
    waiting = [pod for pod in world.pods() if not node_of(pod)]
    if waiting:
        result.violations.append(f"{len(waiting)} pods wait for a place that is there")
    result.violations += [
        text for text in world.ledger.violations if "capacity" in text or "unexpectedly" in text
    ]


def _was_evicted(world: World, job: Obj) -> bool:
    """Whether the pod of a job has gone because of it, as far as one can see."""
    names = {name_of(pod) for pod in world.pods() if is_alive(pod)}
    is_there = job["spec"]["podRef"]["name"] in names
    return condition_of(job, "Eviction") is not None and not is_there


def _find_left(world: World) -> Iterator[str]:
    for one in world.server.store.all(RESERVATIONS):
        phase = (one.get("status") or {}).get("phase", "Pending")
        if phase not in _OVER:
            yield f"the reservation {name_of(one)} is left, {phase}"
