"""Worked examples of load-aware placement, each with its numbers. CPU is in milli."""

from __future__ import annotations

import pytest
from tests.load.load_cluster import GI, NOW, LoadCluster, make_pod, node_of, options_of, saying

from koord.core.load.estimate import deadline, estimate
from koord.core.load.model import Aggregation, LoadHints, NodeLoad, PodLoad
from koord.core.load.options import PLAIN, Basis, LoadOptions, LoadThresholds, OwnLimits
from koord.core.load.usage import AssignedPod, Counted, Share, most_used, percent_of, share_of
from koord.core.model.koordinator_class import KoordinatorClass

PROD, MID, BATCH, FREE = KoordinatorClass
FACTORS = {"cpu": 85, "memory": 70}
P95, P99 = Aggregation.P95, Aggregation.P99


@pytest.mark.parametrize(
    ("requests", "limits", "of_class", "factors", "expected"),
    [
        ((4000, 8 * GI), (4000, 8 * GI), PROD, FACTORS, (3400, 6012954214)),
        ((4000, 8 * GI), (8000, 8 * GI), PROD, FACTORS, (6800, 6012954214)),
        ((4000, 0), (8000, 0), PROD, {"cpu": 110}, (8000, 0)),
        ((4000, 0), (0, 0), PROD, {"cpu": 110}, (4400, 0)),
        ((0, 0), (0, 0), BATCH, FACTORS, (250, 209715200)),
        ((0, 0), (0, 0), MID, FACTORS, (0, 0)),
        ((2000, 0), (2000, 0), FREE, FACTORS, (0, 0)),
        ((10, 0), (0, 0), PROD, {"cpu": 85}, (9, 0)),
    ],
)
def test_estimates_of_koordinator(
    requests: tuple[int, int],
    limits: tuple[int, int],
    of_class: KoordinatorClass,
    factors: dict[str, int],
    expected: tuple[int, int],
) -> None:
    hints = LoadHints(of_class, limits=tuple(zip(("cpu", "memory"), limits, strict=True)))
    amounts = dict(zip(("cpu", "memory"), requests, strict=True))
    estimated = estimate(amounts, hints, factors, compat=True)
    assert (estimated["cpu"], estimated.get("memory", 0)) == expected


@pytest.mark.parametrize("of_class", [MID, FREE])
def test_pods_of_lower_classes_without_requests_do_not_look_free(
    of_class: KoordinatorClass,
) -> None:
    amounts = estimate({}, LoadHints(of_class), FACTORS)
    assert amounts == {"cpu": 250, "memory": 209715200}


def test_percentage_is_rounded_before_it_is_compared() -> None:
    assert [percent_of(used, 1000) for used in (654, 655)] == [65, 66]
    assert most_used(65, 1000) == 654
    cluster = LoadCluster(options_of(thresholds=LoadThresholds({"cpu": 65}), factors={"cpu": 100}))
    cluster.nodes(node_of("n0", cpu=1000)).report("n0", cpu=454)
    assert cluster.causes(make_pod("p").requests(cpu=200), "n0") == []
    assert cluster.causes(make_pod("p").requests(cpu=201), "n0") == [
        "node(s) cpu usage exceed threshold"
    ]


@pytest.mark.parametrize(("scheduled", "delta"), [(-61, 0), (-60, 0), (-59, 2900)])
def test_pod_that_came_after_the_report_counts_beyond_what_is_measured(
    scheduled: float, delta: int
) -> None:
    report = NodeLoad("n", updated=NOW, pods={"a/p": PodLoad({"cpu": 500}, PROD)})
    pod = AssignedPod("a/p", (3400,), is_prod=False, scheduled=NOW + scheduled)
    share = share_of(pod, report, Counted(("cpu",), has_prod=False))
    assert (share.node if share else (0,)) == (delta,)


def test_pod_that_is_not_measured_counts_with_its_estimate() -> None:
    pod = AssignedPod("a/p", (3400,), is_prod=False, scheduled=NOW - 86400)
    for report in (None, NodeLoad("n", updated=NOW)):
        share = share_of(pod, report, Counted(("cpu",), has_prod=False))
        assert share is not None
        assert share.node == (3400,)


@pytest.mark.parametrize(("scheduled", "node"), [(-3600, 0), (0, 1400)])
def test_prod_pod_that_is_measured_as_another_class_counts_in_full(
    scheduled: float, node: int
) -> None:
    report = NodeLoad("n", updated=NOW, pods={"a/p": PodLoad({"cpu": 2000}, MID)})
    pod = AssignedPod("a/p", (3400,), is_prod=True, scheduled=NOW + scheduled)
    assert share_of(pod, report, Counted(("cpu",), has_prod=True)) == Share((node,), (3400,))


def test_estimates_count_until_their_deadline() -> None:
    scheduled = NOW - 180
    end = deadline(LoadHints(), scheduled, 300, 0)
    assert end == NOW + 120
    report = NodeLoad("n", updated=NOW, pods={"a/p": PodLoad({"cpu": 500}, PROD)})
    pod = AssignedPod("a/p", (3400,), is_prod=False, scheduled=scheduled, deadline=end)
    share = share_of(pod, report, Counted(("cpu",), has_prod=False))
    assert share is not None
    assert share.node == (2900,)
    assert deadline(LoadHints(after_scheduled=0), scheduled, 300, 0) == 0
    initialized = deadline(LoadHints(initialized=NOW - 90), scheduled, 300, 60)
    assert initialized == NOW - 30


@pytest.mark.parametrize(
    ("basis", "used"),
    [
        (Basis(P95, 300), 31000),
        (Basis(P95), 41000),
        (Basis(P95, 600), 12000),
        (Basis(P99), 51000),
        (Basis(P99, 300), 12000),
        (PLAIN, 51000),
    ],
)
def test_aggregates(basis: Basis, used: int) -> None:
    aggregated = LoadThresholds(aggregated={"cpu": 50}, basis=basis)
    plain = LoadThresholds({"cpu": 50})
    thresholds = plain if basis is PLAIN else aggregated
    cluster = LoadCluster(options_of(thresholds=thresholds, factors={"cpu": 100}))
    cluster.nodes(node_of("n0", cpu=96000))
    cluster.report(
        "n0",
        usage={"cpu": 50000},
        aggregates={P95: {300.0: {"cpu": 30000}, 1800.0: {"cpu": 40000}}},
        pods={"default/old": PodLoad({"cpu": 8000}, PROD)},
    )
    cluster.pods(
        saying(make_pod("old").requests(cpu=11000), scheduled=NOW - 600).running("n0"),
        saying(make_pod("new").requests(cpu=1000), scheduled=NOW - 600).running("n0"),
    )
    assert cluster.used("n0")["cpu"] == used


@pytest.mark.parametrize(
    ("weights", "dominant", "supported", "score"),
    [
        ({"cpu": 1, "memory": 1}, 0, (), 72),
        ({"cpu": 1, "memory": 1}, 2, (), 62),
        ({}, 10, (), 52),
        ({"cpu": 1, "memory": 1}, 2, ("nvidia.com/gpu",), 36),
        ({}, 0, (), None),
    ],
)
def test_scores(
    weights: dict[str, int], dominant: int, supported: tuple[str, ...], score: int | None
) -> None:
    options = options_of(weights=weights, dominant=dominant, supported=supported)
    cluster = LoadCluster(options).nodes(node_of("n0", cpu=96000, memory=512 * GI))
    assert isinstance(cluster, LoadCluster)
    cluster.report("n0", cpu=32000, memory=10 * GI)
    pod = make_pod("p").requests(cpu=16000, memory=32 * GI)
    if score is None:
        assert not options.scores
    else:
        assert cluster.score(pod, "n0") == score


@pytest.mark.parametrize(("with_system", "passes"), [(False, True), (True, False)])
def test_thresholds_of_prod_pods_with_the_system(
    with_system: bool,  # noqa: FBT001 - a parameter of the table
    passes: bool,  # noqa: FBT001 - the same
) -> None:
    thresholds = LoadThresholds({"cpu": 100}, prod={"cpu": 50})
    cluster = LoadCluster(options_of(thresholds=thresholds, prod_includes_system=with_system))
    cluster.nodes(node_of("n0", cpu=96000))
    cluster.report(
        "n0",
        cpu=60000,
        system={"cpu": 8000},
        pods={"default/a": PodLoad({"cpu": 30000}, PROD), "default/b": PodLoad({"cpu": 1}, MID)},
    )
    cluster.pods(saying(make_pod("a").requests(cpu=30000), scheduled=NOW - 600).running("n0"))
    assert (cluster.causes(make_pod("p").requests(cpu=16000), "n0") == []) is passes


def test_node_replaces_thresholds_part_by_part() -> None:
    own = OwnLimits(LoadThresholds({"cpu": 80}))
    cluster = LoadCluster(LoadOptions(is_on=True))
    cluster.nodes(node_of("n0", own, cpu=1000, memory=GI), node_of("n1", cpu=1000, memory=GI))
    for name in ("n0", "n1"):
        cluster.report(name, cpu=700, memory=GI)
    assert cluster.causes(make_pod("p").requests(cpu=10), "n0") == []
    assert cluster.causes(make_pod("p").requests(cpu=10), "n1") == [
        "node(s) cpu usage exceed threshold",
        "node(s) memory usage exceed threshold",
    ]
