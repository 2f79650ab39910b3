"""One round: which pods go from which hot nodes to which others.

In each pool hot nodes give and low nodes take. First the nodes give that use too much in all, then
those whose pods of class prod do; each until it is no longer hot, or the low nodes are full.

What measuring cannot tell is asked (``MovePermission``): whether a pod may be evicted, and which
node the planner has for it. Ours and Koordinator's differ in these points, by ``compat``:

* a target is filled up to five points below the threshold from which it would give itself;
* room on a target is taken when a pod goes there, not when it is thought of;
* a move of prod must leave the target below its threshold for all usage, too;
* a pod of which nobody knows what it uses stays;
* what moved lately stays, and nothing goes back where it left.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from koord.core.balance.caps import CountedMoves
from koord.core.balance.detectors import DetectorKind
from koord.core.balance.memory import BalancePast
from koord.core.balance.model import (
    PLACEMENT_MARGIN,
    BalanceNode,
    BalancePod,
    BalancePool,
    BalanceRules,
    NodeClass,
)
from koord.core.balance.order import sort_pods, weigh_usage
from koord.core.balance.outcome import (
    CAPPED,
    NO_TARGET,
    NO_USAGE,
    NOT_SETTLED,
    Move,
    MovePermission,
    MoveRefusal,
    PoolOutcome,
    RoundOutcome,
    StayingPod,
    Stop,
)
from koord.core.balance.thresholds import (
    NodeLimits,
    classify,
    complete,
    find_hot_usage,
    find_limits,
    find_over,
    lower,
)
from koord.core.model.units import PODS, Amounts

_LOW: Final = (NodeClass.LOW, NodeClass.BOTH_LOW)
_PROD_LOW: Final = (NodeClass.PROD_LOW, NodeClass.BOTH_LOW)
_TAKING: Final = frozenset((*_LOW, *_PROD_LOW))


@dataclass(slots=True)
class _NodeState:
    """A node within a round: what it uses goes down and up with the moves."""

    node: BalanceNode
    used: dict[str, int]
    prod: dict[str, int]
    gone: set[str] = field(default_factory=set)

    def usage(self, kind: DetectorKind) -> dict[str, int]:
        return self.prod if kind is DetectorKind.PROD else self.used


def decide(
    rules: BalanceRules,
    nodes: Iterable[BalanceNode],
    past: BalancePast,
    permission: MovePermission,
    now: float,
) -> RoundOutcome:
    """Decide one round. Detectors are carried on; moves are noted by whoever carries them out."""
    past.detectors.drop_old(now)
    past.moves.drop_old(now)
    states = {
        node.name: _NodeState(node, node.measure(), node.measure(only_prod=True))
        for node in sorted(nodes, key=lambda node: node.name)
    }
    outcome = RoundOutcome()
    counts = CountedMoves(rules.caps)
    drained: set[str] = set()
    for pool in rules.pools:
        part = {
            name: state
            for name, state in states.items()
            if pool.nodes is None or (name in pool.nodes and name not in drained)
        }
        balancer = _Balancer(rules, pool, part, past, permission, now, outcome, counts)
        drained |= balancer.run()
    return outcome


@dataclass(slots=True)
class _Balancer:
    """Balances one pool."""

    rules: BalanceRules
    pool: BalancePool
    states: dict[str, _NodeState]
    past: BalancePast
    permission: MovePermission
    now: float
    outcome: RoundOutcome
    counts: CountedMoves
    limits: dict[str, NodeLimits] = field(init=False)
    judged: tuple[str, ...] = field(init=False)
    pooled: PoolOutcome = field(init=False)

    def __post_init__(self) -> None:
        thresholds = complete(self.pool.thresholds)
        self.judged = tuple(sorted(thresholds.low))
        self.limits = find_limits(thresholds, (state.node for state in self.states.values()))
        self.pooled = PoolOutcome(self.pool.name)
        self.outcome.pools.append(self.pooled)

    def run(self) -> set[str]:
        """Move pods; return the nodes that gave because of all that they use."""
        if self.pool.thresholds.is_empty:
            self.pooled.stop = Stop.NO_THRESHOLDS
            return set()
        self._classify()
        sources = self._mark_hot()
        self.pooled.stop = self._find_stop(sources)
        if self.pooled.stop is not None:
            return set()
        room = self._find_room(_LOW, DetectorKind.NODE)
        both_low = self._find_room((NodeClass.BOTH_LOW,), DetectorKind.NODE)
        self._drain_all(DetectorKind.NODE, sources[DetectorKind.NODE], _LOW, room)
        prod_room = self._find_room((NodeClass.PROD_LOW,), DetectorKind.PROD)
        both_prod = self._find_room((NodeClass.BOTH_LOW,), DetectorKind.PROD)
        for name in self.judged:
            left = min(both_low[name], room[name])
            prod_room[name] += min(left, both_prod[name])
        self._drain_all(DetectorKind.PROD, sources[DetectorKind.PROD], _PROD_LOW, prod_room)
        return set(sources[DetectorKind.NODE])

    def _classify(self) -> None:
        for name, state in self.states.items():
            self.pooled.classes[name] = classify(
                state.used,
                state.prod,
                self.limits[name],
                is_schedulable=state.node.is_schedulable,
            )
            self.pooled.usage[name] = dict(state.used)
        self.pooled.limits = self.limits

    def _of_class(self, *classes: NodeClass) -> list[str]:
        """Return nodes, those of the first class first, by name."""
        return [
            name
            for wanted in classes
            for name, node_class in self.pooled.classes.items()
            if node_class is wanted
        ]

    def _mark_hot(self) -> dict[DetectorKind, frozenset[str]]:
        """Count this round for hot nodes; return those that are acted on."""
        return {
            kind: self.past.detectors.mark_bad(
                ((self.pool.name, kind, name) for name in self._of_class(node_class)),
                self.pool.condition,
                self.now,
            )
            for kind, node_class in (
                (DetectorKind.NODE, NodeClass.HIGH),
                (DetectorKind.PROD, NodeClass.PROD_HIGH),
            )
        }

    def _find_stop(self, sources: dict[DetectorKind, frozenset[str]]) -> Stop | None:
        if not self._of_class(NodeClass.HIGH, NodeClass.PROD_HIGH):
            return Stop.NO_HOT_NODE
        if not any(sources.values()):
            return Stop.NOT_HOT_LONG_ENOUGH
        low = self._of_class(*_TAKING)
        if not low:
            return Stop.NO_LOW_NODE
        for name in self._of_class(*_LOW):
            self.past.detectors.reset((self.pool.name, DetectorKind.NODE, name))
        for name in self._of_class(NodeClass.PROD_LOW):
            self.past.detectors.reset((self.pool.name, DetectorKind.PROD, name))
        if len(low) <= self.rules.number_of_nodes:
            return Stop.TOO_FEW_LOW_NODES
        return Stop.ALL_NODES_LOW if len(low) == len(self.states) else None

    def _most(self, name: str, kind: DetectorKind) -> Amounts:
        """Return up to what a target is filled."""
        limits = self.limits[name].of(kind)
        if self.rules.compat:
            return limits.high
        return lower(limits, PLACEMENT_MARGIN, self.states[name].node.capacity)

    def _find_room(self, classes: Iterable[NodeClass], kind: DetectorKind) -> dict[str, int]:
        room = dict.fromkeys(self.judged, 0)
        for target in self._of_class(*classes):
            used, most = self.states[target].usage(kind), self._most(target, kind)
            for name in self.judged:
                room[name] += most[name] - used.get(name, 0)
        return room

    def _drain_all(
        self,
        kind: DetectorKind,
        sources: Iterable[str],
        target_classes: Iterable[NodeClass],
        room: dict[str, int],
    ) -> None:
        targets = self._of_class(*target_classes)
        if not targets:
            return
        weights = self._weights()
        ordered = sorted(
            sources,
            key=lambda name: (
                -weigh_usage(
                    self.states[name].usage(kind), self.states[name].node.capacity, weights
                ),
                name,
            ),
        )
        for name in ordered:
            drain = _Drain(self, kind, self.states[name], targets, room)
            drain.run()
        for name in ordered:
            self.past.detectors.mark_good(
                (self.pool.name, kind, name), self.pool.condition, self.now
            )

    def _weights(self) -> dict[str, int]:
        return dict(self.pool.weights) or dict.fromkeys(self.judged, 1)

    def excess_of(self, state: _NodeState, kind: DetectorKind) -> dict[str, int]:
        """Return what a node uses too much, by resource."""
        limits, used = self.limits[state.node.name].of(kind), state.usage(kind)
        return {name: used[name] - limits.high[name] for name in find_over(used, limits)}

    def sort(self, pods: Iterable[BalancePod], excess: Amounts) -> list[BalancePod]:
        return sort_pods(pods, excess, self._weights())

    def takes(self, target: str, pod: BalancePod, kind: DetectorKind) -> bool:
        """Whether a target stays below its limits with a pod."""
        kinds = [kind] if self.rules.compat else list(DetectorKind)
        usage = dict(pod.usage or {})
        if not self.rules.compat:
            usage[PODS] = 1
        for checked in kinds:
            if checked is DetectorKind.PROD and not pod.is_prod:
                continue
            used = self.states[target].usage(checked)
            most = self._most(target, checked)
            judged = used.keys() & self.judged if self.rules.compat else self.judged
            if any(used.get(name, 0) + usage.get(name, 0) > most[name] for name in judged):
                return False
        return True

    def fullness_of(self, target: str) -> tuple[int, str]:
        state = self.states[target]
        return weigh_usage(state.used, state.node.capacity, self._weights()), target

    def book(self, target: str, pod: BalancePod, kinds: Iterable[DetectorKind], sign: int) -> None:
        """Add what a pod uses to a node, or take it away."""
        amounts = {**(pod.usage or {}), PODS: 1}
        if self.rules.compat and sign > 0:
            del amounts[PODS]
        for kind in kinds:
            used = self.states[target].usage(kind)
            for name, amount in amounts.items():
                used[name] = used.get(name, 0) + sign * amount


@dataclass(slots=True)
class _Drain:
    """One hot node gives pods."""

    balancer: _Balancer
    kind: DetectorKind
    state: _NodeState
    targets: Sequence[str]
    room: dict[str, int]

    def run(self) -> None:
        name = self.state.node.name
        for pod, target in self._candidates():
            if not self.balancer.excess_of(self.state, self.kind):
                break
            if any(amount <= 0 for amount in self.room.values()):
                self.balancer.pooled.is_full = True
                break
            self._try(pod, target)
        if not self.balancer.excess_of(self.state, self.kind):
            pool = self.balancer.pool.name
            self.balancer.past.detectors.reset((pool, self.kind, name))

    def _candidates(self) -> Iterator[tuple[BalancePod, str | None]]:
        pods = [
            pod
            for pod in self.state.node.pods
            if pod.uid not in self.state.gone and (pod.is_prod or self.kind is DetectorKind.NODE)
        ]
        excess = self.balancer.excess_of(self.state, self.kind)
        if not self.balancer.rules.compat:
            yield from ((pod, None) for pod in self.balancer.sort(pods, excess))
            return
        targets = self._book_ahead(pods)
        pods = [pod for pod in pods if pod.uid in targets]
        yield from ((pod, targets[pod.uid]) for pod in self.balancer.sort(pods, excess))

    def _book_ahead(self, pods: Iterable[BalancePod]) -> dict[str, str]:
        """Return a target for each pod that may go, each booked at once, as Koordinator does."""
        targets: dict[str, str] = {}
        for pod in pods:
            choice = self.balancer.permission.refuse(pod) or self._find_target(pod, self.targets)
            if isinstance(choice, MoveRefusal):
                self._stay(pod, choice)
            else:
                targets[pod.uid] = choice
                self.balancer.book(choice, pod, [self.kind], 1)
        return targets

    def _find_target(self, pod: BalancePod, targets: Iterable[str]) -> str | MoveRefusal:
        if pod.usage is None:
            return NO_USAGE
        taking = [name for name in targets if self.balancer.takes(name, pod, self.kind)]
        node = self.balancer.permission.find_node(pod, taking) if taking else None
        return NO_TARGET if node is None else node

    def _stay(self, pod: BalancePod, refusal: MoveRefusal) -> None:
        self.balancer.outcome.staying.append(StayingPod(pod, refusal))

    def _try(self, pod: BalancePod, target: str | None) -> None:
        choice = self._choose(pod, target)
        if isinstance(choice, MoveRefusal):
            self._stay(pod, choice)
            return
        balancer = self.balancer
        reason = find_hot_usage(
            self.state.usage(self.kind),
            balancer.limits[pod.node].of(self.kind),
            self.state.node.capacity,
            is_prod=self.kind is DetectorKind.PROD,
        )
        balancer.outcome.moves.append(Move(pod, choice, balancer.pool.name, reason))
        balancer.counts.note(pod)
        balancer.permission.note(pod, choice)
        self.state.gone.add(pod.uid)
        kinds = list(DetectorKind) if pod.is_prod else [DetectorKind.NODE]
        balancer.book(pod.node, pod, kinds, -1)
        if not balancer.rules.compat:
            balancer.book(choice, pod, kinds, 1)
        for name, amount in {**(pod.usage or {}), PODS: 1}.items():
            if name in self.room:
                self.room[name] -= amount

    def _choose(self, pod: BalancePod, target: str | None) -> str | MoveRefusal:
        """Return where a pod goes, or why it stays."""
        balancer = self.balancer
        cap = balancer.counts.find_hit(pod)
        if cap is not None:
            balancer.outcome.caps_hit.add(cap)
            return CAPPED[cap]
        if not balancer.rules.compat and not balancer.past.moves.has_settled(pod, balancer.now):
            return NOT_SETTLED
        refusal = balancer.permission.refuse(pod)
        if refusal is not None:
            return refusal
        if target is not None:
            return target
        targets = sorted(self.targets, key=balancer.fullness_of)
        return self._find_target(
            pod,
            [name for name in targets if not balancer.past.moves.avoids(pod, name, balancer.now)],
        )
