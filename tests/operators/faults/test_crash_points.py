"""The leader is killed before or after its n-th write, and the follower recovers.

A crash point is a number of writes that the API server has carried out, in a scenario with gangs of
every kind. The result is judged by API objects alone.
"""

import os
from itertools import count

import pytest
from aiohttp import web
from tests.operators.conftest import Cluster
from tests.operators.faults.conftest import ProxiedPair
from tests.operators.judge import find_faults, find_torn_gangs
from tests.operators.replicas import Replica
from tests.support.fault_proxy import Do, FaultProxy
from tests.support.figures import write_figures

CONVERGES_WITHIN = 10.0
GANGS = {
    "gated": (6, 6, {}),
    "more": (5, 3, {}),
    "pinned": (4, 3, {"scheduler": "default-scheduler"}),
    "ungated": (4, 4, {"gated": False}),
    "huge": (30, 30, {}),
}
"""Name -> members, minimum, options of the pods; the last one does not fit."""
NODES = 21


class Scene:
    """The gangs of one round."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._cluster = cluster
        self._number = number
        self.pods = {
            f"{name}{number}-{at}"
            for name, (size, _, _) in GANGS.items()
            for at in range(size)
            if name != "huge"
        } | {f"single{number}", f"left{number}"}

    def create(self) -> None:
        for name, (size, _, options) in GANGS.items():
            for at in range(size):
                gang = f"{name}{self._number}"
                self._cluster.pod(f"{gang}-{at}", group=gang, **options)
        for name, (_, least, _) in GANGS.items():
            self._cluster.pod_group(f"{name}{self._number}", least)
        self._cluster.pod(f"single{self._number}")
        self._cluster.pod(f"left{self._number}", scheduler="default-scheduler")

    @property
    def is_placed(self) -> bool:
        return self.pods <= set(self._cluster.bound())

    def clear(self) -> None:
        client, namespace = self._cluster.box.client, self._cluster.namespace
        client.delete(f"/api/v1/namespaces/{namespace}/pods")
        client.delete(self._cluster.groups_path)
        self._cluster.expect(lambda: not self._cluster.pods(), "the pods are gone")


def plan_crash(proxy: FaultProxy, leader: Replica, writes: int, *, is_before: bool) -> None:
    """Kill the leader before or after its n-th write from now on."""
    numbers = count(1)

    def is_nth(request: web.Request) -> bool:
        is_counted = request.method != "GET" and "/leases" not in request.path
        return is_counted and next(numbers) == writes

    do = Do.DROP if is_before else Do.LOSE_REPLY
    proxy.plan(is_nth, do, then=lambda: os.kill(leader.pid, 9))


def crash(pair: ProxiedPair, number: int, writes: int, *, is_before: bool) -> float:
    """Kill the leader at one point; return the seconds from the election to the last binding."""
    leader, follower = pair.find_leader()
    scene = Scene(pair.cluster, number)
    pair.thread.do(lambda proxy: plan_crash(proxy, leader, writes, is_before=is_before))
    scene.create()
    pair.expect(lambda: not leader.is_running(), f"it dies at write {writes}")
    faults = find_faults(pair.cluster)
    pair.free_lease()
    pair.expect(lambda: follower.leads, "the other one leads")
    took = pair.expect(lambda: scene.is_placed, "everything is placed that can be")
    pair.thread.do(FaultProxy.heal)
    assert faults + find_faults(pair.cluster) == []
    assert find_torn_gangs(pair.cluster) == []
    assert set(pair.cluster.bound()) == scene.pods
    leader.start()
    scene.clear()
    return took


def check_crashes(pair: ProxiedPair, points: list[tuple[int, bool]], name: str) -> None:
    pair.cluster.add_nodes(NODES)
    rounds = []
    for number, (writes, is_before) in enumerate(points):
        took = crash(pair, number, writes, is_before=is_before)
        rounds.append({"writes": writes, "is_before": is_before, "converged_seconds": took})
        write_figures(name, {"points": rounds})
    slowest = max(one["converged_seconds"] for one in rounds)
    assert slowest <= CONVERGES_WITHIN, rounds


@pytest.mark.timeout(120)
def test_next_process_finishes_interrupted_gangs(pair: ProxiedPair) -> None:
    check_crashes(pair, [(3, False), (9, True), (20, False)], "crash-points-few")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_before", [False, True], ids=["after", "before"])
def test_crash_at_every_write(pair: ProxiedPair, *, is_before: bool) -> None:
    name = f"crash-points-{'before' if is_before else 'after'}"
    check_crashes(pair, [(writes, is_before) for writes in range(1, 41)], name)
