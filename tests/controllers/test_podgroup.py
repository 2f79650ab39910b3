"""The status of PodGroups: what is written at once, what after a pause, and what is not kept."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import kopf
import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import make_cluster

from koord.api.parse import Problem
from koord.controllers import pod_group
from koord.controllers.pod_group import LONGEST_SECONDS, SAY_AGAIN_AFTER_SECONDS, PodGroupController
from koord.core.gang.model import BadValue, Phase, PodGroup
from koord.core.gang.sub_group_tree import ROOT, SubGroup, SubGroupTree
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer
from koord.core.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.kube.status import ConditionPatch

if TYPE_CHECKING:
    from koord.core.changes import Feed

A, B = "default/a", "default/b"


class Scene:
    """Two gangs that start together, and what is written about each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.written: list[tuple[str, str]] = []
        self.state = make_cluster().state
        self.feed: Feed = self.state.feed()
        self.controller = PodGroupController(self.state, self, lambda: self.now, lambda: self.now)
        for gang in (A, B):
            self.state.upsert_pod_group(make_pod_group(gang, 5).group(A, B).build())
        for gang in "ab":
            self.join(gang, 0)

    def write_status(
        self, pod_group: PodGroup, fields: Mapping[str, Any], conditions: tuple[ConditionPatch, ...]
    ) -> None:
        quorum = next(one for one in conditions if one.type == "QuorumReached")
        self.written.append((pod_group.key, quorum.message))

    def join(self, gang: str, number: int) -> None:
        pod = make_pod(f"{gang}-{number}").gang(f"default/{gang}").created(self.now)
        self.state.upsert_pod(pod.build())

    def pass_time(self, seconds: float) -> list[str]:
        """Let changes arrive, and time pass; return which gangs were written about."""
        self.controller._touch(self.feed.drain().gangs)
        self.now += seconds
        self.written.clear()
        self.controller._flush()
        return sorted(gang for gang, _ in self.written)


def test_gang_of_whose_group_others_change_is_written_again_after_a_pause() -> None:
    scene = Scene()
    assert scene.pass_time(LONGEST_SECONDS) == [A, B]
    for number in range(1, 4):
        scene.join("a", number)
        assert scene.pass_time(LONGEST_SECONDS) == [A]
    assert scene.pass_time(SAY_AGAIN_AFTER_SECONDS) == [B]
    assert "4 of 5" in scene.written[0][1]


def test_gang_whose_group_is_complete_is_told_at_once() -> None:
    scene = Scene()
    scene.pass_time(LONGEST_SECONDS)
    for gang in "ab":
        for number in range(1, 5):
            scene.join(gang, number)
    assert scene.pass_time(LONGEST_SECONDS) == [A, B]


def test_wait_times_of_gangs_are_kept_once_and_not_for_good() -> None:
    scene = Scene()
    for number in range(1, 9):
        for gang in "ab":
            scene.join(gang, number)
        scene.pass_time(LONGEST_SECONDS)
    assert set(scene.controller._timeouts) == {A, B}
    for gang in (A, B):
        scene.state.remove_pod_group(gang)
    scene.pass_time(LONGEST_SECONDS)
    assert not scene.controller._timeouts
    assert not scene.controller._said


def test_members_on_nodes_that_are_not_well_are_told() -> None:
    said: list[ConditionPatch] = []

    class Sink:
        def write_status(
            self, _: PodGroup, fields: Mapping[str, Any], conditions: tuple[ConditionPatch, ...]
        ) -> None:
            assert fields
            said[:] = [one for one in conditions if one.type == "Degraded"]

    state, now = make_cluster().state, [0.0]
    feed = state.feed()
    controller = PodGroupController(state, Sink(), lambda: now[0], lambda: now[0])
    state.upsert_pod_group(make_pod_group(A, 1).build())
    state.upsert_node(make_node("n").build())
    state.upsert_pod(make_pod("a-0").gang(A).running("n").build())

    def look() -> ConditionPatch:
        changes = feed.drain()
        controller._touch(changes.gangs | controller._on_changed_nodes(changes.freed))
        now[0] += LONGEST_SECONDS
        controller._flush()
        (degraded,) = said
        return degraded

    assert (look().status, look().reason) == (False, "AtStrength")
    state.upsert_node(make_node("n").taint("node.kubernetes.io/unreachable").build())
    assert (look().status, look().reason) == (True, "MemberOnFailedNode")
    assert "(n)" in look().message
    state.upsert_node(make_node("n").build())
    assert look().reason == "AtStrength"


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING])
def test_a_gang_without_members_is_told_in_time_if_something_was_said_of_it(phase: Phase) -> None:
    """New groups can wait for their pods; what was said must not stand on."""
    scene = Scene()
    scene.pass_time(LONGEST_SECONDS)
    group = make_pod_group(A, 5).group(A, B).phase(phase).build()
    scene.state.upsert_pod_group(group)
    scene.pass_time(LONGEST_SECONDS)
    scene.state.remove_pod("uid-default-a-0")
    assert A in scene.pass_time(LONGEST_SECONDS)
    odd = make_pod_group(A, 5)._set_spec(bad_values=(BadValue("k", "v", "default", "is odd"),))
    scene.state.upsert_pod_group(odd.phase(phase).build())
    assert A in scene.pass_time(LONGEST_SECONDS)


def test_a_new_group_is_not_told_of_before_its_pods_have_had_time_to_come() -> None:
    scene = Scene()
    scene.pass_time(LONGEST_SECONDS)
    scene.state.upsert_pod_group(make_pod_group("default/c", 5).build())
    assert scene.pass_time(LONGEST_SECONDS) == []
    assert scene.pass_time(2 * LONGEST_SECONDS) == ["default/c"]


def observe_spec(nest: SubGroupTree | None, sub_group: str = "") -> ConditionPatch:
    """Return what is said of the settings of a gang with one member."""
    said: list[ConditionPatch] = []

    class Sink:
        def write_status(
            self, _: PodGroup, fields: Mapping[str, Any], conditions: tuple[ConditionPatch, ...]
        ) -> None:
            assert fields
            said.extend(one for one in conditions if one.type == "SpecValid")

    state = make_cluster().state
    state.upsert_topology(Topology("default", (Layer(NODE_LAYER, ""),)))
    group = make_pod_group(A, 1).topology(TopologyConstraint(())).build()
    state.upsert_pod_group(replace(group, spec=replace(group.spec, nest=nest)))
    state.upsert_pod(replace(make_pod("a-0").gang(A).build(), sub_group=sub_group))
    PodGroupController(state, Sink(), lambda: 0.0, lambda: 0.0)._observe(A)
    (spec_valid,) = said
    return spec_valid


def test_sub_groups_that_members_name_and_the_gang_does_not_have_are_named() -> None:
    nest = SubGroupTree(SubGroup(ROOT), (SubGroup("g", 1),))
    assert observe_spec(nest, "g").status
    assert observe_spec(nest).status, "who names none belongs to the gang itself"
    for one in (nest, None):
        found = observe_spec(one, "h")
        assert (found.status, found.reason) == (False, "InvalidAnnotation")
        assert 'sub-group "h"' in found.message


class Alone:
    """One gang that asks something of the network, and what is written about it."""

    def __init__(self, wish: TopologyConstraint, nest: SubGroupTree | None = None) -> None:
        self.fields: dict[str, Any] = {}
        self.said: dict[str, ConditionPatch] = {}
        self.now = 0.0
        self.state = make_cluster().state
        self.feed: Feed = self.state.feed()
        self.controller = PodGroupController(self.state, self, lambda: self.now, lambda: self.now)
        group = make_pod_group(A, 1).topology(wish).build()
        self.state.upsert_pod_group(replace(group, spec=replace(group.spec, nest=nest)))

    def write_status(
        self, _: PodGroup, fields: Mapping[str, Any], conditions: tuple[ConditionPatch, ...]
    ) -> None:
        self.fields = dict(fields)
        self.said = {one.type: one for one in conditions}

    def spec_valid(self) -> tuple[bool, str]:
        """Let a while pass; return what is said of the settings."""
        gangs = self.feed.drain().gangs
        self.controller._touch(gangs | self.controller._on_changed_topologies())
        self.now += 10
        self.controller._flush()
        return self.said["SpecValid"].status, self.said["SpecValid"].reason


RACKS = Topology("default", (Layer("Rack", "", ("rack",)), Layer(NODE_LAYER, "Rack")))
SPINES = Topology("default", (Layer("Spine", "", ("spine",)), Layer(NODE_LAYER, "Spine")))


def test_wishes_that_have_no_effect_are_said_for_as_long_as_that_is_so() -> None:
    scene = Alone(TopologyConstraint((LayerConstraint("Rack", GatherStrategy.PREFER),)))
    assert scene.spec_valid() == (False, "MissingTopology")
    scene.state.upsert_topology(SPINES)
    assert scene.spec_valid() == (False, "UnknownLayer")
    message = scene.said["SpecValid"].message
    assert '"Rack"' in message
    assert "ClusterNetworkTopology default" in message
    assert "Spine" in message
    scene.state.upsert_topology(RACKS)
    assert scene.spec_valid() == (True, "Valid")
    scene.state.remove_topology("default")
    assert scene.spec_valid() == (False, "MissingTopology")


def test_layers_of_sub_groups_are_looked_at_too() -> None:
    scene = Alone(TopologyConstraint(()), SubGroupTree(SubGroup(ROOT), (SubGroup("g", 1, "Rack"),)))
    scene.state.upsert_topology(SPINES)
    assert scene.spec_valid() == (False, "UnknownLayer")
    nothing = Alone(TopologyConstraint(()), SubGroupTree(SubGroup(ROOT), (SubGroup("g", 1),)))
    assert nothing.spec_valid() == (True, "Valid")


def test_the_gap_that_was_recorded_is_in_the_status() -> None:
    scene = Alone(TopologyConstraint((LayerConstraint("Rack", GatherStrategy.PREFER),)))
    scene.state.upsert_topology(RACKS)
    scene.state.upsert_node(make_node("n").label("rack", "r").build())
    pod = make_pod("a-0").gang(A).released("n", "p", A).running("n").build()
    assert pod.recorded is not None
    for gap, told in (("", None), ("Rack+2", "Rack: 2 more than may have been needed")):
        scene.state.upsert_pod(replace(pod, recorded=replace(pod.recorded, gap=gap)))
        scene.spec_valid()
        assert scene.fields["placement"]["optimal"] is not bool(gap)
        assert scene.fields["placement"].get("gap") == told


def test_late_word_of_an_object_that_is_gone_is_not_taken_for_that_of_its_successor() -> None:
    scene = Alone(TopologyConstraint(()))
    problems = (Problem("spec.minMember", "0", "is odd"),)
    scene.controller.note_problems(A, "uid-default-a", problems)
    scene.controller.note_problems(A, "uid of another", ())
    assert scene.spec_valid()[0] is False
    scene.controller.note_problems(A, "uid of another", problems)
    scene.controller.note_problems(A, "uid-default-a", ())
    assert scene.spec_valid()[0] is True


async def test_what_is_wrong_with_an_object_is_handed_over_until_nothing_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = Alone(TopologyConstraint(())).controller
    handlers: list[Callable[..., Awaitable[None]]] = []
    handed: list[bool] = []

    def hand_over(_: object, key: str, uid: str, problems: tuple[Problem, ...]) -> None:
        assert (key, uid) == (A, "uid")
        handed.append(bool(problems))

    monkeypatch.setattr(pod_group, "register_events", lambda _r, _k, on: handlers.append(on))

    async def see(generation: int, *, valid: bool, event: str | None = "MODIFIED") -> None:
        meta = {"name": "a", "namespace": "default", "uid": "uid", "generation": generation}
        kind = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup"}
        body = {**kind, "metadata": meta, "spec": {"minMember": 2 if valid else "two"}}
        await handlers[-1](event={"type": event}, body=body)

    controller.register(kopf.OperatorRegistry(), hand_over)
    await see(1, valid=True, event=None)
    assert handed == []
    await see(2, valid=False)
    await see(2, valid=False)
    await see(3, valid=True)
    await see(3, valid=True)
    assert handed == [True, True, False]
    await see(4, valid=False)
    # Mended while Kopf was started anew.
    controller.register(kopf.OperatorRegistry(), hand_over)
    await see(5, valid=True, event=None)
    assert handed[3:] == [True, False]
    await see(6, valid=False)
    await see(6, valid=False, event="DELETED")
    assert handed[5:] == [True, False]
