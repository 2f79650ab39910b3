"""Finds the best split by trying every one: slow, simple, and independent of the solver.

Works on tiny trees given as the path of each node. Only what a split is worth is shared with the
solver, in words: see the docstring of ``koord.core.topology.solve``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import product
from math import lcm


@dataclass(frozen=True)
class Problem:
    """``paths`` has, per node, the names of its domains from the top layer to the node itself."""

    paths: tuple[tuple[str, ...], ...]
    offers: tuple[int, ...]
    least: int
    most: int
    must: int = 0
    prefer: tuple[int, ...] = ()
    multiples: dict[int, int] = field(default_factory=dict)
    fixed: tuple[int, ...] = ()
    near: tuple[int, ...] = ()

    @property
    def depth(self) -> int:
        return len(self.paths[0])

    def domain(self, node: int, layer: int) -> tuple[str, ...]:
        return self.paths[node][:layer]


Key = tuple[int, ...]


def find_best(problem: Problem) -> Key | None:
    """Return what the best split is worth; None if there is none."""
    room = room_of(problem)
    ranges = [range(min(offer, problem.most) + 1) for offer in problem.offers]
    keys = (worth(problem, shares, room) for shares in product(*ranges))
    return min((key for key in keys if key is not None), default=None)


def worth(
    problem: Problem, shares: tuple[int, ...], room: dict[tuple[str, ...], int]
) -> Key | None:
    """Return the worth of a split, less is better; None if it breaks a rule."""
    fixed = problem.fixed or (0,) * len(shares)
    total = [a + b for a, b in zip(shares, fixed, strict=True)]
    if not max(problem.least, 1) <= sum(shares) <= problem.most:
        return None
    members = sums(problem, total)
    for layer, multiple in problem.multiples.items():
        if any(n % multiple for domain, n in members.items() if len(domain) == layer):
            return None
    used = [
        sum(1 for d, n in members.items() if len(d) == at and n) for at in range(problem.depth + 1)
    ]
    if used[problem.must] > 1:
        return None
    order = sorted(set(problem.prefer), reverse=True)
    order += [layer for layer in range(1, problem.depth + 1) if layer not in order]
    lowest = max(at for at in range(problem.depth + 1) if used[at] == 1)
    home = next(d for d, n in members.items() if len(d) == lowest and n)
    chain = [home[:at] for at in range(lowest, -1, -1)]
    whole = lcm(*problem.multiples.values()) if problem.multiples else 1
    last = (sum(fixed) + problem.most) // whole * whole
    near = sums(problem, problem.near or (0,) * len(shares))
    occupied = sums(problem, fixed)
    new = sums(problem, shares)
    left = [
        sum(room[d] for d, n in new.items() if len(d) == at and n and not occupied[d])
        for at in range(lowest + 1, problem.depth + 1)
    ]
    return (
        *(used[layer] for layer in order),
        -sum(shares),
        -min(room[home[: problem.must]] + occupied[home[: problem.must]], last),
        *(-near[domain] for domain in chain),
        *(room[domain] for domain in chain),
        *left,
    )


def sums(problem: Problem, values: tuple[int, ...] | list[int]) -> dict[tuple[str, ...], int]:
    """Sum values of nodes into all their domains, the root ``()`` included."""
    found: dict[tuple[str, ...], int] = defaultdict(int)
    for node, value in enumerate(values):
        for layer in range(problem.depth + 1):
            found[problem.domain(node, layer)] += value
    return found


def room_of(problem: Problem) -> dict[tuple[str, ...], int]:
    """Return how many new members every domain takes if only its own multiples matter."""
    units = {}
    below = 1
    for layer in range(problem.depth, -1, -1):
        below = units[layer] = lcm(below, problem.multiples.get(layer, 1))
    fixed = problem.fixed or (0,) * len(problem.offers)
    held: dict[tuple[str, ...], int] = defaultdict(int)
    for node, offer in enumerate(problem.offers):
        domain = problem.domain(node, problem.depth)
        held[domain] = (
            (fixed[node] + min(offer, problem.most)) // units[problem.depth] * units[problem.depth]
        )
    for layer in range(problem.depth - 1, -1, -1):
        above: dict[tuple[str, ...], int] = defaultdict(int)
        for domain, n in held.items():
            if len(domain) == layer + 1:
                above[domain[:-1]] += n
        held |= {domain: n // units[layer] * units[layer] for domain, n in above.items()}
    occupied = sums(problem, fixed)
    return {domain: n - occupied[domain] for domain, n in held.items()}
