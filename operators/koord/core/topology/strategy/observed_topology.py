"""Where in the network the members of a gang are: observed from their nodes, planned by nobody.

What a status tells. Whether a better place existed is what the planner knew when it placed them; it
is recorded on the members.
"""

import numpy as np

from koord.core.gang.cache import GangCache
from koord.core.gang.model import GangKey
from koord.core.plan import Gathered
from koord.core.pods import Pod
from koord.core.topology.cache import TopologyCache
from koord.core.topology.solve import count_used
from koord.core.topology.tree import TopologyTree


def locate_gang(
    book: GangCache, topologies: TopologyCache, row_of: dict[str, int], gang: GangKey
) -> Gathered | None:
    """Return where the members of a gang are, and of those gangs that gather with it.

    None if it asks nothing of the network, or none of them is in it.
    """
    spec = book.spec(gang)
    wish = None if spec is None else spec.topology
    tree = None if wish is None else topologies.tree(wish.topology)
    if wish is None or tree is None:
        return None
    members = [
        pod
        for one in book.group(gang).gangs
        if (other := book.spec(one)) is not None and other.topology == wish
        for pod in book.members(one).values()
        if pod.is_alive and _node_of(pod)
    ]
    rows = {row for pod in members if (row := row_of.get(_node_of(pod))) is not None}
    found = sorted(row for row in rows if tree.path_of_row(row) is not None)
    if not found:
        return None
    gaps = {pod.recorded.gap for pod in members if pod.recorded is not None} - {""}
    return describe_rows(tree, wish.topology, found, parse_gap(max(gaps, default="")))


def describe_rows(
    tree: TopologyTree, topology: str, rows: list[int], gap: tuple[str, int] | None
) -> Gathered:
    """Say where nodes, given by rows of the tree, are."""
    used = count_used(tree, np.searchsorted(tree.rows, np.array(rows, dtype=np.int64)))
    layer = max(at for at, count in enumerate(used) if count == 1)
    path = (*(tree.path_of_row(rows[0]) or ()), tree.name_of_row(rows[0]))
    pairs = zip(tree.layers[1:], used[1:], strict=True)
    return Gathered(topology, tree.layers[layer], path[:layer], tuple(pairs), gap)


def parse_gap(text: str) -> tuple[str, int] | None:
    """Read a recorded gap; None for none, and for what was not written by us."""
    layer, _, count = text.rpartition("+")
    return (layer, int(count)) if layer and count.isdecimal() else None


def _node_of(pod: Pod) -> str:
    return pod.node or (pod.recorded.node if pod.recorded is not None else "")
