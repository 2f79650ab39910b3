"""Reclaim in random clusters: it ends, spares guarantees, and leaves no partial gang."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import GPU, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.objects import upsert_pod_group, upsert_quota
from tests.support.laws import examples

from koord.core.engine.planner import plan
from koord.core.engine.scoring import Scoring
from koord.core.eviction import reclaim
from koord.core.eviction.reclaim import Reclaim, plan_reclaim
from koord.core.eviction.reclaim_need import Need
from koord.core.model.pods import RecordedPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from koord.core.model.pods import Pod

NODES, PER_NODE = 3, 8
NAMES = ("a", "b", "c")
MOST_ROUNDS = 12
"""Far above what any of these needs."""


class World:
    """A small cluster in which evicted pods are recreated, as by a Job."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"revoke {seed}")  # noqa: S311 - to be repeated
        self.cluster = make_cluster(NODES, gpus=PER_NODE)
        self.state, self.queue = self.cluster.state, self.cluster.queue
        self.minimum: dict[str, int] = {}
        self.lives = 0
        self.spareable: list[str] = []
        upsert_quota(self.state, make_quota("org", is_parent=True, max={GPU: 24}, min={GPU: 24}))
        for name in NAMES:
            least = rng.choice((0, 4, 8))
            parent = {"parent": "org"} if name != "c" or rng.random() < 0.5 else {}
            weight = rng.choice((None, {GPU: rng.randint(1, 5)}))
            upsert_quota(
                self.state,
                make_quota(name, min={GPU: least}, max={GPU: 24}, weight=weight, **parent),
            )

    def submit(self, quota: str) -> None:
        """Create single pods or a gang."""
        rng = self.rng
        gpus, count = rng.choice((1, 2, 4, 8)), rng.randint(1, 4)
        name = f"{quota}{len(self.state.pods)}"
        is_gang = rng.random() < 0.6
        if is_gang:
            self.minimum[name] = rng.randint(max(1, count - 1), count)
            group = make_pod_group(f"default/{name}", self.minimum[name])
            upsert_pod_group(self.state, group.build())
        for at in range(count):
            pod = make_pod(f"{name}-{at}").gpu(gpus).quota(quota).priority(rng.randint(0, 2))
            pod = pod.created(len(self.state.pods))
            self.state.upsert_pod((pod.gang(f"default/{name}") if is_gang else pod).build())

    def place(self) -> None:
        """Plan until nothing more finds a place; what is placed runs."""
        while units := self.cluster.take():
            for placement in self.cluster.decide(units).placements:
                for one in placement.assignments:
                    record = RecordedPlan(one.node, placement.plan_id, placement.group, 1, 1)
                    self.state.upsert_pod(
                        replace(one.pod, node=one.node, recorded=record, is_gated=False)
                    )

    def take_back(self) -> int:
        """Evict once for every quota; return how many pods went."""
        gone = 0
        without = self.state.quotas.without_leftovers
        for name in [name for name, unit in without.items() if unit not in self.queue.blocked]:
            del without[name]
        for name in NAMES:
            ledger = self.state.open_ledger()
            account = ledger.account(name)
            used = account.used.get(GPU, 0)
            least = ledger.solution(name).minimum(name).get(GPU, 0)
            found = plan_reclaim(self.state, ledger, name, self.queue.blocked.values())
            pods = [pod for one in found for pod in one.pods]
            assert not pods or used > least, f"{name} uses {used} of its own {least}"
            if found and found[0].beneficiary:
                self.spareable += self.find_spareable(found)
                self.state.quotas.without_leftovers[name] = found[0].beneficiary
            for pod in pods:
                self.recreate(pod)
            gone += len(pods)
            self.cluster.absorb()
        return gone

    def find_spareable(self, found: Sequence[Reclaim]) -> list[str]:
        """Return victims without whose eviction the same units could start."""
        every = self.startable(found)
        return [
            one.key
            for one in found
            if every <= self.startable([other for other in found if other is not one])
        ]

    def startable(self, gone: Sequence[Reclaim]) -> set[str]:
        units = [one.unit for one in self.queue.blocked.values()]
        with closing(self.state.open_cycle()) as cycle:
            cycle.remove(pod for one in gone for pod in one.pods)
            return {one.unit for one in plan(cycle, units, Scoring()).placements}

    def recreate(self, pod: Pod) -> None:
        self.state.remove_pod(pod.uid)
        self.lives += 1
        again = replace(pod, uid=f"{pod.uid}.{self.lives}", node="", recorded=None, is_gated=True)
        self.state.upsert_pod(again)

    def partial_gangs(self) -> list[str]:
        found = []
        for name, least in self.minimum.items():
            members = self.state.gangs.members(f"default/{name}").values()
            running = sum(bool(pod.node) for pod in members)
            if 0 < running < least:
                found.append(f"{running} of {least} of {name}")
        return found


def play(seed: int, spareable: list[str] | None = None) -> int:
    """Fill a cluster, add units of other quotas; return the number of evicted pods."""
    world = World(seed)
    if spareable is not None:
        world.spareable = spareable
    first, *others = world.rng.sample(NAMES, 3)
    for _ in range(world.rng.randint(1, 6)):
        world.submit(first)
    world.place()
    for _ in range(world.rng.randint(1, 6)):
        world.submit(world.rng.choice((first, *others, *others)))
    world.place()
    evicted = 0
    for _ in range(MOST_ROUNDS):
        gone = world.take_back()
        assert not world.partial_gangs()
        if not gone:
            return evicted
        evicted += gone
        world.place()
        assert not world.partial_gangs()
    raise AssertionError(f"seed {seed}: evicting does not end")


def play_all(clusters: int) -> int:
    """Return the number of clusters with evictions."""
    return sum(play(seed) > 0 for seed in range(clusters))


def test_evictions_come_to_an_end() -> None:
    assert play_all(count := examples(20)) > count // 8


def test_hardly_any_victim_can_be_spared() -> None:
    """Where the planner puts units depends on their order: it may find room for others yet."""
    spareable: list[str] = []
    seeds = range(examples(24))
    evicted = sum(play(seed, spareable) for seed in seeds)
    assert evicted > len(seeds)
    assert len(spareable) < evicted / 25


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_evictions_come_to_an_end_in_thousands_of_clusters() -> None:
    assert play_all(3000) > 400


def test_evictions_without_a_beneficiary_would_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = lambda *given: Need(given[2].units, "somebody")  # noqa: E731
    monkeypatch.setattr(reclaim, "find_need", everything)
    with pytest.raises(AssertionError):
        play_all(150)


def test_gang_below_its_minimum_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def all_are_surplus(self: reclaim._QuotaPods, gang: str) -> list[Pod]:
        members = self._state.gangs.members(gang).values()
        return [pod for pod in members if pod.node]

    monkeypatch.setattr(reclaim._QuotaPods, "_surplus_of", all_are_surplus)
    with pytest.raises(AssertionError):
        play_all(150)
