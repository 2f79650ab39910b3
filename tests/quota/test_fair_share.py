"""The fair share is exact however large numbers are, and the same in both kinds of integers."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.quota.scene import OURS, quota, wants
from tests.quota.trees import Level, forests, share_level, solve_plainly, usages

from koord.core.quota import solve as solver
from koord.core.quota.fair_share import MAX_AMOUNT, MAX_WEIGHT, fits_int64
from koord.core.quota.model import ROOT, QuotaRules, QuotaSpec, Usage
from koord.core.quota.solve import ShareInput, Solution, solve
from koord.core.quota.tree import make_tree

KEYS = ("gpu", "memory", "cpu")
SIZES = st.sampled_from([1, 7, 1000, 1 << 30, (1 << 40) + 1, 1 << 49, 1 << 60])
NUMBERS = st.integers(0, 40)


def solve_exactly(snapshot: ShareInput, before: Solution | None = None) -> Solution:
    """Solve with Python's integers."""
    with patch.object(solver, "fits_int64", lambda *_: False):
        return solve(snapshot, before)


def assert_same(first: Solution, second: Solution) -> None:
    for name in first.inputs.tree.layout.names[1:]:
        assert first.minimum(name) == second.minimum(name)
        assert first.share(name) == second.share(name)
        assert {type(share) for share in first.share(name).values()} <= {int}


@st.composite
def snapshots(draw: st.DrawFn) -> ShareInput:
    """Draw a tree of some resources, each of another magnitude."""
    scale = {key: draw(SIZES) for key in KEYS}
    specs: list[QuotaSpec] = []

    def amounts(of: int) -> dict[str, int]:
        return {key: scale[key] * of + draw(st.integers(0, 3)) for key in KEYS}

    for at in range(draw(st.integers(1, 12))):
        parent = draw(st.sampled_from([ROOT, ROOT, *(spec.name for spec in specs)]))
        weight = draw(st.one_of(st.none(), st.builds(amounts, NUMBERS)))
        spec = QuotaSpec(
            f"q{at:02}", parent=parent, max=amounts(40), min=amounts(draw(NUMBERS)),
            weight=weight, lends=draw(st.booleans()),
        )  # fmt: skip
        specs.append(spec)
    usage = {
        spec.name: Usage(
            demand=(requested := amounts(draw(NUMBERS))), submitted=requested, used=requested
        )
        for spec in specs
    }
    total = {
        key: scale[key] * draw(st.integers(-1, 90)) for key in draw(st.sets(st.sampled_from(KEYS)))
    }
    rules = replace(OURS, scales_min=draw(st.booleans()), guarantees_usage=draw(st.booleans()))
    return ShareInput(make_tree(specs), total, usage, rules)


@given(snapshots())
def test_int64_and_python_integers_give_the_same_shares(snapshot: ShareInput) -> None:
    assert_same(solve(snapshot), solve_exactly(snapshot))


@given(st.data(), st.sampled_from([solve, solve_exactly]))
def test_shares_are_those_of_the_reference(data: st.DataObject, way: Any) -> None:
    specs = data.draw(forests(largest=9))
    usage, total = data.draw(usages(specs)), data.draw(st.integers(0, 90))
    solution = way(ShareInput(make_tree(specs), {"gpu": total}, usage, OURS))
    shares = {spec.name: solution.share(spec.name)["gpu"] for spec in specs}
    assert shares == solve_plainly(specs, total, usage, OURS)


@given(snapshots(), st.lists(st.tuples(st.sampled_from(KEYS), NUMBERS, st.booleans()), max_size=4))
def test_solving_from_a_previous_solution_gives_the_same_shares(
    snapshot: ShareInput, steps: list[tuple[str, int, bool]]
) -> None:
    solution = solve(snapshot)
    for key, amount, is_total in steps:
        if is_total:
            snapshot = replace(snapshot, total={**snapshot.total, key: amount << 30})
        else:
            name = snapshot.tree.layout.names[-1]
            usage = replace(snapshot.usage[name], demand={key: amount << 20})
            snapshot = replace(snapshot, usage={**snapshot.usage, name: usage})
        solution = (solve if amount % 2 else solve_exactly)(snapshot, solution)
        assert_same(solution, solve_exactly(snapshot))


def test_resources_of_both_kinds_of_integers_are_solved_side_by_side() -> None:
    specs = [QuotaSpec(name, max={"gpu": 8, "memory": 1 << 70}) for name in ("a", "b")]
    requested = {"gpu": 8, "memory": 1 << 70}
    usage = {name: Usage(demand=requested, submitted=requested) for name in ("a", "b")}
    tree = make_tree(specs)
    solution = solve(ShareInput(tree, {"gpu": 8, "memory": 1 << 69}, usage, OURS))
    assert solution.share("a") == {"gpu": 4, "memory": 1 << 68}
    fewer = solve(ShareInput(tree, {"gpu": 6, "memory": 1 << 69}, usage, OURS), solution)
    assert fewer.share("b") == {"gpu": 3, "memory": 1 << 68}


@given(
    st.integers(1, 10**15),
    st.lists(st.integers(1, 10**18), min_size=1, max_size=9),
    st.sampled_from([np.int64, object]),
)
def test_dividing_by_weight_loses_nothing(amount: int, weights: list[int], dtype: Any) -> None:
    if dtype is np.int64:
        weights = [max(1, weight // 100) for weight in weights]
    count = len(weights)
    level = Level([0] * count, [amount] * count, weights, [True] * count)
    gives = share_level(amount, level, dtype)
    assert sum(gives) == amount
    whole = sum(weights)
    for give, weight in zip(gives, weights, strict=True):
        assert abs(give * whole - weight * amount) < whole


@pytest.mark.parametrize("children", [3, 300])
def test_levels_of_unequal_width_are_rounded_alike(children: int) -> None:
    specs = [quota("wide"), *(quota(f"c{at:03}", "wide", weight=1) for at in range(children))]
    for at in range(40):
        specs += [quota(f"p{at:02}", weight=1), quota(f"p{at:02}-x", f"p{at:02}", weight=3)]
    usage = {spec.name: wants(10) for spec in specs if spec.parent != ROOT}
    for remainder in (1, 2, 41, 77):
        snapshot = ShareInput(make_tree(specs), {"cpu": 500 + remainder}, usage, QuotaRules())
        assert_same(solve(snapshot), solve_exactly(snapshot))


@pytest.mark.parametrize("way", [solve, solve_exactly])
def test_a_negative_total_is_divided_among_quotas_without_guarantees(way: Any) -> None:
    specs = [quota(f"q{at}") for at in range(70)]
    usage = {spec.name: wants(4) for spec in specs}
    solution = way(ShareInput(make_tree(specs), {"cpu": -1}, usage, OURS))
    assert {solution.share(spec.name)["cpu"] for spec in specs} == {0}


@pytest.mark.parametrize(
    ("amounts", "weights", "expected"),
    [(1, 1, True), (MAX_AMOUNT, 1, False), (1, MAX_WEIGHT, False), (float(1 << 70), 1, False)],
)
def test_large_numbers_do_not_fit_int64(amounts: float, weights: float, *, expected: bool) -> None:
    assert fits_int64(amounts, weights) is expected


def check_levels(seed: int, levels: int) -> None:
    """Divide many random levels in both kinds of integers."""
    rng = random.Random(f"levels {seed}")  # noqa: S311 - to be repeated, not to be secret
    scale = rng.choice((1, 1000, (1 << 30) + 7, 1 << 45))
    specs = []
    usage = {}
    for at in range(levels):
        specs.append(quota(f"p{at:04}", max=scale << 20, weight=rng.randint(0, 9)))
        for child in range(rng.randint(1, 9)):
            least, weight = rng.randint(0, 9) * scale, rng.randint(0, 12) * scale + child
            name, lends = f"p{at:04}-{child}", rng.random() < 0.5
            more = {"min": least, "max": 24 * scale, "weight": weight, "lends": lends}
            specs.append(quota(name, f"p{at:04}", **more))
            usage[name] = wants(rng.randint(0, 24) * scale + child)
    total = {"cpu": rng.randint(0, 60) * levels * scale}
    snapshot = ShareInput(make_tree(specs), total, usage, QuotaRules())
    assert_same(solve(snapshot), solve_exactly(snapshot))


def test_a_thousand_random_levels() -> None:
    for seed in range(5):
        check_levels(seed, 200)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_hundred_thousand_random_levels() -> None:
    for seed in range(500):
        check_levels(seed, 200)
