"""After any events, incremental usage and shares equal a full recount."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.objects import remove_quota, upsert_pod_group, upsert_quota
from tests.support.laws import examples

from koord.core.model.pods import Handling, PodPhase

if TYPE_CHECKING:
    from koord.core.engine.state import ClusterState
    from koord.core.model.nodes import Node
    from koord.core.model.pods import Pod
    from koord.core.quota.model import QuotaSpec

QUOTAS = ["a", "b", "c", ""]
GANGS = ["default/g", "default/h"]


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    builder = make_pod(f"p{draw(st.integers(0, 5))}").gpu(draw(st.integers(1, 4)))
    builder.quota(draw(st.sampled_from(QUOTAS)), is_non_preemptible=draw(st.booleans()))
    gang = draw(st.sampled_from(["", *GANGS]))
    if gang:
        builder.gang(gang)
    match draw(st.integers(0, 5)):
        case 0:
            builder.running("n0")
        case 1:
            builder.running("n1").phase(PodPhase.SUCCEEDED)
        case 2:
            builder.terminating()
        case 3:
            builder.handling(Handling.NOT_OURS)
        case _:
            pass
    return builder.build()


@st.composite
def specs(draw: st.DrawFn) -> QuotaSpec:
    most = draw(st.integers(0, 16))
    return make_quota(
        draw(st.sampled_from(QUOTAS[:3])),
        namespace="q",
        parent=draw(st.sampled_from(["koordinator-root-quota", "a"])),
        is_parent=draw(st.booleans()),
        min={GPU: draw(st.integers(0, most))},
        max={GPU: most},
        namespaces=("default",) if draw(st.booleans()) else (),
    )


class World:
    """What the API server holds."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.groups: dict[str, int] = {}
        self.quotas: dict[str, QuotaSpec] = {}

    def rebuilt(self, kept: ClusterState) -> ClusterState:
        """Return a state of the same objects.

        Which of two quotas that contradict each other was there first is nothing that objects tell:
        what is in force is taken over.
        """
        state = make_cluster().state
        for node in self.nodes.values():
            state.upsert_node(node)
        for pod in self.pods.values():
            state.upsert_pod(pod)
        for key, minimum in self.groups.items():
            upsert_pod_group(state, make_pod_group(key, min_member=minimum).build())
        for spec in kept.quotas.catalog.registry.specs.values():
            upsert_quota(state, spec)
        state.quotas.catalog.settle()
        for spec in self.quotas.values():
            upsert_quota(state, spec)
        return state


@settings(max_examples=examples(30))
@given(st.data())
def test_incremental_usage_equals_a_recount(data: st.DataObject) -> None:
    state, world = make_cluster().state, World()
    for _ in range(data.draw(st.integers(1, 12))):
        change(data, state, world)
        if data.draw(st.booleans()):
            continue
        state.open_ledger()
        rebuilt = world.rebuilt(state)
        rebuilt.open_ledger()
        assert state.quotas.usage.usage() == rebuilt.quotas.usage.usage()
        for tree_id, solution in state.quotas.solutions.items():
            other = rebuilt.quotas.solutions[tree_id]
            for name in solution.inputs.tree.layout.names[1:]:
                assert solution.share(name) == other.share(name)


CHANGES = ["pod", "gone", "node", "group", "quota", "unquota", "assume"]


def change(data: st.DataObject, state: ClusterState, world: World) -> None:
    match data.draw(
        st.sampled_from(["pod", "gone", "node", "group", "quota", "unquota", "assume"])
    ):
        case "pod":
            pod = data.draw(pods())
            world.pods[pod.uid] = pod
            state.upsert_pod(pod)
        case "gone" if world.pods:
            uid = data.draw(st.sampled_from(sorted(world.pods)))
            del world.pods[uid]
            state.remove_pod(uid)
        case "node":
            name = f"n{data.draw(st.integers(0, 1))}"
            node = make_node(name).gpu(data.draw(st.integers(0, 8))).build()
            world.nodes[name] = node
            state.upsert_node(node)
        case "group":
            key = data.draw(st.sampled_from(GANGS))
            world.groups[key] = data.draw(st.integers(1, 3))
            upsert_pod_group(state, make_pod_group(key, min_member=world.groups[key]).build())
        case "quota":
            spec = data.draw(specs())
            world.quotas[spec.name] = spec
            upsert_quota(state, spec)
        case "unquota" if world.quotas:
            name = data.draw(st.sampled_from(sorted(world.quotas)))
            del world.quotas[name]
            remove_quota(state, f"q/{name}")
        case "assume" if world.pods:
            uid = data.draw(st.sampled_from(sorted(world.pods)))
            if world.pods[uid].is_plannable:
                state.assume(uid, "n0")
                state.open_ledger()
                state.forget(uid)
        case _:
            pass
