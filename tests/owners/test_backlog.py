"""Owners of thousands of pods that change all the time: bounded looks at a time, in turns."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.owners.frameworks import LWS, Jobs, owned, replica
from tests.owners.test_worked_examples import GPT, pytorch

from koord.core.model.pods import Handling
from koord.core.owners.backlog import LOOKS, PAUSE_SECONDS

MANY = 10 * LOOKS


def roles(*names: str, namespace: str = "default", **metadata: Any) -> dict[str, Any]:
    job = pytorch("gpt", {"pytorchReplicaSpecs": {name: {"replicas": MANY} for name in names}})
    uid = f"uid-{namespace}"
    return {**job, "metadata": {**job["metadata"], "namespace": namespace, "uid": uid, **metadata}}


class Turns:
    """A planner that is in use, and what its turns cost."""

    def __init__(self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs, self.now, self.looks = jobs, 1000.0, Counter[str]()
        plugin = type(jobs.owners)
        for name in ("_find", "_declare"):
            monkeypatch.setattr(plugin, name, self._count(name, getattr(plugin, name)))
        jobs.state.refresh()
        self.turn()
        self.looks.clear()

    def _count(self, name: str, real: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            self.looks[name] += 1
            return real(*arguments)

        return counted

    def turn(self) -> None:
        self.now += PAUSE_SECONDS
        self.jobs.state.advance(self.now)

    def settle(self) -> None:
        while self.jobs.owners.next_due() is not None:
            self.turn()


def make_pods(job: dict[str, Any], count: int = MANY) -> list[Any]:
    namespace = job["metadata"]["namespace"]
    pods = (replica(job, "worker", at) for at in range(count))
    return [replace(p, uid=f"{namespace}-{p.name}", namespace=namespace) for p in pods]


OPTED_OUT = {"annotations": {"operators.koordinator.sh/owner-grouping": "false"}}


@pytest.mark.parametrize(
    "changed", [roles("Worker", "Chief"), roles("Worker", **OPTED_OUT), roles("Chief")]
)
def test_a_change_of_an_owner_of_thousands(
    changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = roles("Worker")
    jobs = Jobs().own_objects(first).pods(*make_pods(first))
    turns = Turns(jobs, monkeypatch)
    for _ in range(10):  # between two turns
        jobs.own_objects(changed).own_objects(first)
    jobs.own_objects(changed)
    assert turns.looks.total() <= 3 * LOOKS
    turns.turn()
    assert turns.looks.total() <= 6 * LOOKS
    # A job of somebody else does not wait for all of these.
    other = roles("Worker", namespace="other")
    jobs.pods(*make_pods(other, 2))
    jobs.own_objects(other)
    turns.turn()
    assert "#" in jobs.state.pods["other-gpt-worker-1"].gang.key
    assert jobs.owners.owner_of(jobs.state.pods["other-gpt-worker-1"].gang.key) is not None
    turns.settle()
    assert turns.looks.total() <= 4 * MANY + LOOKS
    fresh = Jobs().own_objects(changed).pods(*make_pods(first))
    for uid, pod in fresh.state.pods.items():
        assert jobs.state.pods[uid] == pod


def test_an_owner_of_a_thousand_gangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def lws(size: int) -> dict[str, Any]:
        spec = {"replicas": MANY, "leaderWorkerTemplate": {"size": size}}
        meta = {"name": "l", "namespace": "default"}
        return {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": meta,
            "spec": spec,
        }

    labels = ({f"{LWS}group-index": str(at), f"{LWS}worker-index": "0"} for at in range(MANY))
    pods = [owned(f"l-{at}", lws(4), each) for at, each in enumerate(labels)]
    jobs = Jobs().own_objects(lws(4)).pods(*pods)
    assert len({pod.gang.key for pod in jobs.state.pods.values()}) == MANY
    turns = Turns(jobs, monkeypatch)
    for size in range(5, 25):
        jobs.own_objects(lws(size))
    turns.turn()
    assert turns.looks.total() <= 3 * LOOKS
    turns.settle()
    assert {jobs.spec_of(pod.name).min_member for pod in pods} == {24}


def test_a_pod_of_ours_among_thousands_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    job = roles("Worker")
    pods = make_pods(job)
    others = [replace(pod, handling=Handling.NOT_OURS, is_gated=False) for pod in pods[1:]]
    jobs = Jobs().own_objects(job).pods(*others)
    turns = Turns(jobs, monkeypatch)
    for _ in range(10):
        jobs.pods(pods[0])
        jobs.state.remove_pod(pods[0].uid)
    jobs.pods(pods[0])
    assert turns.looks.total() <= 4 * LOOKS
    turns.settle()
    assert {pod.gang is not None for pod in jobs.state.pods.values()} == {True}


def test_before_the_first_plan_all_is_looked_at() -> None:
    jobs = Jobs()
    pods = [replica(GPT, "worker", at) for at in range(2 * LOOKS)]
    jobs.pods(*pods)
    jobs.state.advance(1.0)
    jobs.own_objects(GPT)
    assert jobs.owners.next_due() is None
    assert {jobs.gang_name(pod.name) for pod in pods} == {"pytorchjob:gpt"}
