"""The policy of preemption, as far as it decides: when victims are searched, and for whom.

A unit is tried once after each refusal by the planner, and from time to time, because running pods
may have become evictable. After a cancelled preemption it pauses, longer each time.

What becomes of a preemption after it was planned: whether it still holds, which of its victims go
next, and its reasons. The planner is the only judge, as in the search. Victims that may stay long
after their deletion (``Patience.is_doubtful``) go before the others, so that nobody goes for a unit
that then cannot start. Pods whose namespace has pods that hang come next: their owner may have done
something that cannot be seen. Nothing here evicts or writes.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar, Final

from koord.core.engine.holds import Holds
from koord.core.engine.planner import plan
from koord.core.engine.queue import Queue
from koord.core.engine.refused_units import Blocked
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.candidates import is_placed
from koord.core.eviction.limits import Pauses
from koord.core.eviction.model import Exempt, Preemption, VictimKind, VictimUnit
from koord.core.eviction.protection import find_lasting_protection, is_foreign
from koord.core.eviction.reasons import TerminationStuck, WaitsForTermination
from koord.core.eviction.reclaim import can_keep_running
from koord.core.eviction.search import (
    DEFAULT_OPTIONS,
    NO_CONTEXT,
    PreemptionContext,
    PreemptionOptions,
    plan_preemption,
)
from koord.core.eviction.turns import find_busy_trees, find_ending, tree_of, waits_instead
from koord.core.gang.cache import GangCache
from koord.core.gang.done import count_done
from koord.core.model.budgets import Budget
from koord.core.model.gangs import GangKey
from koord.core.model.patience import FOREVER, Patience
from koord.core.model.plan import Assignment, Unit, UnitKey
from koord.core.model.pods import Nominated, Pod
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason
from koord.core.model.text import format_time, named
from koord.core.plugins.nominations import Nomination
from koord.core.quota.model import TreeId
from koord.isolation import Isolation

_MOST_AHEAD: Final = 32
"""Waiting units of a higher priority that are planned before a preemptor."""


def fits(
    state: ClusterState,
    unit: Unit,
    gone: Collection[Pod] = (),
    ahead: Iterable[Unit] = (),
    context: PreemptionContext = NO_CONTEXT,
) -> bool:
    """Whether a unit fits without some pods; units ``ahead`` of it take their room first."""
    state.refresh()
    with closing(state.open_cycle(context.pending)) as cycle:
        if context.prepare is not None:
            context.prepare(cycle)
        cycle.remove(gone)
        units = (*tuple(ahead)[:_MOST_AHEAD], unit)
        placed = plan(cycle, units, Scoring()).placements
        return any(placement.unit == unit.key for placement in placed)


def breaks_gangs(gangs: GangCache, victims: Collection[Pod]) -> bool:
    """Whether gangs live on below their minimum without these pods.

    Members that another scheduler has placed go with nobody, so they keep nobody either.
    """
    gone = {pod.uid for pod in victims}

    def count(gang: GangKey) -> int:
        return sum(pod.uid not in gone for pod in _find_running(gangs, gang))

    for gang in {pod.gang.key for pod in victims if pod.gang is not None}:
        spec, alive = gangs.spec(gang), sum(map(count, gangs.group(gang).gangs))
        enough = count(gang) + count_done(gangs, gang)
        if spec is not None and alive and enough < spec.min_member:
            return True
    return False


def can_go_on(gangs: GangCache, pods: Collection[Pod]) -> bool:
    """Whether marked pods are of use: deletions only begin once a whole gang is marked."""
    marked = {pod.uid for pod in pods}
    together = {
        gang for pod in pods if pod.gang is not None for gang in gangs.group(pod.gang.key).gangs
    }
    running = (pod for gang in together for pod in _find_running(gangs, gang) if pod.node)
    is_begun = all(pod.uid in marked for pod in running)
    return not is_begun or can_keep_running(gangs, pods)


def add_joined(state: ClusterState, preemption: Preemption) -> Preemption:
    """Return a preemption whose gangs end with the members that they got since it was planned.

    Not with those that may never be evicted for it. The gangs are those of the plan: its victims
    may have been given others since.
    """
    victims = tuple(_add_joined(state, victim, preemption) for victim in preemption.victims)
    return preemption if victims == preemption.victims else replace(preemption, victims=victims)


def _add_joined(state: ClusterState, victim: VictimUnit, preemption: Preemption) -> VictimUnit:
    if victim.kind is not VictimKind.GANG:
        return victim
    limit = min(assignment.pod.priority for assignment in preemption.placement.assignments)
    planned = {pod.uid for pod in preemption.pods}
    gangs = sorted({pod.gang.key for pod in victim.pods if pod.gang is not None})
    joined = tuple(
        pod
        for gang in gangs
        for pod in _find_running(state.gangs, gang)
        if pod.uid not in planned
        and pod.priority < limit
        and find_lasting_protection(state, pod) is None
    )
    return replace(victim, pods=victim.pods + joined) if joined else victim


def _find_running(gangs: GangCache, gang: GangKey) -> list[Pod]:
    """Return the members that we have placed, and that do not leave."""
    members = gangs.members(gang).values()
    return [pod for pod in members if is_placed(pod) and pod.is_alive and not is_foreign(pod)]


def find_leaving(state: ClusterState, patience: Patience, now: float) -> list[Pod]:
    """Return the pods on nodes that are deleted or marked, except those that hang."""
    return [
        pod
        for pod in state.pods.values()
        if pod.is_terminating
        and pod.node
        and not pod.phase.is_terminal
        and not patience.hangs(pod, now)
    ]


def find_left(state: ClusterState, nomination: Nomination) -> list[Pod]:
    """Return the victims that still use their nodes."""
    pods = (state.pods.get(pod.uid) for pod in nomination.victims)
    return [pod for pod in pods if pod is not None and pod.node and not pod.phase.is_terminal]


def grant_time(pod: Pod, most: float) -> float:
    """Return how many seconds a pod gets to end by itself; ``most`` is the longest time."""
    return min(pod.soft_eviction, most)


def find_deadline(victims: Iterable[Pod], most: float, now: float) -> float:
    """Return until when marked pods may end by themselves, in seconds since the epoch.

    All wait for the one that wants the longest time, but for ``most`` seconds, so that nobody is
    deleted while the preemption may still be cancelled. 0: nobody wants any time. The time begins
    with the mark, or ``now`` if the mark has not been seen yet.
    """
    granted = ((pod, grant_time(pod, most)) for pod in victims)
    return max(((pod.marked or now) + seconds for pod, seconds in granted if seconds), default=0.0)


def find_nominations(state: ClusterState, now: float = 0.0) -> list[Nomination]:
    """Return the nominations that pods record, with the victims that are marked for them.

    Earlier releases did not record when it began; then it is ``now``.
    """
    nominees: dict[tuple[str, str], list[Assignment]] = {}
    for pod in state.pods.values():
        if pod.nominated is not None and pod.is_waiting:
            key = pod.nominated.plan_id, pod.nominated.unit
            nominees.setdefault(key, []).append(Assignment(pod, pod.nominated.node))

    def begun(assignments: Iterable[Assignment]) -> float:
        nominations = (assignment.pod.nominated for assignment in assignments)
        return min(
            (nominated.since for nominated in nominations if nominated is not None), default=0.0
        )

    victims: dict[str, list[Pod]] = {}
    for uid in sorted(state.preempted):
        pod = state.pods[uid]
        if pod.preempted_by is not None:
            victims.setdefault(pod.preempted_by.plan_id, []).append(pod)
    return [
        Nomination(plan_id, unit, tuple(pods), tuple(victims.get(plan_id, ())), begun(pods) or now)
        for (plan_id, unit), pods in sorted(nominees.items(), key=lambda item: item[0])
    ]


def nominate(preemption: Preemption, now: float = 0.0) -> Nomination:
    """Return the nomination of a planned preemption."""
    placement = preemption.placement
    return Nomination(
        placement.plan_id, preemption.preemptor, placement.assignments, preemption.pods, now
    )


def record(nomination: Nomination, node: str) -> Nominated:
    """Return what a pod records of its nomination."""
    count = len(nomination.assignments)
    return Nominated(node, nomination.plan_id, nomination.unit, count, nomination.since)


def name_of(unit: Unit) -> str:
    """Return what users call a unit: its gangs, the pod, or the reservation."""
    return unit.group or unit.pods[0].title


def write_considered(preemption: Preemption) -> str:
    """Return what else was considered, in one sentence; empty if nothing was."""
    if not preemption.alternatives:
        return ""
    first = preemption.alternatives[0]
    names = named([victim.name for victim in first.victims])
    return f" Also considered: {names}, which would have cost more."


def write_victims(victims: Iterable[VictimUnit]) -> str:
    """Return the names of victims, gangs first."""
    units = sorted(victims, key=lambda victim_unit: (not victim_unit.gangs, victim_unit.name))
    return named([unit.name for unit in units])


@dataclass(frozen=True, slots=True)
class WaitingForPreemption(Reason):
    """Victims are still terminating.

    Pods are evicted for the unit; ``left`` of its ``pods`` victims are still there.
    """

    code: ClassVar = "WaitingForPreemption"
    reason_class: ClassVar = ReasonClass.ENDING
    is_capacity: ClassVar = True
    also_true: ClassVar = MappingProxyType({"Preempting": "VictimsTerminating"})
    way_out: ClassVar = "wait; `koord explain` names them"
    says: ClassVar = (
        "preempting {victims}: {left} of {pods:# pod} "
        "{until:?may end by themselves until {until}|still terminating} (plan {plan_id})"
    )
    victims: str
    pods: int
    left: int
    plan_id: str = ""
    until: str = ""
    """Until when the victims may end by themselves, for users; empty: they are being deleted."""


def find_preempting(state: ClusterState, unit: UnitKey) -> WaitingForPreemption | None:
    """Return what a unit waits for whose victims are still there; None if it preempts nobody."""
    nomination = state.nominations.find(unit)
    if nomination is None:
        return None
    victims, left = nomination.victims, find_left(state, nomination)
    if not left:
        return None
    names = sorted({pod.gang.key if pod.gang is not None else pod.title for pod in victims})
    until = max(pod.ends_until * (not pod.gone_by) for pod in left)
    until_text = format_time(until) if until else ""
    return WaitingForPreemption(
        named(names), len(victims), len(left), nomination.plan_id, until_text
    )


def find_hanging_namespaces(state: ClusterState, patience: Patience, now: float) -> frozenset[str]:
    """Return the namespaces of pods that hang on nodes."""
    return frozenset(
        pod.namespace
        for pod in state.pods.values()
        if pod.node and not pod.phase.is_terminal and patience.hangs(pod, now)
    )


def find_next(
    left: Collection[Pod],
    undeleted: Iterable[Pod],
    unit_of: Callable[[Pod], str],
    doubt: Callable[[Pod], int],
) -> list[Pod]:
    """Return the victims to delete now: the most doubtful units, until they are gone.

    ``left`` are the victims that are still there, ``undeleted`` those to delete at some time.
    """
    doubts: dict[str, int] = {}
    for pod in left:
        doubts[unit_of(pod)] = max(doubts.get(unit_of(pod), 0), doubt(pod))
    most = max(doubts.values(), default=0)
    return [pod for pod in undeleted if doubts.get(unit_of(pod), 0) == most]


SEARCHES_PER_LOOK: Final = 4
"""Searches between two pauses for everything else."""
RETRY_ALL_SECONDS: Final = 30.0
"""How often blocked units are tried without having been refused again."""
FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""Between preemptions of a unit of which the last one was cancelled."""
REFUSED_SECONDS: Final = 300.0
"""How long a unit is exempt after the server refused to evict it."""
FIRST_EXEMPTION_SECONDS: Final = 20.0
"""How long a unit is exempt after it could not be marked; four times as long each time after."""


@dataclass(slots=True)
class PreemptionSearch:
    """Which units are tried when, and without which victims. ``budgets`` are as read last."""

    state: ClusterState
    queue: Queue
    holds: Holds
    clock: Callable[[], float]
    options: PreemptionOptions = DEFAULT_OPTIONS
    patience: Patience = FOREVER
    _isolated: Isolation = field(default_factory=lambda: Isolation("preemption-search"))
    _why_not: dict[UnitKey, Reason] = field(default_factory=dict)
    """Units for which nobody is preempted because of pods that leave."""
    _tried: dict[UnitKey, Blocked] = field(default_factory=dict)
    """Unit -> the refusal after which it was tried last."""
    budgets: tuple[Budget, ...] = ()
    _pauses: Pauses = field(
        default_factory=lambda: Pauses(
            FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, remembered=LONGEST_PAUSE_SECONDS
        )
    )
    """Units of which the last preemption was cancelled."""
    _exempt: Pauses = field(
        default_factory=lambda: Pauses(
            FIRST_EXEMPTION_SECONDS, REFUSED_SECONDS, 4.0, remembered=REFUSED_SECONDS
        )
    )
    """Units that could not be evicted."""
    _retry_all_at: float = 0.0

    def take_due(self, busy: Collection[UnitKey]) -> list[Blocked]:
        """Return the units to try now, in order; not those that are ``busy`` preempting."""
        now = self.clock()
        if now >= self._retry_all_at:
            self._retry_all_at = now + RETRY_ALL_SECONDS
            self._tried.clear()
        self._drop_stale(now)
        self._retry_overdue()
        trees = self._find_busy_trees()
        due = [
            blocked_unit
            for key, blocked_unit in self.queue.blocked.items()
            if key not in busy
            and self._is_due(blocked_unit, now)
            and not self._is_after_others(blocked_unit, trees)
        ]
        if not due:
            return []
        lowest = min(self.state.evictable, default=float("inf"))
        for blocked_unit in due:
            if min(pod.priority for pod in blocked_unit.unit.pods) <= lowest:
                self._tried[blocked_unit.unit.key] = blocked_unit
        return sorted(
            (
                blocked_unit
                for blocked_unit in due
                if self._tried.get(blocked_unit.unit.key) is not blocked_unit
            ),
            key=_order,
        )

    def is_worth_it(self, blocked: Blocked) -> bool:
        """Whether a unit is still waiting for the same reason; counts as an attempt.

        Not while the plan of another unit of its quota tree is carried out.
        """
        key = blocked.unit.key
        if self._is_after_others(blocked, self._find_busy_trees()):
            return False
        self._tried[key] = blocked
        return self.queue.blocked.get(key) is blocked

    def find(self, unit: Unit, terminating: Collection[str]) -> Preemption | None:
        """Return a preemption for a unit; ``terminating`` are uids that were evicted already."""
        ours = {pod.uid for nomination in self.state.nominations for pod in nomination.victims}
        units = self._exempt.active(self.clock())
        ending = find_ending(self.state, self.patience, self.clock())
        exempt = Exempt(units, ours | set(terminating) | ending, self.patience)
        context = self._context_of(unit)
        preemption = self._isolated.call(
            unit.key, plan_preemption, self.state, unit, self.options, exempt, context
        )
        self._why_not.pop(unit.key, None)
        if isinstance(preemption, WaitsForTermination | TerminationStuck):
            self._why_not[unit.key] = preemption
        return (
            preemption
            if isinstance(preemption, Preemption) and self._lasts(unit, preemption)
            else None
        )

    def why_not(self, unit: UnitKey) -> Reason | None:
        """Return which pods that leave are the reason why nobody is preempted for a unit."""
        return self._why_not.get(unit)

    def _retry_overdue(self) -> None:
        """Try units again that have waited long enough for pods that leave."""
        now = self.clock()
        for key, reason in self._why_not.items():
            if isinstance(reason, WaitsForTermination) and now > reason.until:
                self._tried.pop(key, None)

    def fits(self, unit: Unit, gone: Collection[Pod] = (), ahead: Iterable[Unit] = ()) -> bool:
        """Whether a unit fits without some pods, after units that are ``ahead`` of it."""
        return fits(self.state, unit, gone, ahead, self._context_of(unit))

    def _context_of(self, unit: Unit) -> PreemptionContext:
        return PreemptionContext(
            self.clock(),
            self.budgets,
            lambda cycle: self.holds.reserve(cycle, unit, Scoring()),
            self.queue.pending,
        )

    def exempt(self, units: Iterable[str]) -> None:
        """Do not choose these victims for a while."""
        for key in set(units):
            self._exempt.note(key, self.clock(), REFUSED_SECONDS)

    def exempt_for_now(self, units: Iterable[str]) -> None:
        """Do not choose victims that could not be marked: for longer each time."""
        for key in set(units):
            self._exempt.note(key, self.clock())

    def note_end(self, unit: UnitKey, *, is_done: bool) -> None:
        """Note the end of a preemption; unless it is done, the unit pauses and is tried again."""
        self._tried.pop(unit, None)
        if is_done:
            self._pauses.end(unit)
        else:
            self._pauses.note(unit, self.clock())

    def _is_due(self, blocked: Blocked, now: float) -> bool:
        unit = blocked.unit
        return (
            blocked.reason.is_capacity
            and self._tried.get(unit.key) is not blocked
            and self._pauses.until(unit.key) <= now
            and bool(unit.required)
            and len(blocked.pods) == len(unit.pods)
            and not waits_instead(self.state, unit)
        )

    def _find_busy_trees(self) -> set[TreeId]:
        return find_busy_trees(self.state, self.patience, self.clock())

    def _is_after_others(self, blocked: Blocked, trees: Collection[TreeId]) -> bool:
        return bool(trees) and tree_of(self.state, blocked.unit.pods) in trees

    def _drop_stale(self, now: float) -> None:
        blocked = self.queue.blocked
        self._tried = {
            key: blocked_unit for key, blocked_unit in self._tried.items() if key in blocked
        }
        self._exempt.drop_old(now)
        self._why_not = {key: reason for key, reason in self._why_not.items() if key in blocked}
        self._pauses.drop_old(now, lambda key: self.queue.find(key) is not None)

    def _lasts(self, unit: Unit, preemption: Preemption) -> bool:
        """Whether units that go first would leave the room to this one."""
        ahead = [
            blocked_unit
            for blocked_unit in self.queue.blocked.values()
            if blocked_unit.reason.is_capacity and blocked_unit.unit.priority > unit.priority
        ]
        if not ahead:
            return True
        units = [blocked_unit.unit for blocked_unit in sorted(ahead, key=_order)]
        leaving = find_leaving(self.state, self.patience, self.clock())
        return self.fits(unit, [*preemption.pods, *leaving], units)


def _order(blocked: Blocked) -> tuple[int, float, str]:
    unit = blocked.unit
    return -unit.priority, unit.since, unit.key
