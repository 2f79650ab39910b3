"""Cases that record a defect of Koordinator or break a law, and what is intended instead.

Their notes say so, and ``docs/compatibility.md`` lists the differences.
"""

from collections.abc import Mapping
from typing import Any, Final


def _block(*nodes: str) -> dict[str, Any]:
    children = [{"layer": "NodeTopologyLayer", "name": node} for node in nodes]
    return {"layer": "BlockLayer", "name": "b1", "children": children}


INTENDED: Final[Mapping[str, Mapping[str, Any]]] = {
    # Blocks of the same name under two spines are two blocks.
    "topo-010": {
        "tree": {
            "layer": "ClusterTopologyLayer",
            "name": "",
            "children": [
                {"layer": "SpineLayer", "name": "s1", "children": [_block("n1")]},
                {"layer": "SpineLayer", "name": "s2", "children": [_block("n2")]},
            ],
        },
        "nodesLeftOut": [],
    },
    # Members stand in the order of their index; topo-066 is the same case as it is intended.
    "topo-065": {
        "placement": {"w-1": "node-1", "w-2": "node-8", "w-10": "node-2"},
        "domain": {"layer": "SpineLayer", "name": "s1"},
    },
    # Nobody starts before its time at the cost of a later promise.
    "queue-061": {
        "start": {f"u{at}": minute for at, minute in enumerate((1, 11, 15, 11, 40, 55, 19, 39, 30))}
    },
}
"""Id of the case -> what is expected."""
