"""The greedy allocation equals placing pods one by one and never overfills a node."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.cluster import SCORING, FakeCluster, make_cluster

from koord.core.engine.allocator import Allocator, score_terms
from koord.core.engine.cycle import Cycle
from koord.core.engine.scoring import Scoring, score_of
from koord.core.model.pods import PodShape

nodes_drawn = st.lists(
    st.tuples(
        st.integers(1, 16),  # cpu
        st.integers(0, 8),  # gpu
        st.integers(0, 5),  # pods already there
    ),
    min_size=1,
    max_size=8,
)


def make_nodes(drawn: list[tuple[int, int, int]]) -> FakeCluster:
    cluster = make_cluster()
    for at, (cpu, gpu, residents) in enumerate(drawn):
        name = f"n{at}"
        cluster.nodes(make_node(name).cpu(cpu * 1000).pods(10).gpu(gpu))
        for one in range(min(residents, 2 * cpu)):
            cluster.pods(make_pod(f"r-{at}-{one}").requests(cpu=500).running(name))
    return cluster


def fill(cluster: FakeCluster, shape: PodShape, count: int) -> list[int]:
    """Return how many copies each node gets."""
    return [share.count for share in Allocator(cluster.open_cycle(), SCORING).fill(shape, count)]


def place_one_by_one(
    cycle: Cycle, shape: PodShape, count: int, scoring: Scoring = SCORING
) -> dict[int, int]:
    """Place each pod on the node that scores best at that moment: the reference."""
    placed: dict[int, int] = {}
    terms = score_terms(cycle, shape, scoring)
    pods_column = cycle.table.column("pods")
    for _ in range(count):
        room = cycle.room(shape)
        best = None
        for name, row in cycle.table.live_rows():
            if not room[row]:
                continue
            score = 0
            for one in terms:
                used = cycle.used[one.columns, row].tolist()
                sizes = cycle.table.allocatable[one.columns, row].tolist()
                score += one.weight * score_of(one.terms, used, sizes, 1)
            key = (-score, int(cycle.used[pods_column, row]), name)
            if best is None or key < best[0]:
                best = (key, row)
        if best is None:
            break
        cycle.place(shape, best[1])
        placed[best[1]] = placed.get(best[1], 0) + 1
    return placed


@given(nodes_drawn, st.integers(0, 3), st.integers(0, 4), st.integers(1, 60))
def test_fill_equals_placing_pod_by_pod(
    drawn: list[tuple[int, int, int]],
    cpu: int,
    gpu: int,
    count: int,
) -> None:
    cluster = make_nodes(drawn)
    shape = make_pod("p").requests(cpu=cpu * 500).gpu(gpu).build().shape
    expected_on = cluster.open_cycle()
    expected = place_one_by_one(expected_on, shape, count)
    cycle = cluster.open_cycle()
    shares = Allocator(cycle, SCORING).fill(shape, count)
    assert sum(share.count for share in shares) == sum(expected.values())
    assert (cycle.used <= cycle.table.allocatable).all()
    assert {share.row: share.count for share in shares} == expected


def test_gpu_pods_are_packed_and_cpu_pods_are_spread() -> None:
    cluster = make_nodes([(16, 8, 0), (16, 8, 0)])
    gpu_shape = make_pod("g").gpu(2).build().shape
    assert fill(cluster, gpu_shape, 3) == [3]
    cpu_shape = make_pod("c").requests(cpu=1000).build().shape
    assert sorted(fill(cluster, cpu_shape, 4)) == [2, 2]


def test_pods_without_requests_are_spread_by_count() -> None:
    cluster = make_nodes([(4, 0, 0), (4, 0, 0), (4, 0, 0)])
    shape = make_pod("empty").build().shape
    assert sorted(fill(cluster, shape, 6)) == [2, 2, 2]


def test_rollback_restores_every_amount() -> None:
    cluster = make_nodes([(4, 4, 1), (8, 0, 2)])
    cycle = cluster.open_cycle()
    before = cycle.used.copy()
    mark = cycle.checkpoint()
    Allocator(cycle, SCORING).fill(make_pod("g").gpu(1).host_port(80).build().shape, 3)
    Allocator(cycle, SCORING).fill(make_pod("c").requests(cpu=100).build().shape, 9)
    assert (cycle.used != before).any()
    cycle.rollback(mark)
    assert (cycle.used == before).all()


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans(), st.sampled_from([None, 0, 1]))
)


@given(nodes_drawn, STEPS)
def test_cached_ranking_equals_a_fresh_one(
    drawn: list[tuple[int, int, int]], steps: list[tuple[int, int, bool, int | None]]
) -> None:
    """Shapes in any order, some restricted to every second node, some rolled back."""
    cluster = make_nodes(drawn)
    pods = [make_pod(f"p{at}").requests(cpu=at * 500).gpu(at % 2).build() for at in range(3)]
    shapes = [pod.shape for pod in pods]
    cycle, fresh = cluster.open_cycle(), cluster.open_cycle()
    filler = Allocator(cycle, SCORING)
    for which, count, is_taken_back, odd in steps:
        every_second = np.arange(len(cycle.table.nodes)) % 2 == odd
        confined = {} if odd is None else {shapes[which]: every_second}
        mark, mark_anew = cycle.checkpoint(), fresh.checkpoint()
        with cycle.only(confined), fresh.only(confined):
            found = filler.fill(shapes[which], count)
            expected = Allocator(fresh, SCORING).fill(shapes[which], count)
        assert sorted((one.row, one.count) for one in found) == sorted(
            (one.row, one.count) for one in expected
        )
        if is_taken_back:
            cycle.rollback(mark)
            fresh.rollback(mark_anew)


def test_without_nodes_nothing_is_placed() -> None:
    shape = make_pod("p").requests(cpu=500).build().shape
    assert Allocator(make_cluster().open_cycle(), SCORING).fill(shape, 1) == []


def test_resources_may_have_zero_weight() -> None:
    cluster = make_nodes([(4, 0, 0), (4, 0, 0)])
    shape = make_pod("p").requests(cpu=500).build().shape
    shares = Allocator(cluster.open_cycle(), Scoring({})).fill(shape, 3)
    assert sorted(share.count for share in shares) == [1, 2]
