"""The domains of a network topology as a tree for people: what is in each, what is free."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from koord.cli.node_text import count_of
from koord.core.explain import TopologyExplanation
from koord.core.plan import Gathered
from koord.core.topology.strategy.domain_capacity import DomainCapacity
from koord.core.units import MEMORY, PODS, format_amount, is_in_bytes

MOST_DOMAINS: Final = 60
"""More are left out, unless all are asked for."""
_HIDDEN: Final = {PODS, "ephemeral-storage"}


def make_network(network: TopologyExplanation, most: int | None) -> Iterator[RenderableType]:
    """Yield what a gang asks of the network, where it is, and the tree with offers."""
    wish = ", ".join(
        f"{one.strategy} {one.layer}" + (f" in multiples of {one.multiple}" * (one.multiple > 1))
        for one in network.wish.layers
    )
    yield f"Network topology {network.wish.topology}: {wish or 'what its sub-groups ask'}"
    if network.unknown:
        names = ", ".join(f'"{layer}"' for layer in network.unknown)
        yield f"Topology {network.wish.topology} has no layer {names} (case counts)"
    if network.where is not None:
        yield describe_where(network.where)
    yield draw(network.domains, _describe_offer, most, "--all-nodes")


def describe_where(where: Gathered) -> str:
    """Write where members are: ``Place: SpineLayer s1; 2 BlockLayer, 4 NodeTopologyLayer``."""
    used = ", ".join(f"{count} {layer}" for layer, count in where.used)
    best = "the best there was"
    if where.gap is not None:
        layer, count = where.gap
        best = f"not known to be the best: maybe {count} {layer} more than needed"
    return f"Place: {where.layer} {'/'.join(where.domain)}; uses {used}; {best}".replace("  ", " ")


def draw(
    domains: Sequence[DomainCapacity],
    describe: Callable[[DomainCapacity], Text],
    most: int | None,
    option: str,
) -> RenderableType:
    """Draw the domains as a tree, each described; those with more to offer stay if some go.

    ``option`` is what shows all of them.
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
    ranked = sorted(domains, key=lambda one: (len(one.path), -one.offer, one.path))
    return [domain.path for domain in ranked[:most]]


def name_domain(domain: DomainCapacity) -> str:
    return f"{domain.layer} {domain.path[-1]}" if domain.path else domain.layer


def _describe_offer(domain: DomainCapacity) -> Text:
    offer = Text(f"offers {domain.offer}", style="green" if domain.offer else "yellow")
    members = f", has {count_of(domain.members, 'member')}" if domain.members else ""
    return Text.assemble(offer, members, f" ({count_of(domain.nodes, 'node')})")


def describe_free(domain: DomainCapacity) -> Text:
    """Write what is free in a domain, of what there is."""
    parts = [
        f"{amount.resource} {_short(amount.resource, amount.free)} of "
        f"{_short(amount.resource, amount.allocatable)}"
        for amount in domain.amounts
        if amount.resource not in _HIDDEN and amount.allocatable
    ]
    return Text(f"{count_of(domain.nodes, 'node')}; free: {', '.join(parts) or 'nothing'}")


def _short(resource: str, amount: int) -> str:
    """Write an amount for people; bytes in whole units that are large enough to read."""
    if not is_in_bytes(resource):
        return format_amount(resource, amount)
    for unit, size in (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20)):
        if amount >= 10 * size:
            return f"{amount // size}{unit}"
    return format_amount(MEMORY, amount)


def make_left_out(left_out: dict[str, str]) -> Table:
    """Return the nodes without a place, as a table."""
    table = Table("LEFT OUT", "NO LABEL FOR", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for node, layer in sorted(left_out.items()):
        table.add_row(node, layer)
    return table
