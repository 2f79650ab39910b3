"""Proposes a partition table: sets of GPUs that the links between them let work together.

The fabric is a graph: GPUs, and an edge between two that are linked, with the number of links.
GPUs at the same switches are all linked with each other. Places in the PCIe tree only decide how a
uniform group is halved; without any link there is no table, and places alone are used.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice
from typing import Final, TypeAlias

import networkx as nx

from koord.agent.reading import SWITCH, ObservedDevice

Graph: TypeAlias = "nx.Graph[int]"
Sets: TypeAlias = Iterator[tuple[tuple[int, ...], int]]
"""GPUs and their score: the number of links of the pair that has the fewest."""

_MOST: Final = 512
"""Proposed partitions; a Device may have twice as many."""
_SIZES: Final = (2, 4, 8)
"""GPUs of a partition where links are not uniform."""


def make_graph(gpus: Iterable[ObservedDevice], links: Iterable[tuple[int, int]]) -> Graph:
    """Return the fabric: minors, and between two of them the number of their links."""
    graph: Graph = nx.Graph()
    graph.add_nodes_from(gpu.minor for gpu in gpus if gpu.minor is not None)
    at_switches: Counter[int] = Counter()
    for first, second in links:
        if second == SWITCH:
            at_switches[first] += 1
        elif first < second:  # each end reports a link
            count = graph.edges[first, second]["links"] if graph.has_edge(first, second) else 0
            graph.add_edge(first, second, links=count + 1)
    # One link that is down does not make switches less uniform.
    least = min(at_switches.values(), default=0)
    graph.add_edges_from(combinations(at_switches, 2), links=least)
    return graph


def propose(
    gpus: Sequence[ObservedDevice], links: Iterable[tuple[int, int]]
) -> dict[str, list[dict[str, object]]]:
    """Return a table as in the annotation ``gpu-partitions``; empty if there are no links."""
    graph = make_graph(gpus, links)
    if not graph.edges:
        return {}
    order = [gpu.minor for gpu in sorted(gpus, key=_place) if gpu.minor is not None]
    score_of: dict[tuple[int, ...], int] = {(minor,): 1 for minor in sorted(order)}
    for component in nx.connected_components(graph):
        part = graph.subgraph(component)
        members = [minor for minor in order if minor in component]
        sets = _halve(members) if _is_uniform(part) else _cliques(part)
        score_of |= islice(sets, _MOST)
    table: dict[str, list[dict[str, object]]] = {}
    for minors, score in sorted(score_of.items(), key=lambda item: (len(item[0]), item[0])):
        entry = {"minors": list(minors), "gpuLinkType": "NVLink", "allocationScore": score}
        table.setdefault(str(len(minors)), []).append(entry)
    return table


def _place(gpu: ObservedDevice) -> tuple[int, int, str, str]:
    place = gpu.place
    return place.socket, place.numa, place.pcie, place.bus_id


def _is_uniform(part: Graph) -> bool:
    size = len(part)
    counts = {part.edges[edge]["links"] for edge in part.edges}
    return len(counts) == 1 and part.number_of_edges() == size * (size - 1) // 2


def _halve(members: Sequence[int]) -> Sets:
    """Yield a group, its halves, their halves and so on: neighbours stay together."""
    if len(members) > 1:
        yield tuple(sorted(members)), 1
        if len(members) % 2 == 0:
            middle = len(members) // 2
            yield from _halve(members[:middle])
            yield from _halve(members[middle:])


def _cliques(part: Graph) -> Sets:
    """Yield the whole group, and of it all sets in which every pair is linked."""
    yield tuple(sorted(part)), 1
    for clique in islice(nx.enumerate_all_cliques(part), _MOST):
        if len(clique) in _SIZES:
            pairs = combinations(clique, 2)
            yield tuple(sorted(clique)), min(part.edges[pair]["links"] for pair in pairs)
