"""Random jobs: single pods, and gangs with all that they may ask."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from tests.builders import GPU, PodBuilder, make_pod, make_pod_group
from tests.recorded.traits import choose_traits
from tests.recorded.world import APPS, GIB, NAMESPACES, World

from koord.core.model.gangs import (
    ROOT,
    GangMode,
    MatchPolicy,
    OnMemberFailure,
    SubGroup,
    SubGroupTree,
)
from koord.core.model.pods import Handling
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.plugins.volumes import VolumeClaim

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.recorded.quotas import Quotas
    from tests.recorded.traits import Trait

    from koord.core.model.gangs import ObservedPodGroup
    from koord.core.model.pods import Pod

WAIT_SECONDS = (20, 60, 600)


@dataclass(frozen=True)
class Role:
    """Pods that ask the same."""

    requests: dict[str, int]
    traits: tuple[Trait, ...] = ()


@dataclass
class Job:
    """A single pod, some alike, or the gangs of one group; with what is to be counted about it."""

    name: str
    namespace: str
    app: str
    quota: str = ""
    is_non_preemptible: bool = False
    priority: int = 0
    handling: Handling = Handling.RELEASE_AND_BIND
    roles: list[Role] = field(default_factory=list)
    groups: list[ObservedPodGroup] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    claims: list[VolumeClaim] = field(default_factory=list)
    features: set[str] = field(default_factory=set)


class JobMaker:
    """Makes jobs for one world, one second after the other."""

    def __init__(self, world: World, quotas: Quotas) -> None:
        self.world = world
        self.dice = world.dice
        self.quotas = quotas
        self._number = count()
        self._clock = count(1)

    def make(self) -> Job:
        """Make any job."""
        kinds = (
            (self._add_singles, 5),
            (self._add_gang, 5),
            (self._add_gang_group, 3),
            (self._add_started_gang, 3),
            (self._add_released_gang, 2),
            (self._add_released_single, 1),
            (self._add_nested_gang, 3),
        )
        makers, weights = zip(*kinds, strict=True)
        job = self._begin()
        (add,) = self.dice.choices(makers, weights)
        add(job)
        if len(job.roles) > 1:
            job.features.add("several shapes")
        if job.is_non_preemptible:
            job.features.add("non-preemptible")
        return job

    def make_large(self, quota: str, nodes: int) -> Job:
        """Make a gang of whole nodes with 8 GPUs."""
        job = self._begin()
        job.quota, job.is_non_preemptible = quota, False
        job.roles = [Role({"cpu": 1000, GPU: 8})]
        job.features = {"gang", "more than a share"}
        self._add_members(job, self._add_group(job, "g", nodes), nodes)
        return job

    def make_replacement(self, job: Job, lost: Pod) -> Pod:
        """Make a pod like one that is gone."""
        name = f"{lost.name}-again-{next(self._number)}"
        return replace(
            lost,
            name=name,
            uid=f"uid-{lost.namespace}-{name}",
            created=float(next(self._clock)),
            node="",
            recorded=None,
            pinned=False,
            phase=type(lost.phase)("Pending"),
            handling=job.handling,
            is_gated=job.handling is not Handling.BIND,
        )

    # Parts of jobs

    def _begin(self) -> Job:
        dice, number = self.dice, next(self._number)
        app = dice.choice(APPS)
        namespace = dice.choice(("default", "default", *NAMESPACES))
        job = Job(f"j{number}", namespace, app, priority=dice.choice((0, 0, 0, 0, 5, -5)))
        for _ in range(dice.choice((1, 1, 1, 1, 1, 2, 2, 3, 5))):
            traits = choose_traits(self.world, app, job.features)
            job.roles.append(Role(self._requests(), tuple(traits)))
        if "volume" in job.features:
            job.namespace = "default"
        chance = dice.random()
        if chance < 0.1:
            job.handling = Handling.RELEASE_PINNED
            job.features.add("of another scheduler")
        elif chance < 0.2:
            job.handling = Handling.BIND
        self._choose_quota(job)
        return job

    def _choose_quota(self, job: Job) -> None:
        dice, leaves = self.dice, self.quotas.leaves
        if not leaves or dice.random() < 0.1:
            return
        job.quota = dice.choice(leaves)
        if dice.random() < 0.06:
            job.quota = dice.choice(self.quotas.specs).name
        job.is_non_preemptible = dice.random() < 0.12
        job.features |= {"quota", *self.quotas.features[job.quota]}

    def _requests(self) -> dict[str, int]:
        dice = self.dice
        gpus = max(dict(one.allocatable).get(GPU, 0) for one in self.world.nodes)
        requests = {"cpu": dice.choice((250, 500, 1000, 2000, 4000))}
        if dice.random() < 0.5:
            requests["memory"] = dice.choice((1, 4, 16)) * GIB
        if gpus and dice.random() < 0.75:
            requests[GPU] = dice.choice((1, 1, 2, 2, 3, 4, gpus))
        if dice.random() < 0.02:
            requests["cpu"] = 60_000
        if dice.random() < 0.01:
            requests["example.com/unheard-of"] = 1
        return requests

    def _pod(self, job: Job, name: str, role: Role) -> PodBuilder:
        pod = make_pod(f"{job.namespace}/{job.name}-{name}").labels(app=job.app)
        pod.requests(**role.requests).priority(job.priority).created(float(next(self._clock)))
        pod.quota(job.quota, is_non_preemptible=job.is_non_preemptible)
        for add in role.traits:
            add(pod)
        if self.dice.random() < 0.006:
            job.features.add("needs kube-scheduler")
            pod.needs_kube_scheduler("spec.resourceClaims")
        return pod

    def _add_singles(self, job: Job) -> None:
        job.features.add("single")
        job.roles = job.roles[:1]
        for at in range(self.dice.choice((1, 1, 2, 4, 8))):
            pod = self._pod(job, f"p{at}", job.roles[0]).handling(job.handling)
            if self.dice.random() < 0.02:
                pod.foreign_gates("example.com/gate")
            if "volume" in self.world.traits and self.dice.random() < 0.1:
                self._own_claim(job, pod)
            job.pods.append(pod.build())

    def _own_claim(self, job: Job, pod: PodBuilder) -> None:
        """Give a pod an ephemeral volume, which mostly was made for it."""
        job.features.add("volume of its own")
        built = pod.build()
        owner = built.uid if self.dice.random() < 0.8 else "uid-somebody"
        claim = VolumeClaim(f"{built.key}-tmp", "volume-0", is_bound=True, owner=owner)
        job.claims.append(claim)
        pod.claims(f"{built.name}-tmp", own=True)

    def _add_gang(self, job: Job) -> None:
        job.features.add("gang")
        size = self._size()
        surplus = self.dice.choice((0, 0, 0, 1, 2, size))
        if self.dice.random() < 0.1:
            self._add_annotated(job, size, surplus)
            return
        group = self._add_group(job, "g", size)
        if surplus:
            job.features.add("surplus")
        self._add_members(job, group, size + surplus)

    def _add_annotated(self, job: Job, size: int, surplus: int) -> None:
        job.features.add("gang by annotation")
        key = f"{job.namespace}/{job.name}-g"
        for at, role in zip(range(size + surplus), _in_turn(self.dice, job.roles), strict=False):
            pod = self._pod(job, f"m{at}", role).annotation_gang(key, size)
            job.pods.append(pod.handling(job.handling).build())

    def _add_gang_group(self, job: Job) -> None:
        job.features.add("gang group")
        parts = [f"g{at}" for at in range(self.dice.choice((2, 2, 3)))]
        keys = [f"{job.namespace}/{job.name}-{part}" for part in parts]
        is_lenient = self.dice.random() < 0.25
        wish = self._wish(job, 2) if self.dice.random() < 0.4 else None
        for part in parts:
            size = self.dice.randint(1, 4)
            group = self._add_group(job, part, size, keys, wish, is_lenient=is_lenient)
            self._add_members(job, group, size + self.dice.choice((0, 0, 1)), part)

    def _add_nested_gang(self, job: Job) -> None:
        """Make a gang of sub-groups, which each share a domain, perhaps below a larger one."""
        job.features |= {"gang", "sub-groups"}
        dice, layers = self.dice, self.world.layers
        names = [f"s{at}" for at in range(dice.randint(2, 4))]
        layer = dice.choice((layers[-1], layers[-1], layers[0], "")) if layers else ""
        is_deep = bool(layers) and dice.random() < 0.3
        top = [SubGroup("pipe", layer=layers[0])] if is_deep else []
        parent = "pipe" if is_deep else ROOT
        subs = [SubGroup(name, dice.randint(1, 3), layer, parent) for name in names]
        least = None if is_deep else dice.choice((None, None, 1, 2))
        nest = SubGroupTree(SubGroup(ROOT, min_sub_groups=least), (*top, *subs))
        total = sum(one.min_member for one in subs)
        group = self._add_group(job, "g", total if least is None else 1)
        job.groups[-1] = group = replace(group, spec=replace(group.spec, sub_groups=nest))
        for sub in subs:
            members = sub.min_member + dice.choice((0, 0, 0, 1))
            before = len(job.pods)
            self._add_members(job, group, members, f"{sub.name}-")
            job.pods[before:] = [replace(one, sub_group=sub.name) for one in job.pods[before:]]

    def _add_started_gang(self, job: Job) -> None:
        """Make a gang that runs; its members are lost, if any are, in what happens later."""
        job.features |= {"gang", "started gang"}
        size = self._size()
        group = self._add_group(job, "g", size)
        for at, role in zip(range(size + 1), _in_turn(self.dice, job.roles), strict=False):
            pod = self._pod(job, f"m{at}", role).gang(group.key)
            node = self.world.seat(pod)
            if at < size and node:
                pod.released(node, f"plan-{job.name}", group.key, size, size).running(node)
            elif self.dice.random() < 0.5 and at == size:
                continue
            job.pods.append(pod.build())

    def _add_released_gang(self, job: Job) -> None:
        """Make a gang that was released and is bound in part: the rest has its nodes recorded."""
        job.features |= {"gang", "released"}
        size = self._size()
        group = self._add_group(job, "g", size)
        bound = self.dice.choice((0, 0, 0.5))
        for at, role in zip(range(size), _in_turn(self.dice, job.roles), strict=False):
            pod = self._pod(job, f"m{at}", role).gang(group.key)
            node = self._recorded_node(pod)
            pod.released(node, f"plan-{job.name}", group.key, size, size, youngest=9e9)
            if self.dice.random() < bound:
                pod.running(node)
            elif self.dice.random() < 0.2:
                job.features.add("pinned")
                pod.pinned()
            job.pods.append(pod.build())

    def _add_released_single(self, job: Job) -> None:
        job.features |= {"single", "released"}
        pod = self._pod(job, "p0", job.roles[0])
        pod.released(self._recorded_node(pod), f"plan-{job.name}")
        if self.dice.random() < 0.5:
            job.features.add("pinned")
            pod.pinned()
        job.roles = job.roles[:1]
        job.pods.append(pod.build())

    def _recorded_node(self, pod: PodBuilder) -> str:
        """Return a node with room, mostly; any other, or one that is gone, now and then."""
        if self.dice.random() < 0.8:
            node = self.world.seat(pod)
            if node:
                return node
        return self.dice.choice((*(one.name for one in self.world.nodes), "gone"))

    def _size(self) -> int:
        most = max(2, min(12, len(self.world.nodes)))
        return self.dice.choice((1, 2, 2, 3, 4, self.dice.randint(2, most)))

    def _add_group(
        self,
        job: Job,
        part: str,
        size: int,
        keys: list[str] | None = None,
        wish: TopologyConstraint | None = None,
        *,
        is_lenient: bool | None = None,
    ) -> ObservedPodGroup:
        dice = self.dice
        group = make_pod_group(f"{job.namespace}/{job.name}-{part}", size)
        group.wait(dice.choice(WAIT_SECONDS))
        if keys:
            group.group(*keys)
        elif dice.random() < 0.5:
            wish = self._wish(job, size)
        group.topology(wish)
        if is_lenient or (is_lenient is None and dice.random() < 0.2):
            job.features.add("NonStrict")
            group.mode(GangMode.NON_STRICT)
        if dice.random() < 0.1:
            group.match_policy(dice.choice(list(MatchPolicy)))
        if dice.random() < 0.1:
            group.on_member_failure(dice.choice(list(OnMemberFailure)))
        job.groups.append(group.build())
        return job.groups[-1]

    def _add_members(
        self, job: Job, group: ObservedPodGroup, number: int, prefix: str = ""
    ) -> None:
        is_indexed = self.dice.random() < 0.3
        for at, role in zip(range(number), _in_turn(self.dice, job.roles), strict=False):
            pod = self._pod(job, f"{prefix}m{at}", role).gang(group.key).handling(job.handling)
            if is_indexed:
                job.features.add("indexed members")
                pod.index(at)
            if self.dice.random() < 0.005:
                job.features.add("foreign gate")
                pod.foreign_gates("example.com/gate")
            job.pods.append(pod.build())

    def _wish(self, job: Job, size: int) -> TopologyConstraint | None:
        """Ask one or two layers of a network, with multiples that mostly fit the size."""
        dice = self.dice
        if not self.world.topologies:
            return None
        layers = [*self.world.layers, *self.world.layers, NODE_LAYER]
        if dice.random() < 0.03:
            layers = ["Nowhere"]
        wishes: dict[str, LayerConstraint] = {}
        for layer in dice.sample(layers, min(len(layers), dice.choice((1, 1, 2)))):
            strategy = dice.choice((GatherStrategy.MUST, GatherStrategy.PREFER))
            multiple = dice.choice((1, 1, 1, 2 if size % 2 == 0 else 1, 3 if size % 3 == 0 else 1))
            multiple = 2 if dice.random() < 0.05 else multiple
            wishes[layer] = LayerConstraint(layer, strategy, multiple)
            job.features.add(
                "must gather" if strategy is GatherStrategy.MUST else "prefers to gather"
            )
            if multiple > 1:
                job.features.add("multiples")
        topology = "default"
        if len(self.world.topologies) > 1 and dice.random() < 0.3:
            topology = "storage"
        if dice.random() < 0.03:
            topology = "missing"
        return TopologyConstraint(tuple(wishes.values()), topology)


def _in_turn(dice: Random, roles: list[Role]) -> Iterator[Role]:
    """Yield the first role more often than the others."""
    while True:
        yield dice.choice((roles[0], *roles))
