"""Toy plugins join the planner without any change to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.builders import make_pod
from tests.cluster import make_cluster, make_unit
from tests.framework.toys import Booking, BookingSession, Lane, Lanes, LanesSession, Refuse
from tests.support.plan_keys import make_keys

from koord.core.engine.cycle import Place
from koord.core.engine.reasons import InsufficientNodes
from koord.kube.release import encode_metadata

if TYPE_CHECKING:
    from tests.builders import PodBuilder
    from tests.cluster import FakeCluster

    from koord.core.engine.plugin import Plugin


def laned(count: int, name: str = "p") -> list[PodBuilder]:
    return [make_pod(f"{name}-{at}").labels(lane="yes").requests(cpu=100) for at in range(count)]


def booked(count: int, cpu: int, name: str = "b") -> list[PodBuilder]:
    return [make_pod(f"{name}-{at}").labels(booking="yes").requests(cpu=cpu) for at in range(count)]


def cluster_with(*plugins: Plugin, nodes: int = 2) -> FakeCluster:
    return make_cluster(nodes, more_plugins=plugins)


def test_reserved_allocations_are_part_of_the_assignment() -> None:
    plan = cluster_with(Lanes(2)).plan(make_unit("u", laned(3)))
    (placement,) = plan.placements
    lanes = [(one.node, one.allocations[0]) for one in placement.assignments]
    assert sorted((node, lane.number) for node, lane in lanes) == [("n0", 0), ("n0", 1), ("n1", 0)]
    (write,) = lanes[0][1].writes()
    assert (write.uid, write.key) == (placement.assignments[0].pod.uid, "toy.example/lane")


def test_allocations_are_written_with_the_release_of_their_pod() -> None:
    (placement,) = cluster_with(Lanes(2)).plan(make_unit("u", laned(2))).placements
    written = [
        encode_metadata(one, placement, make_keys(), 0).annotations for one in placement.assignments
    ]
    assert {one["toy.example/lane"] for one in written} == {"0"}


def test_cause_of_a_toy_appears_in_the_refusal() -> None:
    (refusal,) = cluster_with(Lanes(1)).plan(make_unit("u", laned(3))).refusals
    assert isinstance(refusal.reason, InsufficientNodes)
    assert refusal.reason.fit == 2
    assert "Then all 2 nodes had no free lane" in refusal.reason.text()


def test_plugin_does_not_affect_pods_that_do_not_use_it() -> None:
    plan = cluster_with(Lanes(0)).plan(make_unit("u", [make_pod("p").requests(cpu=100)]))
    assert plan.placements[0].assignments[0].allocations == ()


def test_score_of_a_toy_decides_between_nodes() -> None:
    cluster = cluster_with(Lanes(2, {"other": ("n0", 0)}))
    plan = cluster.plan(make_unit("u", laned(1)))
    assert plan.placements[0].assignments[0].node == "n1"


def test_late_refusal_leaves_nothing_reserved() -> None:
    cluster = cluster_with(Lanes(2), Refuse(["n0"]))
    cycle = cluster.open_cycle()
    pod = laned(1)[0].build()
    used = cycle.used.copy()
    shape = cycle.shape_of(pod)
    assert not isinstance(cycle.reserve(pod, shape, cluster.row("n0")), Place)
    assert cycle.session(LanesSession).taken == {}
    assert np.array_equal(cycle.used, used)
    place = cycle.reserve(pod, shape, cluster.row("n1"))
    assert isinstance(place, Place)
    assert place.allocations == (Lane(pod.uid, 0),)


def test_refused_row_is_skipped() -> None:
    plan = cluster_with(Lanes(4), Refuse(["n0"])).plan(make_unit("u", laned(3)))
    assert {one.node for one in plan.placements[0].assignments} == {"n1"}


def test_refusal_of_the_unit_ends_the_search() -> None:
    plan = cluster_with(Lanes(4), Refuse(["n0"], ends_unit=True)).plan(make_unit("u", laned(3)))
    assert not plan.placements


def test_exact_fit_counts_rows_of_equal_signature_once() -> None:
    cluster = cluster_with(Lanes(3, {"other": ("n1", 0)}), nodes=4)
    cycle = cluster.open_cycle()
    pod = laned(1)[0].build()
    rows = np.array([cluster.row(f"n{at}") for at in range(4)])
    assert cycle.fit(cycle.shape_of(pod), pod, rows, 9).tolist() == [3, 2, 3, 3]
    assert cycle.session(LanesSession).taken == {(cluster.row("n1"), 0): "other"}


def test_held_room_is_reserved_for_its_pods() -> None:
    cluster = cluster_with(Booking(["n0"], cpu=64_000), nodes=1)
    assert not cluster.plan(make_unit("u", [make_pod("p").requests(cpu=1000)])).placements
    assert cluster.plan(make_unit("v", booked(1, 1000))).placements


def test_use_above_held_room_takes_free_room() -> None:
    cluster = cluster_with(Booking(["n0"], cpu=3000), nodes=1)
    cycle = cluster.open_cycle()
    row, cpu = cluster.row("n0"), cycle.table.column("cpu")
    assert cycle.used[cpu, row] == 3000
    charged = []
    for builder in booked(3, 2000):
        pod = builder.build()
        assert isinstance(cycle.reserve(pod, cycle.shape_of(pod), row), Place)
        charged.append(int(cycle.used[cpu, row]))
    # Two pods use 4000 of the 3000 held, the third one 2000 more.
    assert charged == [3000, 4000, 6000]
    assert cycle.session(BookingSession).used == {row: 6000}


DOMAIN_WORDS = (
    *("gang", "quota", "topolog", "network", "device", "gpu", "numa", "reservation", "preempt"),
    *("affinity", "spread", "volume", "claim", "host port"),
)


ABOVE_THE_DOMAINS = {
    *(
        "gang_rooms",
        "holds",
        "member_holds",
        "queue",
        "queueing_hints",
        "refused_units",
        "registry",
        "state",
    ),
}
NAMES_CHANGES = {"state_view"}
"""Plugins learn of changes by it: of gangs and volume claims, too."""


@pytest.mark.parametrize("word", DOMAIN_WORDS)
def test_engine_has_no_word_of_a_domain(word: str) -> None:
    folder = Path(__file__).parents[2] / "operators/koord/core/engine"
    paths = [
        path for path in folder.glob("*.py") if path.stem not in ABOVE_THE_DOMAINS | NAMES_CHANGES
    ]
    texts = {path.name: path.read_text().lower() for path in paths}
    assert texts
    assert [name for name, text in texts.items() if word in text] == []
