"""Sets of NUMA nodes that could serve a request (NUMA hints), as domains tell them to each other.

Every domain that has resources on NUMA nodes hints which sets would do; one domain merges all hints
into the set that a pod gets. A set of NUMA nodes is an integer with one bit per node.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Final, TypeAlias

NumaNodes: TypeAlias = int
"""A set of NUMA nodes: bit n is node n."""

MAX_NUMBER: Final = 1023
"""The highest number of a NUMA node in Linux; larger ones are not to be made a set of."""
MAX_SETS: Final = 255
"""All sets of 8 NUMA nodes. Larger machines are tried with fewer: small sets, and all nodes."""


@dataclass(frozen=True, slots=True)
class NumaHint:
    """NUMA nodes that could serve a request; ``nodes`` None: any.

    ``is_unsatisfied``: they cannot serve all of it.
    """

    nodes: NumaNodes | None
    is_preferred: bool
    score: int = 0
    is_unsatisfied: bool = False


Hints: TypeAlias = Sequence[NumaHint] | None
"""At most one per set of nodes; None: no preference; empty: nothing can serve the request."""


@lru_cache(maxsize=256)
def list_sets(all_nodes: NumaNodes) -> tuple[NumaNodes, ...]:
    """Return the sets of NUMA nodes to try, smaller ones first.

    Those are all, but on machines with very many nodes only the smallest and all nodes.
    """
    nodes = [1 << number for number in range(all_nodes.bit_length()) if all_nodes >> number & 1]
    sets: list[NumaNodes] = []
    for size in range(1, len(nodes)):
        if len(sets) + comb(len(nodes), size) >= MAX_SETS:
            break
        sets += (sum(combination) for combination in combinations(nodes, size))
    return (*sets, all_nodes) if all_nodes else ()


def make_hints(
    feasible: Sequence[tuple[NumaNodes, int]], *, prefer_all: bool = False
) -> tuple[NumaHint, ...]:
    """Make hints of feasible sets with their scores; the smallest sets are preferred, or all."""
    smallest = min((nodes.bit_count() for nodes, _ in feasible), default=0)
    return tuple(
        NumaHint(nodes, prefer_all or nodes.bit_count() == smallest, score)
        for nodes, score in feasible
    )
