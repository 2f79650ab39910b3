"""Room of lost members that ran in reservations: a reservation that holds it again keeps it.

The law: what is kept is kept once. Nobody finds less room because a lost member ran in one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, make_pod, make_pod_group
from tests.cluster import placed_on
from tests.core.test_holds import A, Scene
from tests.objects import upsert_reservation
from tests.reservation.make import labelled, make_reservation
from tests.support.laws import examples

from koord.core.engine.queue import unit_of
from koord.core.reservation.lifecycle import succeed
from koord.core.reservation.model import NAME, ReservationHints, ReservationUse

if TYPE_CHECKING:
    from koord.core.model.plan import Unit
    from koord.core.model.pods import Pod
    from koord.core.reservation.model import ReservationInfo

WITHIN = {GPU: 8}


def make_scene(*lost: str, nodes: int = 4, reservation: ReservationInfo | None = None) -> Scene:
    """Two members: ``a-0`` in a reservation on n0, ``a-1`` on n1; some of them are lost."""
    scene = Scene(nodes, groups=[make_pod_group(A, 2).wait(60).build()])
    held = reservation or make_reservation(
        node="n0", reserved=WITHIN, owners=(labelled(app="x"),), is_once=False
    )
    upsert_reservation(scene.state, held)
    scene.put(member("a-0", "n0", is_in=True), member("a-1", "n1"))
    scene.state.refresh()
    scene.remove(*(f"uid-default-{name}" for name in lost))
    scene.state.refresh()
    return scene


def member(name: str, node: str = "", *, is_in: bool = False) -> Pod:
    pod = make_pod(name).gang(A).gpu(8).labels(app="x")
    if not node:
        return pod.build()
    use = ReservationUse(f"uid-default-{name}", "r", "uid-r")
    made = pod.released(node, "p", A, 2, 2).running(node).build()
    return replace(made, allocations=(use,)) if is_in else made


def others(scene: Scene, count: int, **labels: str) -> tuple[Unit, ...]:
    pods = [make_pod(f"by-{at}").gpu(8).labels(**labels).build() for at in range(count)]
    scene.put(*pods)
    return tuple(map(unit_of, pods))


def test_room_that_a_reservation_holds_is_not_kept_a_second_time() -> None:
    scene = make_scene("a-0")
    assert scene.holds.reserved_pods() == {A: 1}
    assert len(placed_on(scene.plan(*others(scene, 3)))) == 2
    scene.put(member("a-2"))
    placed = placed_on(scene.plan(*others(scene, 3), *scene.units(A)))
    assert placed["a-2"] == "n0"
    assert len(placed) == 3


def test_other_owners_do_not_get_it() -> None:
    scene = make_scene("a-0", nodes=2)
    assert not placed_on(scene.plan(*others(scene, 1, app="x")))
    scene.holds.expire(1000.0)
    assert placed_on(scene.plan(*others(scene, 1, app="x"))) == {"by-0": "n0"}


def test_what_the_reservation_does_not_hold_is_kept_beside_it() -> None:
    held = make_reservation(
        node="n0", reserved={GPU: 4}, owners=(labelled(app="x"),), is_once=False
    )
    scene = make_scene("a-0", nodes=2, reservation=held)
    assert not placed_on(scene.plan(*others(scene, 1)))


def test_a_member_that_ran_outside_is_replaced_in_a_reservation_with_room() -> None:
    """As after a restart, when nobody knows where the lost member was."""
    scene = make_scene("a-0")
    scene.holds.__init__()  # type: ignore[misc] - another process
    scene.holds.absorb([A], scene.state, 0.0)
    assert scene.holds.reserved_pods() == {A: 1}
    assert len(placed_on(scene.plan(*others(scene, 3)))) == 2


@settings(max_examples=examples(30))
@given(
    reserved=st.integers(0, 8),
    is_once=st.booleans(),
    nodes=st.integers(2, 4),
    sizes=st.lists(st.integers(1, 8), max_size=6),
)
def test_what_is_kept_is_kept_once(
    reserved: int, nodes: int, sizes: list[int], *, is_once: bool
) -> None:
    held = make_reservation(
        node="n0", reserved={GPU: reserved}, owners=(labelled(app="x"),), is_once=is_once
    )
    scene = make_scene("a-0", nodes=nodes, reservation=held)
    pods = [make_pod(f"by-{at}").gpu(size).build() for at, size in enumerate(sizes)]
    scene.put(*pods)
    placed = placed_on(scene.plan(*map(unit_of, pods)))
    free = {f"n{at}": 8 for at in range(2, nodes)}
    for at, size in enumerate(sizes):
        node = placed.get(f"by-{at}")
        if node is None:
            assert all(size > left for left in free.values()), "nothing else is kept"
        else:
            assert node in free, "that of the lost member is kept"
            free[node] -= size
    scene.put(member("a-2"))
    assert placed_on(scene.plan(*scene.units(A))) == {"a-2": "n0"}


def test_no_room_is_kept_for_a_replacement_that_needs_a_reservation_that_was_used_up() -> None:
    """It waits for another reservation, see ``NoReservationFits``, and others need not."""
    one = make_reservation(node="n0", reserved=WITHIN, owners=(labelled(app="x"),), is_once=True)
    scene = Scene(4, groups=[make_pod_group(A, 2).wait(60).build()])
    upsert_reservation(scene.state, one)
    must = ((NAME, ReservationHints(has_affinity=True)),)
    inside, other = member("a-0", "n0", is_in=True), member("a-1", "n1")
    scene.put(replace(inside, extensions=must), other)
    scene.state.refresh()
    upsert_reservation(scene.state, replace(one, status=succeed(one.status)))
    scene.remove("uid-default-a-0")
    scene.state.refresh()
    assert len(placed_on(scene.plan(*others(scene, 3)))) == 3
