"""Native PodGroups of Kubernetes: what each field becomes, and when no member is released."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import PodBuilder, make_node, make_pod
from tests.cluster import SCORING, FakeCluster, make_cluster
from tests.controllers.scene import Writer
from tests.support.laws import examples

from koord.answers.explain import explain_pod
from koord.api.gang import UPSTREAM_DEFAULTS
from koord.api.keys import gang as keys
from koord.controllers.commit import Commit, commit
from koord.core.eviction.candidates import find_surplus
from koord.core.eviction.reasons import PreemptionNever
from koord.core.eviction.search import _find_blocking_reason
from koord.core.gang.native_reasons import (
    GroupClaims,
    MixedGates,
    MixedSchedulers,
    NativeQuorumMissing,
    PriorityDiffers,
)
from koord.core.gang.quorum import Ready, demands
from koord.core.gang.reasons import MissingMembers, MissingPodGroup
from koord.core.model.gangs import GangMembership, GangSource, ObservedPodGroup
from koord.core.model.native_terms import NativeTerms
from koord.core.model.pods import Handling, PodPhase
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
)
from koord.core.topology.cache import MAX_LABEL_TREES
from koord.core.topology.layers import Layer
from koord.core.topology.reasons import NoDomainFits
from koord.kube.decode import MALFORMED
from koord.kube.translate.native_groups import translate_native
from koord.kube.wire import WireNativePodGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "train"
GANG = f"default/scheduling.k8s.io:{NAME}"
RACK = "example.com/rack"


def decode(
    spec: Mapping[str, Any], annotations: Mapping[str, str] | None = None
) -> ObservedPodGroup:
    """Return a group as it would be read from the API server."""
    meta = {"name": NAME, "namespace": "default", "uid": "u", "annotations": annotations}
    raw = json.dumps({"metadata": meta, "spec": spec}).encode()
    return translate_native(msgspec.json.decode(raw, type=WireNativePodGroup), UPSTREAM_DEFAULTS)


def make_group(count: int | None, **spec: Any) -> ObservedPodGroup:
    policy = {"basic": {}} if count is None else {"gang": {"minCount": count}}
    return decode({"schedulingPolicy": policy, **spec})


def shares(key: str = RACK) -> dict[str, Any]:
    return {"schedulingConstraints": {"topology": [{"key": key}]}}


def member(name: str, gpus: int = 1) -> PodBuilder:
    claim = GangMembership(GANG, GangSource.NATIVE)
    return make_pod(name)._set(gang=claim).requests(**{"nvidia.com/gpu": gpus})


def make_racks(free: Mapping[str, int]) -> FakeCluster:
    """One node per rack, with so many GPUs."""
    cluster = make_cluster()
    for rack, gpus in free.items():
        cluster.nodes(make_node(f"{rack}-0").gpu(gpus).label(RACK, rack))
    return cluster


def waits(cluster: FakeCluster) -> object:
    made = demands(cluster.state.gangs, GANG)
    return made if isinstance(made, Ready) else type(made)


# Fields


@pytest.mark.parametrize(
    ("mode", "is_whole"),
    [
        (None, False),
        ("Pod", False),
        ("PodGroup", True),
        ({"single": {}}, False),
        ({"all": {}}, True),
        ({}, False),
        ({"later": {}}, False),
        ("Later", False),
    ],
)
def test_disruption_mode_of_each_version(mode: object, is_whole: bool) -> None:  # noqa: FBT001
    spec = make_group(2, **({} if mode is None else {"disruptionMode": mode})).spec
    assert spec.native is not None
    assert spec.native.is_disrupted_whole is is_whole


def test_every_field_has_its_place() -> None:
    group = make_group(
        3,
        **shares(),
        priority=7,
        preemptionPolicy="Never",
        resourceClaims=[{"name": "nvlink", "resourceClaimTemplateName": "t"}],
        workloadRef={"workloadName": "w", "templateName": "t"},
    )
    assert group.key == GANG
    assert group.spec.min_member == 3
    assert group.spec.native == NativeTerms(
        is_gang=True, priority=7, never_preempts=True, claims=("nvlink",)
    )
    assert group.spec.topology is not None
    assert group.spec.topology.layers == (LayerConstraint(RACK, GatherStrategy.MUST),)


def test_what_gangs_have_beyond_it_stands_in_annotations() -> None:
    prefer = json.dumps({"gatherStrategy": [{"layer": "spine", "strategy": "PreferGather"}]})
    annotations = {keys.WAITING_TIME: "90s", keys.NETWORK_TOPOLOGY_SPEC: prefer}
    group = decode({"schedulingPolicy": {"gang": {"minCount": 2}}, **shares()}, annotations)
    assert group.spec.wait_seconds == 90
    assert group.spec.topology is not None
    assert group.spec.topology.layers_with(GatherStrategy.PREFER) == {"spine"}
    assert group.spec.topology.layers_with(GatherStrategy.MUST) == {RACK}


def test_group_within_another_one_starts_by_itself_and_that_is_told() -> None:
    group = make_group(2, parentCompositePodGroupName="all")
    (told,) = group.spec.bad_values
    assert (told.key, told.value) == ("spec.parentCompositePodGroupName", "all")
    assert "name each other in gang.scheduling.koordinator.sh/groups" in told.problem
    cluster = make_racks({"a": 2}).pod_groups(group).pods(member("g-0"), member("g-1"))
    assert cluster.step() == ["g-0", "g-1"]
    assert make_group(2, parentCompositePodGroupName="").spec.bad_values == ()


def test_annotations_that_cannot_be_used_are_told() -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    assert [bad.key for bad in decode(spec, {keys.WAITING_TIME: "soon"}).spec.bad_values] == [
        keys.WAITING_TIME
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    (
        "schedulingPolicy",
        "schedulingConstraints",
        "disruptionMode",
        "priority",
        "preemptionPolicy",
        "resourceClaims",
        "parentCompositePodGroupName",
    )
)


@settings(max_examples=examples(40))
@given(
    st.dictionaries(FIELDS, JSON),
    st.dictionaries(
        st.sampled_from(
            sorted({keys.WAITING_TIME, keys.MODE, keys.GROUPS, keys.NETWORK_TOPOLOGY_SPEC})
        ),
        st.text(max_size=30),
    ),
)
def test_whatever_is_written_is_read_or_malformed(
    spec: dict[str, Any], annotations: dict[str, str]
) -> None:
    try:
        group = decode(spec, annotations)
    except MALFORMED:
        return
    assert group.key == GANG


# Placing


def test_gang_goes_to_the_one_rack_that_takes_its_minimum() -> None:
    cluster = make_racks({"r1": 3, "r2": 5, "r3": 2})
    cluster.pod_groups(make_group(4, **shares()))
    cluster.pods(*(member(f"w-{at}") for at in range(6)))
    started = cluster.step()
    assert len(started) == 5
    assert {cluster.pod(name).planned_node for name in started} == {"r2-0"}
    reason = cluster.reason()
    assert isinstance(reason, NoDomainFits)
    assert reason.layer == RACK


def test_nodes_without_the_label_belong_to_no_rack() -> None:
    cluster = make_racks({"r1": 3}).nodes(make_node("bare").gpu(8))
    cluster.pod_groups(make_group(4, **shares()))
    cluster.pods(*(member(f"w-{at}") for at in range(4)))
    assert not cluster.step()
    cluster.pod_groups(make_group(3, **shares()))
    assert len(cluster.step()) == 3


def test_group_that_is_no_gang_still_shares_its_rack() -> None:
    cluster = make_racks({"r1": 2, "r2": 3})
    cluster.pod_groups(make_group(None, **shares()))
    cluster.pods(*(member(f"w-{at}") for at in range(6)))
    started = cluster.step()
    assert len({cluster.pod(name).planned_node for name in started}) == 1


def test_replacement_stays_in_the_rack_of_the_others() -> None:
    cluster = make_racks({"r1": 3, "r2": 4})
    cluster.pod_groups(make_group(4, **shares()))
    cluster.pods(*(member(f"w-{at}") for at in range(4)))
    assert len(cluster.step()) == 4
    cluster.delete_pods("w-0")
    cluster.pods(member("other").bound("r2-0")._set(gang=None), member("w-4"))
    assert not cluster.step(), "the other rack has room, and is not theirs"


def test_preferred_layers_of_the_annotation_count_within_the_shared_label() -> None:
    cluster = make_cluster()
    cluster.topology(
        Layer("Zone", "", ("zone",)), Layer("Rack", "Zone", (RACK,)), Layer(NODE_LAYER, "Rack")
    )
    for at, (zone, rack) in enumerate((("z1", "r1"), ("z1", "r1"), ("z2", "r2"), ("z2", "r2"))):
        cluster.nodes(make_node(f"n-{at}").gpu(2).label("zone", zone).label(RACK, rack))
    annotated = json.dumps({"gatherStrategy": [{"layer": "Zone", "strategy": "PreferGather"}]})
    group = decode(
        {"schedulingPolicy": {"gang": {"minCount": 3}}, **shares()},
        {keys.NETWORK_TOPOLOGY_SPEC: annotated},
    )
    cluster.pod_groups(group)
    cluster.pods(*(member(f"w-{at}") for at in range(3)))
    (placement,) = cluster.decide(cluster.absorb() and cluster.take()).placements
    assert dict(placement.topologies[0].used)["Zone"] == 1


def test_a_thousand_groups_with_labels_of_their_own_keep_few_trees() -> None:
    cluster = make_racks({"r1": 8})
    topologies = cluster.state.topologies
    for at in range(1000):
        group = make_group(2, **shares(f"example.com/label-{at}"))
        assert group.spec.topology is not None
        tree = topologies.tree(group.spec.topology.topology)
        assert tree is not None
        assert not len(tree)
    assert len(topologies._label_trees) == MAX_LABEL_TREES
    assert list(topologies) == [], "nobody has to write a status of them"


ABSURD: tuple[dict[str, Any], ...] = (
    {"schedulingPolicy": {"gang": {"minCount": 2**31 - 1}}},
    {"schedulingPolicy": {"gang": {"minCount": -1}}},
    {"schedulingPolicy": {"gang": {"minCount": 0}}, "disruptionMode": {"all": {}, "single": {}}},
    {"schedulingPolicy": {"gang": {"minCount": 1}, "basic": {}}, "priority": -(2**31)},
    {"schedulingConstraints": {"topology": [{"key": "x" * 300}] * 100}},
    {"resourceClaims": [{"name": "c" * 253}] * 100, "preemptionPolicy": "Whatever"},
    {"parentCompositePodGroupName": "p" * 10_000, "disruptionMode": "Neither"},
)


def test_thousands_of_absurd_groups_keep_nobody_from_starting() -> None:
    """Of a tenant who may create groups and pods; a gang of others starts with the first plans."""
    cluster = make_racks({"a": 2})
    for at in range(500):
        meta = {"name": f"g{at}", "namespace": "evil", "uid": f"g{at}"}
        raw = json.dumps({"metadata": meta, "spec": ABSURD[at % len(ABSURD)]}).encode()
        with suppress(*MALFORMED):
            wire = msgspec.json.decode(raw, type=WireNativePodGroup)
            cluster.pod_groups(translate_native(wire, UPSTREAM_DEFAULTS))
        gang = GangMembership(f"evil/scheduling.k8s.io:g{at}", GangSource.NATIVE)
        cluster.pods(make_pod(f"evil/p{at}").gpu(3)._set(gang=gang))
    cluster.pod_groups(make_group(2)).pods(member("g-0"), member("g-1"))
    placed: list[str] = []
    for _ in range(6):
        placed += cluster.step()
    assert placed == ["g-0", "g-1"]


def test_labels_of_nodes_are_followed() -> None:
    cluster = make_racks({"r1": 4})
    cluster.pod_groups(make_group(4, **shares("zone")))
    cluster.pods(*(member(f"w-{at}") for at in range(4)))
    assert not cluster.step()
    cluster.nodes(make_node("r1-0").gpu(4).label("zone", "z"))
    assert len(cluster.step()) == 4


def test_minimum_may_change_while_the_gang_waits() -> None:
    cluster = make_cluster(1, gpus=3)
    cluster.pod_groups(make_group(4)).pods(*(member(f"w-{at}") for at in range(4)))
    assert not cluster.step()
    cluster.pod_groups(make_group(3))
    assert len(cluster.step()) == 3


# Who may be released


@pytest.mark.parametrize(
    ("stranger", "expected"),
    [
        (member("x").not_ours(), MixedGates),
        (member("x").not_ours().bound("node-0"), Ready),
        (member("x").handling(Handling.RELEASE_PINNED), MixedSchedulers),
        (member("x").handling(Handling.BIND), Ready),
        (member("x"), Ready),
    ],
)
def test_members_are_alike_or_none_is_released(stranger: PodBuilder, expected: type) -> None:
    cluster = make_cluster(2)
    cluster.pod_groups(make_group(2)).pods(member("w-0"), member("w-1"), stranger)
    assert isinstance(demands(cluster.state.gangs, GANG), expected)


def test_gangs_of_our_own_may_differ() -> None:
    cluster = make_cluster(2)
    cluster.pod_groups(make_group(None)).pods(member("w-0"), member("x").not_ours())
    assert isinstance(demands(cluster.state.gangs, GANG), Ready), "it is no gang"


def test_priority_of_the_group_is_that_of_its_pods() -> None:
    cluster = make_cluster(2)
    cluster.pod_groups(make_group(2, priority=5))
    cluster.pods(member("w-0")._set(priority=5), member("w-1")._set(priority=9))
    reason = demands(cluster.state.gangs, GANG)
    assert reason == PriorityDiffers(GANG, 5, "default/w-1", 9)
    assert isinstance(reason, PriorityDiffers)
    assert reason.text() == f"{GANG} has the priority 5, and its pod default/w-1 has 9"


def test_claims_of_the_group_are_refused() -> None:
    claims = [{"name": "nvlink", "resourceClaimTemplateName": "t"}]
    cluster = make_cluster(2)
    cluster.pod_groups(make_group(2, resourceClaims=claims))
    pods = [member(f"w-{at}").needs_kube_scheduler("spec.resourceClaims") for at in range(2)]
    cluster.pods(*pods)
    assert demands(cluster.state.gangs, GANG) == GroupClaims(GANG, ("nvlink",), "default/w-0")


def test_pods_that_do_not_use_the_claims_of_the_group_start() -> None:
    claims = [{"name": "nvlink", "resourceClaimTemplateName": "t"}]
    cluster = make_cluster(2)
    cluster.pod_groups(make_group(2, resourceClaims=claims)).pods(member("w-0"), member("w-1"))
    assert len(cluster.step()) == 2


@pytest.mark.parametrize("count", [2**31 - 1, 2**62])
def test_absurd_minimum_waits_alone(count: int) -> None:
    cluster = make_cluster(1).pod_groups(make_group(count)).pods(member("w-0"), make_pod("alone"))
    assert cluster.step() == ["alone"]
    assert isinstance(demands(cluster.state.gangs, GANG), MissingMembers)


def test_group_of_another_namespace_is_nobodys() -> None:
    cluster = make_cluster(2).pod_groups(make_group(2))
    claim = GangMembership(f"other/scheduling.k8s.io:{NAME}", GangSource.NATIVE)
    cluster.pods(member("w-0"), make_pod("other/w-1")._set(gang=claim))
    assert not cluster.step()
    assert isinstance(demands(cluster.state.gangs, GANG), MissingMembers)
    assert isinstance(demands(cluster.state.gangs, claim.key), MissingPodGroup)


def test_group_that_is_being_deleted_is_planned_as_before() -> None:
    """It stays until its pods have ended, which is no time to wait for."""
    cluster = make_cluster(2)
    cluster.pod_groups(replace(make_group(2), is_terminating=True))
    cluster.pods(member("w-0"), member("w-1"))
    assert len(cluster.step()) == 2


# Who binds


class Alone:
    """Nobody counts, and every write has its turn."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None

    async def in_turn(self, _: object, bind: Any) -> Any:
        return await bind()


def release(cluster: FakeCluster) -> Commit:
    units = {unit.key: unit for unit in cluster.take()}
    outcome = cluster.decide(units.values())
    cluster.assume(outcome)
    (placement,) = outcome.placements
    writer, unit = Writer(cluster.state), units[placement.unit]
    return asyncio.run(commit(writer, unit, placement, Alone(), Alone()))  # type: ignore[arg-type]


def gated(name: str, handling: Handling) -> PodBuilder:
    return member(name).handling(handling)._set(is_gated=True)


def test_scheduler_that_the_members_name_binds_them_and_writes_the_status() -> None:
    cluster = make_cluster(2)
    cluster.pod_groups(make_group(2))
    cluster.pods(*(gated(f"w-{at}", Handling.RELEASE_PINNED) for at in range(2)))
    outcome = release(cluster)
    assert (len(outcome.released), len(outcome.left_to_others), outcome.bound) == (2, 2, set())


def test_members_of_our_scheduler_are_bound_by_us() -> None:
    cluster = make_cluster(2)
    cluster.pod_groups(make_group(2))
    cluster.pods(*(gated(f"w-{at}", Handling.RELEASE_AND_BIND) for at in range(2)))
    outcome = release(cluster)
    assert (len(outcome.bound), outcome.left_to_others) == (2, set())


def test_members_that_kube_scheduler_would_wait_for_in_vain_are_bound_by_us() -> None:
    """It does not count those that have succeeded, and would never start the last one."""
    cluster = make_cluster(2)
    cluster.pod_groups(make_group(2))
    done = member("w-0").released("n0", "p", GANG).bound("n0")._set(phase=PodPhase.SUCCEEDED)
    cluster.pods(done, gated("w-1", Handling.RELEASE_PINNED))
    outcome = release(cluster)
    assert (len(outcome.bound), outcome.left_to_others) == (1, set())


def test_members_that_are_left_too_few_are_told_for_whom_kube_scheduler_waits() -> None:
    cluster = make_cluster(4)
    cluster.pod_groups(make_group(4))
    released = [
        member(f"w-{at}").released("n0", "p", GANG).not_ours().pinned().build() for at in range(4)
    ]
    cluster.pods(*released)
    assert explain_pod(cluster.state, released[0], SCORING).reason is None
    cluster.delete_pods("w-3")
    reason = explain_pod(cluster.state, released[0], SCORING).reason
    assert reason == NativeQuorumMissing(GANG, "default/w-0", 3, 4)
    assert isinstance(reason, NativeQuorumMissing)
    assert reason.text() == (
        f"default/w-0 was released, and kube-scheduler binds none of {GANG} before 4 members are "
        "there: there are 3"
    )
    assert reason.advice() == (f"Create 1 more member of {GANG}, or lower its minCount.",)
    cluster.pods(gated("w-4", Handling.RELEASE_PINNED))
    assert explain_pod(cluster.state, released[0], SCORING).reason is None


# Evictions


@pytest.mark.parametrize(("mode", "count"), [("single", 1), ("all", 0)])
def test_members_beyond_the_minimum_go_alone_or_with_all(mode: str, count: int) -> None:
    cluster = make_cluster(3)
    cluster.pod_groups(make_group(2, disruptionMode={mode: {}}))
    pods = [member(f"w-{at}").bound("node-0").build() for at in range(3)]
    cluster.pods(*pods)
    assert len(find_surplus(cluster.state, GANG, pods, ())) == count


def test_group_may_say_that_nobody_is_preempted_for_it() -> None:
    cluster = make_cluster(2)
    cluster.pod_groups(make_group(2, preemptionPolicy="Never"))
    cluster.pods(member("w-0"), member("w-1"))
    ready = demands(cluster.state.gangs, GANG)
    assert isinstance(ready, Ready)
    assert isinstance(_find_blocking_reason(ready.units[0]), PreemptionNever)
