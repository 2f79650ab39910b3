"""The status of PodGroups: what is written at once, what after a pause, and what is not kept."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import make_cluster
from tests.objects import remove_pod_group, remove_topology, upsert_pod_group, upsert_topology
from tests.support.authors import FakeAuthor

from koord.api.parse import Problem
from koord.controllers.placement_reports import PlacementReports
from koord.controllers.pod_group import PAUSE, REWORD_SECONDS, PodGroupStatusPolicy
from koord.controllers.status_author import Validation
from koord.controllers.status_controller import StatusController
from koord.core.engine.state import ClusterState
from koord.core.model.gang_history import Episode
from koord.core.model.gangs import (
    ROOT,
    BadValue,
    GangPhase,
    ObservedPodGroup,
    SubGroup,
    SubGroupTree,
)
from koord.core.model.text import format_time
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer
from koord.kube.objects import ref_of_pod_group
from koord.kube.status import ConditionPatch, StatusPatch

A, B = "default/a", "default/b"


def make_policy(
    state: ClusterState, author: Any, clock: Callable[[], float], **more: Any
) -> PodGroupStatusPolicy:
    record = more.pop("record", lambda *_: None)
    history: Any = SimpleNamespace(record=record, fields_of=lambda _: {})
    more = {"present": lambda _: None, **more}
    return PodGroupStatusPolicy(state, author, clock, clock, history, **more)


class Scene:
    """Two gangs that start together, and what is written about each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.written: list[tuple[str, str]] = []
        self.state = make_cluster().state
        clock = lambda: self.now  # noqa: E731
        self.author = FakeAuthor(self.write)
        self.policy = make_policy(self.state, self.author, clock)
        self.controller = StatusController(self.policy, clock)
        for gang in (A, B):
            upsert_pod_group(self.state, make_pod_group(gang, 5).group(A, B).build())
        for gang in "ab":
            self.join(gang, 0)

    def write(
        self,
        pod_group: ObservedPodGroup,
        fields: Mapping[str, Any],
        conditions: tuple[ConditionPatch, ...],
    ) -> None:
        quorum = next(one for one in conditions if one.type == "QuorumReached")
        self.written.append((pod_group.key, quorum.message))

    def join(self, gang: str, number: int) -> None:
        pod = make_pod(f"{gang}-{number}").gang(f"default/{gang}").created(self.now)
        self.state.upsert_pod(pod.build())

    async def pass_time(self, seconds: float) -> list[str]:
        """Deliver changes and let time pass; return the gangs whose status was written."""
        self.controller.look()
        self.now += seconds
        self.written.clear()
        await self.controller.flush()
        return sorted(gang for gang, _ in self.written)


async def test_status_that_differs_only_in_wording_is_written_after_a_pause() -> None:
    scene = Scene()
    assert await scene.pass_time(PAUSE.longest) == [A, B]
    for number in range(1, 4):
        scene.join("a", number)
        assert await scene.pass_time(PAUSE.longest) == [A]
    assert await scene.pass_time(REWORD_SECONDS) == [B]
    assert "4 of 5" in scene.written[0][1]


async def test_status_of_a_complete_group_is_written_without_the_pause() -> None:
    scene = Scene()
    await scene.pass_time(PAUSE.longest)
    for gang in "ab":
        for number in range(1, 5):
            scene.join(gang, number)
    assert await scene.pass_time(PAUSE.longest) == [A, B]


async def test_timeouts_are_kept_once_per_gang_and_dropped_with_it() -> None:
    scene = Scene()
    for number in range(1, 9):
        for gang in "ab":
            scene.join(gang, number)
        await scene.pass_time(PAUSE.longest)
    assert len(scene.controller._due) == 2
    for gang in (A, B):
        remove_pod_group(scene.state, gang)
    await scene.pass_time(PAUSE.longest)
    assert not scene.controller._due
    assert not scene.policy._written


async def test_members_on_failed_nodes_are_reported() -> None:
    said: list[ConditionPatch] = []

    class Sink:
        def write_status(
            self,
            _: ObservedPodGroup,
            fields: Mapping[str, Any],
            conditions: tuple[ConditionPatch, ...],
        ) -> None:
            assert fields
            said[:] = [one for one in conditions if one.type == "Degraded"]

    state, now = make_cluster().state, [0.0]
    policy = make_policy(state, FakeAuthor(Sink().write_status), lambda: now[0])
    controller = StatusController(policy, lambda: now[0])
    upsert_pod_group(state, make_pod_group(A, 1).build())
    state.upsert_node(make_node("n").build())
    state.upsert_pod(make_pod("a-0").gang(A).running("n").build())

    async def look() -> ConditionPatch:
        controller.look()
        now[0] += PAUSE.longest
        await controller.flush()
        (degraded,) = said
        return degraded

    degraded = await look()
    assert (degraded.status, degraded.reason) == (False, "AtStrength")
    state.upsert_node(make_node("n").taint("node.kubernetes.io/unreachable").build())
    degraded = await look()
    assert (degraded.status, degraded.reason) == (True, "MemberOnFailedNode")
    assert "(n)" in degraded.message
    state.upsert_node(make_node("n").taint("ToBeDeletedByClusterAutoscaler", "1").build())
    degraded = await look()
    assert (degraded.status, degraded.reason) == (True, "MemberOnLeavingNode")
    assert "about to take (n; ToBeDeletedByClusterAutoscaler)" in degraded.message
    state.upsert_node(make_node("n").build())
    assert (await look()).reason == "AtStrength"
    state.remove_node("n")
    degraded = await look()
    assert (degraded.status, degraded.reason) == (True, "MemberOnFailedNode")
    assert "nodes that were deleted (n)" in degraded.message
    policy = make_policy(state, FakeAuthor(Sink().write_status), lambda: now[0])
    controller = StatusController(policy, lambda: now[0])
    said.clear()
    assert (await look()) == degraded, "also after a restart"
    state.upsert_node(make_node("n").build())
    assert (await look()).reason == "AtStrength", "it came back"
    state.remove_node("n")
    assert (await look()).reason == "MemberOnFailedNode"
    state.remove_pod("uid-default-a-0")
    await look()
    state.upsert_node(make_node("other").build())
    await look()
    assert not policy.endangered.nodes, "forgotten with its pods"


async def test_a_gang_below_its_minimum_says_so_after_its_node_failed() -> None:
    """Failed nodes degrade it first; that must not hide the loss of its members."""
    told: list[str] = []
    state, now = make_cluster().state, [0.0]

    def record(_: ObservedPodGroup, what: str, why: str) -> None:
        told.append(f"{what}: {why}")

    policy = make_policy(state, FakeAuthor(), lambda: now[0], record=record)
    controller = StatusController(policy, lambda: now[0])

    async def look() -> None:
        controller.look()
        now[0] += PAUSE.longest
        await controller.flush()

    state.upsert_node(make_node("n").build())
    for name in ("a-0", "a-1"):
        member = make_pod(name).gang(A).released("n", "p", A, 2)
        state.upsert_pod(member.running("n").build())
    upsert_pod_group(state, make_pod_group(A, 2).phase(GangPhase.RUNNING).build())
    await look()
    state.upsert_node(make_node("n").taint("node.kubernetes.io/unreachable").build())
    await look()
    await look()
    state.remove_pod(make_pod("a-1").build().uid)
    await look()
    assert [one.partition(":")[0] for one in told] == ["Degraded", "Degraded"]
    assert "1 of 2" in told[1]


async def test_a_preempted_gang_says_by_whom_until_it_runs_as_a_whole_again() -> None:
    state, now, api = make_cluster().state, [1000.0], dict[str, Any]()

    def write(_: ObservedPodGroup, __: object, conditions: tuple[ConditionPatch, ...]) -> None:
        since, before = format_time(now[0]), api.get("conditions", ())
        kept = {(one["type"], one["status"]): one["lastTransitionTime"] for one in before}
        api["conditions"] = [
            {
                "type": str(one.type),
                "status": str(one.status),
                "message": one.message,
                "lastTransitionTime": kept.get((one.type, str(one.status)), since),
            }
            for one in conditions
        ]

    policy = make_policy(state, FakeAuthor(write), lambda: now[0], present=lambda _: api)
    group = make_pod_group(A, 2).phase(GangPhase.RUNNING).build()
    state.upsert_node(make_node("n").build())

    async def look(members: int, *evicted_at: int) -> tuple[str, str]:
        now[0] += 10
        for name in ("a-0", "a-1"):
            pod = make_pod(name).gang(A).released("n", "p", A, 2).running("n").build()
            state.remove_pod(pod.uid)
            if members:
                state.upsert_pod(pod)
            members -= bool(members)
        history = tuple(Episode(at, "Preempted", "no room", "b/high") for at in evicted_at)
        upsert_pod_group(state, replace(group, history=history))
        await policy.update(A)
        said = (one for one in api["conditions"] if one["type"] == "Preempted")
        return next(((one["status"], one["message"]) for one in said), ("", ""))

    assert await look(2) == ("", "")
    assert await look(2, 1015) == ("", ""), "the deletions are not seen yet"
    status, text = await look(0, 1015)
    assert status == "True"
    assert text == "At 1970-01-01T00:16:55Z: Preempted: no room. For b/high."
    assert (await look(1, 1015))[0] == "True"
    status, text = await look(2, 1015)
    assert status == "False"
    assert "preempted at 1970-01-01T00:16:55Z" in text
    assert (await look(1, 1015))[0] == "False", "lost for another cause"
    assert (await look(1, 1015, 1065))[0] == "True", "preempted again"


@pytest.mark.parametrize("phase", [GangPhase.PENDING, GangPhase.RUNNING])
async def test_status_of_an_emptied_gang_is_updated_without_the_long_pause(
    phase: GangPhase,
) -> None:
    """Only groups without any status may wait for their pods: a wrong status must not stay."""
    scene = Scene()
    await scene.pass_time(PAUSE.longest)
    group = make_pod_group(A, 5).group(A, B).phase(phase).build()
    upsert_pod_group(scene.state, group)
    await scene.pass_time(PAUSE.longest)
    scene.state.remove_pod("uid-default-a-0")
    assert A in await scene.pass_time(PAUSE.longest)
    odd = make_pod_group(A, 5)._set_spec(bad_values=(BadValue("k", "v", "default", "is odd"),))
    upsert_pod_group(scene.state, odd.phase(phase).build())
    assert A in await scene.pass_time(PAUSE.longest)


async def test_first_status_of_an_empty_group_waits_for_its_pods() -> None:
    scene = Scene()
    await scene.pass_time(PAUSE.longest)
    upsert_pod_group(scene.state, make_pod_group("default/c", 5).build())
    assert await scene.pass_time(PAUSE.longest) == []
    assert await scene.pass_time(2 * PAUSE.longest) == ["default/c"]


async def observe_spec(nest: SubGroupTree | None, sub_group: str = "") -> ConditionPatch:
    """Return the condition SpecValid of a gang with one member."""
    said: list[ConditionPatch] = []

    class Sink:
        def write_status(
            self,
            _: ObservedPodGroup,
            fields: Mapping[str, Any],
            conditions: tuple[ConditionPatch, ...],
        ) -> None:
            assert fields
            said.extend(one for one in conditions if one.type == "SpecValid")

    state = make_cluster().state
    upsert_topology(state, Topology("default", (Layer(NODE_LAYER, ""),)))
    group = make_pod_group(A, 1).topology(TopologyConstraint(())).build()
    upsert_pod_group(state, replace(group, spec=replace(group.spec, sub_groups=nest)))
    state.upsert_pod(replace(make_pod("a-0").gang(A).build(), sub_group=sub_group))
    await make_policy(state, FakeAuthor(Sink().write_status), lambda: 0.0).update(A)
    (spec_valid,) = said
    return spec_valid


async def test_unknown_sub_groups_of_members_are_reported() -> None:
    nest = SubGroupTree(SubGroup(ROOT), (SubGroup("g", 1),))
    assert (await observe_spec(nest, "g")).status
    assert (await observe_spec(nest)).status, "who names none belongs to the gang itself"
    for one in (nest, None):
        found = await observe_spec(one, "h")
        assert (found.status, found.reason) == (False, "InvalidAnnotation")
        assert 'sub-group "h"' in found.message


class Alone:
    """One gang with a topology constraint, and its status."""

    def __init__(self, wish: TopologyConstraint, nest: SubGroupTree | None = None) -> None:
        self.fields: dict[str, Any] = {}
        self.said: dict[str, ConditionPatch] = {}
        self.now = 0.0
        self.state = make_cluster().state
        clock = lambda: self.now  # noqa: E731
        self.author = FakeAuthor(self.write)
        self.policy = make_policy(self.state, self.author, clock)
        self.controller = StatusController(self.policy, clock)
        group = make_pod_group(A, 1).topology(wish).build()
        upsert_pod_group(self.state, replace(group, spec=replace(group.spec, sub_groups=nest)))

    def write(
        self, _: ObservedPodGroup, fields: Mapping[str, Any], conditions: tuple[ConditionPatch, ...]
    ) -> None:
        self.fields = dict(fields)
        self.said = {one.type: one for one in conditions}

    async def spec_valid(self) -> tuple[bool, str]:
        """Let time pass; return status and reason of the condition SpecValid."""
        self.controller.look()
        self.now += 10
        await self.controller.flush()
        return self.said["SpecValid"].status, self.said["SpecValid"].reason


RACKS = Topology("default", (Layer("Rack", "", ("rack",)), Layer(NODE_LAYER, "Rack")))
SPINES = Topology("default", (Layer("Spine", "", ("spine",)), Layer(NODE_LAYER, "Spine")))


async def test_unknown_layers_are_reported_until_the_topology_has_them() -> None:
    scene = Alone(TopologyConstraint((LayerConstraint("Rack", GatherStrategy.PREFER),)))
    assert await scene.spec_valid() == (False, "MissingTopology")
    upsert_topology(scene.state, SPINES)
    assert await scene.spec_valid() == (False, "UnknownLayer")
    message = scene.said["SpecValid"].message
    assert '"Rack"' in message
    assert "ClusterNetworkTopology default" in message
    assert "Spine" in message
    upsert_topology(scene.state, RACKS)
    assert await scene.spec_valid() == (True, "Valid")
    remove_topology(scene.state, "default")
    assert await scene.spec_valid() == (False, "MissingTopology")


async def test_unknown_layers_of_sub_groups_are_reported() -> None:
    scene = Alone(TopologyConstraint(()), SubGroupTree(SubGroup(ROOT), (SubGroup("g", 1, "Rack"),)))
    upsert_topology(scene.state, SPINES)
    assert await scene.spec_valid() == (False, "UnknownLayer")
    nothing = Alone(TopologyConstraint(()), SubGroupTree(SubGroup(ROOT), (SubGroup("g", 1),)))
    assert await nothing.spec_valid() == (True, "Valid")


async def test_recorded_gap_is_in_the_status() -> None:
    scene = Alone(TopologyConstraint((LayerConstraint("Rack", GatherStrategy.PREFER),)))
    upsert_topology(scene.state, RACKS)
    scene.state.upsert_node(make_node("n").label("rack", "r").build())
    pod = make_pod("a-0").gang(A).released("n", "p", A).running("n").build()
    assert pod.recorded is not None
    for gap, told in (("", None), ("Rack+2", "Rack: 2 more than may have been needed")):
        scene.state.upsert_pod(replace(pod, recorded=replace(pod.recorded, gap=gap)))
        await scene.spec_valid()
        assert scene.fields["placement"]["optimal"] is not bool(gap)
        assert scene.fields["placement"].get("gap") == told


async def test_problems_of_a_deleted_object_are_ignored_after_recreation() -> None:
    scene = Alone(TopologyConstraint(()))
    odd = Validation((Problem("spec.minMember", "0", "is odd"),))
    scene.author.validations = {"uid-default-a": odd}
    assert (await scene.spec_valid())[0] is False
    scene.author.validations = {"uid of another": odd}
    scene.controller.enqueue(A)
    assert (await scene.spec_valid())[0] is True


WAITS = StatusPatch(
    (ConditionPatch("Placed", False, "InsufficientNodes", "no room"),), {"attempts": 3}
)


async def test_what_placement_says_is_a_part_of_the_status() -> None:
    scene = Alone(TopologyConstraint(()))
    scene.policy.reports = PlacementReports(lambda _: True)
    scene.state.upsert_pod(make_pod("a-0").gang(A).build())
    await scene.spec_valid()
    assert "Placed" not in scene.said
    group = scene.state.gangs.pod_group(A)
    assert group is not None
    scene.policy.reports.submit(ref_of_pod_group(group), WAITS)
    scene.controller.hurry(A)
    await scene.controller.flush()
    assert scene.said["Placed"] == WAITS.conditions[0]
    assert (scene.fields["attempts"], scene.fields["state"]) == (3, "InsufficientNodes")
    assert scene.author.metadata[-1][1], "people wait for it"
    scene.policy.reports.submit(ref_of_pod_group(group), StatusPatch())
    scene.controller.hurry(A)
    await scene.controller.flush()
    assert "Placed" not in scene.said
    assert "attempts" not in scene.fields


async def test_what_an_earlier_process_said_stays_until_placement_speaks() -> None:
    scene = Alone(TopologyConstraint(()))
    scene.policy.reports = PlacementReports(lambda _: True)
    scene.state.upsert_pod(make_pod("a-0").gang(A).build())
    shown = {"type": "Placed", "status": "False", "reason": "InsufficientNodes", "message": "x"}
    old = {"type": "Other", "status": "True", "reason": "Old", "message": ""}
    scene.policy.present = lambda _: {"attempts": 2, "conditions": [shown, old]}
    await scene.spec_valid()
    assert scene.said["Placed"].reason == "InsufficientNodes"
    assert scene.fields["attempts"] == 2
    assert "Other" not in scene.said
