"""Finds who uses what a waiting unit lacks, or what its quota is entitled to. Decides nothing.

A unit may wait for nodes although its quota has room: others use more than their share meanwhile.
Then the context of its reason says so (``koord.core.quota.entitlement``).
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

from koord.answers.devices import find_holdings
from koord.answers.quota_users import find_users, largest_first
from koord.core.autoscaler.plugin import StartingNode, find_elastic
from koord.core.autoscaler.reasons import NodesComing
from koord.core.engine.reasons import Elsewhere, InsufficientNodes
from koord.core.engine.refused_units import Blocked
from koord.core.engine.state import ClusterState
from koord.core.eviction.reclaim import find_reach, plan_reclaim
from koord.core.model.patience import Hanging, describe_hanging
from koord.core.model.plan import Unit
from koord.core.model.pods import Handling, Pod
from koord.core.model.reasons import Reason
from koord.core.model.text import cut
from koord.core.quota.entitlement import UNKNOWN, Borrower, ReclaimSetting, UnmetEntitlement
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import QuotaName
from koord.core.quota.reasons import QuotaExceeded
from koord.core.quota.reclaim import Overuse, find_entitlement, find_overuse
from koord.core.quota.share_terms import find_scaled
from koord.core.reservation.model import POD_PREFIX

MOST_USERS: Final = 3
MAX_REMEMBERED: Final = 1024


class ContextFinder:
    """Adds their context to reasons; it is remembered until quotas or their use change.

    With ``tries`` it looks whether reclaim would find victims, for this many units: that costs as
    much as what the operators do then. If it ``is_once``, it is there for one question, in which
    nothing changes: then what is the same for many units is found once.
    """

    def __init__(
        self,
        state: ClusterState,
        reclaim: ReclaimSetting = UNKNOWN,
        tries: int = 0,
        clock: Callable[[], float] | None = None,
        *,
        is_once: bool = False,
    ) -> None:
        self.reclaim = reclaim
        self._clock = clock or (lambda: reclaim.now)
        self._tries = tries
        self._state = state
        self._version: Hashable = None
        self._over: tuple[Overuse, ...] = ()
        self._borrowers: dict[tuple[QuotaName, str], Borrower] = {}
        self._remembered: dict[str, tuple[Reason, Reason]] = {}
        """Unit -> its reason without and with the context."""
        self._is_once = is_once
        self._ledger: Ledger | None = None
        self._starting: list[StartingNode] | None = None
        self._elsewhere: dict[Elsewhere, dict[str, tuple[Elsewhere, bool]]] = {}
        """What is said of nodes -> resource -> the same with who uses it there, and whether that
        changes with the time; for one question."""

    def add(self, unit: Unit, reason: Reason) -> Reason:
        """Return the reason of a unit with its context, or as it is if it has none."""
        if not isinstance(reason, InsufficientNodes | QuotaExceeded):
            return reason
        coming = self._find_coming(unit, reason)
        if coming:
            return replace(reason, context=NodesComing(coming))
        ledger = self._look() if self._state.quotas.is_in_use else None
        remembered = self._remembered.get(unit.key)
        if remembered is not None and remembered[0] == reason:
            return remembered[1]
        unmet = self._find(ledger, unit, reason) if ledger and self._over else None
        completed, changes = self._name_users(reason)
        if unmet:
            completed = replace(reason, context=unmet)
        if changes or (unmet is not None and unmet.leaving):
            return completed  # it changes with the time
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[unit.key] = reason, completed
        return completed

    def _find_coming(self, unit: Unit, reason: Reason) -> tuple[str, ...]:
        """Return the nodes that are starting, for the pod that lacks one."""
        elastic = find_elastic(self._state.plugins)
        if elastic is None or not isinstance(reason, InsufficientNodes):
            return ()
        first = next((pod for pod in unit.pods if pod.key == reason.first), None)
        if first is None:
            return ()
        starting = self._starting
        if starting is None:
            starting = elastic.find_starting()
            self._starting = starting if self._is_once else None
        return tuple(each.node.name for each in starting if each.is_awaited_by(first.shape))

    def _name_users(self, reason: Reason) -> tuple[Reason, bool]:
        """Say who uses most of the scarcest resource on the nodes that lack it.

        Also return whether that changes with the time: if a pod leaves, it may hang soon.
        """
        if not isinstance(reason, InsufficientNodes) or reason.elsewhere is None:
            return reason, False
        described = self._elsewhere.get(reason.elsewhere, {}).get(reason.resource)
        if described is None:
            described = self._look_elsewhere(reason.elsewhere, reason.resource)
            if self._is_once and len(self._elsewhere) < MAX_REMEMBERED:
                self._elsewhere.setdefault(reason.elsewhere, {})[reason.resource] = described
        elsewhere, changes = described
        return replace(reason, elsewhere=elsewhere), changes

    def _look_elsewhere(self, elsewhere: Elsewhere, resource: str) -> tuple[Elsewhere, bool]:
        there = [pod for node in elsewhere.short for pod in self._state.pods_on(node)]
        named = replace(
            elsewhere,
            users=self._find_users_among(there, resource),
            holders=self._find_holders(elsewhere.held),
            hanging=describe_hanging(filter(self._hangs, there)),
        )
        return named, any(pod.gone_by for pod in there)

    def _hangs(self, pod: Pod) -> bool:
        return self.reclaim.patience.hangs(pod, self._clock())

    def _find_holders(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return who holds devices: reservations first, of which no pod uses what they hold."""
        holdings = [holding for node in nodes for holding in find_holdings(self._state, node)]
        reserved = [
            f"reservation {holding.reservation}" for holding in holdings if holding.reservation
        ]
        return tuple(dict.fromkeys(reserved)) + _by_group(
            (holding.pod, len(holding.minors)) for holding in holdings if not holding.reservation
        )

    def _find_users_among(self, pods: Iterable[Pod], resource: str) -> tuple[str, ...]:
        return _by_group(
            (pod, amount)
            for pod in pods
            if (amount := dict(self._state.quotas.requests_of(pod)).get(resource, 0))
        )

    def _look(self) -> Ledger:
        if self._ledger is not None:
            return self._ledger
        ledger = self._state.open_ledger()
        self._ledger = ledger if self._is_once else None
        leaving = len(self._state.reclaimed), frozenset(self._state.protected)
        version = self._state.quotas.version, leaving
        if version != self._version:
            self._version, self._over = version, find_overuse(ledger)
            self._borrowers.clear()
            self._remembered.clear()
        return ledger

    def _find(
        self, ledger: Ledger, unit: Unit, reason: InsufficientNodes | QuotaExceeded
    ) -> UnmetEntitlement | None:
        name = self._state.quotas.quota_of(unit.pods[0])
        account = ledger.find(name)
        if account is None:
            return None
        entitlement = find_entitlement(ledger, name)
        for key in _scarce(reason):
            demanded = self._ask(unit, name, key)
            used, entitled = account.used.get(key, 0), entitlement.get(key, 0)
            if not demanded or used + demanded > entitled:
                continue
            borrowers = tuple(self._find_borrowers(ledger, account.path, key))
            if borrowers:
                leaving, hanging = self._find_leaving({borrower.quota for borrower in borrowers})
                protected, until = self._find_protected({borrower.quota for borrower in borrowers})
                reached = [borrower.quota for borrower in borrowers if borrower.reach.movable]
                return UnmetEntitlement(
                    quota=name,
                    resource=key,
                    guaranteed=ledger.solution(name).minimum(name).get(key, 0),
                    entitled=entitled,
                    used=used,
                    requested=demanded,
                    borrowers=borrowers,
                    is_known=self.reclaim.is_known,
                    after=self.reclaim.after,
                    due_in=self.reclaim.due_in((*reached, borrowers[0].quota)[0]),
                    leaving=leaving,
                    hanging=hanging,
                    scaled=find_scaled(ledger.solution(name), account.spec, key),
                    frees_room=self._frees_room(ledger, unit, reason, reached),
                    protected=protected,
                    until=until,
                )
        return None

    def _frees_room(
        self, ledger: Ledger, unit: Unit, reason: Reason, quotas: Sequence[QuotaName]
    ) -> bool | None:
        """Whether the operators would find victims in one of these quotas for a unit.

        Nobody goes for what no node could take even if it were empty.
        """
        if isinstance(reason, InsufficientNodes) and reason.nodes and reason.more_nodes == 0:
            return False
        if self.reclaim.after is None or not self._tries:
            return None
        self._tries -= 1
        blocked = (Blocked(unit, unit.pods, reason),)
        return any(plan_reclaim(self._state, ledger, name, blocked) for name in quotas)

    def _ask(self, unit: Unit, name: QuotaName, key: str) -> int:
        quotas = self._state.quotas
        required = (pod for demand in unit.demands for pod in demand.first_required())
        return sum(
            dict(quotas.requests_of(pod)).get(key, 0)
            for pod in required
            if quotas.quota_of(pod) == name
        )

    def _find_borrowers(
        self, ledger: Ledger, path: Iterable[QuotaName], key: str
    ) -> Iterable[Borrower]:
        own = set(path)
        overuses = [
            overuse
            for overuse in self._over
            if overuse.resource == key
            and overuse.quota not in own
            and not ledger.account(overuse.quota).spec.is_parent
        ]
        for overuse in sorted(overuses, key=lambda overuse: (-overuse.over, overuse.quota)):
            if (overuse.quota, key) not in self._borrowers:
                users = self._find_users(overuse.quota, key)
                reach = find_reach(self._state, ledger, overuse.quota, key)
                self._borrowers[overuse.quota, key] = Borrower(
                    overuse.quota, overuse.over, users, reach
                )
            yield self._borrowers[overuse.quota, key]

    def _find_leaving(
        self, quotas: Collection[QuotaName]
    ) -> tuple[tuple[str, ...], tuple[Hanging, ...]]:
        """Return the evicted pods of these quotas that still use their nodes, and who hangs."""
        reclaimed_pods = (self._state.pods[uid] for uid in self._state.reclaimed)
        pods = [pod for pod in reclaimed_pods if pod.is_being_evicted]
        pods = [pod for pod in pods if self._state.quotas.quota_of(pod) in quotas]
        hanging = [pod for pod in pods if self._hangs(pod)]
        leaving = (pod.key for pod in pods if pod not in hanging)
        return tuple(sorted(leaving)), describe_hanging(hanging)

    def _find_protected(self, quotas: Collection[QuotaName]) -> tuple[tuple[str, ...], float]:
        """Return the pods of these quotas that budgets protect, and until when; 0: not known."""
        protected_pods = (self._state.pods[uid] for uid in self._state.protected)
        pods = [pod for pod in protected_pods if self._state.quotas.quota_of(pod) in quotas]
        grace = self.reclaim.budget_grace
        since = min((pod.protected for pod in pods), default=0.0)
        until = since + grace if pods and grace is not None else 0.0
        return tuple(sorted(pod.key for pod in pods)), until

    def _find_users(self, quota: QuotaName, key: str) -> tuple[str, ...]:
        """Return the gangs and pods that use most of a resource in a quota."""
        staying = [
            user for user in find_users(self._state, {quota}) if user.terminating < user.pods
        ]
        return tuple(quota_user.title for quota_user in largest_first(staying, key)[:MOST_USERS])


def _scarce(reason: InsufficientNodes | QuotaExceeded) -> tuple[str, ...]:
    if isinstance(reason, InsufficientNodes):
        return (reason.resource,)
    return tuple(shortage.resource for shortage in reason.shortages)


def _by_group(amounts_of_pods: Iterable[tuple[Pod, int]]) -> tuple[str, ...]:
    """Return the gangs, owners and pods of these pods with their amounts, most first."""
    pods: dict[str, list[Pod]] = {}
    amounts: Counter[str] = Counter()
    for pod, amount in amounts_of_pods:
        owner = pod.owners[0].uid if pod.owners else pod.key
        group = owner if pod.gang is None else pod.gang.key
        pods.setdefault(group, []).append(pod)
        amounts[group] += amount
    most = sorted(pods, key=lambda group: (-amounts[group], group))
    return tuple(_abbreviate(pods[group]) for group in most)


def _abbreviate(pods: Sequence[Pod]) -> str:
    """Write ``team-a/bert-*`` for several pods of one gang or owner."""
    if pods[0].handling is Handling.RESERVE and pods[0].name.startswith(POD_PREFIX):
        return cut(f"reservation {pods[0].name.removeprefix(POD_PREFIX)}", 80)
    first, last = (choose(pod.name for pod in pods) for choose in (min, max))
    if first == last:
        return cut(pods[0].key, 80)
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return cut(f"{pods[0].namespace}/{''.join(name for name, _ in alike)}*", 80)
