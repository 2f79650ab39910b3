"""ScarceResourceAvoidance: pods stay away from nodes with what they do not need."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import GPU, NodeBuilder, make_node, make_pod
from tests.cluster import FakeCluster, make_cluster, make_unit, placed_on

from koord.core.device.vendors import CLASS_OF
from koord.core.plugins.scarce_resources import (
    ScarceResources,
    ScarceRules,
    score_by_classes,
    score_by_names,
    score_nodes,
)

KOORDINATOR = ScarceRules(frozenset({GPU}))
OURS = ScarceRules(frozenset({GPU}), class_of=CLASS_OF)


def score(names: str, asked: str, scarce: str = "gpu") -> int:
    columns = ["cpu", "mem", "gpu", "xx"]
    has = np.array([[name in names.split()] for name in columns])
    (found,) = score_by_names(columns, has, asked.split(), scarce.split()).tolist()
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize(
    ("names", "asked", "expected"),
    [
        ("cpu mem gpu xx", "cpu mem", 50),
        ("cpu mem", "cpu mem", 100),
        ("cpu mem gpu", "cpu mem", 0),
        ("cpu mem gpu", "cpu mem gpu", 100),
        ("cpu mem gpu xx", "cpu mem gpu", 100),
        ("cpu mem gpu xx", "", 75),
        ("", "cpu", 100),
    ],
)
def test_formula_of_koordinator(names: str, asked: str, expected: int) -> None:
    assert score(names, asked) == expected


@pytest.mark.parametrize(
    ("names", "asked", "expected"),
    [
        ("cpu gpu xx", "cpu", 0),
        ("cpu xx", "cpu", 100),
        ("cpu gpu", "cpu gpu", 100),
        ("cpu gpu npu", "cpu gpu", 50),
        ("cpu gpu npu", "", 0),
    ],
)
def test_formula_by_classes(names: str, asked: str, expected: int) -> None:
    classes = ["cpu", "gpu", "gpu", "npu", "xx"]
    has = np.array([[name in names.split()] for name in classes])
    assert score_by_classes(classes, has, asked.split(), ["gpu", "npu"]).tolist() == [expected]


def scores(rules: ScarceRules, asked: dict[str, int], *nodes: NodeBuilder) -> list[int]:
    table = make_cluster().nodes(*nodes).state.table
    pod = make_pod("p").requests(cpu=100, **asked).build()
    found = score_nodes(rules, table, pod.shape)
    return [int(found[row]) for _, row in table.live_rows()]


def test_gpus_are_scarce_under_every_name() -> None:
    nodes = [
        make_node("a").resource("koordinator.sh/gpu-core", 800),
        make_node("b").resource("huawei.com/npu-core", 160),
        make_node("c").resource("cambricon.com/mlu", 8),
        make_node("d"),
    ]
    assert scores(OURS, {}, *nodes) == [0, 0, 0, 100]
    assert scores(OURS, {"koordinator.sh/gpu-memory-ratio": 50}, *nodes) == [100] * 4
    assert scores(KOORDINATOR, {}, *nodes) == [100] * 4


def test_what_else_a_node_has_does_not_matter() -> None:
    rich = make_node("a").gpu(8).resource("hugepages-2Mi", 1).resource("example.com/nic", 4)
    assert scores(OURS, {}, rich, make_node("b").gpu(8)) == [0, 0]
    assert scores(KOORDINATOR, {}, rich, make_node("b").gpu(8)) == [75, 50]


def place(cluster: FakeCluster, gpu: int) -> dict[str, str]:
    return placed_on(cluster.plan(make_unit("u", [make_pod("p").requests(cpu=100).gpu(gpu)])))


def test_plans_avoid_scarce_nodes_as_long_as_others_have_room() -> None:
    def make(cpu: int) -> FakeCluster:
        cluster = make_cluster(more_plugins=[ScarceResources(OURS)])
        return cluster.nodes(make_node("a").gpu(8), make_node("b").cpu(cpu).gpu(0))

    assert place(make(8000), 0) == {"p": "b"}
    assert place(make(8000), 1) == {"p": "a"}
    assert place(make(50), 0) == {"p": "a"}


def test_equal_nodes_have_no_score() -> None:
    cycle = make_cluster(3, more_plugins=[ScarceResources(OURS)]).open_cycle()
    shape = make_pod("p").requests(cpu=100).build().shape
    assert list(cycle.scores(shape, np.arange(3))) == []
    empty = make_cluster(more_plugins=[ScarceResources(OURS)]).open_cycle()
    assert list(empty.scores(shape, np.arange(0))) == []


def test_score_of_a_row_does_not_depend_on_the_other_rows() -> None:
    cluster = make_cluster(2, more_plugins=[ScarceResources(OURS)]).nodes(make_node("plain"))
    cycle = cluster.open_cycle()
    shape = make_pod("p").requests(cpu=100).build().shape
    (every,) = cycle.scores(shape, np.arange(3))
    for row in range(3):
        (single,) = cycle.scores(shape, np.array([row]))
        assert single.values.tolist() == [every.values[row]]


names_drawn = st.sets(st.sampled_from([GPU, "koordinator.sh/gpu-core", "cpu", "x", "y"]))


@given(names_drawn, names_drawn, names_drawn)
def test_scores_are_points_and_asking_for_more_never_lowers_them_by_classes(
    names: set[str], asked: set[str], more: set[str]
) -> None:
    columns = sorted(CLASS_OF | {"x": "x", "y": "y", "cpu": "cpu"})
    classes = [CLASS_OF.get(name, name) for name in columns]
    has = np.array([[name in names] for name in columns])
    (by_names,) = score_by_names(columns, has, asked, {GPU, "x"}).tolist()
    assert 0 <= by_names <= 100
    scarce = {"gpu", "x"}
    before, after = (
        int(score_by_classes(classes, has, {CLASS_OF.get(n, n) for n in one}, scarce)[0])
        for one in (asked, asked | more)
    )
    assert 0 <= before <= after <= 100
