"""What queues remember of pods that run or have ended: run times by kind, and the use of users.

Made from pods that exist and from what the status of a quota has kept. So it is the same after a
restart, but for what ended and was deleted since the last write.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2s
from typing import Final

from koord.core.engine.state_view import StateView
from koord.core.model.pods import Pod, PodPhase
from koord.core.queue.earlier_runs import controller_of
from koord.core.queue.history import KindRecord, PartsOfLimits, RunHistory, RunKind
from koord.core.queue.room import FOREVER
from koord.core.queue.run_time import Estimate, hints_of
from koord.core.queue.usage import TICK_SECONDS
from koord.core.queue.users import UseOfUsers, UseRecord

_GENERATED: Final = re.compile(r"-(?:\d+|(?=[a-z]*\d)[a-z0-9]{5,10})$")
"""What controllers append to names: numbers, times and hashes."""
_MOST_GENERATED: Final = 4


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """What the status of a quota keeps of its queue."""

    runs: tuple[KindRecord, ...] = ()
    used: UseRecord = UseRecord(0, {})  # noqa: RUF009 - a frozen value


@dataclass(frozen=True, slots=True)
class _EndedRun:
    unit: str
    ended: int
    pods: Sequence[Pod]


class RunMemory:
    """All queues of a cluster."""

    def __init__(
        self,
        view: StateView,
        queue_of: Callable[[Pod], str],
        user_of: Callable[[Pod], str],
        record_of: Callable[[str], QueueRecord | None],
    ) -> None:
        self._view, self._queue_of, self._user_of = view, queue_of, user_of
        self._record_of = record_of
        self._feed = view.feed()
        self._began = self._now = int(view.now)
        self.on_end: Callable[[Sequence[Pod], int], None] = lambda *_: None
        """Called with the pods of a unit that has ended since, and for how long it ran."""
        self._use = UseOfUsers()
        self._histories: dict[str, RunHistory] = {}
        self._parts = PartsOfLimits()
        self._changes = 0
        """Of the histories."""
        self._used_until: dict[str, int] = {}
        self._gangs: defaultdict[str, set[str]] = defaultdict(set)
        """Gang -> its members that are counted as running."""
        self._ended: dict[str, int] = {}
        """Unit that has ended and is still there -> when it had."""
        self._kinds: dict[str, RunKind] = {}
        self._runs: list[_EndedRun] = []
        """Those that are not counted yet: they are in the order in which they ended."""
        self._records: dict[str, tuple[int, QueueRecord]] = {}
        self._capacity_of: tuple[int, Mapping[str, int]] = (-1, {})
        self._shares: dict[tuple[str, str], tuple[int, Fraction]] = {}

    def update(self, now: float) -> None:
        """Count what has changed by ``now``."""
        self._now = max(self._now, int(now))
        changes = self._feed.drain()
        for uid in changes.singles:
            pod = self._view.pods.get(uid)
            self._note_pods(uid, {uid}, () if pod is None or pod.gang is not None else (pod,))
        for gang in changes.gangs:
            members = self._view.gangs.members(gang)
            before = self._gangs.pop(gang, set())
            self._note_pods(gang, before, members.values())
            running = {uid for uid in members if self._use.runs(uid)}
            if running:
                self._gangs[gang] = running
        for run in sorted(self._runs, key=lambda run: (run.ended, run.unit)):
            self._note_run(run)
        self._runs.clear()

    def share(self, queue: str, user: str, weight: int) -> Fraction:
        """Return what a user has used lately, as part of the cluster and by weight."""
        now = self._now
        seen = self._shares.get((queue, user))
        if seen is None or seen[0] != now:
            self._restore(queue)
            share = self._use.share((queue, user), self._capacity(), 1, now)
            seen = self._shares[queue, user] = (now, share)
        return seen[1] / weight

    def largest_shares(self, most: int) -> Iterator[tuple[str, list[Fraction]]]:
        """Yield queues with what those who have used most have of all use, largest first."""
        users = defaultdict[str, list[Fraction]](list)
        for queue, user in sorted(self._use.lines()):
            users[queue].append(self.share(queue, user, 1))
        for queue, shares in users.items():
            total = sum(shares)
            if total:
                yield queue, [share / total for share in sorted(shares, reverse=True)[:most]]

    def charge(self, pods: Iterable[Pod], weight: int) -> Fraction:
        """Return by how much the share of a user grows at once when these start now."""
        asks: Counter[str] = Counter()
        for pod in pods:
            asks.update(dict(pod.shape.requests))
        return self._use.charge_of_start(asks, self._capacity(), weight, self._now)

    def estimate(self, pods: Sequence[Pod]) -> Estimate | None:
        """Return what earlier runs of a unit tell of it, by its waiting or running pods."""
        queue = self._queue_of(pods[0])
        self._restore(queue)
        history = self._histories.get(queue)
        return None if history is None else history.estimate(self._kind_of(pods))

    def expected_percent(self, pod: Pod, limit: int, ran: int) -> int:
        """Return what part of its limit the run of a pod is expected to take, after ``ran``."""
        return self._parts.expected_percent((self._queue_of(pod), self._user_of(pod)), limit, ran)

    def known_by(self, pod: Pod) -> object:
        """Return what decides on what earlier runs tell of the unit of a pod; None: nothing."""
        return (self._changes, self._kind_of((pod,))) if self._histories else None

    def record(self, queue: str) -> QueueRecord:
        """Return what is to be kept of a queue: new at most once per tick, and if it differs."""
        now, before = self._now, self._records.get(queue)
        tick = now // TICK_SECONDS
        if before is not None and before[0] == tick:
            return before[1]
        self._restore(queue)
        history = self._histories.get(queue)
        made = QueueRecord(
            () if history is None else tuple(history.records()), self._use.record(queue, now)
        )
        if before is not None and _says_the_same(before[1], made):
            made = before[1]
        self._records[queue] = (tick, made)
        return made

    def _note_pods(self, unit: str, before: Iterable[str], pods: Iterable[Pod]) -> None:
        """Count the pods of a unit, and the unit once all of them have ended."""
        self._kinds.pop(unit, None)
        now = self._now
        present = {pod.uid: pod for pod in pods}
        for uid in before:
            if uid not in present:
                self._use.end(uid, now)
        for pod in present.values():
            self._note_use(pod, now)
        started = [pod for pod in present.values() if pod.started]
        if not present:
            self._ended.pop(unit, None)
        elif started and all(_has_ended(pod) for pod in present.values()):
            self._note_end(unit, started)

    def _note_use(self, pod: Pod, now: int) -> None:
        if not pod.started or not pod.node:
            return
        end = int(pod.finished) if pod.phase.is_terminal else None
        if self._use.runs(pod.uid):
            if end is not None:
                self._use.end(pod.uid, end or now)
            return
        queue = self._queue_of(pod)
        self._restore(queue)
        counted = self._used_until.get(queue, 0)
        if end is not None and end <= max(counted, int(pod.started)):
            return
        line = (queue, self._user_of(pod))
        self._use.start(pod.uid, line, pod.shape.requests, (int(pod.started), counted))
        if end is not None:
            self._use.end(pod.uid, end)

    def _note_end(self, unit: str, pods: Sequence[Pod]) -> None:
        end = max(int(pod.finished) for pod in pods)
        if self._ended.get(unit) != end:
            self._ended[unit] = end
            self._runs.append(_EndedRun(unit, end, pods))

    def _note_run(self, run: "_EndedRun") -> None:
        queue = self._queue_of(run.pods[0])
        self._restore(queue)
        start = min(int(pod.started) for pod in run.pods)
        has_failed = any(pod.phase is PodPhase.FAILED for pod in run.pods)
        history = self._histories.setdefault(queue, RunHistory())
        seconds = run.ended - start
        if run.ended >= self._began:
            self.on_end(run.pods, seconds)
        history.note(self._kind_of(run.pods), seconds, run.ended, has_failed=has_failed)
        limit = max((hints_of(pod).deadline or FOREVER for pod in run.pods), default=FOREVER)
        if limit < FOREVER:
            line = (queue, self._user_of(run.pods[0]))
            self._parts.note(line, seconds, limit, has_failed=has_failed)
        self._changes += 1

    def _restore(self, queue: str) -> None:
        """Read what was kept of a queue, once, before anything of it is counted."""
        if queue in self._used_until:
            return
        record = self._record_of(queue) or QueueRecord()
        self._used_until[queue] = min(record.used.until, self._now)
        if record.runs:
            self._histories[queue] = RunHistory(record.runs)
            self._changes += 1
        self._use.restore(queue, record.used, self._now)

    def _kind_of(self, pods: Sequence[Pod]) -> RunKind:
        """Return what runs of the kind of a unit share, by some of its pods; kept until it changes.

        It is what its owner says, else its names and what its pods request.
        """
        gang = pods[0].gang
        unit = pods[0].uid if gang is None else gang.key
        kind = self._kinds.get(unit)
        if kind is None:
            members = () if gang is None else self._view.gangs.members(gang.key).values()
            kind = self._kinds[unit] = self._make_kind(members or pods)
        return kind

    def _make_kind(self, pods: Iterable[Pod]) -> RunKind:
        first = min(pods, key=lambda pod: pod.key)
        spec = None if first.gang is None else self._view.gangs.spec(first.gang.key)
        run_class = hints_of(first).terms.run_class or (spec.run.run_class if spec else "")
        if run_class:
            return self._user_of(first), _digest("class", run_class)
        shapes = sorted({pod.shape.requests for pod in pods})
        return self._user_of(first), _digest(*_name_of(first), repr(shapes))

    def _capacity(self) -> Mapping[str, int]:
        """Return what the nodes have; it only weighs resources against each other."""
        table = self._view.table
        if self._capacity_of[0] != self._now:
            amounts = {key: int(table.allocatable[at].sum()) for key, at in table.columns.items()}
            self._capacity_of = (self._now, amounts)
        return self._capacity_of[1]


def _has_ended(pod: Pod) -> bool:
    """Whether a pod ended by itself: one that was evicted tells nothing."""
    return pod.phase.is_terminal and bool(pod.finished) and not pod.is_terminating


def _name_of(pod: Pod) -> tuple[str, str]:
    """Return kind and name of what a pod is part of, without what was generated."""
    owner = controller_of(pod)
    kind, name = ("Pod", pod.name) if owner is None else (owner.kind, owner.name)
    if pod.gang is not None:
        kind, name = "PodGroup", pod.gang.key.rpartition("/")[2]
    for _ in range(_MOST_GENERATED):
        name = _GENERATED.sub("", name)
    return kind, name


def _digest(*texts: str) -> str:
    text = "\0".join(texts)
    return blake2s(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _says_the_same(before: QueueRecord, made: QueueRecord) -> bool:
    return before.runs == made.runs and before.used.ledgers == made.used.ledgers
