"""Joins suspended Jobs to the planner: they are planned by stand-ins, made from their templates.

A Job that waits has one stand-in per pod. They are a gang of their own (``namespace/job/name``),
planned like any other; what is written instead of bindings resumes the Job (``pre_bind``). From
then on its stand-ins hold the room, for a minute. A pod of the Job that comes takes the room of one
within the cycle in which it is placed, so nobody can come between; quotas are charged once.

What holds room is told from the Job and its pods alone, so it is the same after a restart: see
``_place``. Only the first Jobs of a line (namespace and quota) have stand-ins, whatever number
waits: what a tenant submits costs others nothing.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from typing_extensions import override

from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Plugin, Session
from koord.core.engine.state_view import StateView
from koord.core.model.gangs import GangMembership
from koord.core.model.plan import Assignment, ObjectWrite, Plan
from koord.core.model.pods import Handling, Pod
from koord.core.model.reasons import Reason
from koord.core.queue.plugin import Queues
from koord.core.suspend.labels import NamespaceLabels
from koord.core.suspend.lines import Line, Lines
from koord.core.suspend.model import (
    HOLD_SECONDS,
    QueuedJob,
    places_left,
)
from koord.core.suspend.owned_pods import OwnedPods, find_end
from koord.core.suspend.probation import Probation
from koord.core.suspend.reasons import (
    BehindJobs,
    JobBackoff,
    JobNotPlannable,
    NamespaceBackoff,
    RoomHeld,
)
from koord.core.suspend.session import NAME, HandOverSession
from koord.core.suspend.shared_gangs import SharedGangs, make_membership
from koord.core.suspend.stand_ins import (
    StoodFor,
    has_room,
    make_stand_ins,
    owner_of_stand_in,
)
from koord.core.suspend.taking import RoomTaking
from koord.core.suspend.writes import resume, write_held

MODE: Final = "operators.koordinator.sh/admission"
"""Annotation of a Job, or label of a namespace: what keeps its pods until they have room."""
_SURE_SECONDS: Final = 10.0
"""Whoever looks on for so long before the end of a minute has seen which pods came in it."""


@dataclass(frozen=True, slots=True)
class SuspendOptions:
    """Whether Jobs are resumed."""

    is_on: bool = False


@dataclass(frozen=True, slots=True)
class _Start:
    """A Job that is about to be resumed: the stand-in whose write does it, and the record."""

    writer: str
    text: str


def _no_signature(_uid: str, _text: str) -> str:
    return ""


def _no_priority(_view: StateView, _name: str) -> int:
    return 0


class JobAdmissions(Plugin):
    """The suspended Jobs of a cluster, and those whose pods are about to come."""

    name = NAME

    def __init__(self, find_priority: Callable[[StateView, str], int] = _no_priority) -> None:
        self.sign: Callable[[str, str], str] = _no_signature
        """Signs records; whoever writes them sets it."""
        self.jobs: dict[str, QueuedJob] = {}
        self._find_priority = find_priority
        self._labels = NamespaceLabels(self._label_of)
        self._put_off: set[Line] | None = None
        """Lines that are refreshed once many Jobs are settled."""
        self._lines = Lines()
        self._shared = SharedGangs(self.jobs, self._lines)
        self._stand_ins: dict[str, dict[str, Pod]] = {}
        """Job -> its stand-ins as they were made, by uid."""
        self._declared: dict[str, tuple[object, ...]] = {}
        self._pods = OwnedPods()
        self._holding: set[str] = set()
        """Jobs that were resumed, and whose minute is not over."""
        self._landed: dict[str, dict[str, str]] = {}
        """Job with held room -> its pods that have come, and their nodes."""
        self._pausing: dict[str, float] = {}
        self._starting: dict[str, _Start] = {}
        self._probation = Probation(self._is_held_in)
        self._has_news = False
        self._changed: set[str] = set()

    @override
    def attach(self, view: StateView) -> None:
        super().attach(view)
        view.plugin(Queues).end_of_owner = partial(find_end, self._pods, self.jobs)

    # --- what comes in ---------------------------------------------------------------------------

    def upsert(self, job: QueuedJob) -> None:
        """Apply a Job as it is now."""
        self._shared.look_again()
        self._changed.add(job.uid)
        before = self.jobs.get(job.uid)
        self.jobs[job.uid] = job
        self._labels.note(job.namespace)
        if job.is_suspended:
            self._landed.pop(job.uid, None)
        self._settle(job)
        if before is not None and self.was_resumed(before):
            if self.is_waiting(job):
                self._probation.fail(job.namespace, self.view.now)  # whoever has suspended it
            elif job.held is None:
                self._probation.succeed(job.namespace)

    def remove(self, job: QueuedJob) -> None:
        """Apply that a Job is gone."""
        self._changed.add(job.uid)
        if job.uid not in self.jobs:
            return
        is_vain = job.uid in self._holding and not self.landed(self.jobs[job.uid])
        self._leave_line(job.uid)
        del self.jobs[job.uid]
        self._drop(job.uid, self._stand_ins.get(job.uid, ()))
        self._holding.discard(job.uid)
        if is_vain:
            self._probation.fail(job.namespace, self.view.now)
        for kept in (self._landed, self._pausing, self._starting):
            kept.pop(job.uid, None)

    @override
    def observe(self, before: Pod | None, pod: Pod) -> None:
        if before is None:
            self._pods.add(pod)

    @override
    def forget(self, uid: str) -> None:
        self._pods.remove(uid)

    @override
    def advance(self, now: float) -> Collection[str]:
        """See who may be tried again, whose pods have come, and whose minute is over."""
        self._shared.look_again()
        self._has_news = False
        for namespace in self._labels.take_changed(now):
            self._relabel(namespace)
        for namespace in self._probation.take_changed(now):
            self._refresh_namespace(namespace)
        due = [uid for uid, until in self._pausing.items() if until <= now]
        changed = {*due, *self._holding}
        changed |= {uid for uid in self._declared if self._has_other_priority(uid)}
        before = {pod.node for uid in changed for pod in self._held_by(uid)}
        self._changed.update(due)
        for uid in sorted(changed):
            self._settle(self.jobs[uid])
        for uid in [uid for uid in self._declared if self._is_declared_otherwise(uid)]:
            self._declare(self.jobs[uid])
        return before - {pod.node for uid in changed for pod in self._held_by(uid)}

    def _relabel(self, namespace: str) -> None:
        """Settle all Jobs of a namespace, and make the stand-ins of its lines once."""
        self._put_off = set()
        for job in [job for job in self.jobs.values() if job.namespace == namespace]:
            self._changed.add(job.uid)
            self._settle(job)
        lines, self._put_off = self._put_off, None
        for line in sorted(lines):
            self._refresh_line(line)

    @override
    def next_due(self) -> float | None:
        if self._has_news:
            return self.view.now
        held = (self.jobs[uid].held for uid in self._holding)
        dues = [room.until for room in held if room is not None]
        dues += self._probation.dues(self.view.now)
        dues += self._labels.dues()
        return min((*self._pausing.values(), *dues), default=None)

    # --- what others ask -------------------------------------------------------------------------

    def is_ours(self, job: QueuedJob) -> bool:
        """Whether the operators resume a Job: it says so, or its namespace does."""
        return (job.mode or self._labels.get(job.namespace)) == NAME and not job.is_over

    def is_waiting(self, job: QueuedJob) -> bool:
        """Whether a Job is to be resumed once it has room."""
        return job.is_suspended and self.is_ours(job)

    def was_resumed(self, job: QueuedJob) -> bool:
        """Whether the operators resumed a Job, and have not seen yet what has come of it."""
        return not job.is_suspended and not job.is_over and job.held is not None

    def take_changed(self) -> set[str]:
        """Return the Jobs that have changed since the last call, and those with held room."""
        changed, self._changed = self._changed | self._holding, set()
        return changed

    def outcome_of(self, job: QueuedJob, now: float, since: float) -> bool | None:
        """Return whether a Job that was resumed has started; None: that is not certain yet.

        Whoever looks on only ``since`` a time after its minute does not know what came in between:
        then a Job of which anything runs, or has ended, has started. So no Job is suspended for
        pods that are lost later.
        """
        held = job.held
        if held is None:
            return None
        if not self.to_come(job):
            return True
        if now < held.until:
            return None
        return self.landed(job) > 0 and since > held.until - _SURE_SECONDS

    def reason_for(self, job: QueuedJob) -> Reason | None:
        """Return why a Job that waits has no stand-ins, or is resumed and has not started."""
        if self.was_resumed(job) and job.held is not None:
            return RoomHeld(self.landed(job), job.held.count, job.held.until)
        if problem := job.problem or self._lines.why_crowded(job.gang):
            return JobNotPlannable(problem)
        if job.uid in self._pausing:
            count = 0 if job.failures is None else job.failures.count
            return JobBackoff(count, self._pausing[job.uid])
        vain = self._probation.of(job.namespace)
        if vain is not None and job.uid not in self._stand_ins:
            return NamespaceBackoff(job.namespace, vain.count, vain.until(job.namespace))
        return None if job.uid in self._stand_ins else BehindJobs()

    def stand_ins_of(self, uid: str) -> list[Pod]:
        """Return the stand-ins of a Job as they are planned, in order."""
        made, pods = self._stand_ins.get(uid, ()), self.view.pods
        return [pods[stand_in] for stand_in in made if stand_in in pods]

    def landed(self, job: QueuedJob) -> int:
        """Return how many pods of a Job that was resumed have come to nodes since."""
        if job.held is None:
            return 0
        seen = self._see_landed(job)
        on_nodes = sum(uid in self.view.pods for uid in seen)
        return max(len(seen), on_nodes + max(0, job.ended - job.held.ended))

    def to_come(self, job: QueuedJob) -> int:
        """Return for how many pods room is still to be held: no more than the Job makes by now."""
        if job.held is None:
            return 0
        pods = self.view.pods
        running = sum(uid in pods and pods[uid].is_alive for uid in self._see_landed(job))
        return max(0, min(job.held.count - self.landed(job), job.size - running))

    @override
    def has_turn(self, pod: Pod) -> bool:
        """Whether a pod is one of those for which a Job has had its turn."""
        namespace, uid = self._pods.owner_of(pod)
        return uid in self._holding and self.jobs[uid].namespace == namespace

    def owner_of(self, pod: Pod) -> str:
        """Return the uid of what controls a pod."""
        return self._pods.owner_of(pod)[1]

    def pods_of(self, uid: str) -> Iterator[Pod]:
        """Yield the pods of a Job."""
        pods = self.view.pods
        return (pods[pod] for pod in self._pods.of(self.jobs[uid].namespace, uid) if pod in pods)

    # --- the planner -----------------------------------------------------------------------------

    @override
    def open(self, cycle: Cycle) -> "HandOverSession | None":
        return HandOverSession(RoomTaking(self), cycle) if self._stand_ins else None

    @override
    def note_plan(self, session: Session, plan: Plan) -> None:
        """Take away the stand-ins of pods that have come; note where Jobs are to start."""
        if not isinstance(session, HandOverSession):
            raise TypeError(type(session).__name__)
        starts: dict[str, list[Assignment]] = {}
        for placement in plan.placements:
            for assignment in placement.assignments:
                taken = session.taken.get(assignment.pod.uid)
                if taken is not None:
                    self._drop(self.owner_of(assignment.pod), (taken,))
                elif assignment.pod.handling is Handling.STAND_IN:
                    uid = owner_of_stand_in(assignment.pod)
                    if uid in self.jobs:
                        starts.setdefault(uid, []).append(assignment)
        for uid, assignments in starts.items():
            text = write_held(self.view.now, self.jobs[uid].ended, assignments)
            self._starting[uid] = _Start(assignments[0].pod.uid, text)

    @override
    def pre_bind(self, assignment: Assignment) -> Iterable[ObjectWrite]:
        pod = assignment.pod
        uid = owner_of_stand_in(pod)
        start = self._starting.get(uid) if pod.handling is Handling.STAND_IN else None
        if start is not None and start.writer == pod.uid:
            yield resume(self.jobs[uid], start.text, self.sign(uid, start.text))

    # --- lines and stand-ins ---------------------------------------------------------------------

    def _label_of(self, namespace: str) -> str:
        return self.view.labels_of_namespace(namespace).get(MODE, "")

    def _settle(self, job: QueuedJob) -> None:
        """Give a Job the stand-ins that it is to have now."""
        self._pausing.pop(job.uid, None)
        if not self.is_waiting(job) or job.problem:
            self._leave_line(job.uid)
            self._place(job)
        elif job.not_before > self.view.now:
            self._pausing[job.uid] = job.not_before
            self._holding.discard(job.uid)
            self._leave_line(job.uid)
            self._drop(job.uid, list(self._stand_ins.get(job.uid, ())))
        else:
            self._join_line(job)

    def _place(self, job: QueuedJob) -> None:
        """Hold the room of pods that have not come yet, until its time is over."""
        held = job.held
        if held is None or not self.was_resumed(job) or not held.is_open(self.view.now):
            self._holding.discard(job.uid)
            self._drop(job.uid, list(self._stand_ins.get(job.uid, ())))
            return
        self._holding.add(job.uid)
        landed = self._see_landed(job)
        count = self.to_come(job)
        there = self.stand_ins_of(job.uid)
        surplus = [made for made in there if not made.node]
        placed = [made for made in there if made.node]
        surplus += placed[count:]
        placed = placed[:count]
        self._drop(job.uid, [made.uid for made in surplus])
        nodes = Counter(made.node for made in placed)
        missing: list[tuple[int, str]] = []
        for number, node in places_left(held, landed.values(), count):
            if nodes[node]:
                nodes[node] -= 1
            else:
                missing.append((number, node))
        if missing:
            self._make_placed(job, missing[: count - len(placed)])

    def _make_placed(self, job: QueuedJob, places: Sequence[tuple[int, str]]) -> None:
        made = self._stand_ins.setdefault(job.uid, {})
        free: dict[int, list[Pod]] = {}
        for number, pod in self._make(job):
            if pod.uid not in made:
                free.setdefault(number, []).append(pod)
        for number, node in places:
            # What was given up may have been given to others since.
            if free.get(number) and has_room(self.view.table, node, free[number][0]):
                pod = replace(free[number].pop(0), node=node)
                made[pod.uid] = pod
                self.view.upsert_pod(pod)
                self._has_news = True
        if not made:
            del self._stand_ins[job.uid]

    def _join_line(self, job: QueuedJob) -> None:
        self._holding.discard(job.uid)
        before = self._lines.leave(job.uid)
        line = self._lines.join(job, self._priority_of(job))
        self._declared.pop(job.uid, None)
        if before is not None and before != line:
            self._refresh_line(before)
        self._refresh_line(line)
        self._refresh_crossed(job.namespace)

    def _leave_line(self, uid: str) -> None:
        line = self._lines.leave(uid)
        self._declared.pop(uid, None)
        if line is not None:
            self._refresh_line(line)
            self._refresh_crossed(line[0])

    def _refresh_crossed(self, namespace: str) -> None:
        if self._lines.take_crossed():
            self._refresh_namespace(namespace)

    def _refresh_line(self, line: Line) -> None:
        """Make the stand-ins of the first Jobs of a line, and take away those of others."""
        if self._put_off is not None:
            self._put_off.add(line)
            return
        chosen = self._lines.choose(line, self._probation.most_of(line[0], self.view.now))
        before = self._lines.plan(line, {uid: self.jobs[uid].gang for uid in chosen})
        if before != set(chosen):
            self._shared.look_again()
        for uid in before - set(chosen):
            if uid in self._lines:
                self._drop(uid, self._waiting_of(uid))
                self._declared.pop(uid, None)
        for uid in chosen:
            if uid not in self._declared:
                self._declare(self.jobs[uid])

    def _is_held_in(self, namespace: str) -> bool:
        return any(self.jobs[uid].namespace == namespace for uid in self._holding)

    def _refresh_namespace(self, namespace: str) -> None:
        for line in self._lines.of(namespace):
            self._refresh_line(line)

    def _waiting_of(self, uid: str) -> list[str]:
        """Return the stand-ins of a Job that have no node: what is being written is let be."""
        there = self.stand_ins_of(uid)
        return [] if any(made.node for made in there) else [made.uid for made in there]

    def _declare(self, job: QueuedJob) -> None:
        """Make the stand-ins of a Job that waits, as a gang."""
        self._declared[job.uid] = self._terms_of(job)
        pods = {pod.uid: pod for _, pod in self._make(job)}
        before = self._stand_ins.get(job.uid, {})
        if before == pods:
            return
        self._drop(job.uid, before.keys() - pods.keys())
        self._stand_ins[job.uid] = pods
        for uid, pod in pods.items():
            if before.get(uid) != pod:
                self.view.upsert_pod(pod)
        self._has_news = True

    def _make(self, job: QueuedJob) -> Iterator[tuple[int, Pod]]:
        priorities = [
            self._find_priority(self.view, members.priority_class) for members in job.sets
        ]
        stood_for = StoodFor(job.uid, job.title, job.namespace, job.created)
        return make_stand_ins(stood_for, job.sets, self._membership_of(job), priorities)

    def _priority_of(self, job: QueuedJob) -> int:
        return self._find_priority(self.view, job.sets[0].priority_class)

    def _drop(self, job: str, uids: Iterable[str]) -> None:
        made = self._stand_ins.get(job)
        if made is None:
            return
        for uid in list(uids):
            if made.pop(uid, None) is not None:
                self.view.remove_pod(uid)
                self._has_news = True
        if not made:
            del self._stand_ins[job]

    def _held_by(self, uid: str) -> list[Pod]:
        return [pod for pod in self.stand_ins_of(uid) if pod.node]

    # --- gangs -----------------------------------------------------------------------------------

    def _terms_of(self, job: QueuedJob) -> tuple[object, ...]:
        """Return what the gang of its stand-ins depends on besides the Job."""
        if not job.gang:
            return (self._priority_of(job),)
        shared = self._shared.of(job, self.view)
        spec = self.view.gangs.spec(job.gang)
        return (self._priority_of(job), spec, shared.alive, shared.peers)

    def _has_other_priority(self, uid: str) -> bool:
        return self._declared[uid][0] != self._priority_of(self.jobs[uid])

    def _is_declared_otherwise(self, uid: str) -> bool:
        return self._declared[uid] != self._terms_of(self.jobs[uid])

    def _membership_of(self, job: QueuedJob) -> GangMembership:
        own = job.sets[0].template.gang
        spec = None if own is None else self.view.gangs.spec(own.key) or own.declared
        return make_membership(job, spec, self._shared.of(job, self.view))

    # --- pods that come --------------------------------------------------------------------------

    def _see_landed(self, job: QueuedJob) -> dict[str, str]:
        """Return the pods of this run that have come to nodes, with those that are gone again."""
        since = 0.0 if job.held is None else job.held.at - HOLD_SECONDS / 2
        landed = self._landed.setdefault(job.uid, {})
        for pod in self.pods_of(job.uid):
            is_of_this_run = pod.is_alive or pod.created >= since
            if pod.node and is_of_this_run and not pod.is_terminating:
                landed[pod.uid] = pod.node
            elif not pod.node:
                landed.pop(pod.uid, None)  # its binding has failed
        return landed
