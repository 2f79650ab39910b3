"""Which units are tried next: order, back-off, and wake-up by what could change the answer.

A unit that was refused sleeps until something relevant happens: one of its own pods or settings
changes, or something around it because of which one more of its pods may have a place. Pods whose
writes failed wait out a back-off. Time is handed in; nothing here reads a clock, plans or writes.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from koord.core.changes import Changes
from koord.core.framework.plugin import Plugin, QueueingHint
from koord.core.gang.quorum import Ready, demands
from koord.core.gang.tally import gangs_of
from koord.core.plan import Demand, Refusal, Unit, UnitKey
from koord.core.pods import Handling, Pod
from koord.core.queueing_hints import QueueingHints
from koord.core.reasons import Reason, WaitingForForeignGate, WakesOn
from koord.core.state import ClusterState

FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 5.0
"""A leader never leaves something that blocks placement alone for longer than this."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A refused unit (or the surplus of a placed one) and why it sleeps."""

    unit: Unit
    pods: tuple[Pod, ...]
    reason: Reason


class News(Enum):
    """What a refusal tells that the one before did not."""

    NOTHING = auto()
    NUMBERS = auto()
    """The same kind of reason, other numbers."""
    REASON = auto()
    """Another kind of reason, or the first at all."""


@dataclass(slots=True)
class _Penalty:
    failures: int
    until: float


class Queue:
    """Units that are ready, units that sleep, and sources that cannot make a unit yet.

    A *source* is what units are made from: a gang group (by the keys of its gangs) or a single pod.
    """

    def __init__(self) -> None:
        self.blocked: dict[UnitKey, Blocked] = {}
        self.waiting: dict[str, Reason] = {}
        """Gang key or single pod's uid -> why no unit can be made of it."""
        self._ready: dict[UnitKey, Unit] = {}
        self._units_of: dict[str, tuple[UnitKey, ...]] = {}
        self._penalties: dict[str, _Penalty] = {}
        self._committing: Counter[str] = Counter()
        """Gang -> how many units decide about it; it may have joined another group meanwhile."""
        self._look_again: set[str] = set()
        self._hints_seen: dict[str, tuple[Hashable, Hashable]] = {}
        """Plugin -> edits and version of its last queueing hint."""
        self._slept_for: dict[UnitKey, Reason] = {}
        """Unit that sleeps, or was woken as it is -> why."""

    def __len__(self) -> int:
        return len(self._ready)

    def absorb(self, changes: Changes, state: ClusterState) -> None:
        """Bring the queue in line with what changed."""
        state.refresh()
        gangs = changes.gangs | self._look_again
        self._look_again = set()
        # Gangs of a group share units, and a pod that joins a gang is a unit of the same key as
        # before: all old ones go before the first new one comes.
        sources = (*gangs, *changes.singles)
        asleep = {key: one for source in sources for key, one in self._unmake(source)}
        for gang in sorted(gangs):
            self._make(gang, self._units_of_gang(gang, state), asleep)
        for uid in sorted(changes.singles):
            self._make(uid, self._units_of_single(uid, state), asleep)
        self.forgive([uid for uid in self._penalties if uid not in state.pods])
        if changes.may_help and self.blocked:
            is_moved = changes.is_relabelled and bool(changes.freed)
            self._wake(QueueingHints(changes, state.open_cycle()), is_moved=is_moved)
        self._wake_by_domains(state)

    def take(self, now: float, most_pods: int) -> list[Unit]:
        """Take due units in order, at least one, together up to about ``most_pods`` pods."""
        taken: list[Unit] = []
        pods = 0
        for unit in sorted(self._ready.values(), key=_order_of):
            if self._due_at(unit) > now:
                continue
            if taken and pods + len(unit.pods) > most_pods:
                break
            taken.append(unit)
            pods += len(unit.pods)
        for unit in taken:
            del self._ready[unit.key]
        return taken

    def wake(self, code: str) -> None:
        """Try all units again that sleep for one kind of reason."""
        for key in [key for key, one in self.blocked.items() if one.reason.code == code]:
            self._ready[key] = self.blocked.pop(key).unit

    def wake_all(self) -> None:
        """Try everything again that sleeps."""
        self._ready |= {key: one.unit for key, one in self.blocked.items()}
        self.blocked.clear()

    def units_of(self, source: str) -> tuple[UnitKey, ...]:
        """Return the units that were last made of a gang or a single pod."""
        return self._units_of.get(source, ())

    def knows(self, key: UnitKey) -> bool:
        """Whether a unit of this key is ready or sleeps."""
        return key in self._ready or key in self.blocked

    def next_due(self) -> float | None:
        """Return when the next ready unit is due (in the past: now), or None when there is none."""
        return min((self._due_at(unit) for unit in self._ready.values()), default=None)

    def refuse(self, unit: Unit, refusal: Refusal) -> News:
        """Put a unit to sleep until something relevant changes; return what is new about it."""
        reason = refusal.reason
        self.blocked[unit.key] = Blocked(unit, refusal.pods, reason)
        before = self._slept_for.get(unit.key)
        self._slept_for[unit.key] = reason
        if before is None or before.code != reason.code:
            return News.REASON
        return News.NOTHING if before == reason else News.NUMBERS

    def begin(self, unit: Unit) -> None:
        """Say that a unit is being committed: until :meth:`end`, nothing more is made of its group.

        What is assumed of a gang may yet fall through, and then a member that was added to it on
        its own would be alone.
        """
        if unit.is_whole:
            self._committing.update(gangs_of(unit.group))

    def end(self, unit: Unit) -> None:
        """Say that the fate of every member of a unit is known."""
        if unit.is_whole:
            self._committing -= Counter(gangs_of(unit.group))
        self._look_again |= {demand.gang for demand in unit.demands if demand.gang}

    def is_committing(self, gang: str) -> bool:
        """Whether members of a gang are being written."""
        return self._committing[gang] > 0

    def penalise(self, uids: Iterable[str], now: float) -> None:
        """Keep pods back for a while whose writes failed."""
        for uid in uids:
            penalty = self._penalties.setdefault(uid, _Penalty(0, 0.0))
            delay = FIRST_BACKOFF_SECONDS * 2.0**penalty.failures
            penalty.failures = min(penalty.failures + 1, 16)
            penalty.until = now + min(delay, LONGEST_BACKOFF_SECONDS)

    def forgive(self, uids: Iterable[str]) -> None:
        """Forget failures of pods that were bound or are gone."""
        for uid in uids:
            self._penalties.pop(uid, None)

    def _due_at(self, unit: Unit) -> float:
        if not self._penalties:
            return 0.0
        penalties = (self._penalties.get(pod.uid) for pod in unit.pods)
        return max((penalty.until for penalty in penalties if penalty), default=0.0)

    def _unmake(self, source: str) -> list[tuple[UnitKey, Blocked]]:
        """Take away all units of a source; return those that sleep."""
        asleep = []
        for key in self._units_of.pop(source, ()):
            self._ready.pop(key, None)
            self._slept_for.pop(key, None)
            if key in self.blocked:
                asleep.append((key, self.blocked.pop(key)))
        self.waiting.pop(source, None)
        return asleep

    def _make(
        self,
        source: str,
        made: tuple[Unit, ...] | Reason | None,
        asleep: Mapping[UnitKey, Blocked],
    ) -> None:
        """Take what a source makes now; units that are as they were sleep on."""
        if made is None:
            return
        if not isinstance(made, tuple):
            self.waiting[source] = made
            return
        if made:
            self._units_of[source] = tuple(unit.key for unit in made)
        for unit in made:
            before = asleep.get(unit.key)
            if before is not None and before.unit == unit:
                self.blocked[unit.key] = before
                self._slept_for[unit.key] = before.reason
            else:
                self._ready[unit.key] = unit

    def _units_of_gang(self, gang: str, state: ClusterState) -> tuple[Unit, ...] | Reason | None:
        if self.is_committing(gang):
            return None
        verdict = demands(state.gangs, gang)
        return verdict.units if isinstance(verdict, Ready) else verdict

    def _units_of_single(self, uid: str, state: ClusterState) -> tuple[Unit, ...] | Reason | None:
        pod = state.pods.get(uid)
        if pod is None or pod.gang is not None or not pod.is_waiting:
            return None
        if pod.handling is Handling.FOREIGN_GATE:
            return WaitingForForeignGate(pod.key, pod.foreign_gates)
        return (unit_of(pod),) if pod.is_plannable else None

    def pending(self, *taken: Unit) -> list[Unit]:
        """Return all units that wait, in order, with those that were taken for this cycle."""
        asleep = (blocked.unit for blocked in self.blocked.values())
        return sorted((*self._ready.values(), *asleep, *taken), key=_order_of)

    def _wake_by_domains(self, state: ClusterState) -> None:
        """Wake units whose refusal only one domain can judge, when that domain says so."""
        refused: dict[str, list[UnitKey]] = {}
        for key, one in self.blocked.items():
            if one.reason.wakes_on is WakesOn.DOMAIN:
                refused.setdefault(one.reason.domain, []).append(key)
        for plugin in state.plugins:
            self._wake_by_hint(plugin, refused.get(plugin.name, ()))

    def _wake_by_hint(self, plugin: Plugin, keys: Sequence[UnitKey]) -> None:
        hint = plugin.queueing_hint(self.pending)
        if hint is None:
            self._ready |= {key: self.blocked.pop(key).unit for key in keys}
            return
        edits, version = self._hints_seen.get(plugin.name, (None, None))
        is_same = not keys or version == hint.version
        self._hints_seen[plugin.name] = (hint.edits, version if is_same else hint.version)
        for key in () if is_same else keys:
            if edits != hint.edits or _is_relieved(hint, self.blocked[key]):
                self._ready[key] = self.blocked.pop(key).unit

    def _wake(self, relevance: QueueingHints, *, is_moved: bool) -> None:
        """Wake what something relevant has happened to; ``is_moved``: nodes have other labels."""
        for key, blocked in list(self.blocked.items()):
            wakes_on = blocked.reason.wakes_on
            if wakes_on is WakesOn.DOMAIN:
                continue
            is_mended = wakes_on is WakesOn.ANY_CHANGE or (
                is_moved and wakes_on is WakesOn.RELABELLED_NODES
            )
            if is_mended or any(map(relevance.concerns, blocked.pods)):
                self._ready[key] = blocked.unit
                del self.blocked[key]


def find_pending(state: ClusterState) -> list[Unit]:
    """Return all units that wait in a state, in order, as a queue would make them anew."""
    queue = Queue()
    queue.absorb(state.everything(), state)
    return queue.pending()


def unit_of(pod: Pod) -> Unit:
    """Return the unit that a pod outside any gang is."""
    return Unit(pod.uid, (Demand("", (pod,), 1),), "", pod.priority, pod.created)


def _is_relieved(hint: QueueingHint, blocked: Blocked) -> bool:
    try:
        return hint.is_relieved(blocked.unit, blocked.reason)
    except Exception:  # noqa: BLE001 - planning meets the same defect, and refuses the unit for it
        return True


def _order_of(unit: Unit) -> tuple[bool, int, float, UnitKey]:
    return (not unit.is_repair, -unit.priority, unit.since, unit.key)
