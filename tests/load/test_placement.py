"""Load-aware placement in the planner: columns, wake-ups, outdated reports, evictions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.cluster import make_unit
from tests.load.load_cluster import (
    GI,
    NOW,
    LoadCluster,
    cpu_limit,
    make_pod,
    node_of,
    of_daemon_set,
    options_of,
    saying,
)

from koord.core.load.model import LoadSource, NodeLoad, PodLoad
from koord.core.load.options import LoadOptions, LoadThresholds, OwnLimits
from koord.core.model.koordinator_class import KoordinatorClass
from koord.core.model.pods import Handling, OwnerReference

if TYPE_CHECKING:
    from tests.builders import PodBuilder

PROD, MID, BATCH, FREE = KoordinatorClass
HALF = cpu_limit(50, factors={"cpu": 100})


def pods(count: int, cpu: int = 1000, name: str = "p") -> list[PodBuilder]:
    return [make_pod(f"{name}-{at}").requests(cpu=cpu) for at in range(count)]


def cluster_of(options: LoadOptions, nodes: int = 1, cpu: int = 10_000) -> LoadCluster:
    cluster = LoadCluster(options)
    amounts = {"cpu": cpu, "memory": 64 * GI, "kubernetes.io/mid-cpu": 100_000}
    cluster.nodes(*(node_of(f"n{at}", **amounts) for at in range(nodes)))
    return cluster


def test_gang_is_placed_by_count_up_to_the_threshold() -> None:
    cluster = cluster_of(HALF, nodes=2)
    cluster.report("n0", cpu=2000).report("n1", cpu=1000)
    cycle = cluster.open_cycle()
    shape = cycle.shape_of(pods(1)[0].build())
    assert cycle.is_plain(shape)
    assert not cycle.needs_reserve(shape)
    assert cluster.plan(make_unit("u", pods(7))).placements
    (refusal,) = cluster.plan(make_unit("u", pods(8))).refusals
    assert "all 2 nodes refuse: cpu usage exceed threshold" in refusal.reason.text()


def test_pods_of_one_cycle_count_for_each_other_at_once() -> None:
    cluster = cluster_of(HALF, nodes=2)
    cluster.report("n0").report("n1")
    units = [make_unit(f"u{at}", [pod]) for at, pod in enumerate(pods(12))]
    assert len(cluster.plan(*units).placements) == 10


def test_least_loaded_node_comes_first() -> None:
    cluster = cluster_of(HALF, nodes=2)
    cluster.report("n0", cpu=3000).report("n1", cpu=1000)
    (placement,) = cluster.plan(make_unit("u", pods(1))).placements
    assert [assignment.node for assignment in placement.assignments] == ["n1"]


def test_placed_pods_count_until_the_report_has_them() -> None:
    cluster = cluster_of(HALF)
    cluster.report("n0", cpu=2000)
    cluster.pods(*pods(3, name="a"))
    assert cluster.step() == ["a-0", "a-1", "a-2"]
    assert cluster.used("n0")["cpu"] == 5000
    cluster.state.advance(NOW + 120)
    measured = {f"default/a-{at}": PodLoad({"cpu": 100}, PROD) for at in range(3)}
    cluster.report("n0", cpu=2300, updated=NOW + 120, pods=measured)
    assert cluster.used("n0")["cpu"] == 2300


def test_pods_of_names_that_the_report_shows_count_for_the_difference() -> None:
    """Such as the next pod of a StatefulSet, before there is a report about it."""
    cluster = cluster_of(HALF)
    cluster.report("n0", cpu=2000, pods={"default/p-0": PodLoad({"cpu": 600})})
    cluster.state.refresh()
    cluster.pods(*(pod.running("n0") for pod in pods(2)))
    cluster.state.refresh()
    assert cluster.used("n0")["cpu"] == 2000 + (1000 - 600) + 1000


def test_lower_use_wakes_what_waits_for_it() -> None:
    cluster = cluster_of(HALF)
    cluster.report("n0", cpu=6000)
    cluster.pods(*pods(1))
    assert cluster.step() == []
    cluster.report("n0", cpu=7000)
    assert cluster.step() == []
    cluster.report("n0", cpu=1000)
    assert cluster.step() == ["p-0"]


def test_outdated_reports_refuse_until_there_is_another() -> None:
    cluster = cluster_of(HALF)
    cluster.report("n0", cpu=1000)
    assert cluster.state.next_due() == NOW + 180
    cluster.state.advance(NOW + 180)
    cluster.pods(*pods(1))
    assert cluster.step() == []
    assert cluster.causes(pods(1)[0], "n0") == ["node(s) nodeMetric expired"]
    cluster.report("n0", cpu=1000, updated=NOW + 180)
    assert cluster.step() == ["p-0"]


def test_outdated_reports_count_for_nothing_where_that_is_admitted() -> None:
    cluster = cluster_of(cpu_limit(50, admits_expired=True))
    cluster.report("n0", cpu=9000)
    cluster.pods(*pods(1))
    assert cluster.step() == []
    assert cluster.state.advance(NOW + 180) == {"n0"}
    assert cluster.causes(pods(1)[0], "n0") == []


def test_old_reports_count_as_they_are_where_age_does_not() -> None:
    cluster = cluster_of(cpu_limit(50, filters_expired=False))
    cluster.report("n0", cpu=9000)
    cluster.state.advance(NOW + 500)
    assert cluster.causes(pods(1)[0], "n0") == ["node(s) cpu usage exceed threshold"]


@pytest.mark.parametrize("report", [None, NodeLoad("n0", updated=NOW, is_reported=False)])
def test_without_numbers_every_pod_fits(report: NodeLoad | None) -> None:
    cluster = cluster_of(cpu_limit(1))
    if report is not None:
        cluster.loads.upsert(report)
    assert cluster.causes(pods(1)[0], "n0") == []


def test_age_does_not_matter_without_thresholds() -> None:
    cluster = cluster_of(options_of(thresholds=LoadThresholds({"cpu": 0})))
    cluster.report("n0", updated=1.0)
    assert cluster.causes(pods(1)[0], "n0") == []


def test_pods_of_daemon_sets_fit_everywhere_and_count() -> None:
    cluster = cluster_of(HALF)
    cluster.report("n0", cpu=9000)
    daemon = of_daemon_set(pods(1)[0])
    assert cluster.causes(daemon, "n0") == []
    cluster.report("n0", cpu=4500)
    cycle = cluster.open_cycle()
    cycle.place(cycle.shape_of(daemon), cluster.row("n0"))
    assert not cycle.has_room(cycle.shape_of(pods(1, 10)[0].build()), cluster.row("n0"))


@pytest.mark.parametrize(
    "owner",
    [
        OwnerReference("d", "DaemonSet", "evil.io/v1", "uid", is_controller=True),
        OwnerReference("d", "DaemonSet", "apps/v1", "uid"),
        OwnerReference("d", "DaemonSet", uid="uid", is_controller=True),
    ],
)
def test_owners_that_are_no_daemon_sets_exempt_nobody(owner: OwnerReference) -> None:
    """The cluster knows no such kind, so it does not delete pods that name it."""
    cluster = cluster_of(HALF)
    cluster.report("n0", cpu=9000)
    assert cluster.causes(replace(pods(1)[0].build(), owners=(owner,)), "n0") != []


def test_pods_without_an_estimate_are_refused_above_the_threshold() -> None:
    cluster = cluster_of(options_of(thresholds=LoadThresholds({"nvidia.com/gpu": 50})))
    cluster.nodes(node_of("n0", cpu=1000, **{"nvidia.com/gpu": 8}))
    cluster.report("n0", usage={"nvidia.com/gpu": 4})
    assert cluster.causes(make_pod("p"), "n0") == []
    cluster.report("n0", usage={"nvidia.com/gpu": 5})
    assert cluster.causes(make_pod("p"), "n0") == ["node(s) nvidia.com/gpu usage exceed threshold"]


def test_prod_pods_have_thresholds_of_their_own_and_count_for_all() -> None:
    thresholds = LoadThresholds({"cpu": 60}, prod={"cpu": 50})
    cluster = cluster_of(options_of(thresholds=thresholds, factors={"cpu": 100}))
    cluster.report("n0", cpu=5900)
    mid = saying(make_pod("mid").requests(cpu=100), koordinator_class=MID)
    mid.resource("kubernetes.io/mid-cpu", 500)
    assert cluster.causes(mid, "n0") == ["node(s) cpu usage exceed threshold"]
    assert cluster.causes(make_pod("prod").requests(cpu=5000), "n0") == []
    cluster.report("n0", cpu=1000)
    cycle, row = cluster.open_cycle(), cluster.row("n0")
    prod, small = (cycle.shape_of(pod.build()) for pod in (pods(1, 4900)[0], pods(1, 100)[0]))
    shape = cycle.shape_of(mid.build())
    assert cycle.has_room(shape, row)
    mark = cycle.checkpoint()
    cycle.place(prod, row)
    assert cycle.has_room(small, row)
    assert not cycle.has_room(shape, row)
    cycle.rollback(mark)
    assert cycle.has_room(shape, row)


def test_node_without_thresholds_for_prod_pods_limits_them_as_all() -> None:
    own = OwnLimits(LoadThresholds(prod={"cpu": 0}))
    thresholds = LoadThresholds({"cpu": 60}, prod={"cpu": 50})
    cluster = cluster_of(options_of(thresholds=thresholds, factors={"cpu": 100}))
    cluster.nodes(node_of("n0", own, cpu=10_000, **{"kubernetes.io/mid-cpu": 100_000}))
    cluster.report("n0", cpu=5900)
    assert cluster.causes(pods(1)[0], "n0") == ["node(s) cpu usage exceed threshold"]
    cluster.report("n0", cpu=4000)
    cycle, row = cluster.open_cycle(), cluster.row("n0")
    mid = saying(make_pod("mid").resource("kubernetes.io/mid-cpu", 2000), koordinator_class=MID)
    cycle.place(cycle.shape_of(mid.build()), row)
    assert not cycle.has_room(cycle.shape_of(pods(1, 100)[0].build()), row)


def test_nobody_is_evicted_for_what_is_measured() -> None:
    cluster = cluster_of(HALF)
    measured = {"default/old": PodLoad({"cpu": 4000}, PROD)}
    old = saying(make_pod("old").requests(cpu=4000).priority(1), scheduled=NOW - 600).running("n0")
    cluster.report("n0", cpu=5000, pods=measured).pods(old)
    cycle, row = cluster.open_cycle(), cluster.row("n0")
    shape = cycle.shape_of(pods(1)[0].build())
    before, mark = cycle.used.copy(), cycle.checkpoint()
    removed = cycle.remove([cluster.pod("old")])
    assert not cycle.has_room(shape, row)
    assert cycle.restore(removed)
    assert (cycle.used == before).all()
    cycle.rollback(mark)
    assert (cycle.used == before).all()


def test_what_a_fresh_pod_was_estimated_to_use_beyond_that_is_free_when_it_goes() -> None:
    cluster = cluster_of(HALF)
    measured = {"default/old": PodLoad({"cpu": 1000}, PROD)}
    old = saying(make_pod("old").requests(cpu=4000).priority(1), scheduled=NOW).running("n0")
    cluster.report("n0", cpu=2000, pods=measured).pods(old)
    assert cluster.used("n0")["cpu"] == 5000
    cycle, row = cluster.open_cycle(), cluster.row("n0")
    cycle.remove([cluster.pod("old")])
    shapes = [cycle.shape_of(pods(1, cpu)[0].build()) for cpu in (3000, 3001)]
    # As it is once the pod has gone.
    assert [cycle.has_room(shape, row) for shape in shapes] == [True, True]
    assert not cycle.has_room(cycle.shape_of(pods(1, 3100)[0].build()), row)
    cluster.delete_pods("old")
    assert cluster.used("n0")["cpu"] == 2000


def test_annotations_count_only_where_they_may_and_never_below_the_requests() -> None:
    pod = saying(make_pod("p").requests(cpu=1000), factors=(("cpu", 1),))
    for is_customizable, limit in ((False, 0), (True, 0), (True, 4000)):
        cluster = cluster_of(cpu_limit(50, is_customizable=is_customizable))
        limits = (("cpu", limit),) if limit else ()
        subject = saying(pod, factors=(("cpu", 1),), limits=limits).build()
        (estimate, *_) = cluster.aware.columns.estimate_of(
            subject.shape, dict(subject.extensions)["loadaware"]
        )
        assert estimate == 850


def test_room_that_is_held_is_not_in_use() -> None:
    cluster = cluster_of(HALF)
    cluster.report("n0")
    cluster.pods(pods(1)[0].running("n0").handling(Handling.RESERVE))
    assert cluster.used("n0")["cpu"] == 0


def test_better_source_replaces_another() -> None:
    cluster = cluster_of(HALF)
    cluster.report("n0", cpu=9000, source=LoadSource.METRICS_API)
    assert cluster.used("n0")["cpu"] == 9000
    cluster.report("n0", cpu=1000)
    assert cluster.used("n0")["cpu"] == 1000


def test_causes_are_explained_with_numbers() -> None:
    cluster = cluster_of(cpu_limit(65, factors={"cpu": 100}))
    cluster.report("n0", cpu=7000, window=180.0)
    cycle = cluster.open_cycle()
    shape = cycle.shape_of(pods(1, 500)[0].build())
    session = next(each for each in cycle.sessions if each.name == "loadaware")
    cause = next(cause for cause, _, _ in cycle.checks(shape) if cause.rank >= 90)
    text = "above 65 % cpu: 75 % with this pod, 3 min average"
    assert session.explain(cause, shape, cluster.row("n0")) == text


def greedy(name: str = "greedy", **hints: object) -> PodBuilder:
    """A pod that requests next to nothing, and may use more than half of the node."""
    pod = make_pod(name).requests(cpu=1).running("n0")
    return saying(pod, limits=(("cpu", 6000),), **hints)


CUSTOM = cpu_limit(50, factors={"cpu": 100}, is_customizable=True)


@pytest.mark.parametrize(
    ("hints", "measured"),
    [
        ({}, {}),  # its image does not exist: nobody ever measures it
        ({"after_scheduled": 1 << 31}, {"default/greedy": PodLoad({"cpu": 10})}),
        (
            {"after_initialized": 1 << 31, "initialized": NOW - 900, "factors": (("cpu", 100),)},
            {"default/greedy": PodLoad({"cpu": 10})},
        ),
    ],
)
def test_what_a_pod_may_use_beyond_its_requests_counts_until_a_report_should_show_it(
    hints: dict[str, object], measured: dict[str, PodLoad]
) -> None:
    cluster = cluster_of(CUSTOM)
    cluster.pods(greedy(scheduled=NOW - 10, **hints))
    cluster.report("n0", cpu=10, pods=measured)
    assert cluster.used("n0")["cpu"] >= 6000
    cluster.pods(greedy(scheduled=NOW - 900, **hints))
    cluster.report("n0", cpu=10, pods=measured)
    assert cluster.used("n0")["cpu"] <= 12
    assert cluster.plan(make_unit("u", pods(4))).placements


def test_what_it_requests_counts_for_as_long_as_it_says() -> None:
    cluster = cluster_of(CUSTOM)
    pod = make_pod("slow").requests(cpu=4000).running("n0")
    cluster.pods(saying(pod, after_scheduled=7200, scheduled=NOW - 900, limits=(("cpu", 6000),)))
    cluster.report("n0", cpu=10, pods={"default/slow": PodLoad({"cpu": 10})})
    assert cluster.used("n0")["cpu"] == 4000


def test_a_time_of_the_configuration_counts_for_limits_and_annotations_may_cut_it_short() -> None:
    options = cpu_limit(50, factors={"cpu": 100}, is_customizable=True, after_scheduled=1200)
    for after, used in ((None, 6000), (1 << 31, 6000), (60, 10)):
        cluster = cluster_of(options)
        cluster.pods(greedy(scheduled=NOW - 900, after_scheduled=after))
        cluster.report("n0", cpu=10, pods={"default/greedy": PodLoad({"cpu": 10})})
        assert cluster.used("n0")["cpu"] == used


def test_a_report_from_the_future_does_not_count_for_ever() -> None:
    assert not NodeLoad("n0", updated=NOW + 30).is_outdated(NOW)
    assert NodeLoad("n0", updated=NOW + 1e9).is_outdated(NOW)


@pytest.mark.parametrize(("compat", "cause"), [(True, []), (False, ["node(s) nodeMetric expired"])])
def test_a_report_without_a_time_is_outdated_or_as_old_as_the_one_before(
    *, compat: bool, cause: list[str]
) -> None:
    cluster = LoadCluster(HALF, compat=compat)
    cluster.nodes(node_of("n0", cpu=10_000, memory=64 * GI))
    cluster.report("n0", cpu=1000, updated=NOW - 30).report("n0", cpu=2000, updated=0.0)
    assert cluster.causes(pods(1)[0], "n0") == cause
    assert cluster.used("n0")["cpu"] == 2000
    cluster.state.advance(NOW + 150)
    assert cluster.causes(pods(1)[0], "n0") == ["node(s) nodeMetric expired"]
