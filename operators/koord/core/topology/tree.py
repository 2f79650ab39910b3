"""The tree that node labels form, kept as arrays and updated node by node.

A domain is identified by its path: ``b1`` of spine ``s1`` and ``b1`` of ``s2`` are two domains. The
lowest domains are the nodes themselves, known by the *row* that the caller gives each node. Layer 0
is the built-in root, the last layer is the nodes; the number of a node's own domain is its
*position*, the index of its row in ``rows``.

A node without label for the layer right above the nodes gets a domain of its own, named after it. A
node without label for any other layer is not in the tree: it is *left out*.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from koord.core.engine.arrays import Ints
from koord.core.model.topology_constraint import ROOT_LAYER
from koord.core.topology.layers import Chain

Path: TypeAlias = tuple[str, ...]
"""Names of a domain and all above it, top first; the root's is empty."""

OUTSIDE: Final = -1
_FIRST: Final = 16


class _Level:
    """The domains of one layer; numbers of deleted domains are reused."""

    def __init__(self, rows: int) -> None:
        self.numbers: dict[tuple[int, str], int] = {}
        self.names: list[str] = []
        self.parents: Ints = np.zeros(_FIRST, dtype=np.int64)
        self.sizes: list[int] = []
        self.of_row: Ints = np.full(rows, OUTSIDE, dtype=np.int64)
        self._free: list[int] = []

    def add_node(self, parent: int, name: str) -> int:
        """Count one more node in a domain, which is created if it is new; return its number."""
        number = self.numbers.get((parent, name))
        if number is None:
            number = self.numbers[parent, name] = self._take_number()
            self.names[number] = name
            self.parents[number] = parent
        self.sizes[number] += 1
        return number

    def remove_node(self, number: int) -> None:
        """Count one node less; a domain without nodes is deleted."""
        self.sizes[number] -= 1
        if not self.sizes[number]:
            del self.numbers[int(self.parents[number]), self.names[number]]
            self._free.append(number)

    def _take_number(self) -> int:
        if self._free:
            return self._free.pop()
        self.names.append("")
        self.sizes.append(0)
        if len(self.names) > len(self.parents):
            self.parents = np.concatenate([self.parents, np.zeros_like(self.parents)])
        return len(self.names) - 1


class TopologyTree:
    """Domains by layer, and the domain of every row on every layer.

    ``version`` grows with every change of the tree.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.layers: tuple[str, ...] = (ROOT_LAYER, *(layer.name for layer in chain))
        self.version = 0
        self.left_out: dict[str, str] = {}
        """Node that is not in the tree -> the layer for which it has no label."""
        self._names: dict[int, str] = {}
        self._paths: dict[int, Path] = {}
        self._rows = 0
        self._levels = [_Level(0) for _ in chain[:-1]]
        self._cached: dict[str, Ints] = {}
        self._ranks: dict[int, Ints] = {}
        self._cached_at = -1

    @property
    def depth(self) -> int:
        """The number of the node layer."""
        return len(self.layers) - 1

    def __len__(self) -> int:
        return len(self._paths)

    def upsert(self, row: int, name: str, labels: Mapping[str, str]) -> None:
        """Add or move a node as its labels say; a no-op if they say the same as before."""
        path, missing = self._path_of(name, labels)
        if self._names.get(row) == name and self._paths.get(row) == path:
            return
        self.remove(row)
        self.version += 1
        self._names[row] = name
        if path is None:
            self.left_out[name] = missing
            return
        self._paths[row] = path
        self._grow(row + 1)
        parent = 0
        for level, domain in zip(self._levels, path, strict=True):
            parent = level.add_node(parent, domain)
            level.of_row[row] = parent

    def remove(self, row: int) -> None:
        name = self._names.pop(row, None)
        if name is None:
            return
        self.version += 1
        self.left_out.pop(name, None)
        if self._paths.pop(row, None) is not None:
            for level in self._levels:
                level.remove_node(int(level.of_row[row]))
                level.of_row[row] = OUTSIDE

    def _path_of(self, name: str, labels: Mapping[str, str]) -> tuple[Path | None, str]:
        path: list[str] = []
        last = len(self._levels) - 1
        for at, layer in enumerate(self.chain[:-1]):
            domain = next((labels[key] for key in layer.label_keys if labels.get(key)), "")
            if not domain and at < last:
                return None, layer.name
            path.append(domain or name)
        return tuple(path), ""

    def _grow(self, rows: int) -> None:
        if rows <= self._rows:
            return
        self._rows = max(2 * self._rows, rows, _FIRST)
        for level in self._levels:
            grown = np.full(self._rows, OUTSIDE, dtype=np.int64)
            grown[: len(level.of_row)] = level.of_row
            level.of_row = grown

    # Queries; callers must not write to the arrays

    @property
    def rows(self) -> Ints:
        """The rows that are in the tree, ascending."""
        return self._cache("rows", lambda: np.array(sorted(self._paths), dtype=np.int64))

    def __contains__(self, row: int | None) -> bool:
        return row in self._paths

    def positions_of(self, rows: Iterable[int] | Ints) -> Ints:
        """Return the index in ``rows`` of some rows, all of them in the tree."""
        wanted = rows if isinstance(rows, np.ndarray) else np.fromiter(rows, np.int64)
        return np.searchsorted(self.rows, wanted)

    def size(self, layer: int) -> int:
        """Return an upper bound of the domain numbers of a layer."""
        if layer == self.depth:
            return len(self._paths)
        return len(self._levels[layer - 1].names) if layer else 1

    def domains_of(self, layer: int) -> Ints:
        """Return the domain of each of ``rows`` on a layer."""
        if layer == self.depth:
            return self._cache("positions", lambda: np.arange(len(self.rows)))
        if not layer:
            return self._cache("of/0", lambda: np.zeros(len(self.rows), dtype=np.int64))
        return self._cache(f"of/{layer}", lambda: self._levels[layer - 1].of_row[self.rows])

    def parents_of(self, layer: int) -> Ints:
        """Return the parent of each domain of a layer; for the node layer, of each of ``rows``."""
        if layer == self.depth:
            return self.domains_of(layer - 1)
        return self._levels[layer - 1].parents[: self.size(layer)]

    def members_of(self, layer: int, domain: int) -> Ints:
        """Return the domains of a layer right below a domain; positions in ``rows`` for nodes."""
        parents = self.parents_of(layer + 1)
        below = np.flatnonzero(parents == domain)
        if layer + 1 == self.depth:
            return below
        sizes = self._levels[layer].sizes
        return np.array([child for child in below.tolist() if sizes[child]], dtype=np.int64)

    def path_of(self, layer: int, domain: int) -> Path:
        """Return the path of a domain, for the node layer that of a position."""
        if layer == self.depth:
            return self.path_of_row(int(self.rows[domain]))
        path: list[str] = []
        for level in reversed(self._levels[:layer]):
            path.append(level.names[domain])
            domain = int(level.parents[domain])
        return tuple(reversed(path))

    def path_of_row(self, row: int) -> Path:
        """Return the path of a node in the tree, its own name last."""
        return (*self._paths[row], self._names[row])

    def nodes_in(self, layer: int, domain: int) -> int:
        """Return how many nodes are below a domain above the nodes."""
        return self._levels[layer - 1].sizes[domain] if layer else len(self._paths)

    def name_ranks(self, layer: int) -> Ints:
        """Return, per domain of a layer, its rank in the order of names, then of paths."""
        self._drop_stale()
        ranks = self._ranks.get(layer)
        if ranks is None:
            ranks = self._ranks[layer] = self._rank(layer)
        return ranks

    def index_of(self, layer: str) -> int | None:
        return self.layers.index(layer) if layer in self.layers else None

    def _rank(self, layer: int) -> Ints:
        if layer == self.depth:
            names = [self._names[row] for row in self.rows.tolist()]
            order = sorted(range(len(names)), key=names.__getitem__)
        else:
            size = self.size(layer)
            paths = [self.path_of(layer, domain)[::-1] for domain in range(size)]
            order = sorted(range(size), key=paths.__getitem__)
        ranks = np.zeros(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        return ranks

    def _cache(self, key: str, make: Callable[[], Ints]) -> Ints:
        self._drop_stale()
        array = self._cached.get(key)
        if array is None:
            array = self._cached[key] = make()
        return array

    def _drop_stale(self) -> None:
        if self._cached_at != self.version:
            self._cached.clear()
            self._ranks.clear()
            self._cached_at = self.version


@dataclass(frozen=True, slots=True)
class TopologyDomain:
    """One domain above the nodes, as a topology status lists it.

    ``parent`` is (layer, name), None for the root. ``child_layer`` is empty without children,
    ``child_names`` is empty if they are nodes.
    """

    layer: str
    name: str
    path: Path
    parent: tuple[str, str] | None
    child_layer: str
    child_names: tuple[str, ...]
    nodes: int


def describe_domains(
    tree: TopologyTree, layer: int = 0, number: int = 0
) -> Iterator[TopologyDomain]:
    """Yield a domain and every one below it down to the nodes, depth first, children by name."""
    path, nodes = tree.path_of(layer, number), tree.nodes_in(layer, number)
    is_lowest = layer + 1 == tree.depth
    children = [] if is_lowest else tree.members_of(layer, number).tolist()
    children.sort(key=lambda child: tree.path_of(layer + 1, child))
    yield TopologyDomain(
        layer=tree.layers[layer],
        name=path[-1] if path else "",
        path=path,
        parent=(tree.layers[layer - 1], path[-2] if layer > 1 else "") if layer else None,
        child_layer=tree.layers[layer + 1] if nodes else "",
        child_names=tuple(tree.path_of(layer + 1, child)[-1] for child in children),
        nodes=nodes,
    )
    for child in children:
        yield from describe_domains(tree, layer + 1, child)
