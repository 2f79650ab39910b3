"""Gangs that wait for a place in the network are tried again when what they ask is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.builders import make_node, make_pod, make_pod_group

from koord.core.framework.planner import plan
from koord.core.framework.scoring import Scoring
from koord.core.pods import PodPhase
from koord.core.queue import Queue
from koord.core.reasons import ReasonCode
from koord.core.state import ClusterState
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer
from koord.core.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)

if TYPE_CHECKING:
    from koord.core.changes import Feed

A, B = "default/a", "default/b"
LAYERS = (Layer("Rack", "", ("r",)), Layer(NODE_LAYER, "Rack"))


def must(layer: str) -> TopologyConstraint:
    return TopologyConstraint((LayerConstraint(layer, GatherStrategy.MUST),))


@pytest.mark.parametrize("asked", [None, must("Rack")])
def test_a_wish_that_is_taken_back_is_not_waited_for(asked: TopologyConstraint | None) -> None:
    state, queue = ClusterState(), Queue()
    feed = state.feed()
    state.upsert_topology(
        Topology("default", (Layer("Rack", "", ("r",)), Layer(NODE_LAYER, "Rack")))
    )
    for at in range(2):
        state.upsert_node(make_node(f"n{at}").gpu(8).label("r", "r0").build())
        state.upsert_pod(make_pod(f"a-{at}").gang(A).gpu(8).build())
    state.upsert_pod_group(make_pod_group(A, 2).topology(must(NODE_LAYER)).build())
    queue.absorb(feed.drain(), state)
    (unit,) = queue.take(0.0, 10)
    (refusal,) = plan(state.snapshot(), [unit], Scoring()).refusals
    queue.refuse(unit, refusal)
    state.upsert_pod_group(make_pod_group(A, 2).topology(asked).build())
    queue.absorb(feed.drain(), state)
    (again,) = queue.take(0.0, 10)
    assert plan(state.snapshot(), [again], Scoring()).placements


@pytest.mark.parametrize(
    ("layers", "code"),
    [
        pytest.param(None, ReasonCode.MISSING_TOPOLOGY, id="deleted"),
        pytest.param(
            (Layer("Block", "", ("r",)), Layer(NODE_LAYER, "Block")),
            ReasonCode.UNKNOWN_LAYER,
            id="other layers",
        ),
    ],
)
def test_a_gang_without_room_learns_that_its_topology_is_gone(
    layers: tuple[Layer, ...] | None, code: ReasonCode
) -> None:
    state, queue = ClusterState(), Queue()
    feed = state.feed()
    state.upsert_topology(Topology("default", LAYERS))
    state.upsert_node(make_node("n").gpu(8).label("r", "r0").build())
    state.upsert_pod(make_pod("full").gpu(8).running("n").build())
    state.upsert_pod_group(make_pod_group(A, 1).topology(must("Rack")).build())
    state.upsert_pod(make_pod("a-0").gang(A).gpu(8).build())
    assert refuse(queue, feed, state) is ReasonCode.NO_DOMAIN_FITS
    if layers is None:
        state.remove_topology("default")
    else:
        state.upsert_topology(Topology("default", layers))
    assert refuse(queue, feed, state) is code


def refuse(queue: Queue, feed: Feed, state: ClusterState) -> ReasonCode:
    """Plan the one unit that is due; return why it is refused."""
    queue.absorb(feed.drain(), state)
    (unit,) = queue.take(0.0, 10)
    (refusal,) = plan(state.snapshot(), [unit], Scoring()).refusals
    queue.refuse(unit, refusal)
    return refusal.reason.code


def test_members_that_are_apart_no_more_for_what_another_gang_asks_now_are_tried_again() -> None:
    state, queue = ClusterState(), Queue()
    feed = state.feed()
    state.upsert_topology(Topology("default", LAYERS))
    for at, gang in enumerate((A, B)):
        state.upsert_pod_group(make_pod_group(gang, 1).group(A, B).topology(must("Rack")).build())
        state.upsert_node(make_node(f"n{at}").gpu(8).label("r", f"r{at}").build())
        old = make_pod(f"old-{at}").gang(gang).gpu(1).released(f"n{at}", "p", f"{A},{B}", 2, 1)
        state.upsert_pod(old.running(f"n{at}").build())
    state.upsert_pod(make_pod("late").gang(B).gpu(1).build())
    queue.absorb(feed.drain(), state)
    (unit,) = queue.take(0.0, 10)
    (refusal,) = plan(state.snapshot(), [unit], Scoring()).refusals
    assert refusal.reason.code == "MembersApart"
    queue.refuse(unit, refusal)
    state.upsert_pod_group(make_pod_group(A, 1).group(A, B).topology(None).build())
    queue.absorb(feed.drain(), state)
    (again,) = queue.take(0.0, 10)
    (placement,) = plan(state.snapshot(), [again], Scoring()).placements
    assert [one.node for one in placement.assignments] == ["n1"]


def test_a_multiple_that_was_not_met_is_tried_again_when_a_member_has_done_its_work() -> None:
    """What it leaves need not be room for anybody: the number of the others is another one."""
    state, queue = ClusterState(), Queue()
    feed = state.feed()
    state.upsert_topology(Topology("default", LAYERS))
    wish = TopologyConstraint((LayerConstraint("Rack", GatherStrategy.MUST, 2),))
    state.upsert_pod_group(make_pod_group(A, 1).topology(wish).build())
    for name in ("n0", "n1"):
        state.upsert_node(make_node(name).gpu(4).label("r", "r0").build())
    olds = [make_pod(f"old-{at}").gang(A).gpu(1).released("n0", "p", A, 2, 1) for at in range(2)]
    for old in olds:
        state.upsert_pod(old.running("n0").build())
    state.upsert_pod(make_pod("late").gang(A).gpu(4).build())
    assert refuse(queue, feed, state) is ReasonCode.MULTIPLE_NOT_MET
    state.upsert_pod(olds[0].phase(PodPhase.SUCCEEDED).build())
    queue.absorb(feed.drain(), state)
    (again,) = queue.take(0.0, 10)
    (placement,) = plan(state.snapshot(), [again], Scoring()).placements
    assert [one.node for one in placement.assignments] == ["n1"]
