"""What the nodes say to a pod, as a table: what fits first, then what is nearest to fitting."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from koord.core.explain import ShapeOffers
from koord.core.framework.cause import Cause
from koord.core.framework.reasons import RefusedNodes
from koord.core.plugins.causes import NodeRefusal
from koord.core.plugins.node_diagnosis import NodeOffer
from koord.core.units import PODS, format_amount, is_in_bytes

_NUMBERS: Final = {"PRESENT", "NEEDED", "FIT"}
_LONGEST_AMOUNT: Final = 7
_UNITS: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_CAUSES: Final = {
    NodeRefusal.UNSCHEDULABLE: "cordoned",
    NodeRefusal.TAINT: "taint",
    NodeRefusal.SELECTOR: "not selected",
    NodeRefusal.HOST_PORT: "host port taken",
    NodeRefusal.VOLUME_IN_USE: "claim in use",
    NodeRefusal.VOLUME_AFFINITY: "out of reach of a volume",
    NodeRefusal.VOLUME_ZONE: "volume elsewhere",
    NodeRefusal.SPREAD_LABEL: "spread",
    NodeRefusal.SPREAD: "spread",
    NodeRefusal.POD_AFFINITY: "affinity",
    NodeRefusal.POD_ANTI_AFFINITY: "anti-affinity",
    NodeRefusal.EXISTING_ANTI_AFFINITY: "anti-affinity of another pod",
}


def make_offers(offers: ShapeOffers, most: int) -> Iterator[RenderableType]:
    """Yield what the nodes say to one kind of pods, ``most`` of them one by one."""
    willing = sum(offer.pods > 0 for offer in offers.nodes)
    head = f"{count_of(offers.pods, 'waiting pod')} asking for {_describe_requests(offers)}"
    room = f"room for {offers.fit} on {willing} of {count_of(len(offers.nodes), 'node')}"
    yield f"{head}: {room}"
    if not offers.nodes:
        return
    nodes = sorted(offers.nodes, key=_distance)
    table = make_table("NODE", "FIT", "IN THE WAY")
    for offer in nodes[:most]:
        fit = Text(str(offer.pods), style="green" if offer.pods else "")
        table.add_row(offer.node, fit, _describe_obstacles(offer))
    yield table
    if len(nodes) > most:
        yield _summarize(nodes[most:])


def _distance(offer: NodeOffer) -> tuple[float | str, ...]:
    """Sort key: most room first, then what is nearest to fitting."""
    is_closed = offer.refusal not in {None, NodeRefusal.RESOURCE}
    lacking = sum((asked - max(free, 0)) / asked for _, asked, free in offer.short)
    return (-offer.pods, is_closed + len(offer.short), lacking, offer.refusal or "", offer.node)


def _describe_obstacles(offer: NodeOffer) -> str:
    closed = _CAUSES.get(offer.refusal, "") if offer.refusal is not None else ""
    if closed and offer.detail:
        closed += f" {{{offer.detail}}}"
    short = [
        f"{resource} {_approximate(resource, asked)} asked, "
        f"{_approximate(resource, free, down=True)} free"
        for resource, asked, free in offer.short
    ]
    return "; ".join(([closed] if closed else []) + short)


def _approximate(resource: str, amount: int, *, down: bool = False) -> str:
    """Write an amount for people: bytes that make no round number are rounded to a tenth of a unit.

    What is asked is rounded up and what is free down, so that too little never looks like enough.
    """
    exact = format_amount(resource, amount)
    if not is_in_bytes(resource) or len(exact) <= _LONGEST_AMOUNT:
        return exact
    unit, size = next((one for one in _UNITS if abs(amount) >= one[1]), _UNITS[-1])
    tenths = amount * 10 // size if down else -(-amount * 10 // size)
    return f"{tenths / 10:.1f}{unit}"


def _summarize(rest: Sequence[NodeOffer]) -> str:
    counts: Counter[tuple[Cause, str, str]] = Counter()
    for offer in rest:
        counts.update(_causes_of(offer))
    texts = [
        RefusedNodes(cause, nodes, resource, detail).text()
        for (cause, resource, detail), nodes in counts.most_common(5)
    ]
    if room := sum(offer.pods for offer in rest):
        texts.insert(0, f"room for {room}")
    listed = f": {', '.join(texts)}" if texts else ""
    return f"… and {count_of(len(rest), 'more node')}{listed} (--all-nodes lists them)"


def _causes_of(offer: NodeOffer) -> Iterable[tuple[Cause, str, str]]:
    if offer.refusal is None:
        return []
    if offer.refusal is NodeRefusal.RESOURCE:
        return [(offer.refusal, resource, "") for resource, _, _ in offer.short]
    return [(offer.refusal, "", offer.detail if offer.refusal is NodeRefusal.TAINT else "")]


def _describe_requests(offers: ShapeOffers) -> str:
    asked = [
        f"{name} {format_amount(name, amount)}"
        for name, amount in offers.requests
        if name != PODS and amount
    ]
    return ", ".join(asked) or "nothing"


def make_table(*headers: str) -> Table:
    """Return a table without lines; columns of numbers are aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for header in headers:
        table.add_column(
            header,
            justify="right" if header in _NUMBERS else "left",
            overflow="fold",
            no_wrap=header == "NODE",
        )
    return table


def count_of(count: int, noun: str) -> str:
    """Write ``1 node``, ``2 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
