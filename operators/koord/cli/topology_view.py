"""Reads the cluster and prints a network topology: what ``koord topology`` does.

Apart from the command itself, because everything imported here is not needed for its help.
"""

import asyncio
from typing import Any

import msgspec

from koord.cli.cluster import Extent, Reading, Target, TargetKind, open_client
from koord.cli.cluster import read_cluster as read
from koord.cli.errors import ExitCode, fail, warn
from koord.cli.json_output import make_domain
from koord.cli.options import TreeOutput
from koord.cli.text import make_console
from koord.cli.topology_text import (
    MOST_DOMAINS,
    describe_free,
    draw,
    make_left_out,
    name_domain,
)
from koord.core.state import ClusterState
from koord.core.topology.status import observe_topology
from koord.core.topology.strategy.domain_capacity import DomainCapacity, survey
from koord.core.topology.tree import TopologyTree
from koord.core.units import format_amount
from koord.kube.errors import KubeError
from koord.kube.kinds import NODES, PODS, TOPOLOGIES


def show(name: str, kubeconfig: str, context: str, *, output: TreeOutput, show_all: bool) -> None:
    """Print a topology."""
    try:
        reading = asyncio.run(_read(kubeconfig, context))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    _refuse_gaps(reading)
    state = reading.state
    if name not in state.topologies:
        known = ", ".join(state.topologies) or "none"
        fail(f"there is no ClusterNetworkTopology {name}; there are: {known}", ExitCode.USAGE)
    text = observe_topology(state.topologies, name).describe()
    tree = state.topologies.tree(name)
    if state.topologies.fault(name) is not None:
        warn(text)
    if tree is None:
        fail("there is no tree to show", ExitCode.USAGE)
    match output:
        case TreeOutput.TEXT:
            _print(state, name, tree, text, show_all=show_all)
        case TreeOutput.JSON:
            document = make_document(state, name, tree)
            print(msgspec.json.format(msgspec.json.encode(document)).decode())  # noqa: T201 - output
        case TreeOutput.DOT | TreeOutput.GRAPHML:
            print(write_topology_graph(state, name, tree, output))  # noqa: T201 - output


async def _read(kubeconfig: str, context: str) -> Reading:
    async with open_client(kubeconfig, context) as (client, access):
        return await read(client, Target(TargetKind.POD, access.namespace, ""))


def _refuse_gaps(reading: Reading) -> None:
    for resource in (TOPOLOGIES, NODES):
        extent = reading.extent_of(resource)
        if extent is Extent.NOT_SERVED:
            fail(
                f"the cluster has no {resource}: kubectl apply --server-side -f crds/",
                ExitCode.UNREADABLE,
            )
        if extent is not None:
            fail(
                f"you may not list {resource} (the ClusterRole koord-user has the right)",
                ExitCode.UNREADABLE,
            )
    if reading.extent_of(PODS) is not None:
        warn("you may not list all pods: less may be free than is shown")


def make_document(state: ClusterState, name: str, tree: TopologyTree) -> dict[str, Any]:
    """Return a topology as plain values."""
    status = observe_topology(state.topologies, name)
    return {
        "topology": name,
        "readiness": status.readiness,
        "layers": list(status.layers),
        "nodes": status.nodes,
        "domains": [make_domain(domain) for domain in survey(state.open_cycle(), tree)],
        "leftOut": [
            {"node": node, "missingLayer": layer} for node, layer in sorted(tree.left_out.items())
        ],
    }


def write_topology_graph(
    state: ClusterState, name: str, tree: TopologyTree, output: TreeOutput
) -> str:
    """Return the domains of a topology as a graph; ids are the paths of domains."""
    from koord.cli.graph import GraphNode, write_graph  # noqa: PLC0415 - networkx is slow to import

    def make_node(domain: DomainCapacity) -> GraphNode:
        path = "/" + "/".join(domain.path)
        amounts = {
            f"{what} {one.resource}": format_amount(one.resource, amount)
            for one in domain.amounts
            for what, amount in (("free", one.free), ("allocatable", one.allocatable))
        }
        return GraphNode(
            id=path,
            parent=path.rpartition("/")[0] or "/" if domain.path else None,
            lines=(name_domain(domain), *describe_free(domain).plain.split("; ")),
            attributes={"layer": domain.layer, "nodes": domain.nodes, **amounts},
        )

    return write_graph(name, map(make_node, survey(state.open_cycle(), tree)), output)


def _print(
    state: ClusterState, name: str, tree: TopologyTree, text: str, *, show_all: bool
) -> None:
    console = make_console()
    console.print(f"ClusterNetworkTopology {name}: {text}")
    domains = tuple(survey(state.open_cycle(), tree))
    console.print(draw(domains, describe_free, None if show_all else MOST_DOMAINS, "--all"))
    if show_all and tree.left_out:
        console.print(make_left_out(tree.left_out))
