"""The cluster as it was last read, read again and again.

Reading takes processor time, so it runs in a thread; so do answers, one at a time, for what they
are computed from is not made for several threads. Knows no HTTP, and not how a cluster is read.
"""

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from koord.answers.audit_analysis import AuditScope
from koord.answers.envelope import AnswerGap
from koord.answers.happenings import Subject
from koord.answers.health import HealthFinding
from koord.answers.hidden_amounts import hide_in_queue
from koord.answers.in_steps import Steps, finish
from koord.answers.outlook import limit_time
from koord.answers.pod_tallies import tally_pods
from koord.answers.queue_sight import SeenEntries, SeenQueue, WaitingQueue
from koord.answers.queue_view import QueueEntry
from koord.answers.quota_users import find_quotas_in_use
from koord.answers.reading import Reading, Target
from koord.answers.redaction import EVERYTHING, Sight
from koord.answers.story import Story
from koord.answers.usage import find_segments
from koord.answers.waiting import find_waiting_in_steps
from koord.core.usage.book import UsageBook
from koord.core.usage.segments import Segment, Window
from koord.kube.errors import KubeError
from koord.see.manifests import ServerDefaults
from koord.store.analysis import StoredAnalysis

LEAST_SECONDS: Final = 15.0
"""Between two readings."""
LEAST_WITH_NEWS: Final = 1.0
"""The same where a state is brought up to date, and there are news."""
SHARE_WITH_NEWS: Final = 3
_TICK_SECONDS: Final = 0.1
_FETCHERS: Final = 4
SHARE: Final = 20
"""A reading is followed by a pause of so many times its own length, if that is longer."""
_FORESIGHT_SECONDS: Final = 1.0
"""What foreseeing starts may take."""

_HEAD_START_SECONDS: Final = 1.0
"""For those who waited for the first reading: what needs no plan of all that waits is quick."""

_FORGOTTEN_SECONDS: Final = 60.0
"""Without a question for so long, nothing is computed before somebody asks again."""

if TYPE_CHECKING:
    from koord.answers.explanation import Explanation

T = TypeVar("T")
Read = Callable[[], tuple[Reading, Target]]
"""Reads the cluster in the calling thread; may raise ``KubeError``."""
Gaps = tuple[AnswerGap, ...]
Records = tuple[Mapping[str, Any], ...]
MOST_KEPT: Final = 64
"""Answers of one snapshot that are kept for others who ask the same."""
MOST_SIGHTS: Final = 64
"""Views of one snapshot for those who may see less than everything."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OnDemand:
    """What is read only when somebody asks, in the calling thread; each may raise ``KubeError``."""

    tell: Callable[[Subject], tuple[Story, Gaps]]
    """Reads what happened to an object, and says what is missing."""
    list_records: Callable[[], tuple[Records, Gaps]]
    """Reads the records of decisions, and says what is missing."""
    read_defaults: Callable[[str], ServerDefaults]
    """Reads what the API server would add to a manifest without a namespace, in this one."""
    analyse: Callable[[int, AuditScope], StoredAnalysis] | None = None
    """Returns the report of so many last seconds, in any thread; may raise ``StoreError``. None if
    nothing is kept."""
    find_trouble: Callable[[], tuple[HealthFinding, ...]] = tuple
    """Returns what is not well in this process."""
    read_usage: Callable[[Window], UsageBook] | None = None
    """Returns what was held in a period, in any thread; may raise ``StoreError``. None if nothing
    is kept."""
    user_label: str = ""
    """The label of pods that names their user."""


class Snapshot:
    """The cluster as one reading found it. ``number`` counts the readings of this process."""

    def __init__(
        self,
        reading: Reading,
        target: Target,
        number: int,
        at: float,
        on_demand: OnDemand | None = None,
    ) -> None:
        self.reading = reading
        self.target = target
        self.number = number
        self.at = at
        """When it was read, in seconds since the epoch."""
        self.on_demand = on_demand
        """Reads what is not in it; None if nobody can."""
        self.explained: Explanation | None = None
        """The last answer to why something waits: it is large, so no other is kept."""
        self._kept: dict[Hashable, Any] = {}
        self._shared: dict[Hashable, Any] = {}
        self._origin: Snapshot | None = None
        """That of everything, which those of less are made from; None: this is it."""
        self._by_sight: OrderedDict[Sight, Snapshot] = OrderedDict()
        self._is_over = False

    def seen_with(self, sight: Sight) -> "Snapshot":
        """Return the same for whoever may see less: equal sights share all answers.

        Of too many different ones those that were used last are kept.
        """
        if sight.is_whole:
            return self
        view = self._by_sight.get(sight)
        if view is None:
            looked_up = replace(sight, quota_names=self._find_quotas(sight))
            reading = replace(self.reading, sight=looked_up)
            view = Snapshot(reading, self.target, self.number, self.at, self.on_demand)
            view._origin = self._base
            if self._is_over:
                return view
            self._by_sight[sight] = view
        self._by_sight.move_to_end(sight)
        if len(self._by_sight) > MOST_SIGHTS:
            self._by_sight.popitem(last=False)
        return view

    @property
    def _base(self) -> "Snapshot":
        return self if self._origin is None else self._origin

    def end(self) -> None:
        """Keep no views any more: another one came, and circles of objects stay for long."""
        self._is_over = True
        self._by_sight.clear()

    @property
    def namespaces(self) -> frozenset[str]:
        """Those of all that could be named in answers, whoever asks."""
        if self._base is self:
            return self._own_namespaces
        return self._base.namespaces

    def _find_quotas(self, sight: Sight) -> frozenset[str]:
        """Return the quotas that an asker may see by name, and those of her pods."""
        if sight.quotas:
            return frozenset()
        specs = self.reading.state.quotas.catalog.registry.specs
        listed = (n for n, spec in specs.items() if spec.namespace in sight.quota_namespaces)
        spaces = sight.namespaces or frozenset()
        used = (name for space in spaces for name in self._quotas_by_namespace.get(space, ()))
        return frozenset((*listed, *used))

    @cached_property
    def _quotas_by_namespace(self) -> Mapping[str, frozenset[str]]:
        """Return the quotas that the pods of each namespace count for."""
        pairs = find_quotas_in_use(self.reading.state)
        by_namespace: dict[str, set[str]] = {}
        for namespace, quota in pairs:
            by_namespace.setdefault(namespace, set()).add(quota)
        return {namespace: frozenset(names) for namespace, names in by_namespace.items()}

    @cached_property
    def _own_namespaces(self) -> frozenset[str]:
        state = self.reading.state
        gangs = state.gangs.keys()
        keys = (key.partition("/")[0] for key in gangs)
        quotas = (spec.namespace for spec in state.quotas.catalog.registry.specs.values())
        return frozenset((*tally_pods(state).namespaces, *keys, *quotas))

    def share(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Compute a value with the names of all, once for all who ask, whatever they may see.

        Keys are few: they are not those of questions.
        """
        if self._base is not self:
            return self._base.share(key, compute)
        if key not in self._shared:
            self._shared[key] = compute()
        return cast("T", self._shared[key])

    def keep(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Compute a value, once for all who ask for it; nobody may change it."""
        if key in self._kept:
            return cast("T", self._kept[key])
        value = compute()
        if len(self._kept) < MOST_KEPT:
            self._kept[key] = value
        return value

    @cached_property
    def held(self) -> tuple[Segment, ...]:
        """What each pod that exists holds or held, with the names of all, for all who ask."""
        if self._base is not self:
            return self._base.held
        label = "" if self.on_demand is None else self.on_demand.user_label
        return tuple(find_segments(self.reading.state, self.at, label))

    @cached_property
    def waiting(self) -> SeenQueue:
        """Everything that waits, in order, as the asker sees it."""
        sight = self.reading.sight
        seen = self._base.queue.see(sight)
        return seen if sight.amounts else seen.replace(hide_in_queue(seen, sight))

    @cached_property
    def queue(self) -> WaitingQueue:
        """Everything that waits, with the names of all, for all who ask."""
        if self._base is not self:
            return self._base.queue
        seen = self.reading.state.follower(SeenEntries, SeenEntries)
        return WaitingQueue(self.entries, seen)

    @cached_property
    def entries(self) -> Sequence[QueueEntry]:
        """The same without what is known of who sees which of it."""
        return finish(self.find_entries())

    def find_entries(self) -> Steps[Sequence[QueueEntry]]:
        is_over = limit_time(_FORESIGHT_SECONDS, time.monotonic)
        everything = replace(self.reading, sight=EVERYTHING)
        return find_waiting_in_steps(everything, self.target, is_over)


def find_what_waits(snapshot: Snapshot) -> Steps[None]:
    """Compute what nearly all answers need: the least that is prepared."""
    entries = yield from snapshot.find_entries()
    vars(snapshot).setdefault("entries", entries)  # where a cached property has its value


def find_who_waits_where(snapshot: Snapshot) -> object:
    return snapshot.queue


def find_what_others_see(snapshot: Snapshot) -> Steps[None]:
    """Compute what those see of the queue who asked for it lately, as far as they share it."""
    return snapshot.queue.prepare_all()


Prepare = Callable[[Snapshot], object]
"""Computes a part of answers before they are asked for. In the thread of answers, so quickly, or in
short steps, if it returns them."""


class Snapshots:
    """Keeps the last snapshot, and computes answers from it. Run ``run``."""

    def __init__(
        self,
        read: Read,
        on_demand: OnDemand | None = None,
        has_news: Callable[[], bool] | None = None,
        silence: Callable[[], float] = lambda: 0.0,
        parts: Sequence[Prepare] = (find_what_waits,),
    ) -> None:
        """``read`` returns what nobody changes afterwards; ``silence`` how many seconds old it is.

        A new snapshot answers once its ``parts`` are computed; who asks meanwhile waits for one of
        them at most.

        With ``has_news`` it returns one state that it brings up to date: then it is called in the
        thread of answers, and more often, whenever there are news.
        """
        self.instance = secrets.token_hex(4)
        """Of this process: what counts readings is comparable within it only."""
        self.last: Snapshot | None = None
        self.problem = ""
        """Why the last reading failed; empty if it did not."""
        self._read = read
        self._on_demand = on_demand
        self._has_news = has_news
        self._silence = silence
        self._parts = parts
        self._answerer = ThreadPoolExecutor(1, "answers")
        self._reader = self._answerer if has_news else ThreadPoolExecutor(1, "reading")
        self._apart = ThreadPoolExecutor(1, "apart")
        self._fetcher = ThreadPoolExecutor(_FETCHERS, "fetching")
        self._turns = asyncio.Semaphore(1)
        self._followers = asyncio.Semaphore(1)
        self._answered_at = time.monotonic()
        """When somebody asked last, or at first."""
        self._changed = asyncio.Condition()
        self._busy = 0.0
        """Seconds of a processor that bringing the state up to date took."""

    @property
    def why_old(self) -> str:
        """Why there is no snapshot, or none of now; empty if there is one."""
        return self.problem or ("" if self.last is not None else "the cluster is being read")

    async def run(self) -> NoReturn:
        """Read until cancelled; what fails is tried again."""
        while True:
            began = time.monotonic()
            await self.read_once()
            took = time.monotonic() - began
            if self.last is not None and self.last.number == 1:
                await asyncio.sleep(_HEAD_START_SECONDS)
                await self._prepare(self.last)
            await self._pause(took)

    async def _pause(self, took: float) -> None:
        """Wait until it is time to read again."""
        if self._has_news is None:
            await asyncio.sleep(max(LEAST_SECONDS, SHARE * took))
            return
        began = time.monotonic()
        # Answers that are waited for are no reason to be behind even more.
        await asyncio.sleep(max(LEAST_WITH_NEWS, SHARE_WITH_NEWS * self._busy))
        while not self._has_news() and time.monotonic() < began + LEAST_SECONDS:  # noqa: ASYNC110 - many things are news
            await asyncio.sleep(_TICK_SECONDS)

    async def read_once(self) -> None:
        """Read once; keep what there was if that fails."""
        try:
            if self._has_news is None:
                await self._read_apart()
            else:
                await self._bring_up_to_date()
        except KubeError as error:
            self.problem = str(error)
            log.warning("Cannot read the cluster", extra={"problem": self.problem})
        except Exception:
            # What was read before goes on serving, and says how old it is.
            self.problem = "what was read cannot be understood; the log says more"
            log.exception("Reading the cluster failed")
        else:
            self.problem = ""
        async with self._changed:
            self._changed.notify_all()

    async def _read_apart(self) -> None:
        snapshot = self._make(*await self._in_thread(self._reader, self._read))
        # The answer before this one serves until this one is quick; without one, nobody waits.
        if self.last is not None and self._is_asked:
            await self._prepare(snapshot)
        self._publish(snapshot)

    async def _bring_up_to_date(self) -> None:
        """Change the one state, and publish it once its answers are quick.

        Until then the snapshot before it answers from what was computed already, and for the rest
        from the state as it is by now.
        """
        self._busy = 0.0
        snapshot = await self._in_thread(self._answerer, self._change)
        if self._is_asked:
            await self._prepare(snapshot)
        self._publish(snapshot)

    def _change(self) -> Snapshot:
        began = time.thread_time()
        snapshot = self._make(*self._read())
        _ = snapshot.namespaces
        self._busy += time.thread_time() - began
        return snapshot

    def _publish(self, snapshot: Snapshot) -> None:
        before, self.last = self.last, snapshot
        if before is not None:
            before.end()

    def _make(self, reading: Reading, target: Target) -> Snapshot:
        number = 1 if self.last is None else self.last.number + 1
        return Snapshot(reading, target, number, time.time() - self._silence(), self._on_demand)

    async def _in_thread(self, executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(executor, work)

    async def _prepare(self, snapshot: Snapshot) -> None:
        """Compute the parts of answers in short steps; meanwhile the state stays as it is."""
        for part in self._parts:
            steps = self._prepare_part(part, snapshot)
            while await self._in_thread(self._answerer, partial(self._take_step, steps)):
                pass

    def _take_step(self, steps: Iterator[None]) -> bool:
        """Return whether there is another one."""
        began = time.thread_time()
        is_over = next(steps, True)
        self._busy += time.thread_time() - began
        return not is_over

    @staticmethod
    def _prepare_part(part: Prepare, snapshot: Snapshot) -> Iterator[None]:
        try:
            steps = part(snapshot)
            if isinstance(steps, Generator):
                yield from steps
        except Exception:
            # Each answer that needs it says so.
            log.exception("A part of answers cannot be computed")

    @property
    def _is_asked(self) -> bool:
        return time.monotonic() < self._answered_at + _FORGOTTEN_SECONDS

    async def answer(self, compute: Callable[[], T]) -> T:
        """Compute something from ``last``, after what others asked before.

        ``compute`` looks which one that is: another one may come while it waits for its turn.
        """
        self._answered_at = time.monotonic()
        return await self._in_thread(self._answerer, compute)

    async def plan(self, compute: Callable[[], T]) -> T:
        """Compute what takes long, one at a time: what is quick waits for one of them at most."""
        async with self._turns:
            return await self.answer(compute)

    async def follow(self, compute: Callable[[], T]) -> T:
        """Compute what a stream tells next, one at a time: who asks waits for one of them at most.

        Whenever something has changed all streams want to tell it at once.
        """
        async with self._followers:
            return await self.answer(compute)

    async def fetch(self, compute: Callable[[], T]) -> T:
        """Compute what waits for an API server and needs no state; other answers go on."""
        return await self._in_thread(self._fetcher, compute)

    async def compute_in_steps(self, steps: Iterator[T | None]) -> T | None:
        """Compute something that nobody has asked for: the first step that yields it is the last.

        Whoever asks waits for one step at most.
        """
        over: T | bool | None = None
        while over is None:
            over = await self._in_thread(self._answerer, lambda: next(steps, False))
        return None if isinstance(over, bool) else over

    async def compute_apart(self, compute: Callable[[], T]) -> T:
        """Compute what takes long and needs no state, one at a time; other answers go on."""
        return await self._in_thread(self._apart, compute)

    async def next_after(self, number: int, seconds: float) -> Snapshot | None:
        """Return a snapshot later than that of a number; None if there is none in this time."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self._is_later(number))
        except TimeoutError:
            return None
        return self.last

    def _is_later(self, number: int) -> bool:
        return self.last is not None and self.last.number > number

    def close(self) -> None:
        """Wait for nobody: a reading that runs ends with the process."""
        self._reader.shutdown(wait=False, cancel_futures=True)
        self._apart.shutdown(wait=False, cancel_futures=True)
        self._fetcher.shutdown(wait=False, cancel_futures=True)
        self._answerer.shutdown(wait=False, cancel_futures=True)
