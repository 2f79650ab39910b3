"""What quotas use at later times of one cycle: without the pods that have ended by then.

Knows what is asked about, neither turns nor who is protected. Everything is rolled back.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from koord.core.engine.cycle import Cycle
from koord.core.model.plan import Unit, UnitKey, Unplaced
from koord.core.queue.ends import Ends
from koord.core.queue.order import ROOT, QueueQuota
from koord.core.queue.reserved_limits import ReservedMoment, StartedHere
from koord.core.queue.room import Reserved
from koord.core.queue.usage import Ledger
from koord.core.quota.model import QuotaCharge
from koord.core.quota.reasons import QuotaExceeded
from koord.core.quota.session import QuotaSession

_TREE: Final = "tree:"
"""Before the name of a tree it is none of a quota."""


def quota_path(session: QuotaSession | None, queue: str) -> Sequence[QueueQuota]:
    """Return a queue, the quotas above and their tree; without limits it is alone."""
    ledger = None if session is None else session.ledger
    account = None if ledger is None else ledger.find(queue)
    if ledger is None or account is None:
        return (QueueQuota(queue, ROOT, {}, {}, {}),)
    tree = _TREE + account.spec.tree_id
    path = []
    for name, parent in zip(account.path, (*account.path[1:], tree), strict=True):
        above = ledger.account(name)
        least = ledger.solution(name).minimum(name)
        path.append(QueueQuota(name, parent, above.used, least, above.limit(ledger.rules)))
    return (*path, QueueQuota(tree, ROOT, {}, {}, {}))


class QuotasInTime:
    """The quotas of one cycle; ``session`` is theirs."""

    def __init__(
        self, cycle: Cycle, session: QuotaSession, ends: Ends, started: StartedHere
    ) -> None:
        self._cycle, self._session, self._ends, self._started = cycle, session, ends, started
        self._ended: dict[tuple[int, int], tuple[Sequence[QuotaCharge], ...]] = {}
        """From when until when -> what is charged for pods that end in the meantime."""

    def find_over(
        self,
        moment: ReservedMoment,
        base: int,
        units: Mapping[UnitKey, Unit],
        path: Collection[str],
    ) -> Reserved | None:
        """Return whose start quotas of the path would not allow at a moment, as of ``base``."""
        with self._at(base, moment.at):
            for reserved in moment.active:
                outcome = self._session.pre_filter(units[reserved.job.key])
                reason = outcome.reason if isinstance(outcome, Unplaced) else None
                if isinstance(reason, QuotaExceeded) and reason.quota in path:
                    return reserved
        return None

    def used_at(self, path: Collection[str], base: int, at: int) -> dict[str, Ledger]:
        """Return what quotas use at a later time of what they use at ``base``."""
        with self._at(base, at):
            accounts = filter(None, map(self._session.ledger.find, path))
            return {account.spec.name: dict(account.used) for account in accounts}

    def gains_guarantee(self, unit: Unit, queue: str, base: int, start: int, later: int) -> bool:
        """Whether a quota is within its guarantee with a unit ``later``, and not at ``start``."""
        ask = self._session.ask_of(unit)
        over = [
            quota
            for quota in quota_path(self._session, queue)
            if quota.is_over(quota.used, ask) and not quota.is_over({}, ask)
        ]
        if not over:
            return False
        path = [quota.name for quota in over]
        at_start, then = self.used_at(path, base, start), self.used_at(path, base, later)
        return any(
            quota.is_over(at_start.get(quota.name, {}), ask)
            and not quota.is_over(then.get(quota.name, {}), ask)
            for quota in over
        )

    def fits_alone(self, unit: Unit, queue: str) -> bool:
        """Whether a queue may ever use as much as a unit asks for."""
        account = self._session.ledger.find(queue)
        if account is None:
            return True
        most = account.spec.max
        ask = self._session.ask_of(unit)
        return all(amount <= most[key] for key, amount in ask.items() if key in most)

    @contextmanager
    def _at(self, base: int, at: int) -> Iterator[None]:
        mark = self._cycle.checkpoint()
        for charges in self._find_ended(base, at) if at > base else ():
            self._session.charge_all(charges, -1)
        try:
            yield
        finally:
            self._cycle.rollback(mark)

    def _find_ended(self, base: int, at: int) -> Iterator[Sequence[QuotaCharge]]:
        """Yield what is charged for pods that end in the meantime, of all and of this cycle."""
        add_up, kinds_of = self._session.add_up, self._session.kinds_of
        if (base, at) not in self._ended:
            # Times are mostly asked for in order: each adds what ends since the one before.
            before = max((t for b, t in self._ended if b == base and t < at), default=base)
            ended = (running.pod for running in self._ends.all() if before < running.end <= at)
            more = (add_up(kinds_of(ended)),)
            self._ended[base, at] = (*self._ended.get((base, before), ()), *more)
        yield from self._ended[base, at]
        started = (running.pod for running in self._started.pods if base < running.end <= at)
        yield add_up(kinds_of(started))
