"""Laws of load-aware placement, over random histories of pods, nodes and reports."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.load.load_cluster import NOW, LoadCluster, make_pod, node_of, options_of, saying
from tests.support.laws import examples

from koord.core.load.model import NodeLoad, PodLoad
from koord.core.load.options import LoadOptions, LoadThresholds
from koord.core.model.koordinator_class import KoordinatorClass

NODES = ("n0", "n1")
PODS = tuple(f"p{at}" for at in range(5))
OPTIONS = st.sampled_from(
    [
        options_of(thresholds=LoadThresholds({"cpu": 60})),
        options_of(thresholds=LoadThresholds({"cpu": 60}, prod={"cpu": 40}), scores_prod=True),
        options_of(thresholds=LoadThresholds({"cpu": 60}), after_scheduled=300),
    ]
)
CLASSES = st.sampled_from([*KoordinatorClass])
EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("pod"),
            st.sampled_from(PODS),
            st.sampled_from(NODES),
            st.integers(0, 4000),
            st.integers(0, 400),
            CLASSES,
        ),
        st.tuples(
            st.just("placed"), st.sampled_from(PODS), st.sampled_from(NODES), st.integers(0, 4000)
        ),
        st.tuples(st.just("look")),
        st.tuples(st.just("gone"), st.sampled_from(PODS)),
        st.tuples(
            st.just("report"),
            st.sampled_from(NODES),
            st.integers(0, 9000),
            st.integers(0, 300),
            st.dictionaries(st.sampled_from(PODS), st.tuples(st.integers(0, 3000), CLASSES)),
        ),
        st.tuples(st.just("silent"), st.sampled_from(NODES)),
        st.tuples(st.just("node"), st.sampled_from(NODES)),
        st.tuples(st.just("lost"), st.sampled_from(NODES)),
    ),
    max_size=25,
)


def play(cluster: LoadCluster, event: tuple[Any, ...]) -> None:
    match event:
        case "pod", name, node, cpu, ago, of_class:
            pod = saying(
                make_pod(name).requests(cpu=cpu).running(node),
                koordinator_class=of_class,
                scheduled=NOW - ago,
            )
            cluster.pods(pod)
        case "placed", name, node, cpu:
            cluster.pods(make_pod(name).requests(cpu=cpu).running(node))
        case ("look",):
            cluster.state.refresh()
        case "gone", name:
            cluster.state.remove_pod(f"uid-default-{name}")
        case "report", node, cpu, ago, measured:
            pods = {
                f"default/{name}": PodLoad({"cpu": used}, of_class)
                for name, (used, of_class) in measured.items()
            }
            cluster.report(node, cpu, updated=NOW - ago, pods=pods)
        case "silent", node:
            report = cluster.loads.of(node)
            cluster.loads.remove(report or NodeLoad(node))
        case "node", node:
            cluster.nodes(node_of(node, cpu=10_000, memory=1 << 30))
        case "lost", node:
            cluster.state.remove_node(node)


def describe(cluster: LoadCluster) -> Any:
    """Return every number that placement depends on, by node and resource."""
    cluster.state.refresh()
    table, columns = cluster.state.table, cluster.aware.columns
    return {
        (node, str(family), at): (int(table.used[column, row]), int(table.allocatable[column, row]))
        for node, row in table.row_of.items()
        for (family, at), column in columns._columns.items()
    } | {"expired": sorted(columns.expired)}


@settings(max_examples=examples(80), deadline=None)
@given(OPTIONS, EVENTS)
def test_numbers_are_those_of_a_restart(options: LoadOptions, events: list[Any]) -> None:
    cluster = LoadCluster(options)
    for event in events:
        play(cluster, event)
        if event[0] == "report":
            cluster.state.refresh()
    again = LoadCluster(options)
    for row in sorted(cluster.state.table.row_of.values()):
        again.nodes(cluster.state.table.node_at(row))
    for node in NODES:
        report = cluster.loads.of(node)
        if report is not None:
            again.loads.upsert(report)
    again.pods(*cluster.state.pods.values())
    assert describe(again) == describe(cluster)


@settings(max_examples=examples(60), deadline=None)
@given(OPTIONS, EVENTS)
def test_use_is_never_below_the_report(options: LoadOptions, events: list[Any]) -> None:
    cluster = LoadCluster(options)
    for event in events:
        play(cluster, event)
    cluster.state.refresh()
    for node in cluster.state.table.row_of:
        report = cluster.loads.of(node)
        base = report.usage.get("cpu", 0) if report is not None else 0
        assert cluster.used(node)["cpu"] >= base


@settings(max_examples=examples(60), deadline=None)
@given(OPTIONS, EVENTS)
def test_nothing_is_kept_of_a_cluster_that_is_empty_again(
    options: LoadOptions, events: list[Any]
) -> None:
    cluster = LoadCluster(options)
    for event in events:
        play(cluster, event)
    for name in PODS:
        play(cluster, ("gone", name))
    for node in NODES:
        play(cluster, ("silent", node))
        play(cluster, ("lost", node))
    cluster.state.refresh()
    columns = cluster.aware.columns
    assert len(columns.pods) == 0
    assert list(columns.pods) == list(cluster.loads.nodes()) == []
    assert columns.expired == columns.fresh_until == {}
    assert not cluster.state.table.used[list(columns._columns.values())].any()
