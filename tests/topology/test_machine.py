"""Gangs that ask something of the network, in a cluster where anything may happen next."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.builders import make_node
from tests.gang.test_machine import Gangs, gangs

from koord.core.gather import NODE_LAYER, Gather, LayerWish, TopologyWish
from koord.core.topology.book import Topology
from koord.core.topology.layers import Layer

if TYPE_CHECKING:
    from koord.core.nodes import Node
    from koord.core.plan import Placement
    from koord.core.state import ClusterState

LAYERS = (
    Layer("Spine", "", ("spine",)),
    Layer("Rack", "Spine", ("rack",)),
    Layer(NODE_LAYER, "Rack"),
)
EXAMPLES = int(os.environ.get("KOORD_MACHINE_EXAMPLES", "40"))
STEPS = int(os.environ.get("KOORD_MACHINE_STEPS", "60"))

layer_wishes = st.builds(
    LayerWish,
    st.sampled_from(("Spine", "Rack", "Rack", NODE_LAYER)),
    st.sampled_from((Gather.MUST, Gather.MUST, Gather.PREFER)),
    st.sampled_from((1, 1, 2)),
)
wishes = st.lists(layer_wishes, min_size=1, max_size=2, unique_by=lambda one: one.layer).map(
    lambda layers: TopologyWish(tuple(layers))
)
racks = st.sampled_from(("r1", "r2", "r3"))
spines = st.sampled_from(("s1", "s2", ""))


class GangsInANetwork(Gangs):
    """Racks and spines of few nodes, whose labels change."""

    def furnish(self, state: ClusterState) -> None:
        state.upsert_topology(Topology("default", LAYERS))

    def build_node(self, name: str, gpus: int) -> Node:
        node = make_node(name).gpu(gpus)
        number = sum(name.encode())
        return node.label("rack", f"r{number % 2 + 1}").label("spine", "s1").build()

    @rule(key=gangs, wish=st.one_of(st.none(), wishes, wishes, wishes))
    def gang_asks(self, key: str, wish: TopologyWish | None) -> None:
        if key in self.groups:
            spec = replace(self.groups[key].spec, topology=wish)
            self.groups[key] = replace(self.groups[key], spec=spec)
            self.state.upsert_pod_group(self.groups[key])

    @rule(wish=wishes)
    def all_gangs_ask(self, wish: TopologyWish) -> None:
        for key in list(self.groups):
            self.gang_asks(key, wish)

    @rule(data=st.data(), rack=racks, spine=spines)
    @precondition(lambda self: len(self.state.table) > 0)
    def node_is_relabelled(self, data: st.DataObject, rack: str, spine: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.state.table.row_of)))
        node = self.state.table.node_at(self.state.table.row_of[name])
        self.state.upsert_node(replace(node, labels={"rack": rack, "spine": spine}))

    # What must hold

    def check_network(self, placement: Placement) -> None:
        """Members share what they must share and come in whole multiples, the old ones too."""
        for key in {one.pod.gang.key for one in placement.assignments if one.pod.gang}:
            wish = self.groups[key].spec.topology
            if wish is None:
                continue
            together = [
                pod
                for other in self.state.book.group(key).gangs
                if other in self.groups and self.groups[other].spec.topology == wish
                for pod in self.alive(other)
                if pod.node
            ]
            paths = [self.path_of(pod.node) for pod in together]
            for one in wish.layers:
                depth = [layer.name for layer in LAYERS].index(one.layer) + 1
                counts = Counter(path[:depth] for path in paths)
                if one.strategy is Gather.MUST:
                    assert len(counts) == 1, (key, wish, paths)
                assert not any(n % one.multiple for n in counts.values()), (key, wish, paths)

    def path_of(self, name: str) -> tuple[str, ...]:
        labels = self.state.table.node_at(self.state.table.row_of[name]).labels
        return labels["spine"], labels["rack"], name


TestGangsInANetwork = GangsInANetwork.TestCase
TestGangsInANetwork.pytestmark = [pytest.mark.timeout(600)]  # what fails is made small first
TestGangsInANetwork.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_steps_in_a_network() -> None:
    """The same for long: nightly."""

    class Long(GangsInANetwork.TestCase):  # type: ignore[misc, name-defined]
        settings = settings(
            max_examples=1000,
            stateful_step_count=100,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )

    Long("runTest").runTest()
