"""The commit protocol: how a placement becomes facts, one API call per step and pod.

1. *Release*: every gated member loses our gate and gets the plan recorded, in one PATCH. This is
   the commit point of the pod; a gate can never be put back.
2. *Bind*: every member is bound.

A gang is released as a whole before its first member is bound. If members are lost between the two
and one of the gangs would start below its minimum, nobody is bound. Every step can be repeated by
whoever comes after us: what it needs is recorded on the pods.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from koord.core.plan import Assignment, Placement, Unit
from koord.core.pods import Handling
from koord.kube.binder import (
    Binder,
    BoundElsewhere,
    Done,
    Outcome,
    PodGone,
    Refused,
    StillGated,
    Unknown,
)

UNKNOWN_PAUSE_SECONDS = 5.0
"""A write whose outcome is not known is repeated after this long …"""
TURN_SECONDS = 0.1
"""… when it is its turn. Who fails again keeps the next one waiting for so long: however many there
are, the API server gets but so many writes that fail."""


@dataclass(frozen=True, slots=True)
class CommitFailure:
    """The server refused a write, or failed: HTTP status (0: no answer) and what it said."""

    status: int
    message: str


@dataclass(slots=True)
class Commit:
    """What became of the members of a placement, by pod uid.

    ``left_to_others`` were released for kube-scheduler to bind. What is in ``not_bound`` was not
    bound and holds no place any more, unless it is among the ``pinned``, which were released for
    one node only. Those of ``failures`` are among them, and those of ``outdated``, of which the
    server knows more than our copy.
    """

    bound: set[str] = field(default_factory=set)
    left_to_others: set[str] = field(default_factory=set)
    not_bound: set[str] = field(default_factory=set)
    pinned: set[str] = field(default_factory=set)
    outdated: set[str] = field(default_factory=set)
    failures: dict[str, CommitFailure] = field(default_factory=dict)


class WriteObserver(Protocol):
    """Who counts writes by their outcome: metrics."""

    def count_release(self, outcome: str) -> None:
        """Take one release."""

    def count_bind(self, outcome: str) -> None:
        """Take one binding."""


class Doubts(Protocol):
    """Who is told of writes whose outcome is not known, and has them repeated in turn."""

    def doubt(self, member: Assignment, failure: CommitFailure) -> None:
        """Learn that it is not known what became of a write."""

    def settle(self, member: Assignment) -> None:
        """Learn that it is known."""

    def lane(self, member: Assignment) -> asyncio.Semaphore:
        """Return where writes for a member queue up that are repeated."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One write per member, who counts what came of it, and who hears of what did not."""

    write: Callable[..., Awaitable[Outcome]]
    count: Callable[[str], None]
    doubts: Doubts

    async def do(self, member: Assignment, placement: Placement, **how: float) -> Outcome:
        """Write once; ``how`` tells with how much patience."""
        outcome = await self.write(member, placement, **how)
        self.count(type(outcome).__name__)
        return outcome


async def commit(
    binder: Binder,
    unit: Unit,
    placement: Placement,
    observer: WriteObserver,
    doubts: Doubts,
) -> Commit:
    """Carry out a placement. Returns when the fate of every member is known."""
    result = Commit()
    members = list(placement.assignments)
    gated = [one for one in members if one.pod.is_gated]
    release = _Step(binder.release, observer.count_release, doubts)
    await _run(release, gated, placement, result)
    members = [one for one in members if one.pod.uid not in result.not_bound]
    result.pinned = {m.pod.uid for m in members if m.pod.handling is Handling.RELEASE_PINNED}
    if not _has_quorum(unit, members):
        result.not_bound |= {one.pod.uid for one in members}
        return result
    mine = [one for one in members if not _is_left_to_others(one)]
    result.left_to_others = {one.pod.uid for one in members if _is_left_to_others(one)}
    bind = _Step(binder.bind, observer.count_bind, doubts)
    await _run(bind, mine, placement, result)
    result.bound = {one.pod.uid for one in mine if one.pod.uid not in result.not_bound}
    return result


async def _run(
    step: _Step,
    members: Sequence[Assignment],
    placement: Placement,
    result: Commit,
) -> None:
    """Do one step for all members at once, and note those that it did not succeed for."""
    if len(members) == 1:
        _note(members[0], await _settle(step, members[0], placement), result)
        return
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_settle(step, member, placement)) for member in members]
    for member, task in zip(members, tasks, strict=True):
        _note(member, task.result(), result)


async def _settle(step: _Step, member: Assignment, placement: Placement) -> Outcome:
    """Repeat a step until its outcome is known: a place is given up on an answer, never by age."""
    outcome = await step.do(member, placement)
    while isinstance(outcome, Unknown):
        step.doubts.doubt(member, CommitFailure(outcome.status, outcome.message))
        await asyncio.sleep(UNKNOWN_PAUSE_SECONDS)
        async with step.doubts.lane(member):
            outcome = await step.do(member, placement, patience=0.0)
            if isinstance(outcome, Unknown):
                await asyncio.sleep(TURN_SECONDS)
    step.doubts.settle(member)
    return outcome


def _note(member: Assignment, outcome: Outcome, result: Commit) -> None:
    uid = member.pod.uid
    match outcome:
        case Done() | Unknown():
            return
        case PodGone() | BoundElsewhere():
            result.not_bound.add(uid)
            result.outdated.add(uid)
        case StillGated():
            result.not_bound.add(uid)
            result.failures[uid] = CommitFailure(409, "a scheduling gate is still on the pod")
        case Refused(status=status, message=message):
            result.not_bound.add(uid)
            result.failures[uid] = CommitFailure(status, message)


def _is_left_to_others(member: Assignment) -> bool:
    pod = member.pod
    return pod.handling is Handling.RELEASE_PINNED and pod.may_need_kube_scheduler


def _has_quorum(unit: Unit, members: Iterable[Assignment]) -> bool:
    alive = {member.pod.uid for member in members}
    return bool(alive) and all(
        sum(pod.uid in alive for pod in demand.pods) >= demand.required for demand in unit.demands
    )
