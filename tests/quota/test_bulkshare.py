"""Arrays give the very same shares as one level after the other, however large the numbers."""

from __future__ import annotations

import random
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.quota.scene import OURS, quota, wants
from tests.quota.trees import forests, solve_plainly, usages

from koord.core.quota import solve as solver
from koord.core.quota.bulkshare import MOST_AMOUNT, MOST_WEIGHT, make_frame
from koord.core.quota.model import ROOT, QuotaRules, QuotaSpec, Usage
from koord.core.quota.solve import ShareInput, Solution, solve
from koord.core.quota.tree import make_tree

KEYS = ("gpu", "memory", "cpu")
SIZES = st.sampled_from([1, 7, 1000, 1 << 30, (1 << 40) + 1, 1 << 49, 1 << 60])
NUMBERS = st.integers(0, 40)


def solve_by(fewest: int, snapshot: ShareInput, before: Solution | None = None) -> Solution:
    """Solve in arrays (``fewest`` 1), or level by level (many)."""
    with patch.object(solver, "FEWEST_ROWS", fewest), patch.object(solver, "MOST_CHANGED", 0):
        return solve(snapshot, before)


IN_ARRAYS, BY_LEVEL = 1, 1 << 60


def assert_same(one: Solution, other: Solution) -> None:
    for key, solved in one.keys.items():
        assert [*solved.minimum] == [*other.keys[key].minimum]
        assert [*solved.share] == [*other.keys[key].share]
        assert {type(share) for share in solved.share} <= {int, type(None)}


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
        spec.name: Usage(demand=(asked := amounts(draw(NUMBERS))), submitted=asked, used=asked)
        for spec in specs
    }
    total = {
        key: scale[key] * draw(st.integers(-1, 90)) for key in draw(st.sets(st.sampled_from(KEYS)))
    }
    rules = replace(OURS, scales_min=draw(st.booleans()), guarantees_usage=draw(st.booleans()))
    return ShareInput(make_tree(specs), total, usage, rules)


@given(snapshots())
def test_arrays_say_the_same(snapshot: ShareInput) -> None:
    assert_same(solve_by(IN_ARRAYS, snapshot), solve_by(BY_LEVEL, snapshot))


@given(st.data())
def test_arrays_say_what_a_plain_solver_says(data: st.DataObject) -> None:
    specs = data.draw(forests(largest=9))
    usage, total = data.draw(usages(specs)), data.draw(st.integers(0, 90))
    solution = solve_by(IN_ARRAYS, ShareInput(make_tree(specs), {"gpu": total}, usage, OURS))
    assert solution.keys["gpu"].frame is not None
    found = {spec.name: solution.share(spec.name)["gpu"] for spec in specs}
    assert found == solve_plainly(specs, total, usage, OURS)


@given(snapshots(), st.lists(st.tuples(st.sampled_from(KEYS), NUMBERS, st.booleans()), max_size=4))
def test_both_ways_go_on_from_each_other(
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
        solution = solve_by(IN_ARRAYS if amount % 2 else BY_LEVEL, snapshot, solution)
        assert_same(solution, solve_by(BY_LEVEL, snapshot))


@pytest.mark.parametrize("children", [3, 300])
def test_levels_of_unequal_width_are_rounded_alike(children: int) -> None:
    specs = [quota("wide"), *(quota(f"c{at:03}", "wide", weight=1) for at in range(children))]
    for at in range(40):
        specs += [quota(f"p{at:02}", weight=1), quota(f"p{at:02}-x", f"p{at:02}", weight=3)]
    usage = {spec.name: wants(10) for spec in specs if spec.parent != ROOT}
    for rest in (1, 2, 41, 77):
        snapshot = ShareInput(make_tree(specs), {"cpu": 500 + rest}, usage, QuotaRules())
        assert_same(solve_by(IN_ARRAYS, snapshot), solve_by(BY_LEVEL, snapshot))


@pytest.mark.parametrize(
    ("largest", "heaviest", "total", "is_exact"),
    [
        (1, 1, 1, True),
        (1, 1, None, False),
        (1, 1, MOST_AMOUNT, False),
        (1, 1, -MOST_AMOUNT, False),
        (MOST_AMOUNT, 1, 1, False),
        (1, MOST_WEIGHT, 1, False),
        (1 << 70, 1, 1, False),
    ],
)
def test_what_is_too_large_for_arrays_is_known(
    largest: int, heaviest: int, total: int | None, *, is_exact: bool
) -> None:
    layout = make_tree([quota("a")]).layout
    frame = make_frame(
        layout,
        minimum=[0, 0],
        guaranteed=None,
        wants=[0, largest],
        weights=[0, heaviest],
        lends=[True, True],
        own=None,
    )
    assert frame.is_exact(total) is is_exact


def race_arrays(seed: int, levels: int) -> None:
    """Share out many random levels at once, and each by itself."""
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
    in_arrays = solve_by(IN_ARRAYS, snapshot)
    assert_same(in_arrays, solve_by(BY_LEVEL, snapshot))


def test_a_thousand_random_levels() -> None:
    for seed in range(5):
        race_arrays(seed, 200)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_hundred_thousand_random_levels() -> None:
    for seed in range(500):
        race_arrays(seed, 200)
