"""Reads the cluster and prints a network topology: what ``koord topology`` does.

Also draws what a gang is offered, for ``koord explain``. Not imported for ``--help``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from koord.answers.encoding import encode
from koord.answers.explain import TopologyExplanation
from koord.answers.gaps import head_of
from koord.answers.topology import view_topology
from koord.cli.cluster import read_without_target, refuse_gaps
from koord.cli.common import ExitCode, TreeOutput, fail, warn
from koord.cli.output import GraphNode, count_of, make_console, make_table, print_in, write_graph
from koord.core.engine.state import ClusterState
from koord.core.model import units
from koord.core.model.plan import ObservedTopology
from koord.core.model.text import suggest
from koord.core.model.units import MEMORY, format_amount, is_in_bytes
from koord.core.topology.status import observe_topology
from koord.core.topology.strategy.observation import DomainCapacity, domain_capacities
from koord.core.topology.tree import TopologyTree
from koord.domains.placement import NODES
from koord.domains.topology import TOPOLOGIES

MOST_DOMAINS: Final = 60
"""More are hidden without ``--all``."""
_HIDDEN: Final = {units.PODS, "ephemeral-storage"}


def show(name: str, kubeconfig: str, context: str, *, output: TreeOutput, show_all: bool) -> None:
    reading, _ = read_without_target(kubeconfig, context)
    refuse_gaps(reading, TOPOLOGIES, NODES)
    state = reading.state
    if name not in state.topologies:
        meant = suggest(name, state.topologies)
        fail(f"there is no ClusterNetworkTopology {name}{meant}", ExitCode.USAGE)
    text = observe_topology(state.topologies, name).describe()
    tree = state.topologies.tree(name)
    if state.topologies.problem(name) is not None:
        warn(text)
    if tree is None:
        fail("there is no tree to show", ExitCode.USAGE)
    if output in {TreeOutput.DOT, TreeOutput.GRAPHML}:
        make_console().file.write(f"{write_topology_graph(state, name, tree, output)}\n")
        return
    print_in(
        output,
        head_of("Topology", reading),
        document=lambda: encode(view_topology(state, name, tree)),
        names=lambda: (f"clusternetworktopology/{name}",),
        text=lambda: _draw_all(state, name, tree, text, show_all=show_all),
    )


def write_topology_graph(
    state: ClusterState, name: str, tree: TopologyTree, output: TreeOutput
) -> str:
    def make_node(domain: DomainCapacity) -> GraphNode:
        path = "/" + "/".join(domain.path)
        amounts = {
            f"{what} {domain_amount.resource}": format_amount(domain_amount.resource, amount)
            for domain_amount in domain.amounts
            for what, amount in (
                ("free", domain_amount.free),
                ("allocatable", domain_amount.allocatable),
            )
        }
        return GraphNode(
            id=path,
            parent=path.rpartition("/")[0] or "/" if domain.path else None,
            lines=(name_domain(domain), *describe_free(domain).plain.split("; ")),
            attributes={"layer": domain.layer, "nodes": domain.nodes, **amounts},
        )

    return write_graph(name, map(make_node, domain_capacities(state.open_cycle(), tree)), output)


def _draw_all(
    state: ClusterState, name: str, tree: TopologyTree, text: str, *, show_all: bool
) -> Iterator[RenderableType]:
    yield f"ClusterNetworkTopology {name}: {text}"
    domains = tuple(domain_capacities(state.open_cycle(), tree))
    yield draw(domains, describe_free, None if show_all else MOST_DOMAINS, "--all")
    if show_all and tree.left_out:
        yield make_left_out(tree.left_out)


def make_network(network: TopologyExplanation, most: int | None) -> Iterator[RenderableType]:
    """Yield the topology constraint of a gang, where it is, and the tree with offers."""
    wish = ", ".join(
        f"{layer_constraint.strategy} {layer_constraint.layer}"
        + (f" in multiples of {layer_constraint.multiple}" * (layer_constraint.multiple > 1))
        for layer_constraint in network.wish.layers
    )
    yield f"Network topology {network.wish.topology}: {wish or 'as its sub-groups ask'}"
    if network.unknown:
        names = ", ".join(f'"{layer}"' for layer in network.unknown)
        yield f"Topology {network.wish.topology} has no layer {names} (case counts)"
    if network.where is not None:
        yield describe_where(network.where)
    yield draw(network.domains, _describe_offer, most, "--all-nodes")


def describe_where(where: ObservedTopology) -> str:
    """Write where members are: ``Place: SpineLayer s1; uses 2 BlockLayer, 4 NodeTopologyLayer``."""
    used = ", ".join(f"{count} {layer}" for layer, count in where.used)
    best = "the best possible"
    if where.gap is not None:
        layer, count = where.gap
        best = f"maybe not the best: at most {count} {layer} more than needed"
    return f"Place: {where.layer} {'/'.join(where.domain)}; uses {used}; {best}".replace("  ", " ")


def draw(
    domains: Sequence[DomainCapacity],
    describe: Callable[[DomainCapacity], Text],
    most: int | None,
    option: str,
) -> RenderableType:
    """Draw the domains as a tree; if there are too many, those with the largest offers stay.

    ``option`` is the command line option that shows all of them.
    """
    shown = set(_choose(domains, most))
    branches: dict[tuple[str, ...], Tree] = {}
    for domain in domains:
        label = Text.assemble((name_domain(domain), "bold"), "  ", describe(domain))
        if not domain.path:
            branches[()] = Tree(label)
        elif domain.path in shown and domain.path[:-1] in branches:
            branches[domain.path] = branches[domain.path[:-1]].add(label)
    hidden = len(domains) - len(branches)
    if hidden:
        branches[()].add(Text(f"… and {count_of(hidden, 'more domain')} ({option} shows all)"))
    return branches[()]


def _choose(domains: Sequence[DomainCapacity], most: int | None) -> Iterable[tuple[str, ...]]:
    if most is None or len(domains) <= most:
        return [domain.path for domain in domains]
    ranked = sorted(
        domains,
        key=lambda domain_capacity: (
            len(domain_capacity.path),
            -domain_capacity.offer,
            domain_capacity.path,
        ),
    )
    return [domain.path for domain in ranked[:most]]


def name_domain(domain: DomainCapacity) -> str:
    return f"{domain.layer} {domain.path[-1]}" if domain.path else domain.layer


def _describe_offer(domain: DomainCapacity) -> Text:
    offer = Text(f"offers {domain.offer}", style="green" if domain.offer else "yellow")
    members = f", has {count_of(domain.members, 'member')}" if domain.members else ""
    return Text.assemble(offer, members, f" ({count_of(domain.nodes, 'node')})")


def describe_free(domain: DomainCapacity) -> Text:
    parts = [
        f"{amount.resource} {_short(amount.resource, amount.free)} of "
        f"{_short(amount.resource, amount.allocatable)}"
        for amount in domain.amounts
        if amount.resource not in _HIDDEN and amount.allocatable
    ]
    return Text(f"{count_of(domain.nodes, 'node')}; free: {', '.join(parts) or 'nothing'}")


def _short(resource: str, amount: int) -> str:
    """Write bytes in whole units that are large enough to read; other amounts are exact."""
    if not is_in_bytes(resource):
        return format_amount(resource, amount)
    for unit, size in (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20)):
        if amount >= 10 * size:
            return f"{amount // size}{unit}"
    return format_amount(MEMORY, amount)


def make_left_out(left_out: dict[str, str]) -> Table:
    table = make_table("LEFT OUT", "NO LABEL FOR")
    for node, layer in sorted(left_out.items()):
        table.add_row(node, layer)
    return table
