"""Random nodes with what belongs to them: zones, taints, networks, volumes, and pods of others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.builders import GPU, make_node, make_pod, select_labels, select_pods

from koord.core.model.selectors import SelectorTerm
from koord.core.model.topology_constraint import NODE_LAYER
from koord.core.plugins.late_volumes import StorageClass
from koord.core.plugins.volumes import Volume, VolumeClaim
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer

if TYPE_CHECKING:
    from random import Random

    from tests.builders import PodBuilder

    from koord.core.model.nodes import Node
    from koord.core.model.pods import Pod

GIB = 1 << 30
ZONE = "topology.kubernetes.io/zone"
BETA = "failure-domain.beta.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
APPS = ("web", "db", "train", "cache")
NAMESPACES = {"default": {"team": "a"}, "lab": {"team": "b"}, "ops": {}}
CLASSES = (
    {"cpu": 16_000, "memory": 64 * GIB, GPU: 8},
    {"cpu": 16_000, "memory": 64 * GIB, GPU: 8},
    {"cpu": 32_000, "memory": 128 * GIB, GPU: 4},
    {"cpu": 8_000, "memory": 64 * GIB, GPU: 0},
    {"cpu": 64_000, "memory": 96 * GIB, GPU: 0},
)
NETWORKS = (("rack",), ("block", "rack"), ("spine", "block", "rack"))
TRAITS = (
    "node selector",
    "node affinity",
    "preferred nodes",
    "toleration",
    "host port",
    "affinity",
    "anti-affinity",
    "preferred affinity",
    "spread",
    "soft spread",
    "volume",
    "attraction",
)


@dataclass
class World:
    """What there is when jobs come."""

    dice: Random
    nodes: list[Node] = field(default_factory=list)
    residents: list[Pod] = field(default_factory=list)
    topologies: list[Topology] = field(default_factory=list)
    claims: list[VolumeClaim] = field(default_factory=list)
    volumes: list[Volume] = field(default_factory=list)
    classes: list[StorageClass] = field(default_factory=list)
    traits: frozenset[str] = frozenset()
    """What pods of this cluster may ask besides resources."""
    free: dict[str, dict[str, int]] = field(default_factory=dict)
    """Node -> what is left of it by those who are there at first."""

    @property
    def layers(self) -> list[str]:
        """The layers of the first network above the nodes, from the top; none without one."""
        if not self.topologies:
            return []
        return [one.name for one in self.topologies[0].layers if one.name != NODE_LAYER]

    def seat(self, pod: PodBuilder) -> str:
        """Return a node with room for a pod, and take that room; empty if there is none."""
        requests = dict(pod.build().shape.requests)
        names = [
            name
            for name, left in self.free.items()
            if all(left.get(key, 0) >= amount for key, amount in requests.items())
        ]
        if not names:
            return ""
        name = self.dice.choice(names)
        for key, amount in requests.items():
            self.free[name][key] -= amount
        return name


def make_world(dice: Random) -> World:
    """Make nodes and all that is on or about them."""
    traits = {one for one in TRAITS if dice.random() < 0.45}
    world = World(dice, traits=frozenset(traits))
    network = dice.choice((None, *NETWORKS, *NETWORKS))
    classes = dice.sample(CLASSES, dice.randint(1, 3))
    count = dice.choice((dice.randint(3, 8), dice.randint(6, 16), dice.randint(16, 40)))
    world.nodes = [make_a_node(world, at, dice.choice(classes)) for at in range(count)]
    world.free = {one.name: dict(one.allocatable) for one in world.nodes}
    if network:
        world.topologies.append(make_topology("default", network))
    if network and dice.random() < 0.3:
        world.topologies.append(make_topology("storage", ("zone",)))
    if "volume" in traits:
        add_volumes(world)
    add_residents(world)
    return world


def make_a_node(world: World, at: int, size: dict[str, int]) -> Node:
    """Make node number ``at``; neighbours by number share racks, and most share a zone."""
    dice = world.dice
    node = make_node(f"n{at:02}").pods(dice.choice((110, 110, 110, 6)))
    for key, amount in size.items():
        node.resource(key, amount)
    width = 3
    for layer, span in (("rack", width), ("block", 2 * width), ("spine", 4 * width)):
        if dice.random() < 0.97:
            node.label(layer, f"{layer}-{at // span}")
    zone = f"z{at % 3}"
    if dice.random() < 0.93:
        node.label("zone", zone).label(dice.choice((ZONE, ZONE, ZONE, BETA)), zone)
    node.label("disk", dice.choice(("ssd", "ssd", "hdd"))).label("gen", str(dice.randint(1, 5)))
    node.label("pool", dice.choice("ab"))
    if dice.random() < 0.12:
        node.taint("dedicated", dice.choice(("x", "y")), dice.choice(("NoSchedule", "NoExecute")))
    if dice.random() < 0.05:
        node.taint("busy", effect="PreferNoSchedule")
    if dice.random() < 0.03:
        node.taint("node.kubernetes.io/unreachable", effect="NoExecute")
    if dice.random() < 0.06:
        node.unschedulable()
    return node.build()


def make_topology(name: str, labels: tuple[str, ...]) -> Topology:
    """Make a network whose layers are called like the labels that name their domains."""
    above = ("", *labels)
    layers = [Layer(one, above[at], (one,)) for at, one in enumerate(labels)]
    return Topology(name, (*layers, Layer(NODE_LAYER, labels[-1])))


def add_volumes(world: World) -> None:
    """Add claims: most are bound, to volumes of a zone or of some nodes."""
    dice = world.dice
    world.classes += [StorageClass("late", is_delayed=True), StorageClass("now")]
    for at in range(6):
        key, name = f"default/claim-{at}", f"volume-{at}"
        zone = dice.choice(("z0", "z1", "z2"))
        terms = (SelectorTerm(select_labels(disk="ssd")),) if dice.random() < 0.3 else None
        zones = ((dice.choice((ZONE, ZONE, BETA)), (zone, "z9")),) if dice.random() < 0.6 else ()
        world.volumes.append(Volume(name, terms, zones, is_in_tree=dice.random() < 0.05))
        is_exclusive = dice.random() < 0.3
        world.claims.append(VolumeClaim(key, name, is_bound=True, is_exclusive=is_exclusive))
    if dice.random() < 0.5:
        late = VolumeClaim("default/claim-6", storage_class=dice.choice(("late", "now")))
        lost = VolumeClaim("default/claim-7", "volume-0", is_lost=True)
        leaving = VolumeClaim("default/claim-7", "volume-0", is_bound=True, is_terminating=True)
        world.claims += [late, dice.choice((lost, leaving))]


def add_residents(world: World) -> None:
    """Add pods of others that run already, some on their way out, some with wishes of their own."""
    dice = world.dice
    for at in range(dice.randint(0, dice.choice((1, 2)) * len(world.nodes))):
        app = dice.choice(APPS)
        pod = make_pod(f"{dice.choice(list(NAMESPACES))}/other-{at}").labels(app=app).not_ours()
        pod.requests(cpu=dice.choice((500, 1000, 4000)), memory=dice.choice((1, 4, 16)) * GIB)
        if dice.random() < 0.4:
            pod.gpu(dice.choice((1, 2)))
        if dice.random() < 0.1:
            pod.apart(select_pods(app=dice.choice(APPS)), dice.choice((HOST, "zone")))
        if dice.random() < 0.1:
            pod.prefers(dice.choice((-20, 20)), select_pods(app=dice.choice(APPS)), "zone")
        if dice.random() < 0.1:
            pod.host_port(dice.choice((8080, 8081)))
        if dice.random() < 0.2:
            pod.attraction(dice.choice(("blue", "red")))
        if world.claims and dice.random() < 0.05:
            pod.claims(f"claim-{dice.randint(0, 5)}")
        add_resident(world, pod)


def add_resident(world: World, pod: PodBuilder) -> None:
    """Put a pod of others somewhere; a daemon waits for its node, and others may be leaving."""
    node = world.seat(pod)
    if not node:
        return
    chance = world.dice.random()
    if chance < 0.04:
        pod.reserved_node(node)
    else:
        pod.running(node).not_ours()
    if chance > 0.95:
        pod.terminating()
    world.residents.append(pod.build())
