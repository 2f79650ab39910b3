"""What users of queues have used lately, of the pods of a cluster.

A pod is charged what it requests, from the moment at which its kubelet accepts it. Of each user
there is a ledger of what is over, and a sum of what runs, so that time passing costs
nothing. All times are seconds since the beginning of an epoch of weights: a new one begins once in
64 half-lives.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, TypeAlias

from koord.core.model.units import PODS
from koord.core.queue.usage import LEAST_SECONDS, REBASE_BITS, Decay, Ledger, add, share

MOST_USERS: Final = 100
"""Users of a queue whose use outlives a restart, those who have used most."""

UserLine: TypeAlias = tuple[str, str]
"""Queue, user."""


@dataclass(frozen=True, slots=True)
class UseRecord:
    """What users had used of one queue until ``until``, in seconds since the epoch."""

    until: int
    ledgers: Mapping[str, Ledger]


@dataclass(slots=True)
class _UsingPod:
    """A pod that runs, and since when what it uses is not in the ledger."""

    line: UserLine
    requests: Mapping[str, int]
    start: int
    since: int


@dataclass(slots=True)
class _UsedNow:
    """What runs of one user."""

    amounts: Counter[str] = field(default_factory=Counter)
    before: Counter[str] = field(default_factory=Counter)
    """The weight of the time before each pod began, times its amount."""

    def count(self, requests: Mapping[str, int], weight: int, sign: int) -> None:
        for key, amount in requests.items():
            self.amounts[key] += sign * amount
            self.before[key] += sign * amount * weight


class UseOfUsers:
    """The use of all queues."""

    def __init__(self, decay: Decay = Decay()) -> None:  # noqa: B008 - a frozen value
        self._decay = decay
        self._epoch: int | None = None
        self._ledgers: dict[UserLine, dict[str, int]] = {}
        self._runs: dict[str, _UsingPod] = {}
        self._running: defaultdict[UserLine, _UsedNow] = defaultdict(_UsedNow)
        self._young: dict[str, None] = {}
        """Pods that count as if they had run for a while, those that started first in front."""

    def restore(self, queue: str, record: UseRecord, now: int) -> None:
        """Add what was used before this process began; done before its pods are noted."""
        self._begin(now)
        shift = (self._epoch_of(now) - self._epoch_of(record.until)) * REBASE_BITS
        for user, ledger in record.ledgers.items():
            amounts = {key: max(amount, 0) >> max(shift, 0) for key, amount in ledger.items()}
            line = (queue, user)
            self._ledgers[line] = add(self._ledgers.get(line, {}), amounts)

    def start(
        self, uid: str, line: UserLine, requests: Iterable[tuple[str, int]], times: tuple[int, int]
    ) -> None:
        """Note a pod that runs: when it started, and since when that is not in the ledger."""
        if uid in self._runs:
            return
        started, counted = times
        self._begin(max(times))
        start, since = self._within(started), self._within(max(times))
        kept = {key: amount for key, amount in requests if key != PODS and amount}
        self._runs[uid] = _UsingPod(line, kept, start, since)
        self._running[line].count(kept, self._decay.weigh_until(since), 1)
        if counted <= started:
            self._young[uid] = None

    def end(self, uid: str, at: int) -> None:
        """Note that a pod has ended, at the latest ``at``."""
        run = self._runs.pop(uid, None)
        if run is None:
            return
        self._young.pop(uid, None)
        self._begin(at)
        weight = self._decay.weigh_until(run.since)
        self._running[run.line].count(run.requests, weight, -1)
        if not any(self._running[run.line].amounts.values()):
            del self._running[run.line]
        passed = self._decay.weigh_until(max(run.since, self._within(at))) - weight
        charges = {key: amount * passed for key, amount in run.requests.items()}
        self._ledgers[run.line] = add(self._ledgers.get(run.line, {}), charges)

    def lines(self) -> set[UserLine]:
        """Return who has used anything."""
        return {*self._ledgers, *self._running}

    def runs(self, uid: str) -> bool:
        return uid in self._runs

    def share(self, line: UserLine, capacity: Ledger, weight: int, now: int) -> Fraction:
        """Return the dominant share of what a user has used of a queue until now."""
        self._begin(now)
        return share(add(self.use(line, now), self._find_early(line, now)), capacity, weight)

    def charge_of_start(
        self, asks: Mapping[str, int], capacity: Ledger, weight: int, now: int
    ) -> Fraction:
        """Return the share that is charged at once for what starts now."""
        self._begin(now)
        each = LEAST_SECONDS * self._decay.weight(self._within(now) // self._decay.tick)
        ledger = {key: amount * each for key, amount in asks.items() if key != PODS}
        return share(ledger, capacity, weight)

    def use(self, line: UserLine, now: int) -> Ledger:
        """Return what a user has really used until now."""
        running = self._running.get(line)
        if running is None:
            return self._ledgers.get(line, {})
        weight = self._decay.weigh_until(self._within(now))
        charges = {
            key: amount * weight - running.before[key] for key, amount in running.amounts.items()
        }
        return add(self._ledgers.get(line, {}), charges)

    def record(self, queue: str, now: int) -> UseRecord:
        """Return what has to outlive a restart of a queue: its largest users."""
        self._begin(now)
        users = {user for name, user in (*self._ledgers, *self._running) if name == queue}
        used = {user: self.use((queue, user), now) for user in users}
        used = {user: ledger for user, ledger in used.items() if ledger}
        largest = sorted(used, key=lambda user: (-max(used[user].values()), user))[:MOST_USERS]
        return UseRecord(now, {user: used[user] for user in sorted(largest)})

    def _find_early(self, line: UserLine, now: int) -> Ledger:
        """Return what is charged early of young pods: at first they count for longer than they ran.

        Pods start in about the order in which they are noted; so few are looked at.
        """
        early: Counter[str] = Counter()
        at = self._within(now)
        for uid in [uid for uid in self._young if at - self._runs[uid].start >= LEAST_SECONDS]:
            del self._young[uid]
        for run in self._find_young(line):
            ran = self._decay.weigh_until(max(at, run.start)) - self._decay.weigh_until(run.start)
            counted = LEAST_SECONDS * self._decay.weight(run.start // self._decay.tick)
            for key, amount in run.requests.items():
                early[key] += amount * (counted - ran)
        return early

    def _find_young(self, line: UserLine) -> Iterator[_UsingPod]:
        return (run for uid in self._young if (run := self._runs[uid]).line == line)

    def _epoch_of(self, second: int) -> int:
        return second // self._decay.epoch

    def _within(self, second: int) -> int:
        return max(0, second - (self._epoch or 0) * self._decay.epoch)

    def _begin(self, now: int) -> None:
        """Begin a new epoch if it is time: all that was used before has less weight by then."""
        epoch = self._epoch_of(now)
        if self._epoch is None:
            self._epoch = epoch
        if epoch <= self._epoch:
            return
        border = epoch * self._decay.epoch
        for line in self.lines():
            ledger = {key: n >> REBASE_BITS for key, n in self.use(line, border).items()}
            self._ledgers[line] = {key: n for key, n in ledger.items() if n}
        length = (epoch - self._epoch) * self._decay.epoch
        self._epoch = epoch
        self._running.clear()
        for run in self._runs.values():
            run.start, run.since = max(0, run.start - length), max(0, run.since - length)
            self._running[run.line].count(run.requests, self._decay.weigh_until(run.since), 1)
