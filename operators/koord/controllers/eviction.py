"""Carries out plans of evictions, whoever has decided them.

A policy (preemption, reclaim, restart) says who goes and why; everything else is done here, in the
same steps for all. The limits admit a plan. It is *prepared*: room is kept, or budgets are asked.
All its pods are *marked*, with those that join meanwhile, so that nobody takes their place, and the
next process finds them after a crash. It is judged again. The pods get *time* to end by themselves
if they want it, and are then *evicted*, in turns if the policy says so, again if the outcome is
unknown. Whatever ends a plan before that *spares* the pods that can go on. One that cannot be
marked, or does not go, ends the plan too, and its policy chooses others for a while.

What is known here is lost with the process: marks, and what policies write when they prepare, say
to the next one what was begun.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from koord.core.engine.state import ClusterState
from koord.core.eviction.limits import EvictionLimits
from koord.core.eviction.model import EvictionPlan, Outcome
from koord.core.eviction.preemption import find_deadline, grant_time
from koord.core.model.patience import FOREVER, Patience
from koord.core.model.pods import Pod
from koord.core.model.text import named
from koord.isolation import Isolation
from koord.kube.evictor import Eviction

log = logging.getLogger(__name__)

T = TypeVar("T")
Evict: TypeAlias = Callable[[Pod], Awaitable[Eviction]]

MOST_AT_ONCE: Final = 64
"""Requests of one eviction in flight."""
MARK_ROUNDS: Final = 3
"""How often at most pods are marked that join a plan while it is being marked."""
RETRY_SECONDS: Final = 2.0
"""When evictions without a known outcome are repeated."""


@dataclass(slots=True, eq=False)
class EvictionRun:
    """How far one plan is, in this process."""

    plan: EvictionPlan
    began: float
    is_writing: bool = True
    """A task writes for it: nobody else acts on it."""
    waits: bool | None = None
    """Whether it waits for the time that its purpose has; None: if its own pods want time."""
    has_evicted: bool = False
    """Whether any of its pods was evicted by this process."""
    evicted_at: float = float("-inf")
    outcome: Outcome | None = None
    """How it ended; None while it goes on."""


R = TypeVar("R", bound=EvictionRun)


class EvictionPolicy(Generic[R]):
    """Decides who goes, and says what differs from the steps of the controller.

    A policy that is added to the controller is asked by :meth:`look` what to begin, every
    ``interval`` seconds or when it is woken. ``isolated`` counts what fails for one plan.
    """

    name: ClassVar[str]
    interval: float = 1.0
    is_serial: ClassVar[bool] = False
    """Whether what one plan needs is done before the next one is looked at."""
    isolated: Isolation

    @property
    def is_ready(self) -> bool:
        """Whether it may be asked yet."""
        return True

    def observe(self) -> None:
        """Take note of what has changed, before plans are judged."""

    async def look(self) -> None:
        """Decide, and begin what is decided."""

    async def prepare(self, run: R) -> Outcome | None:
        """Keep the room, or ask who protects the pods; return why the plan ends."""
        del run
        return None

    async def mark(self, run: R, pod: Pod, seconds: float) -> bool:
        """Mark a pod, which has some seconds to end by itself; return whether that was written."""
        raise NotImplementedError

    def add_joined(self, run: R) -> None:
        """Add the pods to the plan that have to go with it by now."""

    async def check_marked(self, run: R) -> Outcome | None:
        """Return why the plan ends although all its pods are marked."""
        return self.judge(run)

    def is_due(self, run: R) -> bool:
        """Whether a plan whose pods are marked is to be judged now."""
        del run
        return True

    def judge(self, run: R) -> Outcome | None:
        """Return why a plan ends; None while it goes on."""
        del run
        return None

    def choose_next(self, run: R, left: Sequence[Pod]) -> Sequence[Pod]:
        """Return whose turn it is, of the pods that are left."""
        del run
        return left

    async def evict(self, run: R, pods: Sequence[Pod]) -> list[Pod]:
        """Evict marked pods; return those that the server refuses to evict."""
        raise NotImplementedError

    async def cancel(self, run: R, outcome: Outcome) -> None:
        """Spare the pods that can go on, and take back what was written."""
        raise NotImplementedError

    async def finish_marked(self, unit: str, pods: Sequence[Pod]) -> None:
        """Evict or spare pods of one unit that are marked for no plan of this process."""

    def find_marked(self) -> Iterable[str]:
        """Return the uids of all pods that are marked for this policy."""
        return ()

    def take_over(self, run: R, hanging: Sequence[Pod]) -> bool:
        """Begin another plan in place of one whose pods do not go; False if it just ends."""
        del run, hanging
        return False

    def note_unmarked(self, run: R, pods: Sequence[Pod]) -> None:
        """Choose others than those that could not be marked."""

    def note_refused(self, run: R, pods: Sequence[Pod]) -> None:
        """Choose others than those that the server refuses to evict."""

    def note_marked(self, run: R) -> None:
        """Report that all pods are marked, and nobody has gone."""

    def note_evicted(self, run: R, pods: Sequence[Pod]) -> bool:
        """Report evictions; return whether the plan goes on until :meth:`judge` ends it."""
        del run, pods
        return False

    def note_waiting(self, run: R) -> None:
        """Report that a plan goes on."""

    def note_end(self, run: R, outcome: Outcome) -> None:
        """Take note of the end of a plan, whatever it is."""


@dataclass(slots=True)
class EvictionController:
    """Carries out plans; those of the policies that are added while :meth:`run` runs.

    Pods that want time to end by themselves get it, up to ``soft_limit`` seconds. ``patience`` says
    until when they have to be gone. ``clock`` is that of the planner.
    """

    state: ClusterState
    is_synced: Callable[[], bool]
    clock: Callable[[], float]
    limits: EvictionLimits = field(default_factory=EvictionLimits)
    soft_limit: float = 0.0
    patience: Patience = FOREVER
    evicted: set[str] = field(default_factory=set)
    """uids of evicted pods until the watch confirms it."""
    counts: defaultdict[str, Counter[Eviction]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    """Outcomes of evictions, by policy."""
    ended: defaultdict[str, Counter[Outcome]] = field(default_factory=lambda: defaultdict(Counter))
    """Ended plans, by policy and outcome."""
    on_step: Callable[[EvictionPlan, Sequence[Pod] | None, Outcome | None], None] = lambda *_: None
    """Called when a plan has begun, with the pods that it evicts, and with how it ended."""
    _policies: list[EvictionPolicy[Any]] = field(default_factory=list)
    _runs: dict[tuple[str, str], tuple[EvictionPolicy[Any], EvictionRun]] = field(
        default_factory=dict
    )
    _wakes: defaultdict[str, asyncio.Event] = field(
        default_factory=lambda: defaultdict(asyncio.Event)
    )
    _tasks: defaultdict[str, set[asyncio.Task[None]]] = field(
        default_factory=lambda: defaultdict(set)
    )

    def add(self, policy: EvictionPolicy[Any]) -> None:
        """Ask a policy from now on what to begin."""
        self._policies.append(policy)

    def wake(self, policy: str) -> None:
        self._wakes[policy].set()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as loops:
                for policy in self._policies:
                    loops.create_task(self._serve(policy))
        finally:
            for tasks in self._tasks.values():
                for task in tasks:
                    task.cancel()

    async def _serve(self, policy: EvictionPolicy[Any]) -> None:
        wake = self._wakes[policy.name]
        while True:
            wake.clear()
            if self.is_synced():
                await self.look(policy)
            with suppress(TimeoutError):
                async with asyncio.timeout(policy.interval):
                    await wake.wait()

    async def look(self, policy: EvictionPolicy[Any]) -> None:
        """Advance what was begun, by whomever, then begin what a policy decides."""
        if not policy.is_ready:
            return
        self._forget_confirmed()
        policy.observe()
        for run in self.runs_of(policy):
            if not run.is_writing:
                work = policy.isolated.call(run.plan.key, self.advance, policy, run)
                if work is not None and policy.is_serial:
                    await work
                elif work is not None:
                    self._spawn(policy, work)
        await self._finish_marked(policy)
        await policy.look()

    def runs_of(self, policy: EvictionPolicy[R]) -> list[R]:
        """Return the plans of a policy that are being carried out."""
        return [run for owner, run in self._runs.values() if owner is policy]  # type: ignore[misc]

    def find(self, policy: EvictionPolicy[R], key: str) -> R | None:
        """Return the run of a plan; None if it is not being carried out."""
        _, run = self._runs.get((policy.name, key), (None, None))
        return run  # type: ignore[return-value]

    def is_writing(self, policy: EvictionPolicy[R]) -> bool:
        return bool(self._tasks[policy.name])

    # --- carrying out ----------------------------------------------------------------------------

    def admit(self, plan: EvictionPlan, now: float) -> float:
        """Return until when a plan has to wait; ``now`` if it may go: then it counts."""
        until = self.limits.wait_until(plan, now)
        if until <= now:
            self.limits.note(plan, now)
        return until

    def begin(self, policy: EvictionPolicy[R], run: R) -> None:
        """Carry out an admitted plan, beside everything else."""
        self._runs[policy.name, run.plan.key] = policy, run
        self._spawn(policy, self._isolate(policy, run, self.carry_out(policy, run)))

    def resume(self, policy: EvictionPolicy[R], run: R) -> None:
        """Go on with a plan that a process before has begun: its pods are marked."""
        run.is_writing = False
        self._runs[policy.name, run.plan.key] = policy, run

    async def carry_out(self, policy: EvictionPolicy[R], run: R) -> Outcome | None:
        """Prepare, mark, judge again, and evict; return how it ended, None if it goes on.

        A failure ends the plan. Pods that are marked by then are found as those of no plan.
        """
        self._runs[policy.name, run.plan.key] = policy, run
        has_failed = True
        try:
            await self._carry_out(policy, run)
            has_failed = False
        finally:
            if has_failed and run.outcome is None:
                self._end(policy, run, Outcome.FAILED)
        return run.outcome

    async def _carry_out(self, policy: EvictionPolicy[R], run: R) -> None:
        outcome = await policy.prepare(run)
        if outcome is None and not await self._mark(policy, run):
            outcome = Outcome.UNMARKED
        if outcome is None:
            outcome = await policy.check_marked(run)
        if outcome is not None:
            await self._cancel(policy, run, outcome)
            return
        policy.note_marked(run)
        self.on_step(run.plan, None, None)
        has_time = self.find_deadline(policy, run) > 0 if run.waits is None else run.waits
        if has_time:
            run.is_writing = False
        else:
            await self._evict(policy, run)

    async def _mark(self, policy: EvictionPolicy[R], run: R) -> bool:
        """Mark all pods, with those that join them meanwhile; False if a write fails.

        That is judged once: what becomes of gangs afterwards spares nobody who is marked.
        """
        marked: set[str] = set()
        for _ in range(MARK_ROUNDS):
            pods = [pod for pod in run.plan.pods if pod.uid not in marked]
            written = await write_each(lambda pod: policy.mark(run, pod, self.grant(pod)), pods)
            unmarked = [pod for pod, is_done in zip(pods, written, strict=True) if not is_done]
            if unmarked:
                policy.note_unmarked(run, unmarked)
                return False
            marked.update(pod.uid for pod in pods)
            policy.add_joined(run)
            if len(run.plan.pods) == len(marked):
                break
        return True

    async def _evict(self, policy: EvictionPolicy[R], run: R) -> None:
        """Evict the pods whose turn it is."""
        run.evicted_at = self.clock()
        pods = policy.choose_next(run, self.find_unevicted(run))
        refused = await policy.evict(run, pods)
        run.evicted_at = self.clock()
        self.on_step(run.plan, [pod for pod in pods if pod.uid in self.evicted], None)
        run.has_evicted = run.has_evicted or not pods or len(refused) < len(pods)
        if refused:
            policy.note_refused(run, refused)
            await self._cancel(policy, run, Outcome.FAILED)
        elif policy.note_evicted(run, pods):
            run.is_writing = False
        else:
            self._end(policy, run, Outcome.ENDED)

    def advance(self, policy: EvictionPolicy[R], run: R) -> Coroutine[object, object, None] | None:
        """Judge a plan whose pods are marked; return what has to be written for it now."""
        if not policy.is_due(run):
            return None
        outcome = policy.judge(run)
        if outcome is not None:
            return self._begin_cancel(policy, run, outcome)
        left, now = self.find_left(run), self.clock()
        hanging = [pod for pod in left if pod.gone_by and self.patience.hangs(pod, now)]
        if hanging:
            names = named(sorted(pod.key for pod in hanging))
            log.warning("Evicted pods do not go", extra={"policy": policy.name, "pods": names})
            if policy.take_over(run, hanging):
                self.ended[policy.name][Outcome.STUCK] += 1
                return None
            return self._begin_cancel(policy, run, Outcome.STUCK)
        is_due = self.clock() >= run.evicted_at + RETRY_SECONDS
        has_time = not is_due or self.find_deadline(policy, run)
        if not has_time and policy.choose_next(run, self.find_unevicted(run)):
            run.is_writing = True
            return self._isolate(policy, run, self._evict(policy, run))
        policy.note_waiting(run)
        return None

    def _begin_cancel(
        self, policy: EvictionPolicy[R], run: R, outcome: Outcome
    ) -> Coroutine[object, object, None] | None:
        if outcome in {Outcome.BOUND, Outcome.ENDED}:
            self._end(policy, run, outcome)
            return None
        run.is_writing = True
        return self._isolate(policy, run, self._cancel(policy, run, outcome))

    async def _cancel(self, policy: EvictionPolicy[R], run: R, outcome: Outcome) -> None:
        if outcome not in {Outcome.BOUND, Outcome.ENDED}:
            await policy.cancel(run, outcome)
        self._end(policy, run, outcome)

    def _end(self, policy: EvictionPolicy[R], run: R, outcome: Outcome) -> None:
        key = policy.name, run.plan.key
        if self._runs.get(key, (None, None))[1] is run:
            del self._runs[key]
        if not run.has_evicted and outcome is not Outcome.ENDED:
            self.limits.take_back(run.plan)
        run.outcome = outcome
        self.on_step(run.plan, None, outcome)
        self.ended[policy.name][outcome] += 1
        policy.note_end(run, outcome)

    # --- the pods of a plan ----------------------------------------------------------------------

    def find_left(self, run: EvictionRun) -> list[Pod]:
        """Return the pods of a plan that still use their nodes."""
        pods = (self.state.pods.get(pod.uid) for pod in run.plan.pods)
        return [pod for pod in pods if pod is not None and pod.node and not pod.phase.is_terminal]

    def find_unevicted(self, run: EvictionRun) -> list[Pod]:
        """Return the pods of a plan that nobody has deleted yet."""
        return [
            pod for pod in self.find_left(run) if not pod.gone_by and pod.uid not in self.evicted
        ]

    def grant(self, pod: Pod) -> float:
        """Return how many seconds a pod gets to end by itself."""
        return grant_time(pod, self.soft_limit)

    def find_deadline(self, policy: EvictionPolicy[R], run: R) -> float:
        """Return until when pods may end by themselves; 0 if they are to be evicted.

        All plans of one purpose wait for the last deadline, so that nobody is evicted while they
        may still be cancelled.
        """
        purpose, all_runs = run.plan.purpose, self.runs_of(policy)
        runs = [other for other in all_runs if other is run or other.plan.purpose == purpose != ""]
        now = self.clock()
        pods = [pod for other in runs for pod in self.find_unevicted(other)]
        deadline = find_deadline(pods, self.soft_limit, now)
        return deadline if deadline > now else 0.0

    def unit_of(self, pod: Pod) -> str:
        """Return what goes with a pod: the id of its group of gangs, or its uid."""
        return pod.uid if pod.gang is None else self.state.gangs.group(pod.gang.key).id

    def by_unit(self, pods: Iterable[Pod]) -> dict[str, list[Pod]]:
        """Return pods by what goes together."""
        units: dict[str, list[Pod]] = {}
        for pod in pods:
            units.setdefault(self.unit_of(pod), []).append(pod)
        return units

    async def evict_each(self, policy: str, pods: Iterable[Pod], evict: Evict) -> list[Pod]:
        """Evict pods; return those that the server refuses to evict."""
        marked = list(pods)
        outcomes = await write_each(lambda pod: self._evict_pod(policy, pod, evict), marked)
        return [pod for pod, outcome in zip(marked, outcomes, strict=True) if outcome.is_denied]

    async def evict_unit(self, policy: str, pods: Sequence[Pod], evict: Evict) -> Eviction:
        """Evict all pods, unless the first is refused; return its outcome.

        What is left is the caller's.
        """
        first, *remaining = pods
        outcome = await self._evict_pod(policy, first, evict)
        if not outcome.is_denied:
            await write_each(lambda pod: self._evict_pod(policy, pod, evict), remaining)
        return outcome

    async def _evict_pod(self, policy: str, pod: Pod, evict: Evict) -> Eviction:
        outcome = await evict(pod)
        self.counts[policy][outcome] += 1
        if outcome.is_done:
            self.evicted.add(pod.uid)
        return outcome

    # --- what is found ---------------------------------------------------------------------------

    async def _finish_marked(self, policy: EvictionPolicy[Any]) -> None:
        """Let a policy finish what is marked for none of its plans: a process before has ended."""
        planned = {pod.uid for run in self.runs_of(policy) for pod in run.plan.pods}
        left = sorted(set(policy.find_marked()) - planned - self.evicted)
        for unit, pods in self.by_unit(self.state.pods[uid] for uid in left).items():
            now = self.clock()
            if not policy.isolated.rests(unit, now):
                with policy.isolated.of(unit, now):
                    await policy.finish_marked(unit, pods)

    def _forget_confirmed(self) -> None:
        pods = self.state.pods
        current = ((uid, pods.get(uid)) for uid in self.evicted)
        # A reservation loses its node, and waits for another.
        self.evicted = {uid for uid, pod in current if pod and pod.node and not pod.gone_by}

    async def _isolate(self, policy: EvictionPolicy[R], run: R, work: Awaitable[object]) -> None:
        """Write for a plan; a failure ends it, so that it keeps no room for ever."""
        with policy.isolated.of(run.plan.key, self.clock()):
            await work
            return
        if run.outcome is None:
            self._end(policy, run, Outcome.FAILED)

    def _spawn(self, policy: EvictionPolicy[Any], work: Coroutine[object, object, None]) -> None:
        tasks = self._tasks[policy.name]
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(lambda task: _finish(tasks, task))


def _finish(tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
    tasks.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("An eviction failed unexpectedly", exc_info=error)


async def write_each(call: Callable[[Pod], Awaitable[T]], pods: Iterable[Pod]) -> list[T]:
    """Write to pods, a bounded number at once; return the outcomes in order."""
    slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def do(pod: Pod) -> T:
        async with slots:
            return await call(pod)

    return list(await asyncio.gather(*map(do, pods)))
