"""The solver finds the same as an exhaustive search, on thousands of small trees.

A small share runs with every check; ``-m slow`` runs all.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.support.laws import examples
from tests.topology.brute import Problem, find_best, room_of, worth

from koord.core.model.topology_constraint import NODE_LAYER
from koord.core.topology.capacity import Goal, SplitRequest
from koord.core.topology.layers import InvalidLayers, Layer, order_layers
from koord.core.topology.solve import NoSplit, count_used, split
from koord.core.topology.tree import TopologyTree

EVERY_CHECK = range(examples(150))
SLOW = range(400, 24_400)


def make_problem(seed: int) -> Problem:
    """Make a cluster of up to ten nodes and three layers, and a gang to place on it."""
    dice = random.Random(seed)  # noqa: S311 - the same every time
    depth = dice.randint(1, 3)
    nodes = dice.randint(1, 10)
    widths = [dice.randint(1, 3) for _ in range(depth - 1)]
    paths = tuple(
        (*(f"{dice.randrange(width)}" for width in widths), f"n{node}") for node in range(nodes)
    )
    most_offer = 4 if nodes <= 6 else 2
    offers = tuple(dice.randint(0, most_offer) for _ in range(nodes))
    multiples = {
        layer: dice.choice((2, 2, 3, 4)) for layer in range(depth + 1) if dice.random() < 0.2
    }
    fixed = tuple(dice.choice((0, 0, 1, 2)) for _ in range(nodes)) if dice.random() < 0.4 else ()
    near = tuple(dice.choice((0, 0, 1, 2)) for _ in range(nodes)) if dice.random() < 0.3 else ()
    most = dice.randint(1, 8)
    return Problem(
        paths=paths,
        offers=offers,
        least=most if dice.random() < 0.6 else dice.randint(0, most),
        most=most,
        must=dice.choice((0, 0, *range(depth + 1))),
        prefer=tuple(layer for layer in range(1, depth + 1) if dice.random() < 0.35),
        multiples=multiples,
        fixed=fixed,
        near=near,
    )


def make_tree(problem: Problem) -> TopologyTree:
    names = [f"L{at}" for at in range(1, problem.depth)]
    layers = [Layer(name, above, (name,)) for name, above in zip(names, ["", *names], strict=False)]
    chain = order_layers([*layers, Layer(NODE_LAYER, names[-1] if names else "")])
    assert not isinstance(chain, InvalidLayers)
    tree = TopologyTree(chain)
    for row, path in enumerate(problem.paths):
        tree.upsert(row, path[-1], dict(zip(names, path, strict=False)))
    return tree


def make_ask(problem: Problem, tree: TopologyTree) -> SplitRequest:
    units = [1] * (problem.depth + 1)
    below = 1
    for layer in range(problem.depth, -1, -1):
        below = units[layer] = int(np.lcm(below, problem.multiples.get(layer, 1)))
    return SplitRequest(
        goal=Goal(problem.must, problem.prefer, tuple(units)),
        offers=np.array(problem.offers)[tree.rows],
        least=problem.least,
        most=problem.most,
        fixed=np.array(problem.fixed)[tree.rows] if problem.fixed else None,
        near=np.array(problem.near)[tree.rows] if problem.near else None,
    )


def check(seed: int) -> None:
    problem = make_problem(seed)
    tree = make_tree(problem)
    found = split(tree, make_ask(problem, tree))
    best = find_best(problem)
    if isinstance(found, NoSplit):
        assert best is None, f"seed {seed}: refused, but {best} is possible: {problem}"
        return
    shares = [0] * len(problem.paths)
    for row, count in found.shares:
        shares[row] += count
    key = worth(problem, tuple(shares), room_of(problem))
    assert key == best, f"seed {seed}: {shares} is worth {key}, the best is {best}: {problem}"


def test_split_equals_exhaustive_search() -> None:
    for seed in EVERY_CHECK:
        check(seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_split_equals_exhaustive_search_on_many_clusters() -> None:
    for seed in SLOW:
        check(seed)


@pytest.mark.parametrize("seed", range(60))
def test_common_domain_is_the_lowest_with_room(seed: int) -> None:
    problem = replace(make_problem(seed), multiples={}, prefer=(), fixed=(), near=())
    problem = replace(problem, least=problem.most)
    tree = make_tree(problem)
    found = split(tree, make_ask(problem, tree))
    room = room_of(problem)
    deepest = max((len(d) for d, n in room.items() if n >= problem.most), default=-1)
    if deepest < problem.must:
        assert isinstance(found, NoSplit)
    else:
        assert not isinstance(found, NoSplit)
        used = count_used(tree, tree.positions_of([row for row, _ in found.shares]))
        assert max(layer for layer, count in enumerate(used) if count == 1) >= deepest


@pytest.mark.parametrize("seed", range(60))
def test_shortcut_for_full_domains_equals_the_search(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem(seed)
    needed = max(sum(problem.offers), 1)
    problem = replace(problem, multiples={}, must=0, least=needed, most=needed)
    tree = make_tree(problem)
    at_once = split(tree, make_ask(problem, tree))
    monkeypatch.setattr("koord.core.topology.solve._SplitSearch._is_all_needed", lambda *_: False)
    assert at_once == split(tree, make_ask(problem, tree))


def test_gang_goes_to_the_only_node_that_holds_it() -> None:
    paths = (("0", "n0"), ("0", "n1"), ("1", "n2"))
    problem = Problem(paths=paths, offers=(1, 3, 2), least=3, most=3, must=2)
    tree = make_tree(problem)
    found = split(tree, make_ask(problem, tree))
    assert not isinstance(found, NoSplit)
    assert found.shares == ((1, 3),)
