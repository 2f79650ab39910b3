"""Plays jobs on the planner by the clock: real nodes, limits, quotas, topology and devices.

A minute is long here, so that what it takes to kill a pod does not matter.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from tests.builders import make_node, make_pod, make_pod_group, make_quota
from tests.cluster import FakeCluster

from koord.core.engine.queue import find_pending
from koord.core.model.pods import RecordedPlan
from koord.core.model.run_terms import RunTerms
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.queue.plugin import QueueOptions, Queues
from koord.core.queue.run_time import QueueHints
from koord.core.quota.model import QuotaOptions
from koord.core.topology.layers import Layer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.builders import PodBuilder, PodGroupBuilder

    from koord.core.queue.turns import Turn

GPU = "nvidia.com/gpu"
BLOCK = TopologyConstraint((LayerConstraint("Block", GatherStrategy.MUST),))
MINUTE = 6000
NOW = 1_000_000_000
_BY_SHARE = QuotaOptions()
_TIMES = {"protect_after", "short_limit", "max_hold", "hold_cool_down", "age_step", "max_wait"}


@dataclass
class Job:
    """``count`` pods of ``gpus`` each, which arrive ``at`` a minute and run for some minutes."""

    name: str
    size: str
    minutes: int
    at: int
    limit: int | None = None
    """In minutes; 0: none; None: as long as it runs."""
    expected: int | None = None
    """What its owner says of it, in minutes."""
    priority: int = 0
    quota: str = "team"
    gathers: TopologyConstraint | None = None
    user: str = ""
    is_held: bool = False

    @property
    def count(self) -> int:
        return int(self.size.split("x")[0])

    @property
    def gpus(self) -> int:
        return int(self.size.split("x")[1])

    def group(self) -> PodGroupBuilder:
        return make_pod_group(f"default/{self.name}", self.count).topology(self.gathers)

    def pods(self) -> list[PodBuilder]:
        limit = self.minutes if self.limit is None else self.limit
        stated = None if self.expected is None else self.expected * MINUTE
        terms = RunTerms(user=self.user, expected_run_time=stated)
        hints = QueueHints(self.is_held, limit * MINUTE if limit else None, terms)
        pods = []
        for number in range(self.count):
            pod = make_pod(f"{self.name}-{number}").gpu(self.gpus).quota(self.quota)
            pod = pod.created(NOW + self.at * MINUTE).priority(self.priority)
            pod = pod.says((("queue", hints),))
            pods.append(pod.gang(f"default/{self.name}") if self.count > 1 else pod)
        return pods


@dataclass
class Play:
    """A cluster on which jobs arrive, run and end."""

    cluster: FakeCluster
    starts: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    """Job -> the names of its nodes, put together."""
    ends: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    events: dict[int, Callable[[], object]] = field(default_factory=dict)

    def running(
        self, name: str, size: str, nodes: str, minutes: int, limit: int | None = None, **says: Any
    ) -> Self:
        """Have a job run from the beginning on."""
        job = self.jobs[name] = Job(name, size, minutes, 0, limit, **says)
        self.ends[name] = minutes
        for pod, node in zip(job.pods(), nodes, strict=True):
            built = pod.running(node).build()
            self.cluster.pods(replace(built, gang=None, started=float(NOW)))
        return self

    def step(self, minute: int) -> None:
        """Play a minute: ends, then plans."""
        now = float(NOW + minute * MINUTE)
        self.cluster.state.advance(now)
        for name in [name for name, end in self.ends.items() if end == minute]:
            del self.ends[name]
            count = self.jobs[name].count
            self.cluster.delete_pods(*(f"{name}-{number}" for number in range(count)))
        if minute in self.events:
            self.events[minute]()
        for job in [job for job in self.jobs.values() if job.at == minute]:
            if job.name not in self.starts and job.name not in self.ends:
                if job.count > 1:
                    self.cluster.pod_groups(job.group())
                self.cluster.pods(*job.pods())
        placed = self.cluster.step(now)
        while (due := self.cluster.state.next_due()) is not None and due <= now:
            placed += self.cluster.step(now)
        for name in placed:
            job = self.jobs[name.rsplit("-", 1)[0]]
            self.starts[job.name] = minute
            self.ends[job.name] = minute + job.minutes
            pod = self.cluster.pod(name)
            self.nodes[job.name] = self.nodes.get(job.name, "") + pod.node
            observed = self.cluster.state.observed(pod.uid)
            assert observed is not None
            group = "" if observed.gang is None else observed.gang.key
            recorded = RecordedPlan(pod.node, job.name, group, job.count, quota=job.quota)
            self.cluster.pods(replace(observed, node=pod.node, started=now, recorded=recorded))

    def play(self, *jobs: Job, until: int = 300) -> str:
        """Return the starts of jobs in minutes: ``name minute, name minute``."""
        self.jobs |= {job.name: job for job in jobs}
        for minute in range(until):
            if all(job.name in self.starts for job in jobs):
                break
            self.step(minute)
        return ", ".join(f"{job.name} {self.starts.get(job.name)}" for job in jobs)


def play_on(
    nodes: str,
    *,
    policy: str = "Backfill",
    blocks: dict[str, str] | None = None,
    quota: QuotaOptions = _BY_SHARE,
    **settings: Any,
) -> Play:
    """Return a cluster of nodes with 8 GPUs; times in minutes."""
    values: dict[str, Any] = {
        "policy": policy,
        "protect_after": 0,
        "max_hold": 10**9,
        "age_tiers": 0,
    }
    values |= {
        name: value * MINUTE if name in _TIMES else value for name, value in settings.items()
    }
    cluster = FakeCluster(queue=QueueOptions(values, are_users_stamped=True), quota=quota)
    for name in nodes:
        node = make_node(name).gpu(8)
        cluster.nodes(node.label("block", blocks[name]) if blocks else node)
    if blocks:
        cluster.topology(Layer("Block", "", ("block",)), Layer(NODE_LAYER, "Block"))
    cluster.quotas(make_quota("team", max={GPU: 999}))
    cluster.state.advance(float(NOW))
    return Play(cluster)


def turns_of(cluster: FakeCluster) -> list[Turn]:
    """Return the turns of all that wait."""
    state = cluster.state
    state.refresh()
    pending = find_pending(state)
    with closing(state.open_cycle(lambda: pending)) as cycle:
        return list(state.plugin(Queues).turns(cycle, {unit.key for unit in pending}))
