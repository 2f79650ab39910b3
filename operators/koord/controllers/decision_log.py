"""Records what was decided about units: the one place that placement and evictions tell.

It is told right after a decision, in the loop that plans, and keeps references only: a record costs
microseconds. It decides nothing, and nothing waits for it; what fails here costs a record.

Stages of a unit (seen, complete, running, ended, gone) are found by comparing counts of changed
gangs with what was recorded last. What ran before this process led is taken over in silence.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from typing_extensions import ParamSpec

from koord.controllers.commit import Commit
from koord.core.audit.changes import QuotaChanges, UnitSettings, compare_units
from koord.core.audit.records import (
    MOST_MESSAGE,
    MOST_NODES,
    MOST_PODS,
    MOST_UIDS,
    Attempt,
    AuditRecord,
    Began,
    Body,
    Committed,
    ConfigInForce,
    Evicted,
    EvictedPod,
    FailedWrite,
    FlagSet,
    Held,
    Placed,
    Preempting,
    RecordedUnit,
    RecordKind,
    SpecChanged,
    Term,
    Told,
    UnitSketch,
    find_recorded_owner,
)
from koord.core.audit.ring import Ring
from koord.core.audit.victims import Victims
from koord.core.engine.decision_trace import DecisionTrace
from koord.core.engine.queue import Queue
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import EvictionPlan, Outcome
from koord.core.eviction.preemption import name_of
from koord.core.model.changes import Changes
from koord.core.model.gang_history import Happened
from koord.core.model.gangs import GangKey, GangSpec, ObservedPodGroup
from koord.core.model.plan import Placement, Unit, UnitKey, Unplaced
from koord.core.model.pods import Handling, Pod, PodPhase
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason
from koord.core.model.text import cut
from koord.isolation import FAILURES, must_end

P = ParamSpec("P")

MOST_UNITS: Final = 1 << 16
"""Units that are followed; of more the oldest are forgotten."""
MOST_FLAG: Final = 64
_TOLD: Final = {
    Happened.DEGRADED: RecordKind.DEGRADED,
    Happened.TIMED_OUT: RecordKind.TIMED_OUT,
}
"""Episodes of gangs that no eviction tells of."""


@dataclass(slots=True)
class _Followed:
    """How far a gang or a single pod is, as recorded."""

    trace: str
    key: str
    attempts: int = 0
    is_complete: bool = False
    is_running: bool = False
    has_ended: bool = False
    is_held: bool = False
    is_unmade: bool = False
    """Whether no unit could be made of it when it was looked at last."""
    settings: UnitSettings | None = None
    sketch: UnitSketch | None = None
    """As it was recorded last."""


@dataclass(slots=True)
class DecisionLog:
    """Records into ``ring``. ``wall`` and ``steady`` return seconds; ``place_of`` a position."""

    ring: Ring
    state: ClusterState
    queue: Queue
    wall: Callable[[], float]
    steady: Callable[[], float]
    place_of: Callable[[GangKey], int | None] = field(default=lambda _: None)
    config: ConfigInForce | None = None
    trace_of: Callable[[UnitKey], DecisionTrace | None] = field(default=lambda _: None)
    """Returns what the nodes have said to a unit of this cycle, if somebody wanted to see it."""
    _followed: dict[str, _Followed] = field(default_factory=dict)
    """By gang, or uid of a single pod."""
    _victims: Victims = field(default_factory=Victims)
    _quotas: QuotaChanges = field(default_factory=QuotaChanges)
    _began: float = 0.0
    _has_looked: bool = False
    _cycle: int = 0
    _due: int = 0
    _micros: int = 0
    _refused: int = 0
    """Units that were refused in this cycle."""

    def begin_term(self, term: int, holder: str) -> None:
        """Record from now on, as the leader ``holder``."""
        self.ring.begin(term)
        self._began, self._has_looked = self.steady(), False
        self._followed.clear()
        self._victims.clear()
        self._quotas = QuotaChanges()
        self._add(RecordKind.TERM, None, Term(holder))
        if self.config is not None:
            self._add(RecordKind.CONFIG, None, self.config)

    def flag_set(self, flag: str, value: str, by: str) -> None:
        """Record that a debug flag was set."""
        flag_set = FlagSet(flag, cut(value, MOST_FLAG), cut(by, MOST_MESSAGE))
        self._safely(flag, self._add, RecordKind.FLAGS, None, flag_set)

    # --- placement -------------------------------------------------------------------------------

    def note(self, changes: Changes) -> None:
        """Record the stages that changed gangs and pods have reached; the queue has them by now."""
        for gang in changes.gangs:
            self._safely(gang, self._look_at_gang, gang)
        for uid in changes.singles:
            self._safely(uid, self._look_at_pod, uid)
        if self._victims:
            self._safely("victims", self._look_at_victims)
        if self._quotas.has_news(self.state.quotas.catalog):
            self._safely("quotas", self._look_at_quotas)
        self._has_looked = True

    def planned(self, seconds: float) -> None:
        """Note a cycle that took so long, before its refusals and placements."""
        self._cycle += 1
        self._due, self._micros = _ms(self.wall() - seconds), int(seconds * 1e6)
        self._refused = 0

    def refused(self, unit: Unit, refusal: Unplaced) -> None:
        try:
            self._refuse(unit, refusal)
        except Exception as error:  # noqa: BLE001 - it costs a record
            self._note_failure(unit.key, error)

    def placed(self, unit: Unit, placement: Placement) -> None:
        try:
            self._place(unit, placement)
        except Exception as error:  # noqa: BLE001 - the same
            self._note_failure(unit.key, error)

    def committed(self, unit: Unit, placement: Placement, outcome: Commit, seconds: float) -> None:
        self._safely(unit.key, self._commit, unit, placement, outcome, seconds)

    def _refuse(self, unit: Unit, refusal: Unplaced) -> None:
        self._refused += 1
        followed = self._follow(unit)
        if not followed.attempts and not unit.group:
            began = Began(_ms(unit.pods[0].created))
            self._add_sketch(RecordKind.SEEN, self._sketch(followed, unit), began)
        followed.attempts += 1
        reason = refusal.reason
        if followed.is_held or reason.reason_class is ReasonClass.HELD:
            self._hold(followed, reason, lambda: self._sketch(followed, unit).finish())
        now, place = int(self.wall() * 1000), self.place_of(followed.key)
        if self.ring.repeat(followed.trace, reason, now, place):
            return
        body = self._make_attempt(followed.attempts, reason, place, now)
        seen = self.trace_of(unit.key)
        if seen is not None:
            body.refusing = seen.refusing
        self._add_sketch(RecordKind.ATTEMPT, self._sketch(followed, unit), body, now)

    def _hold(
        self, followed: _Followed, reason: Reason | None, describe: Callable[[], RecordedUnit]
    ) -> None:
        """Record that somebody holds a unit from now on, or nobody any more."""
        is_held = reason is not None and reason.reason_class is ReasonClass.HELD
        if reason is not None and is_held and not followed.is_held:
            self._add(RecordKind.HELD, describe(), Held(reason))
        elif followed.is_held and not is_held:
            self._add(RecordKind.RELEASED, describe(), None)
        followed.is_held = is_held

    def _wait(self, unit: RecordedUnit, reason: Reason) -> None:
        """Record that something waits of which no unit can be made."""
        now = int(self.wall() * 1000)
        if not self.ring.repeat(unit.trace, reason, now, None):
            self._add(RecordKind.ATTEMPT, unit, self._make_attempt(0, reason, None, now))

    def _make_attempt(self, attempt: int, reason: Reason, place: int | None, now: int) -> Attempt:
        of = len(self.queue) + len(self.queue.blocked)
        cycle, micros = (self._cycle, self._micros) if attempt else (0, 0)
        return Attempt(attempt, reason, place, of, cycle, micros, now, now)

    def _place(self, unit: Unit, placement: Placement) -> None:
        charged = placement.charged
        followed = self._follow(unit)
        body = Placed(  # by position: that is a fifth faster
            placement.plan_id,
            placement.assignments,
            placement.topologies[0].domain if placement.topologies else (),
            int(unit.pods[0].created * 1000),
            int(unit.since * 1000),
            self._due,
            self._refused,
            self._cycle,
            tuple(sorted(set(charged.values())))[:MOST_UIDS] if charged else (),
            self.place_of(followed.key),
        )
        seen = self.trace_of(unit.key)
        if seen is not None:
            body.score = tuple(
                replace(table, nodes=table.nodes[:MOST_NODES]) for table in seen.tables[:MOST_PODS]
            )
        followed.attempts, followed.has_ended = 0, False
        if followed.is_held:
            self._hold(followed, None, lambda: self._sketch(followed, unit).finish())
        self._add_sketch(RecordKind.PLACED, self._sketch(followed, unit), body)

    def _commit(self, unit: Unit, placement: Placement, outcome: Commit, seconds: float) -> None:
        names = {pod.uid: pod.key for pod in unit.pods} if outcome.failures else {}
        failures = tuple(
            FailedWrite(names.get(uid, uid), failure.status, cut(failure.message, MOST_MESSAGE))
            for uid, failure in islice(outcome.failures.items(), MOST_PODS)
        )
        body = Committed(
            plan_id=placement.plan_id,
            releases=len(outcome.released),
            binds=len(outcome.bound),
            left_to_others=len(outcome.left_to_others),
            not_bound=len(outcome.not_bound),
            took_ms=_ms(seconds),
            failures=failures,
            more_failures=len(outcome.failures) - len(failures),
        )
        about = self._sketch(self._follow(unit), unit)
        self._add_sketch(RecordKind.COMMITTED, about, body)

    # --- evictions -------------------------------------------------------------------------------

    def eviction(
        self, plan: EvictionPlan, pods: Sequence[Pod] | None, outcome: Outcome | None
    ) -> None:
        """Record that a plan has begun, evicts ``pods``, or has an ``outcome``."""
        self._safely(plan.key, self._evict, plan, pods, outcome)

    def _evict(
        self, plan: EvictionPlan, pods: Sequence[Pod] | None, outcome: Outcome | None
    ) -> None:
        unit = self.queue.find(plan.beneficiary) if plan.beneficiary else None
        if pods is None:
            if unit is not None:
                body = Preempting(plan.policy, len(plan.pods), str(outcome or ""))
                self._add(RecordKind.PREEMPTING, self._describe(unit), body)
            return
        waiting = self.state.pods.get(plan.beneficiary)
        by = plan.beneficiary if unit is None else name_of(unit)
        by = by if waiting is None else waiting.title
        if unit is not None:
            self._victims.follow(plan, pods, self._describe(unit), self.steady())
        for members in _by_unit(pods):
            followed = self._follow_pod(members[0])
            followed.is_complete = followed.is_running = False
            followed.has_ended = True  # nobody is told twice that it is over
            named = tuple(EvictedPod(pod.name, pod.uid, pod.node) for pod in members[:MOST_PODS])
            gone = Evicted(plan.policy, by, len(members), named)
            self._add(RecordKind.EVICTED, self._describe_pods(followed, members), gone)

    def _look_at_victims(self) -> None:
        for unit, gone in self._victims.take_gone(self.state.pods, self.steady()):
            self._add(RecordKind.VICTIM_GONE, unit, gone)

    def _look_at_quotas(self) -> None:
        for changed in self._quotas.take(self.state.quotas.catalog):
            self._add(RecordKind.CHANGED, None, changed)

    def episode(self, pod_group: ObservedPodGroup, what: Happened, why: str) -> None:
        """Record what happened to a gang, unless evictions tell of it."""
        if what in _TOLD:
            unit = self._describe_gang(pod_group.key, pod_group.uid)
            self._add(_TOLD[what], unit, Told(cut(why, MOST_MESSAGE)))

    # --- stages ----------------------------------------------------------------------------------

    def _look_at_gang(self, gang: GangKey) -> None:
        gangs, followed = self.state.gangs, self._followed.get(gang)
        if gang not in gangs:
            if self._followed.pop(gang, None) is not None and followed is not None:
                self._add(RecordKind.GONE, self._describe_gang(gang, followed.trace), None)
            return
        tally, spec, pod_group = gangs.tally(gang), gangs.spec(gang), gangs.pod_group(gang)
        least = max(1, spec.min_member if spec is not None else 1)
        done = len(tally.done)
        runs = tally.running + done >= least
        if followed is None and not tally.total:
            return  # a PodGroup alone is nothing that happened: there may be thousands
        if followed is None:
            is_old = not self._has_looked and tally.bound_alive + done >= least
            trace = (
                pod_group.uid if pod_group is not None else next(iter(gangs.members(gang)), gang)
            )
            followed = self._remember(gang, _Followed(trace, gang, 0, is_old, is_old and runs))
            if not is_old:
                created = pod_group.created if pod_group is not None else 0.0
                pods = [pod.created for pod in gangs.members(gang).values()]
                began = Began(_ms(created or min(pods, default=self.wall())))
                self._add(RecordKind.SEEN, self._describe_gang(gang, trace), began)
        is_over = not tally.alive and not tally.running
        has_ended = is_over and bool(tally.total or followed.is_running)
        self._advance(followed, gang, runs=runs, has_ended=has_ended)

    def _advance(self, followed: _Followed, gang: GangKey, *, runs: bool, has_ended: bool) -> None:
        """Record what a gang that is known has reached since."""

        def add(kind: RecordKind, body: Body = None) -> None:
            self._add(kind, self._describe_gang(gang, followed.trace), body)

        unit = next(filter(None, map(self.queue.find, self.queue.units_of(gang))), None)
        if unit is not None and not followed.is_complete:
            followed.is_complete, followed.has_ended = True, False
            add(RecordKind.COMPLETE, Began(_ms(unit.since)))
        self._note_settings(followed, self.state.gangs.spec(gang), unit)
        waits = self.queue.waiting.get(gang)
        if waits is not None or followed.is_unmade:
            self._hold(followed, waits, lambda: self._describe_gang(gang, followed.trace))
        followed.is_unmade = waits is not None
        if waits is not None and waits.reason_class not in {None, ReasonClass.INCOMPLETE}:
            self._wait(self._describe_gang(gang, followed.trace), waits)
        if runs and not followed.is_running:
            followed.is_running, followed.has_ended = True, False
            add(RecordKind.RUNNING)
        if has_ended and not followed.has_ended:
            followed.has_ended, followed.is_complete, followed.is_running = True, False, False
            add(RecordKind.ENDED)

    def _note_settings(self, followed: _Followed, spec: GangSpec | None, unit: Unit | None) -> None:
        """Record what was changed of a unit; its quota and priority count while it waits."""
        before = followed.settings
        if unit is not None:
            quotas = self.state.quotas
            quota = quotas.quota_of(unit.pods[0]) if quotas.is_in_use else None
            followed.settings = UnitSettings(spec, unit.priority, quota)
        elif before is not None:
            followed.settings = before._replace(spec=spec)
        after = followed.settings
        if before is None or after is None or before == after:
            return
        changes = compare_units(before, after)
        followed.sketch = None
        if changes and unit is not None:
            about = self._sketch(followed, unit)
            self._add_sketch(RecordKind.CHANGED, about, SpecChanged(changes))
        elif changes and spec is not None:
            gang = self._describe_gang(spec.key, followed.trace)
            self._add(RecordKind.CHANGED, gang, SpecChanged(changes))

    def _look_at_pod(self, uid: str) -> None:
        pod, followed = self.state.pods.get(uid), self._followed.get(uid)
        if pod is None:
            if followed is not None:
                del self._followed[uid]
                if not followed.has_ended:
                    about = RecordedUnit(
                        followed.key, followed.key.partition("/")[0], uid, (followed.key,)
                    )
                    self._add(RecordKind.GONE, about, None)
            return
        is_ours = pod.handling is not Handling.NOT_OURS or pod.recorded is not None
        if not is_ours or (followed is None and pod.node and not self._has_looked):
            return
        followed = followed or self._follow_pod(pod)
        self._note_settings(followed, None, self.queue.find(uid))
        waits = self.queue.waiting.get(uid)
        if waits is not None or followed.is_unmade:
            unit = self._describe_pods(followed, (pod,))
            self._hold(followed, waits, lambda: unit)
        followed.is_unmade = waits is not None
        if pod.phase is PodPhase.RUNNING and not followed.is_running:
            followed.is_running = True
            self._add(RecordKind.RUNNING, self._describe_pods(followed, (pod,)), None)
        if pod.phase.is_terminal and not followed.has_ended:
            followed.has_ended = True
            self._add(RecordKind.ENDED, self._describe_pods(followed, (pod,)), None)

    # --- whom records are about ------------------------------------------------------------------

    def _follow(self, unit: Unit) -> _Followed:
        pod = unit.pods[0]
        gang = unit.demands[0].gang if unit.group else ""
        followed = self._followed.get(gang or pod.uid)
        return self._follow_pod(pod, gang) if followed is None else followed

    def _follow_pod(self, pod: Pod, gang: GangKey = "") -> _Followed:
        gang = gang or ("" if pod.gang is None else pod.gang.key)
        followed = self._followed.get(gang or pod.uid)
        if followed is not None:
            return followed
        pod_group = self.state.gangs.pod_group(gang) if gang else None
        trace = pod.uid if pod_group is None else pod_group.uid
        return self._remember(gang or pod.uid, _Followed(trace, gang or pod.title))

    def _remember(self, key: str, followed: _Followed) -> _Followed:
        if len(self._followed) >= MOST_UNITS:
            del self._followed[next(iter(self._followed))]
        self._followed[key] = followed
        return followed

    def _describe(self, unit: Unit) -> RecordedUnit:
        return self._sketch(self._follow(unit), unit).finish()

    def _sketch(self, followed: _Followed, unit: Unit) -> UnitSketch:
        """Return whom a record is about: made once, for all that is decided about it."""
        sketch = followed.sketch
        if sketch is None or not sketch.is_about(unit):
            quota = "" if followed.settings is None else followed.settings.quota or ""
            sketch = followed.sketch = UnitSketch(unit, followed.trace, quota)
        return sketch

    def _describe_pods(self, followed: _Followed, pods: Sequence[Pod]) -> RecordedUnit:
        return RecordedUnit(
            key=followed.key,
            namespace=pods[0].namespace,
            trace=followed.trace,
            names=(followed.key,),
            owner=find_recorded_owner(pods[0]),
            uids=tuple(pod.uid for pod in pods[:MOST_UIDS]),
            pods=len(pods),
        )

    def _describe_gang(self, gang: GangKey, trace: str) -> RecordedUnit:
        gangs = self.state.gangs
        members, spec = (gangs.members(gang), gangs.spec(gang)) if gang in gangs else ({}, None)
        first = next(iter(members.values()), None)
        return RecordedUnit(
            key=gang,
            namespace=gang.partition("/")[0],
            trace=trace,
            names=(gang,),
            owner=None if first is None else find_recorded_owner(first),
            uids=tuple(islice(members, MOST_UIDS)),
            pods=len(members),
            required=0 if spec is None else spec.min_member,
        )

    def _safely(self, key: str, record: Callable[P, None], *args: P.args, **more: P.kwargs) -> None:
        """Call a function; a failure is counted, and costs a record."""
        try:
            record(*args, **more)
        except Exception as error:  # noqa: BLE001 - the same
            self._note_failure(key, error)

    def _note_failure(self, key: str, error: Exception) -> None:
        if must_end(error):
            raise error
        FAILURES.note("audit", key, error)

    def _add(self, kind: RecordKind, unit: RecordedUnit | None, body: Body) -> None:
        at, mono = int(self.wall() * 1000), int((self.steady() - self._began) * 1000)
        self.ring.append(AuditRecord(kind, unit, body, at, mono))

    def _add_sketch(
        self, kind: RecordKind, sketch: UnitSketch, body: Body, at: int | None = None
    ) -> None:
        at = int(self.wall() * 1000) if at is None else at
        mono = int((self.steady() - self._began) * 1000)
        self.ring.append(AuditRecord(kind, None, body, at, mono, None, 0, 0, 0, sketch))


def _by_unit(pods: Iterable[Pod]) -> list[list[Pod]]:
    units: dict[str, list[Pod]] = {}
    for pod in pods:
        units.setdefault(pod.uid if pod.gang is None else pod.gang.key, []).append(pod)
    return list(units.values())


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
