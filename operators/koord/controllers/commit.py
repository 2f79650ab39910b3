"""The commit protocol: writes a placement to the API server, one request per step and pod.

1. *PreBind*: what plugins have to write to other objects for a member, such as a claim. It comes
   first, as a released pod may be bound by its own scheduler, and is taken back for members that
   are not bound.
2. *Release*: one PATCH removes our gate from each gated member and records the plan. This is the
   commit point of a pod, because a gate cannot be added again.
3. *Bind*: each member is bound. One that stands for a pod that does not exist yet is not: once what
   its plugin writes is there, it keeps its room until the plugin replaces it.

A gang is released as a whole before its first member is bound. If members are lost in between and a
gang would start below its minimum, no member is bound. A plan that has too few members from the
start is an error of the planner: nothing of it is written. After a crash the next leader can repeat
every step, because the pods record what it needs.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from koord.core.model.object_size import AnnotationsTooLarge, ObjectTooLarge
from koord.core.model.plan import Assignment, ObjectWrite, Placement, Unit
from koord.core.model.pods import Handling, Pod
from koord.core.model.reasons import BindFailed, Reason
from koord.kube.binder import Binder
from koord.kube.outcomes import (
    BoundElsewhere,
    Done,
    GivenUp,
    ObjectChanged,
    Outcome,
    Oversized,
    PodGone,
    Refused,
    StillGated,
    Unknown,
)

UNKNOWN_PAUSE_SECONDS = 5.0
"""A write with unknown outcome is repeated after this long …"""
REPEAT_SECONDS = 60.0
"""… until so much later. Then it is not repeated any more, and read from the pod …"""
SETTLE_SECONDS = 60.0
"""… when the last request has ended on the server in any case: its ``--request-timeout``."""
RETRY_SLOT_SECONDS = 0.1
"""… when it has a slot. A write that fails again keeps the slot this long, which bounds the rate of
failing writes however many there are."""


_TOO_MANY = "with what is to be written there are too many bytes of annotations"


@dataclass(frozen=True, slots=True)
class CommitFailure:
    """A write was rejected or failed: HTTP status (0: no response) and message of the server.

    ``is_too_large``: no object as large as the pod would be can be written.
    """

    status: int
    message: str
    is_too_large: bool = False
    size: int = 0
    """The bytes of annotations that are too many, ``add`` of them new; 0: they are not."""
    add: int = 0
    reason: Reason | None = None
    """What it waited for in vain, before any write."""

    def reason_for(self, pod: str) -> Reason:
        """Return why a pod (``namespace/name``) waits because of it."""
        if self.reason is not None:
            return self.reason
        if self.size:
            return AnnotationsTooLarge(pod, self.size, self.add)
        if self.is_too_large:
            return ObjectTooLarge(pod, self.status, self.message)
        return BindFailed(pod, self.status, self.message)


@dataclass(slots=True)
class Commit:
    """The outcome for the members of a placement, by pod uid.

    ``left_to_others`` were released for kube-scheduler to bind, or stand for pods that are created
    now. ``not_bound`` hold no resources any
    more, unless they are ``pinned``, which means released for one node only. ``failures`` and
    ``outdated``, whose cached state is older than the server's, are subsets of ``not_bound``.
    ``released`` lost their gate.
    """

    bound: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)
    left_to_others: set[str] = field(default_factory=set)
    not_bound: set[str] = field(default_factory=set)
    pinned: set[str] = field(default_factory=set)
    outdated: set[str] = field(default_factory=set)
    failures: dict[str, CommitFailure] = field(default_factory=dict)
    left_over: list[ObjectWrite] = field(default_factory=list)
    """Writes before bindings that could not be taken back: their plugins see them."""

    @property
    def is_futile(self) -> bool:
        """Whether it changed nothing and met no obstacle, so the same plan would follow."""
        changed = self.bound or self.released or self.left_to_others
        return bool(self.not_bound) and not (changed or self.failures or self.outdated)


class WriteObserver(Protocol):
    """Metrics of writes by their outcome."""

    def count_release(self, outcome: str) -> None: ...
    def count_bind(self, outcome: str) -> None: ...


class MemberWrites(Protocol):
    """Tracks writes whose outcome is unknown, and limits how many are repeated at once."""

    def note_unknown(self, member: Assignment, failure: CommitFailure) -> None: ...
    def note_known(self, member: Assignment) -> None: ...
    def retry_slots(self, member: Assignment) -> asyncio.Semaphore: ...

    async def in_turn(self, member: Assignment, bind: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Bind a member when its node is ready for it."""


@dataclass(frozen=True, slots=True)
class _WriteStep:
    """One kind of write, its metric, and the tracking of unknown outcomes."""

    write: Callable[..., Awaitable[Outcome]]
    read: Callable[[Assignment, Placement, Unknown], Awaitable[Outcome]]
    """Returns what has come of writes that are over."""
    count: Callable[[str], None]
    unknown: MemberWrites
    is_in_turn: bool = False

    async def finish(self, member: Assignment, placement: Placement) -> Outcome:
        """Return when the outcome is known."""
        write = partial(_write_until_known, self, member, placement)
        return await (self.unknown.in_turn(member, write) if self.is_in_turn else write())

    async def do(self, member: Assignment, placement: Placement, **options: float) -> Outcome:
        outcome = await self.write(member, placement, **options)
        self.count(type(outcome).__name__)
        return outcome


async def commit(
    binder: Binder,
    unit: Unit,
    placement: Placement,
    observer: WriteObserver,
    unknown: MemberWrites,
) -> Commit:
    """Write a placement; returns when the outcome of every member is known."""
    result = Commit()
    members = list(placement.assignments)
    if not _has_quorum(unit, members):
        result.not_bound = {member.pod.uid for member in members}
        return result
    pre_bind = _PreBind(binder, placement.writes)
    if placement.writes:
        step = _WriteStep(pre_bind.write, pre_bind.read, lambda _: None, unknown)
        writing = [member for member in members if member.pod.uid in placement.writes]
        await _run(step, writing, placement, result)
        members = [member for member in members if member.pod.uid not in result.not_bound]
    if _has_quorum(unit, members):
        release = _WriteStep(binder.release, binder.read_release, observer.count_release, unknown)
        bind = _WriteStep(
            binder.bind, binder.read_bind, observer.count_bind, unknown, is_in_turn=True
        )
        await _release_and_bind(unit, placement, members, (release, bind), result)
    else:
        result.not_bound |= {member.pod.uid for member in members}
    if placement.writes:
        await pre_bind.undo(result)
    return result


async def _release_and_bind(
    unit: Unit,
    placement: Placement,
    members: list[Assignment],
    steps: "tuple[_WriteStep, _WriteStep]",
    result: Commit,
) -> None:
    release, bind = steps
    gated = [member for member in members if member.pod.is_gated]
    await _run(release, gated, placement, result)
    result.released = {member.pod.uid for member in gated} - result.not_bound
    members = [member for member in members if member.pod.uid not in result.not_bound]
    theirs = (member for member in members if member.pod.handling is Handling.RELEASE_PINNED)
    result.pinned = {member.pod.uid for member in theirs if not member.is_open}
    if not _has_quorum(unit, members):
        result.not_bound |= {member.pod.uid for member in members}
        return
    left = _find_left_to_others(unit, members)
    result.left_to_others = left
    mine = [member for member in members if member.pod.uid not in left]
    await _run(bind, mine, placement, result)
    result.bound = {member.pod.uid for member in mine if member.pod.uid not in result.not_bound}


@dataclass(frozen=True, slots=True)
class _PreBind:
    """Writes to other objects for the members of a placement."""

    binder: Binder
    writes: Mapping[str, Sequence[ObjectWrite]]

    async def write(self, member: Assignment, _: Placement, **options: float) -> Outcome:
        for change in self.writes[member.pod.uid]:
            outcome = await self.binder.objects.write(change, **options)
            if not isinstance(outcome, Done):
                return outcome
        return Done()

    async def read(self, member: Assignment, _: Placement, of: Unknown) -> Outcome:
        for change in self.writes[member.pod.uid]:
            outcome = await self.binder.objects.read(change, of)
            if not isinstance(outcome, Done):
                return outcome
        return Done()

    async def undo(self, result: Commit) -> None:
        """Take back, last first, what was written for members that nobody binds by now.

        What members share stays for those that are bound.
        """
        lost = result.not_bound - result.pinned
        kept = [w for uid, changes in self.writes.items() if uid not in lost for w in changes]
        for uid in sorted(lost & self.writes.keys()):
            for change in reversed(self.writes[uid]):
                if change in kept:
                    continue
                outcome = await self.binder.objects.write(change.undone)
                # Changed since, or never written: then there is nothing of it to take back.
                if not isinstance(outcome, Done | ObjectChanged):
                    result.left_over.append(change)


async def _run(
    step: _WriteStep,
    members: Sequence[Assignment],
    placement: Placement,
    result: Commit,
) -> None:
    if len(members) == 1:
        _record(members[0], await step.finish(members[0], placement), result)
        return
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(step.finish(member, placement)) for member in members]
    for member, task in zip(members, tasks, strict=True):
        _record(member, task.result(), result)


async def _write_until_known(step: _WriteStep, member: Assignment, placement: Placement) -> Outcome:
    """Repeat a step until its outcome is known; a timeout alone never frees the resources.

    After a time it is known: nothing is written any more, and what was written shows on the pod.
    """
    outcome = await step.do(member, placement)
    until = time.monotonic() + REPEAT_SECONDS
    while isinstance(outcome, Unknown):
        step.unknown.note_unknown(member, CommitFailure(outcome.status, outcome.message))
        is_over = time.monotonic() >= until
        await asyncio.sleep(SETTLE_SECONDS if is_over else UNKNOWN_PAUSE_SECONDS)
        async with step.unknown.retry_slots(member):
            if is_over:
                outcome = await step.read(member, placement, outcome)
            else:
                outcome = await step.do(member, placement, patience=0.0)
            if isinstance(outcome, Unknown):
                await asyncio.sleep(RETRY_SLOT_SECONDS)
    step.unknown.note_known(member)
    return outcome


def _record(member: Assignment, outcome: Outcome, result: Commit) -> None:
    uid = member.pod.uid
    match outcome:
        case Done() | Unknown():
            return
        case PodGone() | BoundElsewhere() | ObjectChanged():
            result.not_bound.add(uid)
            result.outdated.add(uid)
        case GivenUp(reason=reason):
            result.not_bound.add(uid)
            result.failures[uid] = CommitFailure(0, reason.text(), reason=reason)
        case Oversized(size=size, add=add):
            result.not_bound.add(uid)
            result.failures[uid] = CommitFailure(422, _TOO_MANY, size=size, add=add)
        case StillGated():
            result.not_bound.add(uid)
            result.failures[uid] = CommitFailure(409, "a scheduling gate is still on the pod")
        case Refused(status=status, message=message, is_too_large=is_too_large):
            result.not_bound.add(uid)
            result.failures[uid] = CommitFailure(status, message, is_too_large)


def _find_left_to_others(unit: Unit, members: Iterable[Assignment]) -> set[str]:
    """Return the uids of the members that we do not bind: another scheduler does, or nobody."""
    left, theirs = set[str](), dict[str, Pod]()
    for member in members:
        pod = member.pod
        if pod.handling is Handling.STAND_IN:
            left.add(pod.uid)
        elif pod.handling is Handling.RELEASE_PINNED:
            theirs[pod.uid] = pod
    left |= {uid for uid, pod in theirs.items() if pod.may_need_kube_scheduler}
    for demand in unit.demands if theirs else ():
        of_gang = {pod.uid for pod in demand.pods} & theirs.keys()
        if demand.is_left_to_scheduler(len(of_gang)):
            left |= of_gang
    return left


def _has_quorum(unit: Unit, members: Iterable[Assignment]) -> bool:
    alive = {member.pod.uid for member in members}
    return bool(alive) and all(
        sum(pod.uid in alive for pod in demand.pods) >= demand.required for demand in unit.demands
    )
