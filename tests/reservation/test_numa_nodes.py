"""NUMA nodes and CPUs inside reservations: held exactly, and given to owners first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, settings
from hypothesis import given as for_all
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.cluster import make_unit
from tests.numa.test_plugin import GIB, PINNED, SINGLE, given, numa_cluster
from tests.objects import remove_reservation, upsert_reservation
from tests.reservation.make import ALIGNED, RESTRICTED, make_reservation
from tests.support.laws import examples

from koord.core.device.plugin import Devices
from koord.core.model.device_names import NVIDIA_GPU
from koord.core.model.pods import Handling
from koord.core.model.units import PODS
from koord.core.numa.model import NAME as NUMA
from koord.core.numa.plugin import Numa
from koord.core.numa.session import NumaSession
from koord.core.reservation.lifecycle import set_available
from koord.core.reservation.model import NAME, ReservationHints, ReservationState, ReservationUse

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

    from koord.core.model.pods import Pod
    from koord.core.numa.model import NumaAllocationHints
    from koord.core.reservation.model import ReservationInfo

MUST = (NAME, ReservationHints(has_affinity=True))


def reserve(
    made: FakeCluster, wishes: NumaAllocationHints, cpu: int = 4000, **fields: Any
) -> ReservationInfo:
    """Place a reservation and write it, as the operators do."""
    reserved = {"cpu": cpu, **fields.pop("more", {})}
    waiting = make_reservation(node="", reserved=reserved, **fields)
    assert waiting.pod is not None
    waiting = replace(waiting, pod=replace(waiting.pod, extensions=((NUMA, wishes),)))
    upsert_reservation(made.state, waiting)
    (placement,) = made.place(make_unit("r", [made.state.pods[waiting.uid]])).placements
    (assignment,) = placement.assignments
    assert waiting.pod is not None
    amounts = {name: n for name, n in assignment.pod.shape.requests if name != PODS}
    pod = replace(waiting.pod, allocations=assignment.allocations)
    written = replace(
        waiting, status=set_available(ReservationState(), assignment.node, amounts), pod=pod
    )
    upsert_reservation(made.state, written)
    return written


def put(made: FakeCluster, *pods: Pod) -> dict[str, str]:
    """Place pods one after the other, and bind them; return "reservation: CPUs" of each."""
    text_of_pod = {}
    for pod in pods:
        made.pods(pod)
        for placement in made.place(make_unit(pod.uid, [pod])).placements:
            (assignment,) = placement.assignments
            nodes, cpus, _ = given(assignment)
            uses = [use.name for use in assignment.allocations if isinstance(use, ReservationUse)]
            text_of_pod[pod.name] = f"{uses[0] if uses else '-'}: {cpus or nodes}"
            bound = replace(pod, node=assignment.node, allocations=assignment.allocations)
            made.pods(replace(bound, handling=Handling.BIND, is_gated=False))
    return text_of_pod


def pod(
    name: str,
    wishes: NumaAllocationHints,
    cpu: int,
    *extensions: Any,
    app: str = "web",
    **more: int,
) -> Pod:
    built = make_pod(name).requests(cpu=cpu, **more).labels(app=app).build()
    return replace(built, extensions=((NUMA, wishes), *extensions))


def held(made: FakeCluster) -> tuple[int, Any]:
    """Return the CPUs in use on the node, and the amounts by NUMA node."""
    made.open_cycle()
    plugin = made.state.plugin(Numa)
    state = plugin.states.state(int(plugin.state_of[0]))
    return state.cpus.counts.at_least(1), dict(state.used)


def test_pinned_cpus_are_held_and_owners_get_them_first() -> None:
    made = numa_cluster()
    reserve(made, PINNED, 4000)
    assert held(made)[0] == 0b1111
    outsiders = [pod(f"o{at}", PINNED, 2000, app="other") for at in range(7)]
    taken = put(made, *outsiders)
    assert len(taken) == 6, "12 CPUs are free"
    assert put(made, pod("a", PINNED, 2000), pod("b", PINNED, 2000)) == {
        "a": "r: 0-1",
        "b": "r: 2-3",
    }
    assert put(made, pod("c", PINNED, 2000)) == {}
    made.delete_pods("a")
    assert put(made, pod("d", PINNED, 2000, app="other")) == {}
    assert put(made, pod("e", PINNED, 2000)) == {"e": "r: 0-1"}


def test_restricted_gives_only_held_cpus_and_aligned_spills() -> None:
    for policy, expected in ((RESTRICTED, {}), (ALIGNED, {"b": "r: 2-7"})):
        made = numa_cluster()
        reserve(made, PINNED, 4000, policy=policy)
        assert put(made, pod("a", PINNED, 2000, MUST)) == {"a": "r: 0-1"}
        got = put(made, pod("b", PINNED, 6000, MUST))
        assert set(got) == set(expected), policy
        assert held(made)[0] & 0b1111 == 0b1111, "what is held comes first, or stays held"


def test_an_aligned_owner_gets_the_numa_node_that_is_held() -> None:
    made = numa_cluster()
    assert put(made, pod("x", SINGLE, 2000, app="other")) == {"x": "-: [0]"}
    reserve(made, SINGLE, 4000, more={"memory": 32 * GIB})
    assert put(made, pod("y", SINGLE, 4000, app="other")) != {}
    assert put(made, pod("a", SINGLE, 4000, memory=32 * GIB)) in (
        {"a": "r: [0]"},
        {"a": "r: [1]"},
    )
    used = held(made)[1]
    assert sum(dict(part).get("memory", 0) for part in used.values()) == 32 * GIB


def test_an_owner_with_shared_cpus_leaves_fewer_to_be_pinned() -> None:
    made = numa_cluster()
    reserve(made, PINNED, 8000)
    assert put(made, pod("a", SINGLE, 6000)) == {"a": "r: [0]"}
    assert held(made)[0].bit_count() == 2
    assert put(made, pod("b", PINNED, 2000)) == {"b": "r: 6-7"}


def test_deleted_reservations_leave_nothing_behind() -> None:
    made = numa_cluster()
    before = held(made)
    written = reserve(made, PINNED, 4000)
    put(made, pod("a", PINNED, 2000))
    remove_reservation(made.state, written)
    assert held(made)[0] == 0b11
    made.delete_pods("a")
    assert held(made) == before


@pytest.mark.parametrize("wishes", [PINNED, SINGLE])
@settings(max_examples=examples(25), deadline=None)
@for_all(
    asks=st.lists(
        st.tuples(st.sampled_from([1000, 2000, 3000]), st.booleans(), st.booleans()), max_size=6
    ),
    is_restricted=st.booleans(),
    chosen=st.lists(st.integers(0, 6), unique=True),
)
@example(  # the pinned pod, removed and restored, comes after those that share CPUs
    asks=[(1000, False, False)] * 2
    + [(1000, False, True)] * 2
    + [(1000, True, True), (1000, False, True)],
    is_restricted=False,
    chosen=[5],
)
def test_removed_and_restored_they_leave_the_ledgers_equal(
    wishes: NumaAllocationHints,
    asks: list[tuple[int, bool, bool]],
    chosen: list[int],
    *,
    is_restricted: bool,
) -> None:
    made = numa_cluster()
    policy = RESTRICTED if is_restricted else ALIGNED
    written = reserve(made, wishes, 6000, policy=policy)
    for at, (cpu, is_pinned, is_owner) in enumerate(asks):
        own = PINNED if is_pinned else SINGLE
        put(made, pod(f"p{at}", own, cpu, app="web" if is_owner else "other"))
    cycle = made.open_cycle()
    session = cycle.session(NumaSession)
    before = session._state_of.copy()
    pods = [running for running in made.state.pods.values() if running.node]
    mark = cycle.checkpoint()
    assert cycle.restore(cycle.remove([pods[at] for at in chosen if at < len(pods)]))
    assert (session._state_of == before).all()
    cycle.rollback(mark)
    assert (session._state_of == before).all()
    again = numa_cluster()
    for running in made.state.pods.values():
        if running.handling is not Handling.RESERVE:
            again.pods(running)
    upsert_reservation(again.state, written)
    assert held(again) == held(made), "after a restart"


def test_gpus_and_cpus_that_are_held_are_on_one_numa_node() -> None:
    made = numa_cluster(gpus=True)
    fill = pod("fill", SINGLE, 4000, app="other")
    fill = replace(fill, shape=make_pod("fill").requests(cpu=4000).gpu(2).build().shape)
    assert put(made, fill)
    reserve(made, SINGLE, 4000, more={NVIDIA_GPU: 2}, policy=RESTRICTED)
    before = made.state.plugin(Devices).shares_of["uid-r"]
    for name in ("a", "b", "c"):
        other = make_pod(name).requests(cpu=2000).gpu(1).labels(app="other").build()
        put(made, replace(other, extensions=((NUMA, SINGLE),)))
    owner = make_pod("owner").requests(cpu=4000).gpu(2).labels(app="web").build()
    owner = replace(owner, extensions=((NUMA, SINGLE), MUST))
    made.pods(owner)
    (placement,) = made.place(make_unit("owner", [owner])).placements
    nodes, _, gpus = given(placement.assignments[0])
    assert gpus == [share.minor for share in before]
    assert nodes == [gpus[0] // 4]
