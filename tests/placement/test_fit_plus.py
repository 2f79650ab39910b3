"""NodeResourcesFitPlus: a second score, of the resources that pods ask for."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import GPU, make_pod
from tests.cluster import FakeCluster, make_cluster
from tests.placement.test_allocator import make_nodes, nodes_drawn, place_one_by_one

from koord.core.engine.allocator import Allocator
from koord.core.engine.scoring import (
    MAX_SCORE,
    DominantTerms,
    Scorer,
    ScoreTerm,
    ScoreTerms,
    Scoring,
    ScoringStrategy,
    Weighed,
    score_of,
)

LEAST, MOST = ScoringStrategy.LEAST_ALLOCATED, ScoringStrategy.MOST_ALLOCATED
GI = 1 << 30
PLUS = {GPU: Weighed(MOST, 2), "cpu": Weighed(LEAST), "memory": Weighed(LEAST)}
ONLY_PLUS = Scoring({}, PLUS)


def make_terms(*terms: tuple[int, ScoringStrategy, int]) -> tuple[ScoreTerm, ...]:
    return tuple(ScoreTerm(at, *term) for at, term in enumerate(terms))


def test_worked_example() -> None:
    terms = make_terms((2, MOST, 2), (16000, LEAST, 1), (32 * GI, LEAST, 1))
    size = [8, 96000, 512 * GI]
    assert score_of(terms, [4, 16000, 32 * GI], size, 1) == 75
    assert score_of(terms, [0, 0, 0], size, 1) == 56


@pytest.mark.parametrize(
    ("strategy", "used", "size", "score"),
    [
        (MOST, 9, 10, 100),
        (MOST, 50, 10, 100),
        (LEAST, 50, 10, 0),
        (LEAST, 4, 10, 50),
        (MOST, 0, 0, 0),
        (LEAST, 0, 0, 0),
    ],
)
def test_score_of_one_resource(strategy: ScoringStrategy, used: int, size: int, score: int) -> None:
    assert score_of(make_terms((1, strategy, 1)), [used], [size], 1) == score


def test_missing_resource_counts_as_zero_if_it_is_asked_for() -> None:
    asked = make_terms((1, LEAST, 1), (1, MOST, 3))
    assert score_of(asked, [0, 0], [10, 0], 1) == 90 // 4
    unasked = make_terms((1, LEAST, 1), (0, MOST, 3))
    assert score_of(unasked, [0, 0], [10, 0], 1) == 90


def test_pod_that_asks_for_nothing_configured_likes_all_nodes() -> None:
    assert score_of((), [], [], 1) == MAX_SCORE
    nothing = np.zeros((0, 2), dtype=np.int64)
    first = Scorer([ScoreTerms(())]).first(nothing, nothing, np.arange(2))
    assert first.tolist() == [MAX_SCORE, MAX_SCORE]


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(ScoringStrategy), st.integers(1, 100)),
        max_size=4,
    ),
    st.integers(0, 3),
    st.data(),
)
def test_rows_score_like_single_nodes(
    drawn: list[tuple[int, ScoringStrategy, int]], dominant: int, data: st.DataObject
) -> None:
    terms = make_terms(*drawn)
    nodes = st.lists(
        st.lists(st.integers(0, 20), min_size=3, max_size=3),
        min_size=len(terms),
        max_size=len(terms),
    )
    used, sizes = (
        np.array(data.draw(nodes), dtype=np.int64).reshape(len(terms), 3) for _ in range(2)
    )
    least = tuple(replace(term, strategy=LEAST) for term in terms)
    scorer = Scorer([ScoreTerms(terms), DominantTerms(least, 3, dominant=dominant)])
    scores = scorer.after(used, sizes, np.arange(3), np.array([1, 4]))
    assert scores.tolist() == [
        [
            sum(
                score.weight * score.score(used[:, row].tolist(), sizes[:, row].tolist(), pods)
                for score in scorer.scores
            )
            for pods in (1, 4)
        ]
        for row in range(3)
    ]
    assert ((scores >= 0) & (scores <= 4 * MAX_SCORE)).all()


def fill(cluster: FakeCluster, scoring: Scoring, count: int, cpu: int = 0, gpu: int = 0) -> str:
    """Place pods of one shape; return the nodes they are on."""
    cycle = cluster.open_cycle()
    shape = make_pod("p").requests(cpu=cpu).gpu(gpu).build().shape
    names = {row: name for name, row in cluster.state.table.live_rows()}
    shares = Allocator(cycle, scoring).fill(shape, count)
    return " ".join(sorted(names[share.row] for share in shares for _ in range(share.count)))


def test_gpus_pack_while_cpus_spread() -> None:
    cluster = make_cluster(3).pods(make_pod("there").gpu(4).running("n1"))
    assert fill(cluster, ONLY_PLUS, 4, gpu=1) == "n1 n1 n1 n1"
    cluster = make_cluster(3).pods(make_pod("there").requests(cpu=1000).running("n0"))
    assert fill(cluster, ONLY_PLUS, 2, cpu=1000) == "n1 n2"


def test_scores_follow_the_pods_of_one_fill() -> None:
    scoring = Scoring({}, {GPU: Weighed(LEAST)})
    cluster = make_cluster(2).pods(make_pod("there").gpu(2).running("n0"))
    assert fill(cluster, scoring, 6, gpu=1) == "n0 n0 n1 n1 n1 n1"


def test_weight_decides_between_both_scores() -> None:
    first = {GPU: Weighed(LEAST)}
    cluster = make_cluster(2).pods(make_pod("there").gpu(2).running("n0"))
    assert fill(cluster, Scoring(first, {GPU: Weighed(MOST)}, plus_weight=2), 1, gpu=1) == "n0"
    assert fill(cluster, Scoring({**first, "cpu": Weighed(LEAST)}), 1, gpu=1) == "n1"


@given(nodes_drawn, st.integers(0, 3), st.integers(0, 4), st.integers(1, 20), st.integers(1, 9))
def test_fill_equals_placing_pod_by_pod(
    drawn: list[tuple[int, int, int]], cpu: int, gpu: int, count: int, weight: int
) -> None:
    scoring = Scoring(plus=PLUS, plus_weight=weight)
    cluster = make_nodes(drawn)
    shape = make_pod("p").requests(cpu=cpu * 500).gpu(gpu).build().shape
    expected = place_one_by_one(cluster.open_cycle(), shape, count, scoring)
    shares = Allocator(cluster.open_cycle(), scoring).fill(shape, count)
    assert {share.row: share.count for share in shares} == expected


def test_pods_without_configured_requests_are_placed_as_before() -> None:
    cluster = make_nodes([(4, 0, 1), (8, 2, 0), (2, 1, 0)])
    scoring = Scoring(plus={"example.com/other": Weighed(MOST)}, plus_weight=9)
    for cpu in (500, 1000):
        assert fill(cluster, scoring, 9, cpu=cpu) == fill(cluster, Scoring(), 9, cpu=cpu)
