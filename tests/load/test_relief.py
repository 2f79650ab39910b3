"""Pods that only thresholds keep waiting, where such pods get the nodes of which least is used."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster import make_unit
from tests.load.load_cluster import GI, NOW, LoadCluster, make_pod, node_of, options_of
from tests.support.laws import examples

from koord.core.load.options import LoadThresholds

NODES = ("n0", "n1", "n2")


def cluster_of(*cpu: int, relieves: bool = True, **more: Any) -> LoadCluster:
    """Make nodes of 10 CPU that may use half of them, and use this much."""
    options = options_of(
        thresholds=LoadThresholds({"cpu": 50}), factors={"cpu": 100}, relieves=relieves, **more
    )
    cluster = LoadCluster(options)
    cluster.nodes(*(node_of(name, cpu=10_000, memory=64 * GI) for name in NODES[: len(cpu)]))
    for name, used in zip(NODES, cpu, strict=False):
        cluster.report(name, cpu=used, memory=GI, window=180.0)
    return cluster


def nodes_of(cluster: LoadCluster, count: int = 1, cpu: int = 1000) -> list[str]:
    """Return where the pods of a gang go; nowhere if they wait."""
    unit = make_unit("u", [make_pod(f"p-{at}").requests(cpu=cpu) for at in range(count)])
    placements = cluster.plan(unit).placements
    return [of.node for placement in placements for of in placement.assignments]


def test_the_node_takes_it_of_which_least_is_used() -> None:
    assert nodes_of(cluster_of(9000, 6000, 7000)) == ["n1"]
    assert nodes_of(cluster_of(9000, 6000, 7000, weights={})) == ["n1"]
    assert nodes_of(cluster_of(9000, 6000, 7000, relieves=False)) == []


def test_who_fits_below_a_threshold_stays_below_it() -> None:
    assert nodes_of(cluster_of(9000, 4000, 6000)) == ["n1"]


def test_members_of_a_gang_count_for_each_other() -> None:
    assert sorted(nodes_of(cluster_of(6000, 6000, 9000), 4)) == ["n0", "n0", "n1", "n1"]


def test_what_a_pod_cannot_have_for_other_reasons_is_not_relieved() -> None:
    cluster = cluster_of(6000)
    assert nodes_of(cluster, cpu=11_000) == []
    (refusal,) = cluster.plan(make_unit("u", [make_pod("p").requests(cpu=11_000)])).refusals
    assert "Insufficient cpu" in refusal.reason.text(compat=True)


def test_outdated_reports_are_no_such_thresholds() -> None:
    cluster = cluster_of(1000)
    cluster.state.advance(NOW + 180)
    assert nodes_of(cluster) == []


def test_it_is_said_of_the_pod_until_it_is_gone() -> None:
    cluster = cluster_of(6000)
    cluster.pods(make_pod("p").requests(cpu=1000))
    assert cluster.step() == ["p"]
    reason = cluster.aware.over_load(cluster.pod("p"))
    assert reason is not None
    assert reason.text() == (
        "default/p was placed on node n0, of those that it fits the one that uses least: "
        "above 50 % cpu: 70 % with this pod, 3 min average"
    )
    pod = cluster.pod("p")
    cluster.delete_pods("p")
    assert cluster.aware.over_load(pod) is None


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=3, max_size=3), st.integers(1, 8))
def test_relief_changes_nothing_for_who_fits_and_leaves_nothing_behind(
    used: list[int], count: int
) -> None:
    strict, relieved = cluster_of(*used, relieves=False), cluster_of(*used)
    expected = nodes_of(strict, count)
    if expected:
        assert nodes_of(relieved, count) == expected
    else:
        assert len(nodes_of(relieved, count)) == count
    cycle = relieved.open_cycle()
    session = next(each for each in cycle.sessions if each.name == "loadaware")
    before, mark = cycle.used.copy(), cycle.checkpoint()
    unit = make_unit("u", [make_pod("p").requests(cpu=1000)])
    assert session.relieve(unit)
    shape = cycle.shape_of(unit.pods[0])
    cycle.place(shape, relieved.row("n0"))
    cycle.rollback(mark)
    assert not session.relieved
    assert (cycle.used == before).all()
