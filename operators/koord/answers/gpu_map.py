"""Every GPU of the cluster as one cell, by node: who has it, or why nobody can. Decides nothing.

Cells are counted, not numbered: which device a pod has is told by the devices of its node. A cell
is one character, so that thousands of nodes are a small answer.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Final

from koord.answers.fragmentation import NodeGpus, cards_of, count_gpus_of_nodes
from koord.answers.redaction import Sight
from koord.answers.usage_view import NodeUsage
from koord.core.engine.state import ClusterState
from koord.core.model.pod_charge import node_charged
from koord.core.model.pods import Handling, Pod
from koord.core.topology.status import observe_topology

MOST_CELLS: Final = 64
"""Of a node; how many GPUs it has is told beside them."""
LETTERS: Final = ascii_letters + digits
"""Stand for the holders with most GPUs."""
OTHERS: Final = "*"
"""All other holders, and those whose names are not the asker's to see."""
SHARED: Final = "%"
"""Used in part, or by whom is not known."""
HELD: Final = "~"
"""Held by a reservation, and used by no pod."""
FREE: Final = "."
STRANDED: Final = "+"
BROKEN: Final = "!"
DOWN: Final = "#"
"""Of a node that has failed."""


@dataclass(frozen=True, slots=True)
class MapTopology:
    """A network topology: its layers from the top, without that of nodes."""

    name: str
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MapNode:
    """A node with GPUs. ``domains`` are its paths, one for each topology; empty: it has none.

    ``tenants`` and ``quotas`` are its cells by namespace and by quota.
    """

    node: str
    state: str
    model: str
    gpus: int
    free: int
    domains: tuple[str, ...]
    tenants: str
    quotas: str


@dataclass(frozen=True, slots=True)
class GpuMap:
    """All nodes with GPUs, by name; letters stand for the names at the same place."""

    topologies: tuple[MapTopology, ...]
    letters: str
    tenants: tuple[str, ...]
    quotas: tuple[str, ...]
    nodes: tuple[MapNode, ...]


@dataclass(frozen=True, slots=True)
class _Holders:
    """Who uses GPUs, by node; and those with most of them, by name, who have letters."""

    on: Mapping[str, Counter[str]]
    names: tuple[str, ...]

    def letters_on(self, node: str) -> Mapping[str, int]:
        """Return how many GPUs of a node are of which letter, in the order of letters."""
        letters = dict(zip(self.names, LETTERS, strict=False))
        counts: Counter[str] = Counter()
        for name, count in self.on.get(node, {}).items():
            counts[letters.get(name, OTHERS)] += count
        return dict(sorted(counts.items()))


def view_map(state: ClusterState, sight: Sight) -> GpuMap:
    """Return the map; who may not see a namespace, or all quotas, does not see their names."""
    state.refresh()
    pods = [pod for pod in state.pods.values() if pod.handling is not Handling.RESERVE]
    tenants = _find_holders(
        (pod, pod.namespace if sight.sees(pod.namespace) else "") for pod in pods
    )
    sees_quotas = sight.quotas and state.quotas.is_in_use
    quotas = _find_holders((pod, state.quotas.quota_of(pod) if sees_quotas else "") for pod in pods)
    names = sorted(state.topologies)
    trees = [state.topologies.tree(name) for name in names]
    nodes = []
    for name, gpus in sorted(count_gpus_of_nodes(state).items()):
        row = state.table.row_of[name]
        paths = (
            tree.path_of_row(row)[:-1] if tree is not None and row in tree else () for tree in trees
        )
        nodes.append(
            MapNode(
                node=name,
                state=NodeUsage(state.table.node_at(row), {}, ()).state,
                model=gpus.model,
                gpus=gpus.total,
                free=0 if gpus.is_down else gpus.free,
                domains=tuple(map("/".join, paths)),
                tenants=make_cells(gpus, tenants.letters_on(name)),
                quotas=make_cells(gpus, quotas.letters_on(name)),
            )
        )
    return GpuMap(
        tuple(
            MapTopology(name, tuple(observe_topology(state.topologies, name).layers[:-1]))
            for name in names
        ),
        LETTERS,
        tenants.names,
        quotas.names,
        tuple(nodes),
    )


def make_cells(gpus: NodeGpus, letters: Mapping[str, int]) -> str:
    """Return the cells of a node: those of holders first, then what nobody uses."""
    if gpus.is_down:
        return DOWN * min(gpus.total, MOST_CELLS)
    runs: list[tuple[str, int]] = []
    left = gpus.used
    for letter, count in letters.items():
        runs.append((letter, min(count, left)))
        left -= min(count, left)
    runs += [
        (SHARED, left),
        (HELD, gpus.held),
        (FREE, gpus.free),
        (STRANDED, gpus.stranded),
        (BROKEN, gpus.broken),
    ]
    cells = ""
    for letter, count in runs:
        cells += letter * min(count, MOST_CELLS - len(cells))
    return cells


def _find_holders(pods: Iterable[tuple[Pod, str]]) -> _Holders:
    """Count the GPUs of pods by node and holder; an empty name is of nobody who has a letter."""
    on: dict[str, Counter[str]] = {}
    sums: Counter[str] = Counter()
    for pod, holder in pods:
        node, cards = node_charged(pod), cards_of(pod)
        if node and cards:
            on.setdefault(node, Counter())[holder] += cards
            sums[holder] += cards
    named = sorted((name for name in sums if name), key=lambda name: (-sums[name], name))
    # By name: in the order of their sums nearly all cells would change when two change places.
    return _Holders(on, tuple(sorted(named[: len(LETTERS)])))
