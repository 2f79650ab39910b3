"""A node as its NUMA nodes: each is computed like a node of its own, with its share of everything.

What a pod is on, it uses there in equal parts. What is on no NUMA node in particular, such as the
system and pods without a record, is divided over all. Parts are rounded up, so nothing is offered
twice. Nothing is known here of how NUMA nodes are reported, or of how pods are aligned to them.
Source: Koordinator (batchresource, zones of a NodeResourceTopology).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from koord.core.colocation.measured import RESOURCES, ColocatedNode, CountedPod, find_reserved
from koord.core.load.model import NodeLoad
from koord.core.model.units import Amounts


def split_by_zone(
    node: ColocatedNode, zones: Mapping[int, Amounts], zones_of: Mapping[str, Collection[int]]
) -> Mapping[int, ColocatedNode]:
    """Return what counts on each NUMA node.

    ``zones`` are what they have by number, ``zones_of`` those that a pod (``namespace/name``) is
    on; pods that are not in it are on all.
    """
    return {zone: _split(node, zone, zones, zones_of) for zone in sorted(zones)}


def _split(
    node: ColocatedNode,
    zone: int,
    zones: Mapping[int, Amounts],
    zones_of: Mapping[str, Collection[int]],
) -> ColocatedNode:
    def part_of(pod: str) -> int:
        """Return into how many parts a pod is divided; 0 if none of them is here."""
        on = [number for number in zones_of.get(pod, ()) if number in zones] or list(zones)
        return len(on) if zone in on else 0

    capacity = {name: zones[zone].get(name, 0) for name in RESOURCES}
    reserved = {name: find_reserved(node, name) for name in RESOURCES}
    return replace(
        node,
        capacity=capacity,
        allocatable=capacity,
        pods=tuple(_divide_pod(pod, part_of(pod.key)) for pod in node.pods if part_of(pod.key)),
        report=None if node.report is None else _divide_report(node.report, len(zones), part_of),
        reserved=_divide(reserved, len(zones)),
        third_party=_divide(node.third_party, len(zones)),
    )


def _divide_pod(pod: CountedPod, parts: int) -> CountedPod:
    return replace(pod, requests=_divide(pod.requests, parts))


def _divide_report(report: NodeLoad, zones: int, part_of: Callable[[str], int]) -> NodeLoad:
    pods = {
        key: replace(load, usage=_divide(load.usage, parts))
        for key, load in report.pods.items()
        if (parts := part_of(key))
    }
    applications = tuple(
        replace(each, usage=_divide(each.usage, zones)) for each in report.host_applications
    )
    return replace(
        report, system=_divide(report.system, zones), pods=pods, host_applications=applications
    )


def _divide(amounts: Amounts, parts: int) -> Amounts:
    return {name: -(-amount // parts) for name, amount in amounts.items()}
