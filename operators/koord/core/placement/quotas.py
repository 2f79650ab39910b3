"""Quotas of the cluster as it is, and their say in planning: joins quotas, gangs, pods and nodes.

``QuotaKeeper`` keeps what pods ask and use in step with the state, and the fair shares with that.
``QuotaGate`` is one planning cycle's view: a unit is let through, charged for what it was given a
place for, or refused. Without any ElasticQuota nothing is kept and everything is let through.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from koord.core.gang.book import GangBook
from koord.core.gang.quorum import find_quorum
from koord.core.nodes import Node
from koord.core.plan import Placement, Refusal, Unit, UnitKey
from koord.core.pods import Handling, Pod, PodShape
from koord.core.quota.admission import try_charge
from koord.core.quota.assign import find_quota
from koord.core.quota.book import QuotaBook
from koord.core.quota.capacity import add_up, is_closed, is_counted, shared_out, tree_totals
from koord.core.quota.devices import count_devices
from koord.core.quota.ledger import NOTHING_CHARGED, Checkpoint, Ledger
from koord.core.quota.model import (
    DEFAULT,
    DEFAULT_TREE,
    Charge,
    QuotaName,
    QuotaRules,
    TreeId,
)
from koord.core.quota.pack import Packing, PendingUnit, pack
from koord.core.quota.registry import Facts
from koord.core.quota.solve import Snapshot, Solution, solve
from koord.core.quota.usage import PodUse, UsageBook
from koord.core.quota.wake import has_more_room
from koord.core.reasons import (
    AncestorInsufficient,
    InsufficientEntitlement,
    QuotaExceeded,
    QuotaNotInForce,
    Reached,
    Reason,
)
from koord.core.units import Amounts

MOST_REMEMBERED: Final = 1024
"""Units that are remembered beyond twice those that wait."""


class QuotaKeeper:
    """Quotas in force, what their pods ask and use, and what each is entitled to."""

    def __init__(self, rules: QuotaRules | None = None) -> None:
        self.rules = rules or QuotaRules()
        self.book = QuotaBook(self.rules)
        self.usage = UsageBook(self.rules)
        self.served: dict[QuotaName, float] = {}
        """Quota -> when it was given leftovers last; see ``pack``."""
        self._nodes: dict[str, Node] = {}
        self._open: dict[str, int] | None = None
        self._closed: list[Node] = []
        self.charges: dict[UnitKey, tuple[Unit, PendingUnit]] = {}
        """What units ask that were looked at before; as long as they are the very same."""
        self._members: dict[str, set[str]] = {}
        """Gang -> uids of its pods that are counted."""
        self._names: dict[tuple[str, str], QuotaName] = {}
        self._bindings = -1
        self._solutions: dict[TreeId, Solution] = {}
        self._solved = 0

    @property
    def is_in_use(self) -> bool:
        """Whether there is any ElasticQuota."""
        return self.book.has_any

    @property
    def version(self) -> tuple[int, int]:
        """Grows with everything that may let units through that were refused."""
        return (self.book.bindings, self._solved)

    def upsert_node(self, node: Node) -> None:
        """Take in a node."""
        self._nodes[node.name] = node
        self._open = None

    def remove_node(self, name: str) -> None:
        """Forget a node that is gone."""
        self._nodes.pop(name, None)
        self._open = None

    def quota_of(self, pod: Pod) -> QuotaName:
        """Return the quota that a pod counts for; the default quota if it is under none."""
        key = (pod.quota, pod.namespace)
        name = self._names.get(key)
        if name is None:
            found = find_quota(
                pod.quota, pod.namespace, self.book.registry, self.rules, self.book.is_written
            )
            name = self._names[key] = found[0] if found else DEFAULT
        return name

    def settle(self) -> bool:
        """Bring quotas into force; return whether pods may belong to others than before."""
        usage = self.usage.usage()
        used = {name: one.used for name, one in usage.items()}
        self.book.settle(Facts(labels=usage.keys(), used=used))
        if self.book.bindings == self._bindings:
            return False
        self._bindings = self.book.bindings
        self._names.clear()
        self.charges.clear()
        return True

    def count_gangs(self, gangs: Iterable[str], book: GangBook) -> None:
        """Count the pods of gangs anew: no demand before the gang and its group are whole."""
        touched = sorted({one for gang in gangs for one in book.group(gang).gangs})
        for gang in touched:
            members = book.members(gang)
            for uid in self._members.pop(gang, set()) - members.keys():
                self.usage.remove(uid)
            if members:
                self._members[gang] = set(members)
        for gang in touched:
            is_whole = isinstance(find_quorum(book, gang), Reached)
            for pod in book.members(gang).values():
                self.count_pod(pod, is_whole=is_whole)

    def count_pod(self, pod: Pod, *, is_whole: bool = True) -> None:
        """Count a pod as it is now."""
        is_used = bool(pod.node) or (pod.recorded is not None and not pod.is_gated)
        if pod.phase.is_terminal or (pod.is_terminating and not is_used):
            self.usage.remove(pod.uid)
            return
        is_held = pod.handling is Handling.FOREIGN_GATE or (
            pod.handling is Handling.NOT_OURS and pod.is_gated
        )
        self.usage.upsert(
            PodUse(
                pod.uid,
                self.quota_of(pod),
                pod.shape,
                is_used=is_used,
                is_ready=is_whole and not is_held,
                is_fixed=pod.is_fixed,
            )
        )

    def solve(self, used_on: Callable[[str], Amounts]) -> list[Solution]:
        """Return the fair shares of all trees; ``used_on`` tells what pods use on a node."""
        usage = self.usage.usage()
        registry = self.book.registry
        totals = tree_totals(self._capacity(used_on), registry.specs.values())
        outside = add_up(one.used for name, one in usage.items() if name not in registry.specs)
        totals[DEFAULT_TREE] = shared_out(totals[DEFAULT_TREE], outside)
        trees = self.book.trees()
        before = self._solutions
        self._solutions = {
            tree_id: self._solve_tree(
                tree_id, Snapshot(tree, totals.get(tree_id, {}), usage, self.rules)
            )
            for tree_id, tree in trees.items()
        }
        if any(before.get(tree_id) is not one for tree_id, one in self._solutions.items()):
            self._solved += 1
        return list(self._solutions.values())

    def _solve_tree(self, tree_id: TreeId, snapshot: Snapshot) -> Solution:
        before = self._solutions.get(tree_id)
        if before is not None and before.snapshot == snapshot:
            return before
        return solve(snapshot, before)

    def _capacity(self, used_on: Callable[[str], Amounts]) -> dict[str, int]:
        """Return what all nodes offer. One that takes no pods offers what runs on it already."""
        if self._open is None:
            counted = [node for node in self._nodes.values() if is_counted(node, self.rules)]
            self._open = add_up(node.allocatable for node in counted)
            self._closed = [
                node
                for node in self._nodes.values()
                if is_closed(node) and not node.is_terminating and not is_counted(node, self.rules)
            ]
        return add_up((self._open, *(_held(node, used_on(node.name)) for node in self._closed)))


def _held(node: Node, used: Amounts) -> dict[str, int]:
    return {key: min(most, used.get(key, 0)) for key, most in node.allocatable.items()}


@dataclass(frozen=True, slots=True)
class Admitted:
    """A unit that its quotas let through; ``left`` are surplus pods that they do not, and why."""

    unit: Unit
    mark: Checkpoint = NOTHING_CHARGED
    left: tuple[Pod, ...] = ()
    reason: Reason | None = None
    served: QuotaName = ""
    """The quota that exceeds its share for the unit."""


class QuotaGate:
    """What one planning cycle asks of quotas; charges are undone with the ledger's own rollback.

    ``pending`` returns all complete units that wait, in order: leftovers are those of all.
    """

    def __init__(
        self,
        keeper: QuotaKeeper,
        ledger: Ledger,
        pending: Callable[[], Iterable[Unit]],
    ) -> None:
        self.served: dict[QuotaName, float] = {}
        """Quotas that were given leftovers in this cycle, and when."""
        self._keeper = keeper
        self._ledger = ledger
        self._pending = pending
        self._packing: Packing | None = None
        self._newest = 0.0
        self._charges: dict[tuple[QuotaName, PodShape, bool], Charge] = {}

    def admit(self, unit: Unit) -> Admitted | Refusal:
        """Charge a unit, with as much of its surplus as its quotas allow, or say what is short."""
        mark = self._ledger.checkpoint()
        required = _required(unit)
        served, refusal = self._charge_required(unit.key, required)
        if refusal is not None:
            return Refusal(unit.key, unit.pods, refusal)
        surplus = _without(unit.pods, required)
        left, reason = self._charge_surplus(surplus)
        if left and len(left) == len(unit.pods) and reason is not None:
            self._ledger.rollback(mark)
            return Refusal(unit.key, unit.pods, reason)
        allowed = _reduce(unit, left) if left else unit
        return Admitted(allowed, mark, left, reason, served)

    def finish(self, admitted: Admitted, outcome: Placement | Refusal) -> None:
        """Take back what was charged for pods of an admitted unit that have got no place."""
        placed = []
        if isinstance(outcome, Placement):
            placed = [assignment.pod for assignment in outcome.assignments]
        if len(placed) < len(admitted.unit.pods):
            self._ledger.rollback(admitted.mark)
            for charge in self._charges_of(placed):
                self._ledger.charge(charge)
        if admitted.served and placed:
            self.served[admitted.served] = self._newest

    def is_relieved(self, unit: Unit, reason: Reason) -> bool:
        """Whether a unit that quotas refused is worth another try."""
        if isinstance(reason, QuotaExceeded):
            may_pack = isinstance(reason, (InsufficientEntitlement, AncestorInsufficient))
            return has_more_room(reason, self._ledger) or (
                may_pack and unit.key in self._pack().granted
            )
        return self._find_obstacle(_required(unit) or unit.pods) != reason

    def _charge_required(
        self, key: UnitKey, pods: Sequence[Pod]
    ) -> tuple[QuotaName, Reason | None]:
        obstacle = self._find_obstacle(pods)
        if obstacle is not None:
            return "", obstacle
        charges = self._charges_of(pods)
        refusal = try_charge(self._ledger, charges)
        is_share = isinstance(refusal, (InsufficientEntitlement, AncestorInsufficient))
        if is_share and self._pack().try_charge(self._ledger, key, charges):
            return charges[0].quota, None
        return "", refusal

    def _charge_surplus(self, pods: Sequence[Pod]) -> tuple[tuple[Pod, ...], Reason | None]:
        if not pods or try_charge(self._ledger, self._charges_of(pods)) is None:
            return (), None
        left: list[Pod] = []
        reason: Reason | None = None
        for pod in pods:
            refusal = self._find_obstacle((pod,)) or try_charge(
                self._ledger, self._charges_of((pod,))
            )
            if refusal is not None:
                left.append(pod)
                reason = reason or refusal
        return tuple(left), reason

    def _find_obstacle(self, pods: Iterable[Pod]) -> Reason | None:
        """Return why pods cannot start in their quota at all, however much it has."""
        book = self._keeper.book
        for name in sorted({self._keeper.quota_of(pod) for pod in pods}):
            if name not in book.registry.specs and book.is_written(name):
                problem = book.problem_of(name)
                if problem is not None:
                    return QuotaNotInForce(problem)
        return None

    def _pack(self) -> Packing:
        if self._packing is None:
            units = list(self._pending())
            if len(self._keeper.charges) > 2 * len(units) + MOST_REMEMBERED:
                self._keeper.charges.clear()
            pending = [self._as_pending(unit) for unit in units]
            self._newest = max((unit.since for unit in pending), default=0.0)
            self._packing = pack(self._ledger, pending, self._keeper.served)
        return self._packing

    def _as_pending(self, unit: Unit) -> PendingUnit:
        known = self._keeper.charges.get(unit.key)
        if known is None or known[0] is not unit:
            pods = _required(unit) or unit.pods[:1]
            pending = PendingUnit(unit.key, tuple(self._charges_of(pods)), unit.since)
            known = self._keeper.charges[unit.key] = (unit, pending)
        return known[1]

    def _charges_of(self, pods: Iterable[Pod]) -> list[Charge]:
        """Return what pods ask of each quota; those that were released are counted already."""
        counts: dict[tuple[QuotaName, PodShape, bool], int] = {}
        for pod in pods:
            if pod.recorded is None or pod.is_gated:
                kind = (self._keeper.quota_of(pod), pod.shape, pod.is_fixed)
                counts[kind] = counts.get(kind, 0) + 1
        if len(counts) == 1:
            ((kind, count),) = counts.items()
            return [_times(self._charge_of(kind), count)]
        charges: dict[QuotaName, list[Charge]] = {}
        for kind, count in counts.items():
            charges.setdefault(kind[0], []).append(_times(self._charge_of(kind), count))
        return [
            Charge(name, add_up(one.request for one in some), add_up(one.fixed for one in some))
            for name, some in sorted(charges.items())
        ]

    def _charge_of(self, kind: tuple[QuotaName, PodShape, bool]) -> Charge:
        known = self._charges.get(kind)
        if known is None:
            quota, shape, is_fixed = kind
            request = count_devices(dict(shape.requests), self._keeper.rules)
            known = self._charges[kind] = Charge(quota, request, request if is_fixed else {})
        return known


def _times(charge: Charge, count: int) -> Charge:
    if count == 1:
        return charge
    return Charge(
        charge.quota,
        {key: amount * count for key, amount in charge.request.items()},
        {key: amount * count for key, amount in charge.fixed.items()},
    )


def _required(unit: Unit) -> tuple[Pod, ...]:
    return tuple(pod for demand in unit.demands for pod in demand.pods[: demand.required])


def _without(pods: Sequence[Pod], others: Sequence[Pod]) -> tuple[Pod, ...]:
    if len(pods) == len(others):
        return ()
    uids = {pod.uid for pod in others}
    return tuple(pod for pod in pods if pod.uid not in uids)


def _reduce(unit: Unit, left: Sequence[Pod]) -> Unit:
    demands = (replace(demand, pods=_without(demand.pods, left)) for demand in unit.demands)
    return replace(unit, demands=tuple(demand for demand in demands if demand.pods))
