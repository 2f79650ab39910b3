"""Joins quotas to the planner: keeps the cache in step with the state, opens sessions.

Everything that is computed for all quotas (settling edits, counting pods, fair shares) happens in
:meth:`Quotas.absorb`; a session only reads the outcome.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

from typing_extensions import override

from koord.core.engine.cycle import Cycle, UndoLog
from koord.core.engine.plugin import Plugin, QueueingHint, Session
from koord.core.model.changes import Changes, Feed
from koord.core.model.nodes import Node
from koord.core.model.plan import Plan, Unit
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.core.quota.cache import QuotaCache, is_used
from koord.core.quota.catalog import key_of
from koord.core.quota.ledger import Ledger, mask
from koord.core.quota.model import QuotaSpec, add_up
from koord.core.quota.profile import ProfileCache, QuotaProfile
from koord.core.quota.session import QuotaSession
from koord.core.quota.usage import count_devices


class Quotas(Plugin):
    """The quotas of a cluster."""

    name = "quota"
    after = ("reservation", "device", "numa", "topology")

    def __init__(self, cache: QuotaCache | None = None) -> None:
        self.cache = cache or QuotaCache()
        self.profiles = ProfileCache()
        self._feed: Feed | None = None
        """Opened with the first quota: until then nothing is counted."""

    def upsert(self, quota: QuotaSpec) -> None:
        """Apply an ElasticQuota; which pods it has may depend on labels of namespaces."""
        before = self.cache.catalog.written.get(key_of(quota))
        self.cache.catalog.upsert(quota)
        if quota.selector != (before and before.selector):
            self.view.note_relabelled()

    def remove(self, quota: QuotaSpec) -> None:
        self.cache.catalog.remove(key_of(quota))

    def upsert_profile(self, profile: QuotaProfile) -> None:
        self.profiles.upsert(profile)

    def remove_profile(self, profile: QuotaProfile) -> None:
        self.profiles.remove(profile.key)

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        self.profiles.upsert_node(node)
        self.cache.upsert_node(node)

    @override
    def remove_node(self, row: int, name: str) -> None:
        self.profiles.remove_node(name)
        self.cache.remove_node(name)

    @override
    def advance(self, now: float) -> Collection[str]:
        """Set the time until which pods that are being deleted count; no node has more room."""
        self.cache.terminating.now = now
        return ()

    @override
    def next_due(self) -> float | None:
        return self.cache.terminating.next_due()

    @override
    def absorb(self) -> None:
        """Do nothing until there is a quota; see :meth:`update`."""
        if self._feed is not None or self.cache.is_in_use:
            self.update()

    def update(self) -> None:
        """Bring edits into force and count changed pods; fair shares follow when asked for."""
        cache = self.cache
        if self._feed is None:
            self._feed = self.view.feed()
        changes = self._feed.drain()
        cache.recount_terminating()
        if cache.catalog.registry.specs:
            # Whether a change of a quota is valid may depend on the pods that it has by now.
            self._count(changes)
            changes = Changes()
        with cache.stopwatch("settle"):
            moved = cache.settle()
        for pod in moved:
            if pod.gang is None:
                changes.singles.add(pod.uid)
            else:
                changes.gangs.add(pod.gang.key)
        self._count(changes)
        cache.forget_stale()
        cache.limit_submissions()
        cache.outdate()

    def open_ledger(self, undo: UndoLog | None = None) -> Ledger:
        """Return what every quota may use and uses, as of the last :meth:`absorb`."""
        cache = self.cache
        return cache.hooks.bind(Ledger(cache.solutions.values(), cache.rules, undo=undo))

    def is_within_guarantee(self, pods: Sequence[Pod], ledger: Ledger) -> bool:
        """Whether the quota of a unit uses no more than is guaranteed to it once all pods start.

        Of what they request; those that count already do so once.
        """
        account = ledger.find(self.cache.quota_of(pods[0])) if pods else None
        if account is None:
            return False
        rules, least = (
            self.cache.rules,
            ledger.solution(account.spec.name).minimum(account.spec.name),
        )
        requests = [(pod, count_devices(dict(self.cache.requests_of(pod)), rules)) for pod in pods]
        all_of_them = mask(add_up(amounts for _, amounts in requests), account)
        more = add_up(amounts for pod, amounts in requests if not is_used(pod))
        return any(all_of_them.values()) and all(
            account.used.get(key, 0) + more.get(key, 0) <= least.get(key, 0)
            for key, amount in all_of_them.items()
            if amount
        )

    @override
    def open(self, cycle: Cycle) -> QuotaSession | None:
        return self.open_session(cycle.pending, cycle.undo)

    @override
    def queueing_hint(self, pending: Callable[[], Iterable[Unit]]) -> QueueingHint | None:
        """Return None while there are no quotas; an edit may change which quota a pod is in."""
        if not self.cache.is_in_use:
            return None
        session = lru_cache(1)(lambda: self.open_session(pending))

        def is_relieved(unit: Unit, reason: Reason) -> bool:
            opened = session()
            return opened is None or opened.is_relieved(unit, reason)

        return QueueingHint(self.cache.catalog.edits, self.cache.version, is_relieved)

    def open_session(
        self, pending: Callable[[], Iterable[Unit]], undo: UndoLog | None = None
    ) -> QuotaSession | None:
        """Return a session outside of any cycle, to ask what quotas would allow."""
        if not self.cache.is_in_use:
            return None
        return QuotaSession(self.cache, self.open_ledger(undo), pending)

    @override
    def note_plan(self, session: Session, plan: Plan) -> None:
        """Remember which quotas a plan has given leftovers to: others have their turn first."""
        if isinstance(session, QuotaSession):
            placed = {placement.unit for placement in plan.placements}
            self.cache.leftovers_given |= session.leftovers_given(placed)

    def _count(self, changes: Changes) -> None:
        self.cache.count_gangs(changes.gangs, self.view.gangs, self.view.is_complete)
        for uid in changes.singles:
            pod = self.view.pods.get(uid)
            if pod is None:
                self.cache.forget_pod(uid)
            elif pod.gang is None:
                self.cache.count_pod(pod)
