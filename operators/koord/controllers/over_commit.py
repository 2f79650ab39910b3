"""Publishes batch and mid resources on nodes: for the operator ``colocationpolicy``.

Level-triggered: what a node has is compared with what it is to offer, and written only where they
differ by more than a threshold. An annotation of the node records what was published, so that only
that is ever removed, and so that another writer of the same resources is noticed: after a few
rounds the node is left to it. In it null stands for a resource that is offered no more. What is
offered, and why, is decided in ``core.colocation``.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from koord.api.keys.colocation import ORIGIN, PUBLISHED
from koord.controllers.coalescing import Pause
from koord.core.colocation import formula
from koord.core.colocation.decide import (
    OfferedByNode,
    OfferPast,
    OfferState,
    decide_offer,
    published_on,
)
from koord.core.colocation.node_facts import NodeFacts, facts_of
from koord.core.colocation.plugin import ColocationPolicies
from koord.core.colocation.publishing import Offer, needs_sync
from koord.core.colocation.steadiness import SteadyValue
from koord.core.colocation.terms import AmountTermKind
from koord.core.engine.state import ClusterState
from koord.core.model.nodes import Node
from koord.core.slo_config.plugin import SloConfigs
from koord.kube.errors import Invalid, NotFound
from koord.kube.node_writer import NodeWriter

PER_SECOND: Final = 50.0
"""Nodes that are written per second at most."""
MOST_OVERWRITES: Final = 3
"""After so many values that others have written over ours a node is left to them."""
LEFT_SECONDS: Final = 600.0
AGAIN_SECONDS: Final = 3.0
"""After the node has changed meanwhile; twice as long after each further refusal in a row."""
LONGEST_AGAIN_SECONDS: Final = 300.0
ROUND_SECONDS: Final = 15.0
"""When to look again at an offer that changes slowly."""
_PAUSE: Final = Pause(0.2, 1.0)

Operations = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Offered:
    """The last round of a node: its state, the policy that decides, and what it offers."""

    state: OfferState
    policy: str
    amounts: Offer


@dataclass(slots=True)
class _Overwrites:
    count: int = 0
    last: float = float("-inf")
    seen: str = ""
    """The revision of the node in which the last one was seen."""


@dataclass(slots=True)
class OverCommitPublisher:
    """Observes all nodes. ``clock`` is the time of the epoch.

    ``find_rival`` returns who else publishes on all nodes; empty for nobody.
    """

    state: ClusterState
    writer: NodeWriter
    clock: Callable[[], float]
    find_rival: Callable[[], str] = lambda: ""
    sleep: Callable[[float], Any] = asyncio.sleep
    offered: dict[str, Offered] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    """What became of writes."""
    _pasts: dict[str, OfferPast] = field(default_factory=dict)
    _written: dict[str, float] = field(default_factory=dict)
    _overwrites: dict[str, _Overwrites] = field(default_factory=dict)
    _refusals: Counter[str] = field(default_factory=Counter)
    """Writes that were refused in a row, by node."""
    _seen: tuple[int, int, str] = (-1, -1, "")
    _next_write: float = 0.0

    def changed(self) -> Iterable[str]:
        policies = self.state.plugin(ColocationPolicies)
        seen = (self.state.plugin(SloConfigs).changes, policies.changes, self.find_rival())
        changed = policies.take_changed()
        if seen == self._seen:
            return changed
        self._seen = seen
        return {**changed, **dict.fromkeys(self.state.table.row_of)}

    def pause_for(self, _node: str) -> Pause:
        return _PAUSE

    async def update(self, name: str) -> float | None:
        """Publish what a node is to offer; return the seconds until it may be something else."""
        row, now = self.state.table.row_of.get(name), self.clock()
        if row is None:
            self._forget(name)
            return None
        node = self.state.table.node_at(row)
        if self.find_rival():
            self.offered.pop(name, None)
            return None  # a change of the rival is one of all nodes
        offer = decide_offer(self.state, name, now, self._past_of(node))
        if offer is None:
            return None
        self._note(offer)
        return await self._publish(node, offer, now)

    def counts(self) -> Iterator[tuple[tuple[str], float]]:
        """Yield state and how many nodes are in it."""
        counted = Counter(str(offered.state) for offered in self.offered.values())
        yield from (((str(state),), counted[str(state)]) for state in OfferState)

    def totals(self) -> Iterator[tuple[tuple[str], float]]:
        """Yield resource and how much of it all nodes offer."""
        for resource in formula.PUBLISHED:
            amounts = (offered.amounts.get(resource) or 0 for offered in self.offered.values())
            yield (resource,), sum(amounts)

    def writes(self) -> Iterator[tuple[tuple[str], float]]:
        """Yield outcome and how many writes had it."""
        yield from (((outcome,), self.outcomes[outcome]) for outcome in ("ok", "conflict", "gone"))

    async def _publish(self, node: Node, offer: OfferedByNode, now: float) -> float | None:
        facts = facts_of(node)
        is_ours = facts.record is not None
        if offer.state is OfferState.UNKNOWN or (offer.state is OfferState.OFF and not is_ours):
            return None
        if self._is_left(node, facts, now):
            return LEFT_SECONDS
        elapsed = now - self._written.get(node.name, float("-inf"))
        if needs_sync(published_on(node), offer.amounts, offer.resolved.strategy, elapsed):
            return await self._write(node, facts, offer, now)
        return _find_pause(offer, now)

    def _forget(self, name: str) -> None:
        for remembered in (
            self.offered,
            self._pasts,
            self._written,
            self._overwrites,
            self._refusals,
        ):
            remembered.pop(name, None)

    def _note(self, offer: OfferedByNode) -> None:
        self.offered[offer.node] = Offered(offer.state, offer.resolved.policy, offer.amounts)
        if offer.state is OfferState.OFF:
            self._pasts.pop(offer.node, None)

    def _past_of(self, node: Node) -> OfferPast:
        """Return what a node has offered; after a restart that is what is published on it."""
        past = self._pasts.get(node.name)
        if past is None:
            recorded = dict(facts_of(node).recorded)
            values = {
                resource: SteadyValue(amount)
                for resource, amount in published_on(node).items()
                if amount is not None and recorded.get(resource) == amount
            }
            past = self._pasts[node.name] = OfferPast(values)
        return past

    def _is_left(self, node: Node, facts: NodeFacts, now: float) -> bool:
        """Whether a node is left to another writer, which has written over our values."""
        overwrites = self._overwrites.get(node.name)
        if overwrites is not None and now - overwrites.last > LEFT_SECONDS:
            del self._overwrites[node.name]
            overwrites = None
        recorded = dict(facts.recorded)
        if not recorded or recorded == published_on(node):
            return overwrites is not None and overwrites.count >= MOST_OVERWRITES
        overwrites = self._overwrites.setdefault(node.name, _Overwrites())
        if overwrites.seen != node.resource_version:
            overwrites.seen, overwrites.last = node.resource_version, now
            overwrites.count += 1
        return overwrites.count >= MOST_OVERWRITES

    async def _write(
        self, node: Node, facts: NodeFacts, offer: OfferedByNode, now: float
    ) -> float | None:
        operations = make_operations(facts, offer)
        await self._wait_for_turn()
        try:
            await self.writer.change(node, operations)
        except NotFound:
            self.outcomes["gone"] += 1
            return None
        except Invalid:
            # Another value than was seen: the change is about to arrive. Or it is refused for good.
            self.outcomes["conflict"] += 1
            self._refusals[node.name] += 1
            doubled = 2.0 ** min(self._refusals[node.name] - 1, 16)
            return min(AGAIN_SECONDS * doubled, LONGEST_AGAIN_SECONDS)
        self.outcomes["ok"] += 1
        del self._refusals[node.name]
        self._written[node.name] = now
        return _find_pause(offer, now)

    async def _wait_for_turn(self) -> None:
        now = self.clock()
        wait, self._next_write = self._next_write - now, max(now, self._next_write) + 1 / PER_SECOND
        if wait > 0:
            await self.sleep(wait)


def _find_pause(offer: OfferedByNode, now: float) -> float | None:
    is_reset = offer.state is not OfferState.PUBLISHED
    # Amounts of 0 are removed once no pod uses them.
    if offer.is_changing or (is_reset and 0 in offer.amounts.values()):
        return ROUND_SECONDS
    return None if offer.until is None else max(1.0, offer.until - now + 1.0)


def make_operations(facts: NodeFacts, offer: OfferedByNode) -> Operations:
    """Return the JSON patch that makes a node offer these amounts, with tests of what it had."""
    operations: Operations = []
    for part, texts in (("allocatable", facts.allocatable), ("capacity", facts.capacity)):
        before = dict(texts)
        for resource, amount in sorted(offer.amounts.items()):
            path = f"/status/{part}/{_escape(resource)}"
            text = None if amount is None else str(amount)
            operations += _change(path, before.get(resource), text)
    if not facts.has_annotations:
        operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    is_off = offer.state is OfferState.OFF
    amounts = {
        resource: None if is_off else str(n)
        for resource, n in offer.amounts.items()
        if n is not None
    }
    operations += _change(_annotation(PUBLISHED), facts.record, _encode(amounts))
    operations += _change(_annotation(ORIGIN), facts.origin, _encode_origin(facts, offer))
    return operations


def _encode(amounts: Mapping[str, str | None]) -> str | None:
    return msgspec.json.encode(dict(sorted(amounts.items()))).decode() if amounts else None


def _encode_origin(facts: NodeFacts, offer: OfferedByNode) -> str | None:
    """Return the batch resources with what others use of them; None where nobody does."""
    if not facts.has_third_party:
        return None
    batch = set(formula.BATCH.values())
    amounts = {
        each.resource: str(each.value - each.amount_of(AmountTermKind.THIRD_PARTY))
        for each in offer.breakdowns
        if each.resource in batch
    }
    encoded = _encode(amounts)
    return None if encoded is None else f'{{"resources":{encoded}}}'


def _change(path: str, before: str | None, after: str | None) -> Iterator[dict[str, Any]]:
    if before == after:
        return
    if before is not None:
        yield {"op": "test", "path": path, "value": before}
    if after is None:
        yield {"op": "remove", "path": path}
    else:
        yield {"op": "add", "path": path, "value": after}


def _annotation(key: str) -> str:
    return f"/metadata/annotations/{_escape(key)}"


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
