"""No gang waits that would start if all were tried each time: hints lose no event.

A gang is tried again where all that it requires may fit, and not each time that one of its pods
does: a tenant may have thousands of gangs that wait.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group, select_pods
from tests.cluster import FakeCluster, plan_once
from tests.support.laws import examples

from koord.core.engine.queue import MOST_REFRESHED
from koord.core.model.gangs import ROOT, SubGroup, SubGroupTree
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.layers import Layer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.builders import PodBuilder

    from koord.core.model.constraints import PodSelector
    from koord.core.model.plan import Unit
    from koord.core.model.pods import Pod

NODES = [f"n{at}" for at in range(4)]
SHAPES = [
    "even", "leader", "near", "apart", "spread", "port", "selector",
    "zone", "zone-leader", "pairs", "sub-groups",
]  # fmt: skip
IN_ONE_ZONE = TopologyConstraint((LayerConstraint("Zone", GatherStrategy.MUST),))
IN_PAIRS = TopologyConstraint((LayerConstraint("Zone", GatherStrategy.MUST, multiple=2),))


def make_parts(members: int) -> SubGroupTree:
    """Return two sub-groups, each of which shares a zone."""
    parts = (SubGroup(f"part{at}", (members + 1 - at) // 2, "Zone") for at in range(2))
    return SubGroupTree(SubGroup(ROOT), tuple(part for part in parts if part.min_member))


def form(pod: PodBuilder, shape: str, at: int, mates: PodSelector) -> PodBuilder | Pod:
    """Return member ``at`` of a gang in the form of its shape."""
    if shape == "sub-groups":
        return replace(pod.build(), sub_group=f"part{at % 2}")
    if "leader" in shape:
        return pod.gpu(8 if at == 0 else 2)
    forms: dict[str, Callable[[], PodBuilder]] = {
        "near": lambda: pod.near(mates),
        "apart": lambda: pod.apart(mates, "host"),
        "spread": lambda: pod.spread(mates, "host"),
        "port": lambda: pod.host_port(80),
        "selector": lambda: pod.select("zone", "z0"),
    }
    return forms[shape]() if shape in forms else pod


class Happenings:
    """Gangs come, others' pods come and go, nodes too; each time all that is due is planned."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cluster.topology(Layer("Zone", "", ("zone",)), Layer(NODE_LAYER, "Zone"))
        for name in NODES:
            self.node(name, 8)
        self.others("x", "n0", 8)

    def submit(self, name: str, members: int, least: int, shape: str) -> None:
        self.remove(name)
        key = f"default/{name}"
        group = make_pod_group(key, min(members, least)).build()
        if shape in {"zone", "zone-leader", "pairs"}:
            constraint = IN_PAIRS if shape == "pairs" else IN_ONE_ZONE
            group = replace(group, spec=replace(group.spec, topology=constraint))
        elif shape == "sub-groups":
            group = replace(group, spec=replace(group.spec, sub_groups=make_parts(members)))
        self.cluster.pod_groups(group)
        for at in range(members):
            pod = make_pod(f"{name}-{at}").gang(key).labels(app=name).gpu(4).created(at)
            self.cluster.pods(form(pod, shape, at, select_pods(app=name)))

    def remove(self, name: str) -> None:
        for pod in [*self.cluster.state.pods.values()]:
            if pod.name.startswith(f"{name}-"):
                self.cluster.state.remove_pod(pod.uid)

    def others(self, name: str, node: str, gpus: int) -> None:
        """Have a pod of another scheduler run, or end."""
        self.remove(f"other{name}")
        if gpus:
            self.cluster.pods(make_pod(f"other{name}-0").not_ours().gpu(gpus).running(node))

    def node(self, name: str, gpus: int) -> None:
        if gpus:
            zone = f"z{NODES.index(name) % 2}"
            node = make_node(name).gpu(gpus).label("zone", zone).label("host", name)
            self.cluster.nodes(node)
        elif not any(pod.node == name for pod in self.cluster.state.pods.values()):
            self.cluster.state.remove_node(name)

    def settle(self) -> list[Unit]:
        """Plan all that is due; return what waits then."""
        while self.cluster.step():
            pass
        return [blocked.unit for blocked in self.cluster.queue.blocked.values()]


events = st.one_of(
    st.tuples(
        st.just("submit"), st.sampled_from("abc"), st.integers(1, 6), st.integers(1, 6),
        st.sampled_from(SHAPES),
    ),
    st.tuples(
        st.just("others"), st.sampled_from("xyz"), st.sampled_from(NODES),
        st.sampled_from([0, 0, 4]),
    ),
    st.tuples(st.just("remove"), st.sampled_from("abc")),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from([0, 4, 8])),
)  # fmt: skip
HAPPENS = st.lists(events, min_size=2, max_size=10)


def check(happens: list[tuple[Any, ...]]) -> None:
    play = Happenings()
    for what, *terms in happens:
        getattr(play, what)(*terms)
        waiting = play.settle()
        assert plan_once(play.cluster.state, waiting).placements == ()


@given(happens=HAPPENS)
@settings(max_examples=examples(25), deadline=None)
def test_no_gang_waits_that_would_start_if_all_were_tried_anew(
    happens: list[tuple[Any, ...]],
) -> None:
    check(happens)


def test_gang_sleeps_until_all_of_it_may_fit() -> None:
    play = Happenings()
    for name in NODES:
        play.others("x" if name == "n0" else name, name, 8)
    play.submit("a", 3, 3, "even")
    play.settle()
    queue = play.cluster.queue
    play.others("x", "n0", 4)  # one of three fits
    assert len(play.cluster.absorb()) == 0
    play.others("n1", "n1", 4)  # two
    assert len(play.cluster.absorb()) == 0
    play.others("n2", "n2", 4)
    assert len(play.cluster.absorb()) == 1
    assert play.cluster.step() == ["a-0", "a-1", "a-2"]
    assert not queue.blocked


def test_what_is_said_of_a_gang_is_brought_up_to_date_when_a_part_fits() -> None:
    play = Happenings()
    for name in NODES:
        play.others(name, name, 8)
    play.others("x", "n0", 0)
    play.submit("a", 3, 3, "even")
    play.settle()
    assert "Room for 0 of 3" in play.cluster.reason().text()
    play.others("n0", "n0", 4)
    play.settle()
    assert "Room for 1 of 3" in play.cluster.reason().text()


def test_gangs_of_which_a_part_fits_are_tried_again_a_few_at_a_time() -> None:
    play = Happenings()
    for name in NODES:
        play.others(name, name, 8)
    play.others("x", "n0", 0)
    gangs = [f"g{at}" for at in range(MOST_REFRESHED + 1)]
    for name in gangs:
        play.submit(name, 3, 3, "even")
    cluster, queue = play.cluster, play.cluster.queue
    while len(cluster.absorb()):
        cluster.step()
    play.others("n0", "n0", 4)
    assert len(cluster.take(1.0, 1000)) == MOST_REFRESHED
    assert queue.next_due() == 2.0
    assert cluster.take(1.5, 1000) == []
    assert len(cluster.take(2.0, 1000)) == 1
    assert queue.next_due() is None


def test_gang_of_one_domain_sleeps_until_one_domain_has_room_for_it() -> None:
    play = Happenings()
    for name in NODES:
        play.others("x" if name == "n0" else name, name, 8)
    play.submit("a", 3, 3, "zone")
    play.settle()
    play.others("x", "n0", 4)
    play.others("n1", "n1", 0)  # four fit by now, in two zones
    assert len(play.cluster.absorb()) == 0
    play.others("n2", "n2", 0)
    assert len(play.cluster.absorb()) == 1
    assert play.cluster.step() == ["a-0", "a-1", "a-2"]


def test_part_of_a_gang_sleeps_until_one_domain_has_room_for_it() -> None:
    play = Happenings()
    for name in NODES:
        play.others("x" if name == "n0" else name, name, 8)
    play.submit("a", 6, 6, "sub-groups")
    play.settle()
    play.others("x", "n0", 4)
    play.others("n1", "n1", 0)
    play.others("n3", "n3", 0)  # five, and of one part three in zone 1
    assert len(play.cluster.absorb()) == 0
    play.others("n2", "n2", 0)
    assert play.cluster.step() == [f"a-{at}" for at in (0, 1, 2, 3, 4, 5)]
