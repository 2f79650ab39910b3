"""Joins gangs that start with room for pods that come later, such as the workers of a leader.

Such a gang is planned with stand-ins, made from the template in its owner: it starts only if all of
them fit, in its topology and its quota. One of its pods records where, signed with its plan, so all
is the same after a restart. Then the stand-ins hold the room, until the pods come and take it or
its time is over. Only the first gangs of a line (namespace and quota) have stand-ins, and where
room is held in vain they are tried one by one: what a tenant says costs others nothing.

What is held is told from pods and owners alone: see ``_settle``.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from typing_extensions import override

from koord.core.awaited.budget import StandInBudget
from koord.core.awaited.model import (
    MOST_SECONDS,
    RoomRecord,
    WaitingGang,
    count_places,
    find_record,
)
from koord.core.awaited.reasons import PlacedWithRoom, RoomGivenBack
from koord.core.awaited.session import AwaitedSession
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Plugin, Session
from koord.core.engine.state_view import StateView
from koord.core.model.gangs import GangKey, GangMembership, GangSource, GangSpec
from koord.core.model.plan import Plan
from koord.core.model.pods import Handling, Pod
from koord.core.model.reasons import NoSettings, Reason
from koord.core.owners.derived import StagedGang
from koord.core.owners.plugin import OwnerGangs
from koord.core.owners.reasons import BehindGroups, RoomBackoff
from koord.core.suspend.lines import MOST_IN_LINE, Line, Lines
from koord.core.suspend.model import MemberSet
from koord.core.suspend.probation import Probation
from koord.core.suspend.stand_ins import StoodFor, has_room, make_stand_ins
from koord.core.suspend.taking import RoomTaking
from koord.isolation import Isolation

ROOM: Final = "+room"
"""What the key of the gang ends with that stand-ins are of while they hold room."""


@dataclass(slots=True)
class _GangRoom:
    """A gang that starts, or started, with room for others."""

    staged: StagedGang
    membership: GangMembership
    since: float
    priority: int
    recorder: str
    """The uid of the pod that records where room is held."""
    made: dict[str, Pod] = field(default_factory=dict)
    """Its stand-ins as they were made, by uid."""
    declared: tuple[object, ...] = ()
    """What they were made of."""
    record: RoomRecord | None = None
    """What is held now; None while it waits."""


def _no_priority(_view: StateView, _name: str) -> int:
    return 0


class AwaitedRooms(Plugin):
    """The gangs of a cluster that start with room for others, and the room that is held."""

    name = AwaitedSession.name

    def __init__(self, find_priority: Callable[[StateView, str], int] = _no_priority) -> None:
        self._find_priority = find_priority
        self._rooms: dict[GangKey, _GangRoom] = {}
        self._holding: set[GangKey] = set()
        self._recorders: dict[str, GangKey] = {}
        self._first_of: dict[GangKey, GangKey] = {}
        """Gang that comes later -> the one that holds room for it."""
        self._lines = Lines()
        self._probation = Probation(self._is_held_in)
        self._isolated = Isolation("awaited-rooms")
        self._budget = StandInBudget()
        self._has_news = False
        self.on_told: Callable[[set[GangKey]], None] = lambda _: None
        """Called with the gangs of which something else is to be said."""

    def __len__(self) -> int:
        return len(self._rooms)

    @property
    def _owners(self) -> OwnerGangs:
        return self.view.plugin(OwnerGangs)

    # --- what comes in ---------------------------------------------------------------------------

    @override
    def advance(self, now: float) -> Collection[str]:
        """See which gangs are to start with room, whose pods have come, and whose time is over."""
        self._has_news = False
        gangs = self._owners.take_staged_news() | self._holding | self._budget.take_due(now)
        before = {pod.node for gang in gangs for pod in self._held_by(gang)}
        for gang in sorted(gangs):
            with self._isolated.of(gang):
                self._settle(gang)
        for namespace in self._probation.take_changed(now):
            self._refresh_namespace(namespace)
        return before - {pod.node for gang in gangs for pod in self._held_by(gang)}

    @override
    def next_due(self) -> float | None:
        if self._has_news:
            return self.view.now
        records = (self._rooms[gang].record for gang in self._holding)
        dues = [record.until for record in records if record is not None]
        dues += self._budget.dues()
        return min((*dues, *self._probation.dues(self.view.now)), default=None)

    # --- what others ask -------------------------------------------------------------------------

    def remark_on(self, pod: Pod) -> Reason | None:
        """Return what is to be said of a pod with a node that was started with room for others."""
        current = self.view.pods.get(pod.uid, pod)
        record = find_record((current,))
        gang = "" if current.gang is None else current.gang.key
        staged = self._owners.staged(gang) if record is not None and current.node else None
        if record is None or staged is None or self._has_come(staged):
            return None
        held = self._held_by(gang)
        is_starting = current.uid in self.view.assumed
        if not (held or is_starting) or not record.is_open(self.view.now):
            return RoomGivenBack(record.count, record.until)
        roles = tuple(held_back.role for held_back in staged.held_back)
        nodes = {node for _, node, _ in record.places} if is_starting else {p.node for p in held}
        count = record.count if is_starting else len(held)
        return PlacedWithRoom(count, roles, len(nodes), record.until)

    @override
    def has_turn(self, pod: Pod) -> bool:
        return pod.gang is not None and pod.gang.key in self._first_of

    def owner_of(self, pod: Pod) -> str:
        """Return the gang that holds room for a pod."""
        return "" if pod.gang is None else self._first_of.get(pod.gang.key, "")

    def pods_of(self, gang: str) -> Iterable[Pod]:
        """Return the pods for which a gang holds room, as far as they have come."""
        return self.view.gangs.members(self._rooms[gang].staged.later).values()

    def stand_ins_of(self, gang: str) -> Sequence[Pod]:
        """Return the stand-ins of a gang as they are planned, in order."""
        room, pods = self._rooms.get(gang), self.view.pods
        return [pods[uid] for uid in room.made if uid in pods] if room is not None else []

    def is_recorder(self, uid: str) -> bool:
        return uid in self._recorders

    def record_for(self, uid: str) -> RoomRecord | None:
        """Return what a pod is to record when it is placed: where room is held, or will be."""
        gang = self._recorders.get(uid)
        room = None if gang is None else self._rooms[gang]
        if room is None:
            return None
        if room.record is not None:
            return replace(room.record, uid=uid)
        return RoomRecord(uid, self.view.now, self._seconds_of(room)) if room.made else None

    def yielding_to(self, priority: int) -> Sequence[Pod]:
        held = (pod for gang in sorted(self._holding) for pod in self._held_by(gang))
        return sorted((pod for pod in held if pod.priority < priority), key=_by_priority)

    # --- the planner -----------------------------------------------------------------------------

    @override
    def open(self, cycle: Cycle) -> AwaitedSession | None:
        return AwaitedSession(RoomTaking(self), self, cycle) if self._rooms else None

    @override
    def note_plan(self, session: Session, plan: Plan) -> None:
        """Note where room is to be held, and take away the stand-ins whose room others have."""
        if not isinstance(session, AwaitedSession):
            raise TypeError(type(session).__name__)
        for placement in plan.placements:
            for assignment in placement.assignments:
                taken = session.taken.get(assignment.pod.uid)
                if taken is not None:
                    self._drop(self.owner_of(assignment.pod), (taken,))
                for given in assignment.allocations:
                    if isinstance(given, RoomRecord) and not given.places:
                        gang = self._recorders[assignment.pod.uid]
                        made = self._rooms[gang].made
                        stand_ins = (
                            (_role_of(each.pod), each.node)
                            for each in placement.assignments
                            if each.pod.uid in made
                        )
                        given.note_places(count_places(stand_ins))
        for uid, is_given_up in session.given_up.items():
            if is_given_up:
                gang = self._gang_of(uid)
                self._drop(gang, (uid,))
                self.on_told({gang})

    # --- what a gang is now ----------------------------------------------------------------------

    def _settle(self, gang: GangKey) -> None:
        """Let a gang wait with its stand-ins, hold its room, or do neither."""
        staged = self._owners.staged(gang)
        members = [pod for pod in self.view.gangs.members(gang).values() if _is_real(pod)]
        alive = sorted((pod for pod in members if pod.is_alive), key=_by_age)
        if staged is None or not staged.held_back or not alive:
            self._end(gang)
            return
        begun = [pod for pod in alive if pod.node or pod.recorded is not None]
        size = sum(held.pods for held in staged.held_back)
        if not begun and (self._has_come(staged) or size > MOST_IN_LINE):
            self._end(gang)
            self._owners.start_with(gang, ())
        elif not begun:
            self._look_for(gang, staged, alive)
        elif not any(pod.uid in self.view.assumed for pod in begun):
            self._see_through(gang, staged, begun)
        # What is being written is let be.

    def _look_for(self, gang: GangKey, staged: StagedGang, waiting: Sequence[Pod]) -> None:
        """Have a gang planned with stand-ins, once it is one of the first of its line."""
        self._note(gang, staged, waiting[0])
        self._stop_holding(gang)
        self._rooms[gang].record = None
        size = sum(held.pods for held in staged.held_back)
        first = waiting[0]
        quota = staged.held_back[0].template.quota or first.quota
        in_line = WaitingGang(gang, first.namespace, gang, first.created, size, quota)
        before, line = self._lines.leave(gang), self._lines.join(in_line, first.priority)
        if before is not None and before != line:
            self._refresh_line(before)
        self._refresh_line(line)
        self._keep_waiting(gang)

    def _see_through(self, gang: GangKey, staged: StagedGang, begun: Sequence[Pod]) -> None:
        """Hold the room of pods that have not come yet, until its time is over."""
        record, now = find_record(begun), self.view.now
        recorder = next((pod for pod in begun if find_record((pod,)) is not None), begun[0])
        self._note(gang, staged, recorder)
        self._leave_line(gang)
        self._owners.start_with(gang, ())
        room, has_come = self._rooms[gang], self._has_come(staged)
        if record is not None and record.is_open(now) and not has_come:
            room.record = record
            self._holding.add(gang)
            self._first_of[staged.later] = gang
            self._hold(gang, room, record)
            return
        if gang in self._holding:
            self._note_end(recorder.namespace, has_come=has_come)
            self.on_told({gang})
        self._stop_holding(gang)
        self._drop(gang, room.made)
        room.record = None

    def _end(self, gang: GangKey) -> None:
        """Forget a gang that is no more, or starts with room for nobody."""
        room = self._rooms.get(gang)
        self._leave_line(gang)
        self._owners.start_with(gang, None)
        if room is None:
            return
        if gang in self._holding:
            self._note_end(gang.partition("/")[0], has_come=self._has_come(room.staged))
        self._stop_holding(gang)
        self._drop(gang, room.made)
        self._recorders.pop(room.recorder, None)
        del self._rooms[gang]

    def _note(self, gang: GangKey, staged: StagedGang, recorder: Pod) -> None:
        membership = recorder.gang
        if membership is None:
            raise AssertionError("it is a member")
        room = self._rooms.get(gang)
        if room is None:
            room = _GangRoom(staged, membership, recorder.created, recorder.priority, recorder.uid)
            self._rooms[gang] = room
        elif room.recorder != recorder.uid:
            self._recorders.pop(room.recorder, None)
        room.staged, room.membership, room.recorder = staged, membership, recorder.uid
        room.since, room.priority = recorder.created, recorder.priority
        self._recorders[recorder.uid] = gang

    def _note_end(self, namespace: str, *, has_come: bool) -> None:
        if has_come:
            self._probation.succeed(namespace)
        else:
            self._probation.fail(namespace, self.view.now)

    def _stop_holding(self, gang: GangKey) -> None:
        self._holding.discard(gang)
        room = self._rooms.get(gang)
        if room is not None and self._first_of.get(room.staged.later) == gang:
            del self._first_of[room.staged.later]

    def _has_come(self, staged: StagedGang) -> bool:
        """Whether the pods that were waited for have begun to come to nodes."""
        if any(pod.node for pod in self.view.gangs.members(staged.later).values()):
            return True
        pods = self.view.pods
        return any(uid in pods and pods[uid].node for uid in staged.foreign)

    def _seconds_of(self, room: _GangRoom) -> float:
        claim = room.staged.owner.claim
        seconds = MOST_SECONDS if claim is None else claim.settings.wait_seconds
        return float(min(max(seconds, 0), MOST_SECONDS))

    # --- lines -----------------------------------------------------------------------------------

    def _is_held_in(self, namespace: str) -> bool:
        return any(gang.partition("/")[0] == namespace for gang in self._holding)

    def _leave_line(self, gang: GangKey) -> None:
        line = self._lines.leave(gang)
        if line is not None:
            self._refresh_line(line)

    def _refresh_namespace(self, namespace: str) -> None:
        for line in self._lines.of(namespace):
            self._refresh_line(line)
        for gang in self._rooms:
            if gang in self._lines and gang.partition("/")[0] == namespace:
                self._keep_waiting(gang)

    def _refresh_line(self, line: Line) -> None:
        """Make the stand-ins of the first gangs of a line, and take away those of others."""
        chosen = self._lines.choose(line, self._probation.most_of(line[0], self.view.now))
        before = self._lines.plan(line, dict.fromkeys(chosen, ""))
        for gang in chosen:
            self._declare(gang)
        for gang in before - set(chosen):
            if gang in self._lines:
                self._keep_waiting(gang)

    def _keep_waiting(self, gang: GangKey) -> None:
        if self._lines.is_planned_with(gang, ""):
            return
        waiting = [pod.uid for pod in self.stand_ins_of(gang) if not pod.node]
        self._drop(gang, waiting)
        self._owners.start_with(gang, self._why_not(gang))

    def _why_not(self, gang: GangKey) -> NoSettings:
        namespace = gang.partition("/")[0]
        vain = self._probation.of(namespace)
        if vain is None:
            return BehindGroups()
        return RoomBackoff(namespace, vain.count, vain.until(namespace))

    # --- stand-ins -------------------------------------------------------------------------------

    def _declare(self, gang: GangKey) -> None:
        """Make the stand-ins of a gang that waits, as its members."""
        room = self._rooms[gang]
        terms = (room.staged.held_back, room.membership, room.since, self._priorities_of(room))
        if room.declared != terms:
            namespace, now = gang.partition("/")[0], self.view.now
            count = sum(held.pods for held in room.staged.held_back)
            if not self._budget.spend(gang, namespace, count, now):
                self._owners.start_with(gang, BehindGroups())
                return
            room.declared = terms
            self._replace(room, {pod.uid: pod for pod in self._make(gang, room)})
        self._owners.start_with(gang, room.staged.held_back)

    def _replace(self, room: _GangRoom, pods: dict[str, Pod]) -> None:
        before, room.made = room.made, pods
        for uid in before.keys() - pods.keys():
            self.view.remove_pod(uid)
        for uid, pod in pods.items():
            if before.get(uid) != pod:
                self.view.upsert_pod(pod)
        self._has_news = True

    def _priorities_of(self, room: _GangRoom) -> tuple[int, ...]:
        """Return the priority of each role: without a class it is that of the first pod."""
        classes = (held.priority_class for held in room.staged.held_back)
        find = self._find_priority
        return tuple(find(self.view, name) if name else room.priority for name in classes)

    def _make(self, gang: GangKey, room: _GangRoom) -> Iterator[Pod]:
        held_back = room.staged.held_back
        sets = [MemberSet(held.template, held.pods) for held in held_back]
        namespace, _, title = gang.partition("/")
        stood_for = StoodFor(gang, f"{title}/to-come", namespace, room.since)
        priorities, counts = self._priorities_of(room), Counter[int]()
        for role, pod in make_stand_ins(stood_for, sets, room.membership, priorities):
            held = held_back[role]
            yield replace(pod, sub_group=held.role, index=held.first + counts[role])
            counts[role] += 1

    def _hold(self, gang: GangKey, room: _GangRoom, record: RoomRecord) -> None:
        """Keep the stand-ins that are where room is held, and make those that are missing."""
        needed = Counter({(role, node): count for role, node, count in record.places})
        membership = _make_holding(gang, record.count)
        for pod in self.stand_ins_of(gang):
            place = (_role_of(pod), pod.node)
            if not needed[place]:
                self._drop(gang, (pod.uid,))
                continue
            needed[place] -= 1
            if pod.gang is None or pod.gang.key != membership.key:
                self._put(room, _holding(pod, membership))
        if needed.total():
            self._make_missing(gang, room, membership, +needed)

    def _make_missing(
        self,
        gang: GangKey,
        room: _GangRoom,
        membership: GangMembership,
        needed: Counter[tuple[int, str]],
    ) -> None:
        free: dict[int, list[Pod]] = {}
        for pod in self._make(gang, room):
            if pod.uid not in room.made:
                free.setdefault(_role_of(pod), []).append(pod)
        for role, node in sorted(needed.elements()):
            # What was given up may have been given to others since.
            if free.get(role) and has_room(self.view.table, node, free[role][0]):
                pod = replace(free[role].pop(0), node=node)
                self._put(room, _holding(pod, membership))

    def _put(self, room: _GangRoom, pod: Pod) -> None:
        room.declared = ()
        room.made[pod.uid] = pod
        self.view.upsert_pod(pod)
        self._has_news = True

    def _drop(self, gang: GangKey, uids: Iterable[str]) -> None:
        room = self._rooms.get(gang)
        for uid in list(uids) if room is not None else ():
            if room is not None and room.made.pop(uid, None) is not None:
                room.declared = ()
                self.view.remove_pod(uid)
                self._has_news = True

    def _held_by(self, gang: GangKey) -> list[Pod]:
        return [pod for pod in self.stand_ins_of(gang) if pod.node]

    def _gang_of(self, stand_in: str) -> GangKey:
        return stand_in.rsplit("/", 2)[0]


def _make_holding(gang: GangKey, count: int) -> GangMembership:
    """Return the gang of stand-ins that hold room: apart from the one that they were planned with.

    That one may lose its room to others, or start again, without them.
    """
    key = f"{gang}{ROOM}"
    spec = GangSpec(key, 1, count, group=(key,), source=GangSource.ANNOTATION, keeps_room=False)
    return GangMembership(key, GangSource.ANNOTATION, spec)


def _holding(pod: Pod, membership: GangMembership) -> Pod:
    return replace(pod, gang=membership, sub_group="", index=-1)


def _is_real(pod: Pod) -> bool:
    return pod.handling is not Handling.STAND_IN


def _role_of(stand_in: Pod) -> int:
    return int(stand_in.uid.rsplit("/", 2)[1])


def _by_age(pod: Pod) -> tuple[int, float, str, str]:
    return -pod.priority, pod.created, pod.name, pod.uid


def _by_priority(pod: Pod) -> tuple[int, str]:
    return pod.priority, pod.uid
