"""The scheduling queue: order of units, back-off, and requeueing by queueing hints.

A refused unit is blocked until one of its own pods or settings changes, or until another change may
make all of it schedulable. One of which only a part fits by then is tried again in its turn, a few
a second: what is said of it is out of date, and it may preempt for the other part. Pods whose
writes failed wait for a back-off. Nothing here reads a clock, plans or writes.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice

from koord.core.engine.plugin import Plugin, QueueingHint
from koord.core.engine.queueing_hints import Chance, QueueingHints
from koord.core.engine.refused_units import Blocked, RefusedUnits
from koord.core.engine.state import ClusterState
from koord.core.engine.steps import MOST_PER_UNIT
from koord.core.gang.done import has_succeeded
from koord.core.gang.quorum import Ready, demands
from koord.core.gang.tally import gangs_of
from koord.core.model.changes import Changes
from koord.core.model.plan import Demand, LeftOut, Unit, UnitKey, Unplaced
from koord.core.model.pods import Handling, Pod
from koord.core.model.reasons import InternalError, Reason, WaitingForForeignGate, WakesOn
from koord.isolation import Isolation

FIRST_BACKOFF_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 300.0
"""Between attempts of a unit that takes too long to plan."""
MAX_POSTPONED = 4096
MOST_TURNS = 1000
"""So many of those that wait are told where they stand; the rest comes behind, by time."""
COSTLY_PART = 4
"""Namespaces that take more than this part (one in n) of the steps of a cycle yield to others."""
FORGIVEN_PER_SECOND = MOST_PER_UNIT // 300
"""Steps that a namespace may waste all the time."""
REFRESH_SECONDS = 1.0
MOST_REFRESHED = 64
"""So many units of which a part fits are tried again at such intervals: thousands may wait."""
LONGEST_BACKOFF_SECONDS = 5.0
"""Also the longest time that a leader leaves a problem that stops all placement unattended."""


class News(Enum):
    """How a refusal differs from the previous one of the same unit."""

    NOTHING = auto()
    NUMBERS = auto()
    """Same kind of reason, different numbers."""
    REASON = auto()
    """Different kind of reason, or the first refusal."""


@dataclass(slots=True)
class _Penalty:
    failures: int
    until: float


class Queue:
    """Ready units, blocked units, and sources that are not complete yet.

    Units are made from *sources*: gang groups (by the keys of their gangs) and single pods.
    """

    def __init__(self) -> None:
        self.blocked = RefusedUnits()
        self.waiting: dict[str, Reason] = {}
        """Gang key or uid of a single pod -> why no unit can be made from it."""
        self.left_out: dict[str, tuple[LeftOut, ...]] = {}
        """Gang -> members that are in none of its units, because their sub-group cannot start."""
        self.last_reasons: dict[UnitKey, Reason] = {}
        """Unit that is blocked, or requeued without changes -> reason of its last refusal."""
        self._isolated = Isolation("queue")
        self._sorter: Plugin | None = None
        """The plugin that orders units, if there is one."""
        self._ready: dict[UnitKey, Unit] = {}
        self._woken: dict[UnitKey, Blocked] = {}
        """Ready unit -> its refusal, if it is ready because there may be room for it by now."""
        self._outdated: dict[UnitKey, None] = {}
        """Blocked units of which a part may fit by now, in the order in which that was noted."""
        self._refreshed_at = float("-inf")
        self._units_of: dict[str, tuple[UnitKey, ...]] = {}
        self._penalties: dict[str, _Penalty] = {}
        self._postponed: dict[UnitKey, _Penalty] = {}
        """Units that took too long to plan, and until when they are not tried again."""
        self._wasted: dict[str, tuple[int, float]] = {}
        """Namespace -> steps that such units of it have taken lately, and as of when."""
        self.yielding: frozenset[str] = frozenset()
        """Namespaces whose units took most of the last cycle, which was not enough for all."""
        self._committing: Counter[str] = Counter()
        """Gang -> number of its units being committed; several if it joined another group."""
        self._dirty_gangs: set[str] = set()
        self._hints_seen: dict[str, tuple[Hashable, Hashable]] = {}
        """Plugin -> edits and version of its last queueing hint."""

    def __len__(self) -> int:
        return len(self._ready)

    def absorb(self, changes: Changes, state: ClusterState) -> None:
        """Update the queue after changes."""
        state.refresh()
        self._sorter = state.sorter
        gangs = changes.gangs | self._dirty_gangs
        self._dirty_gangs = set()
        # Gangs of a group share units, and a pod that joins a gang keeps its key. So all old units
        # are removed before the first new one is added.
        sources = (*gangs, *changes.singles)
        blocked = {
            key: blocked_unit for source in sources for key, blocked_unit in self._unmake(source)
        }
        for gang in sorted(gangs):
            self._make_safely(gang, self._units_of_gang, state, blocked)
        for uid in sorted(changes.singles):
            self._make_safely(uid, self._units_of_single, state, blocked)
        self.forgive([uid for uid in self._penalties if uid not in state.pods])
        if self.blocked and changes.may_help:
            is_moved = changes.is_relabelled and bool(changes.freed)
            with closing(state.open_cycle()) as cycle:
                self._wake(QueueingHints(changes, cycle), is_moved=is_moved)
        self._wake_by_domains(state)

    def take(self, now: float, most_pods: int, state: ClusterState | None = None) -> list[Unit]:
        """Remove and return due units in order: at least one, up to about ``most_pods`` pods.

        With a ``state``, those for which room was freed that others have taken since sleep again.
        """
        if self._woken and state is not None:
            with closing(state.open_cycle()) as cycle:
                return self._take(now, most_pods, QueueingHints(Changes(), cycle))
        return self._take(now, most_pods, None)

    def _take(self, now: float, most_pods: int, hints: QueueingHints | None) -> list[Unit]:
        taken: list[Unit] = []
        pods = 0
        units = sorted(self._ready.values(), key=self._turn_of)
        # Costly ones come after others as important until all can be decided again.
        for unit in units if self.yielding else self._in_turn(units):
            if self._due_at(unit) > now:
                continue
            if hints is not None and self._sleeps_again(hints, unit):
                continue
            if taken and pods + len(unit.pods) > most_pods:
                break
            taken.append(unit)
            pods += len(unit.pods)
        for unit in taken:
            del self._ready[unit.key]
        return taken

    def wake(self, *kinds: type[object]) -> None:
        """Requeue all units that are blocked for some kinds of reasons."""
        refused = [*self.blocked.items(), *self._woken.items()]
        self.wake_units([key for key, blocked in refused if isinstance(blocked.reason, kinds)])

    def wake_units(self, keys: Iterable[UnitKey]) -> None:
        """Requeue some units, as far as they are blocked."""
        for key in keys:
            self._woken.pop(key, None)
            self._outdated.pop(key, None)
            if key in self.blocked:
                self._ready[key] = self.blocked.pop(key).unit

    def refresh(self, now: float) -> None:
        """Requeue units of which a part may fit by now, a few at a time."""
        if not self._outdated or now < self._refreshed_at + REFRESH_SECONDS:
            return
        self._refreshed_at = now
        self.wake_units(list(islice(self._outdated, MOST_REFRESHED)))

    def wake_surplus(self, freed: Collection[str], state: ClusterState) -> None:
        """Requeue units that may fit on nodes where held room was released, or into its quota.

        Not those that hold room themselves: others' holds never keep them from starting, and what
        each of them holds depends on the others, which might go on forever.
        """
        if not freed or not self.blocked:
            return
        with closing(state.open_cycle()) as cycle:
            hints = QueueingHints(Changes(freed=set(freed)), cycle)
            for key, blocked_unit in list(self.blocked.items()):
                is_refused_by_quota = blocked_unit.reason.wakes_on is WakesOn.DOMAIN
                if blocked_unit.unit.lease_seconds:
                    continue
                if is_refused_by_quota:
                    self.wake_units((key,))
                else:
                    self._wake_for_room(hints, blocked_unit)

    def wake_all(self) -> None:
        """Requeue all blocked units; make those again that could not be made."""
        self._ready |= {key: blocked_unit.unit for key, blocked_unit in self.blocked.items()}
        self.blocked.clear()
        self._woken.clear()
        self._outdated.clear()
        failed = (key for key, reason in self.waiting.items() if isinstance(reason, InternalError))
        self._dirty_gangs |= {key for key in failed if "/" in key}

    def units_of(self, source: str) -> tuple[UnitKey, ...]:
        """Return the current units of a gang or a single pod."""
        return self._units_of.get(source, ())

    def knows(self, key: UnitKey) -> bool:
        """Whether a unit with this key is ready or blocked."""
        return key in self._ready or key in self.blocked

    def incomplete(self) -> Iterator[tuple[str, Reason]]:
        """Yield what no unit can be made of, and why: gangs, single pods, and sub-groups."""
        yield from self.waiting.items()
        yield from ((part.name, part.reason) for parts in self.left_out.values() for part in parts)

    def why_left_out(self, pod: Pod) -> Reason | None:
        """Return why a pod is in none of the units of its gang; None if it is in one."""
        parts = () if pod.gang is None else self.left_out.get(pod.gang.key, ())
        reasons = (
            part.reason for part in parts if any(pod.uid == other.uid for other in part.pods)
        )
        return next(reasons, None)

    def find(self, key: UnitKey) -> Unit | None:
        """Return a unit that is ready or blocked."""
        blocked = self.blocked.get(key)
        return self._ready.get(key) if blocked is None else blocked.unit

    def next_due(self) -> float | None:
        """Return when the next unit is due (a past time means now); None if there is none."""
        due = min((self._due_at(unit) for unit in self._ready.values()), default=None)
        if not self._outdated:
            return due
        refresh_at = self._refreshed_at + REFRESH_SECONDS
        return refresh_at if due is None else min(due, refresh_at)

    def refuse(self, unit: Unit, refusal: Unplaced) -> News:
        """Block a unit until a relevant change; return what the refusal adds to the last one."""
        reason = refusal.reason
        self._woken.pop(unit.key, None)
        self._outdated.pop(unit.key, None)
        self.blocked[unit.key] = Blocked(unit, refusal.pods, reason)
        before = self.last_reasons.get(unit.key)
        self.last_reasons[unit.key] = reason
        if before is None or before.code != reason.code:
            return News.REASON
        return News.NOTHING if before == reason else News.NUMBERS

    def begin(self, unit: Unit) -> None:
        """Mark a unit as being committed: until :meth:`end`, its group makes no further units.

        The commit may still fail, and a member added in the meantime would start alone.
        """
        self._postponed.pop(unit.key, None)
        self._woken.pop(unit.key, None)
        if unit.is_whole:
            self._committing.update(gangs_of(unit.group))

    def end(self, unit: Unit) -> None:
        """Mark a commit as finished: the result for every member is known."""
        if unit.is_whole:
            self._committing -= Counter(gangs_of(unit.group))
        self._dirty_gangs |= {demand.gang for demand in unit.demands if demand.gang}

    def is_committing(self, gang: str) -> bool:
        """Whether members of a gang are being written."""
        return self._committing[gang] > 0

    def penalise(self, uids: Iterable[str], now: float) -> None:
        """Back off pods whose writes failed."""
        for uid in uids:
            penalty = self._penalties.setdefault(uid, _Penalty(0, 0.0))
            delay = FIRST_BACKOFF_SECONDS * 2.0**penalty.failures
            penalty.failures = min(penalty.failures + 1, 16)
            penalty.until = now + min(delay, LONGEST_BACKOFF_SECONDS)

    def postpone(self, unit: Unit, steps: int, now: float) -> None:
        """Back off a unit that took too long to plan, longer each time.

        Its namespace is charged what it took: under another name it is another unit.
        """
        namespace, wasted = unit.pods[0].namespace, self.wasted(now)
        wasted[namespace] = min(wasted.get(namespace, 0) + steps, MOST_PER_UNIT)
        self._wasted = {name: (amount, now) for name, amount in wasted.items()}
        if len(self._postponed) >= MAX_POSTPONED:
            over = [key for key, penalty in self._postponed.items() if penalty.until < now]
            for key in over or [*self._postponed][:1]:
                del self._postponed[key]
        penalty = self._postponed.setdefault(unit.key, _Penalty(0, 0.0))
        penalty.until = now + min(
            FIRST_PAUSE_SECONDS * 2.0**penalty.failures, LONGEST_PAUSE_SECONDS
        )
        penalty.failures = min(penalty.failures + 1, 16)

    def wasted(self, now: float) -> dict[str, int]:
        """Return namespace -> steps that planning has wasted on units of it, and not forgiven."""
        left = {
            name: steps - int(FORGIVEN_PER_SECOND * (now - at))
            for name, (steps, at) in self._wasted.items()
        }
        return {name: steps for name, steps in left.items() if steps > 0}

    def put_back(self, units: Iterable[Unit]) -> None:
        """Return units that were taken and not decided."""
        self._ready |= {unit.key: unit for unit in units}

    def yield_to_others(self, spent: Mapping[str, int]) -> None:
        """Let the next units of costly namespaces come after those of others of equal priority.

        ``spent`` are the steps by namespace of a cycle that ended before all its units were
        decided; empty otherwise. Many units that are costly to plan would keep everybody waiting
        who has created pods after them.
        """
        least = sum(spent.values()) / COSTLY_PART
        self.yielding = frozenset(name for name, steps in spent.items() if steps > least)

    def forgive(self, uids: Iterable[str]) -> None:
        """Clear the back-off of pods that were bound or deleted."""
        for uid in uids:
            self._penalties.pop(uid, None)

    def _in_turn(self, units: list[Unit], most: int | None = None) -> Iterator[Unit]:
        """Yield units in the order of the plugin that orders them; repairs come first in any case.

        After the first ``most`` the others come by priority and time. Each is yielded once,
        whatever the plugin does: none is lost.
        """
        if self._sorter is None:
            yield from units
            return
        left = {unit.key: unit for unit in units}
        for unit in units:
            if unit.is_repair:
                yield left.pop(unit.key)
        with self._isolated.of("order"):
            for unit in islice(self._sorter.order(list(left.values())), most):
                if left.pop(unit.key, None) is not None:
                    yield unit
        yield from left.values()

    def _turn_of(self, unit: Unit) -> tuple[bool, int, bool, float, UnitKey]:
        """Return by what units are taken: in order, but costly ones after others as important."""
        is_repair, priority, since, key = _order_of(unit)
        is_yielding = bool(self.yielding) and unit.pods[0].namespace in self.yielding
        return is_repair, priority, is_yielding, since, key

    def _due_at(self, unit: Unit) -> float:
        postponed = self._postponed.get(unit.key) if self._postponed else None
        due = 0.0 if postponed is None else postponed.until
        if not self._penalties:
            return due
        penalties = (self._penalties.get(pod.uid) for pod in unit.pods)
        return max((due, *(penalty.until for penalty in penalties if penalty)))

    def _unmake(self, source: str) -> list[tuple[UnitKey, Blocked]]:
        """Remove all units of a source; return the blocked ones."""
        blocked = []
        for key in self._units_of.pop(source, ()):
            self._ready.pop(key, None)
            self._woken.pop(key, None)
            self.last_reasons.pop(key, None)
            if key in self.blocked:
                blocked.append((key, self.blocked.pop(key)))
        self.waiting.pop(source, None)
        self.left_out.pop(source, None)
        return blocked

    def _make_safely(
        self,
        source: str,
        units_of: Callable[[str, ClusterState], Ready | Reason | None],
        state: ClusterState,
        blocked: Mapping[UnitKey, Blocked],
    ) -> None:
        """Add the units of a source; if that fails, it waits for a change of its own."""
        with self._isolated.of(source):
            self._make(source, units_of(source, state), blocked)
            return
        self._unmake(source)
        self.waiting[source] = InternalError(self._isolated.error_of(source))

    def _make(
        self,
        source: str,
        made: Ready | Reason | None,
        blocked: Mapping[UnitKey, Blocked],
    ) -> None:
        """Add the units of a source; unchanged blocked units stay blocked."""
        if made is None:
            return
        if not isinstance(made, Ready):
            self.waiting[source] = made
            return
        if made.units:
            self._units_of[source] = tuple(unit.key for unit in made.units)
        if left_out := tuple(
            left_out_unit for left_out_unit in made.left_out if left_out_unit.gang == source
        ):
            self.left_out[source] = left_out
        for unit in made.units:
            before = blocked.get(unit.key)
            if before is not None and before.unit == unit:
                self.blocked[unit.key] = before
                self.last_reasons[unit.key] = before.reason
            else:
                self._ready[unit.key] = unit

    def _units_of_gang(self, gang: str, state: ClusterState) -> Ready | Reason | None:
        if self.is_committing(gang) or gang not in state.gangs:
            return None
        if has_succeeded(state.gangs, gang):
            return None  # it lacks members, and waits for none
        return demands(state.gangs, gang)

    def _units_of_single(self, uid: str, state: ClusterState) -> Ready | Reason | None:
        pod = state.pods.get(uid)
        if pod is None or pod.gang is not None or not pod.is_waiting:
            return None
        if pod.handling is Handling.FOREIGN_GATE:
            return WaitingForForeignGate(pod.key, pod.foreign_gates)
        return Ready((unit_of(pod),)) if pod.is_plannable else None

    def by_time(self, *taken: Unit) -> list[Unit]:
        """Return all waiting units by priority and time, including those taken for this cycle."""
        blocked = (blocked_unit.unit for blocked_unit in self.blocked.values())
        return sorted((*self._ready.values(), *blocked, *taken), key=_order_of)

    def pending(self, *taken: Unit) -> list[Unit]:
        """Return all waiting units in the order of their turns, for people."""
        units = self.by_time(*taken)
        return units if self._sorter is None else list(self._in_turn(units, MOST_TURNS))

    def _wake_by_domains(self, state: ClusterState) -> None:
        """Requeue units that were refused by a domain, by the hints of that domain."""
        if not self.blocked and not self._ready:
            return  # nobody is woken, and nobody is about to be refused by what is true now
        refused = {name: list(keys) for name, keys in self.blocked.by_domain().items()}
        for plugin in state.plugins:
            # Without units a hint is asked for all the same: its version is remembered.
            if plugin.name in refused or plugin in state.hinting:
                self._wake_by_hint(plugin, refused.get(plugin.name, ()))

    def _wake_by_hint(self, plugin: Plugin, keys: Sequence[UnitKey]) -> None:
        # Nobody asks for those that wait where none is to be woken: there may be many.
        hint = plugin.queueing_hint(self.by_time if keys else tuple)
        if hint is None:
            self._ready |= {key: self.blocked.pop(key).unit for key in keys}
            return
        edits, version = self._hints_seen.get(plugin.name, (None, None))
        is_same = not keys or version == hint.version
        self._hints_seen[plugin.name] = (hint.edits, version if is_same else hint.version)
        for key in () if is_same else keys:
            if edits != hint.edits or self._is_relieved(hint, self.blocked[key]):
                self._ready[key] = self.blocked.pop(key).unit

    def _is_relieved(self, hint: QueueingHint, blocked: Blocked) -> bool:
        with self._isolated.of(blocked.unit.key):
            return hint.is_relieved(blocked.unit, blocked.reason)
        return True

    def _wake(self, hints: QueueingHints, *, is_moved: bool) -> None:
        """Requeue units that the changes concern; ``is_moved``: node labels changed."""
        is_room_changed = hints.is_room_changed or is_moved
        for key, blocked in self.blocked.concerned_by(is_room_only=is_room_changed):
            wakes_on = blocked.reason.wakes_on
            is_relevant = wakes_on is WakesOn.ANY_CHANGE or (
                is_moved and wakes_on is WakesOn.RELABELLED_NODES
            )
            if is_relevant:
                self.wake_units((key,))
            else:
                self._wake_for_room(hints, blocked)

    def _wake_for_room(self, hints: QueueingHints, refused: Blocked) -> None:
        """Requeue a unit for which there may be room, as long as nobody else has taken it."""
        key = refused.unit.key
        chance = self._chance_of(hints, refused)
        if chance is Chance.ALL:
            del self.blocked[key]
            self._ready[key], self._woken[key] = refused.unit, refused
        elif chance is Chance.PART:
            self._outdated[key] = None

    def _sleeps_again(self, hints: QueueingHints, unit: Unit) -> bool:
        """Block a unit again for which others have taken the room; return whether it is so."""
        refused = self._woken.get(unit.key)
        if refused is None or self._may_start(hints, refused):
            return False
        del self._woken[unit.key], self._ready[unit.key]
        self.blocked[unit.key] = refused
        self._outdated[unit.key] = None
        return True

    def _may_start(self, hints: QueueingHints, refused: Blocked) -> bool:
        """Whether there may be room for a unit now; if that cannot be told, planning decides."""
        with self._isolated.of(refused.unit.key):
            return hints.may_start(refused.unit, refused.pods)
        return True

    def _chance_of(self, hints: QueueingHints, refused: Blocked) -> Chance:
        """Return how much of a unit may fit; if that cannot be told, planning decides."""
        with self._isolated.of(refused.unit.key):
            return hints.chance_of(refused.unit, refused.pods)
        return Chance.ALL


def find_pending(state: ClusterState) -> list[Unit]:
    """Return all waiting units of a state, in order."""
    queue = Queue()
    queue.absorb(state.everything(), state)
    return queue.pending()


def unit_of(pod: Pod) -> Unit:
    """Return the unit of a pod without gang."""
    return Unit(pod.uid, (Demand("", (pod,), 1),), "", pod.priority, pod.created)


def _order_of(unit: Unit) -> tuple[bool, int, float, UnitKey]:
    return (not unit.is_repair, -unit.priority, unit.since, unit.key)
