"""Random events in a cluster with topologies and gangs with topology constraints."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.builders import make_node, make_pod
from tests.gang.test_machine import Gangs, gangs
from tests.objects import upsert_pod_group, upsert_topology
from tests.support.laws import examples
from tests.support.machines import check_100_000_steps

from koord.core.model.gangs import ROOT, SubGroup, SubGroupTree
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer

if TYPE_CHECKING:
    from koord.core.engine.state import ClusterState
    from koord.core.model.nodes import Node
    from koord.core.model.plan import Placement

LAYERS = (
    Layer("Spine", "", ("spine",)),
    Layer("Rack", "Spine", ("rack",)),
    Layer(NODE_LAYER, "Rack"),
)

layer_wishes = st.builds(
    LayerConstraint,
    st.sampled_from(("Spine", "Rack", "Rack", NODE_LAYER)),
    st.sampled_from((GatherStrategy.MUST, GatherStrategy.MUST, GatherStrategy.PREFER)),
    st.sampled_from((1, 1, 2)),
)
constraints = st.lists(layer_wishes, min_size=1, max_size=2, unique_by=lambda one: one.layer).map(
    lambda layers: TopologyConstraint(tuple(layers))
)
sub_layers = st.sampled_from(("", "Rack", "Rack", "Spine"))
racks = st.sampled_from(("r1", "r2", "r3"))
spines = st.sampled_from(("s1", "s2", ""))


class GangsInANetwork(Gangs):
    """Racks and spines of few nodes, whose labels change."""

    def furnish(self, state: ClusterState) -> None:
        upsert_topology(state, Topology("default", LAYERS))

    def build_node(self, name: str, gpus: int) -> Node:
        node = make_node(name).gpu(gpus)
        number = sum(name.encode())
        return node.label("rack", f"r{number % 2 + 1}").label("spine", "s1").build()

    @rule(key=gangs, constraint=st.one_of(st.none(), constraints, constraints, constraints))
    def gang_asks(self, key: str, constraint: TopologyConstraint | None) -> None:
        if key in self.groups:
            spec = replace(self.groups[key].spec, topology=constraint)
            self.groups[key] = replace(self.groups[key], spec=spec)
            upsert_pod_group(self.state, self.groups[key])

    @rule(constraint=constraints)
    def all_gangs_ask(self, constraint: TopologyConstraint) -> None:
        for key in list(self.groups):
            self.gang_asks(key, constraint)

    @rule(data=st.data(), rack=racks, spine=spines)
    @precondition(lambda self: len(self.state.table) > 0)
    def node_is_relabelled(self, data: st.DataObject, rack: str, spine: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.state.table.row_of)))
        node = self.state.table.node_at(self.state.table.row_of[name])
        self.state.upsert_node(replace(node, labels={"rack": rack, "spine": spine}))

    @rule(key=gangs, layers=st.tuples(sub_layers, sub_layers), least=st.sampled_from((None, 1)))
    def gang_is_divided(self, key: str, layers: tuple[str, str], least: int | None) -> None:
        if key in self.groups:
            parts = (SubGroup(f"g{at}", at + 1, layer) for at, layer in enumerate(layers))
            sub_groups = SubGroupTree(SubGroup(ROOT, min_sub_groups=least), tuple(parts))
            spec = replace(self.groups[key].spec, sub_groups=sub_groups)
            self.groups[key] = replace(self.groups[key], spec=spec)
            upsert_pod_group(self.state, self.groups[key])

    @rule(key=gangs, name=st.sampled_from(("g0", "g1", "g1", "")), count=st.integers(1, 3))
    def members_come(self, key: str, name: str, count: int) -> None:
        for _ in range(count):
            self.born += 1
            pod = make_pod(f"p{self.born}").gpu(1).created(self.born).gang(key).build()
            self.state.upsert_pod(replace(pod, sub_group=name))

    # What must hold

    def check_network(self, placement: Placement) -> None:
        """Check that members, old and new, share the required domains in whole multiples."""
        for key in {one.pod.gang.key for one in placement.assignments if one.pod.gang}:
            constraint, sub_groups = (
                self.groups[key].spec.topology,
                self.groups[key].spec.sub_groups,
            )
            if sub_groups is not None:
                self.check_sub_groups(key, sub_groups, placement)
            if constraint is None or sub_groups is not None:
                continue
            together = [
                pod
                for other in self.state.gangs.group(key).gangs
                if other in self.groups and self.groups[other].spec.topology == constraint
                if self.groups[other].spec.sub_groups is None
                for pod in self.alive(other)
                if pod.node
            ]
            paths = [self.path_of(pod.node) for pod in together]
            for one in constraint.layers:
                depth = [layer.name for layer in LAYERS].index(one.layer) + 1
                counts = Counter(path[:depth] for path in paths)
                if one.strategy is GatherStrategy.MUST:
                    assert len(counts) == 1, (key, constraint, paths)
                # Who is on a node without place in the tree is in no domain that could be counted.
                known = {path: n for path, n in counts.items() if path[0]}
                assert not any(n % one.multiple for n in known.values()), (key, constraint, paths)

    def check_sub_groups(self, key: str, sub_groups: SubGroupTree, placement: Placement) -> None:
        """Check that each sub-group with new members shares its domain."""
        names = [layer.name for layer in LAYERS]
        for group in sub_groups.groups:
            members = [pod for pod in self.alive(key) if pod.node and pod.sub_group == group.name]
            placed = {
                one.pod.sub_group
                for one in placement.assignments
                if one.pod.gang and one.pod.gang.key == key
            }
            if group.name not in placed:
                continue
            new = {one.pod.uid for one in placement.assignments}
            if all(pod.uid in new for pod in members):
                assert len(members) >= group.min_member, (key, sub_groups, placement)
            if group.layer:
                depth = names.index(group.layer) + 1
                paths = {pod.name: self.path_of(pod.node) for pod in members}
                told = (key, sub_groups, self.groups[key].spec.topology, paths, placement)
                assert len({path[:depth] for path in paths.values()}) == 1, told

    def path_of(self, name: str) -> tuple[str, ...]:
        labels = self.state.table.node_at(self.state.table.row_of[name]).labels
        return labels["spine"], labels["rack"], name


TestGangsInANetwork = GangsInANetwork.TestCase
TestGangsInANetwork.pytestmark = [pytest.mark.timeout(600)]  # what fails is made small first
TestGangsInANetwork.settings = settings(
    max_examples=examples(5),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_steps_with_topologies() -> None:
    """The same, nightly."""
    check_100_000_steps(GangsInANetwork)
