"""The placement operator on a state that a test fills, with a stand-in for what writes to pods."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

from tests.cluster import make_cluster

from koord.controllers.commit import Commit
from koord.controllers.eviction import EvictionController
from koord.controllers.placement import PlacementController
from koord.controllers.restart import RESTART_LIMIT, GangRestarts
from koord.controllers.writes_in_flight import BindTurns
from koord.core.device.vendors import Locked, NeedsLock, take_lock
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.limits import EvictionLimits
from koord.core.model.gangs import GangKey, ObservedPodGroup
from koord.core.model.plan import Assignment, Placement, Unit
from koord.core.model.pods import Pod, RecordedPlan
from koord.core.model.reasons import Reason
from koord.kube.evictor import Eviction
from koord.kube.outcomes import Done, Outcome, Refused, Unknown


class Writer:
    """Accepts every write, and applies it to the state as the watch would.

    ``answers`` has other outcomes by pod name. With ``is_late`` the watch delivers nothing.
    """

    def __init__(self, state: ClusterState) -> None:
        self.answers: dict[str, Outcome] = {}
        self.is_late = False
        self.bound: dict[str, str] = {}
        self.evicted: list[str] = []
        self.protected: set[str] = set()
        self.writes: Counter[str] = Counter()
        self.locked: Locked | None = None
        """The lock of every node …"""
        self.held: str | None = None
        """… or its text."""
        self.taken: list[tuple[str, str, str]] = []
        self._state = state

    async def take(self, node: str, key: str, pod: str, needs_it: NeedsLock) -> Locked | None:
        now = datetime.now(UTC)
        assert needs_it(pod, now.timestamp())
        self.taken.append((node, key, pod))
        if self.held is None:
            return self.locked
        taken = take_lock(self.held, pod, needs_it, now)
        return taken if isinstance(taken, Locked) else None

    async def release(self, assignment: Assignment, placement: Placement, **_: float) -> Outcome:
        pod = self._state.observed(assignment.pod.uid)
        self.writes[assignment.pod.name] += 1
        answer = self.answers.get(assignment.pod.name, Done())
        if isinstance(answer, Done) and pod is not None and not self.is_late:
            plan = RecordedPlan(assignment.node, placement.plan_id, placement.group, 1)
            self._state.upsert_pod(replace(pod, recorded=plan, is_gated=False))
        return answer

    async def may_go(self, pods: tuple[Pod, ...]) -> bool:
        return not self.protected & {pod.name for pod in pods}

    async def restart(self, pod: Pod) -> Eviction:
        self.writes[pod.name] += 1
        if pod.name in self.answers:
            return Eviction.REFUSED
        self.evicted.append(pod.name)
        self._state.remove_pod(pod.uid)
        return Eviction.EVICTED

    async def read_release(self, assignment: Assignment, _: Placement, of: Unknown) -> Outcome:
        pod = self._state.observed(assignment.pod.uid)
        is_gated = pod is not None and pod.is_gated
        return Refused(of.status, of.message) if is_gated else Done()

    async def read_bind(self, assignment: Assignment, _: Placement, of: Unknown) -> Outcome:
        pod = self._state.observed(assignment.pod.uid)
        return Done() if pod is not None and pod.node else Refused(of.status, of.message)

    async def bind(self, assignment: Assignment, _: Placement, **__: float) -> Outcome:
        pod = self._state.observed(assignment.pod.uid)
        self.writes[assignment.pod.name] += 1
        answer = self.answers.get(assignment.pod.name, Done())
        if isinstance(answer, Done) and pod is not None:
            self.bound[pod.name] = assignment.node
            self._state.upsert_pod(replace(pod, node=assignment.node))
        return answer


class Observer:
    """Counts nothing."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Announcer:
    """Records the reasons of events."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def announce_event(self, _: ObservedPodGroup, reason: Reason, note: str) -> None:
        assert note
        self.told.append(str(reason.code))


class Reporter:
    """Records the gangs to report on."""

    def __init__(self, noted: set[GangKey]) -> None:
        self._noted = noted

    def note(self, gangs: set[GangKey], singles: set[str]) -> None:
        self._noted |= gangs

    def note_numbers(self, gangs: set[GangKey], singles: set[str]) -> None: ...

    def placed(self, unit: Unit, outcome: Commit) -> None: ...


def make_evictions(
    state: ClusterState, is_synced: Callable[[], bool] = lambda: True
) -> EvictionController:
    """Return the controller of evictions, with the limits of the operators."""
    limits = EvictionLimits((RESTART_LIMIT,))
    return EvictionController(state, is_synced, time.time, limits)


class Scene:
    """A cluster, and the operator that plans it."""

    def __init__(self) -> None:
        self.state = make_cluster().state
        self.writer = Writer(self.state)
        self.announcer = Announcer()
        self.is_synced = True
        self.noted: set[GangKey] = set()
        self.evictions = make_evictions(self.state, lambda: self.is_synced)
        self.operator = PlacementController(
            state=self.state,
            binder=self.writer,  # type: ignore[arg-type]
            turns=BindTurns(self.state, self.writer, time.monotonic),
            scoring=Scoring(),
            observer=Observer(),
            reporter=Reporter(self.noted),
            restarts=GangRestarts(self.evictions, self.writer, self.announcer),
            is_synced=lambda: self.is_synced,
            clock=time.time,
        )

    def add(self, *pods: Pod) -> None:
        """Show pods to the operator."""
        for pod in pods:
            self.state.upsert_pod(pod)
        self.operator.wake()

    def remove(self, name: str) -> None:
        self.state.remove_pod(f"uid-default-{name}")
        self.operator.wake()

    def reason(self, name: str) -> str:
        """Return the reason of a pending pod, or an empty text."""
        pod = self.state.pod_by_key(f"default/{name}")
        assert pod is not None
        reason = self.operator.reason_for(pod)
        return "" if reason is None else str(reason.code)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.operator.run())
            yield
            self.operator.stop()

    async def settle(self) -> None:
        """Let the operator finish its current work."""
        for _ in range(10):
            # On a busy machine only one step may be done during one long sleep.
            await asyncio.sleep(0.005)

    async def eventually(self, is_true: Callable[[], bool]) -> bool:
        """Wait for a condition; return whether it became true."""
        for _ in range(200):
            if is_true():
                return True
            await self.settle()
        return False
