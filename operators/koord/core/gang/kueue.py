"""Gangs of which Kueue chooses the places in the network: their own topology is not used.

Two choices of one place cannot both hold, and that of Kueue stands in the pods already.
"""

from dataclasses import replace
from typing import Final

from koord.core.model.gangs import BadValue, GangSpec

NOT_USED: Final = BadValue(
    "network-topology-spec",
    "",
    "the topology of Kueue",
    "is not used, because annotations of Kueue say that it chooses the places of these pods",
)


def leave_topology(spec: GangSpec) -> GangSpec:
    """Return the settings without a topology; what is ignored is told with them.

    That of a native PodGroup stays: kube-scheduler insists on it, too.
    """
    sub_groups = spec.sub_groups
    has_layers = sub_groups is not None and any(group.layer for group in sub_groups.groups)
    is_constrained = spec.topology is not None and bool(spec.topology.layers)
    if spec.native is not None or not (has_layers or is_constrained):
        return spec
    if sub_groups is not None and has_layers:
        bare = tuple(group._replace(layer="") for group in sub_groups.groups)
        sub_groups = replace(sub_groups, groups=bare)
    topology = spec.topology if sub_groups is not None else None
    if topology is not None:
        topology = replace(topology, layers=())
    return replace(
        spec, topology=topology, sub_groups=sub_groups, bad_values=(*spec.bad_values, NOT_USED)
    )
