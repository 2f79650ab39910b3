"""Records of decisions about units, as they are kept: references to values that exist anyway.

A record is made on the way of a decision, so making one costs microseconds: nothing is encoded. Who
reads makes names and amounts of it; until then, and for a bounded number of records, it keeps the
pods of its unit alive.

Nobody changes a record, save for the counts of an ``Attempt``. They are not frozen all the same:
making a frozen object takes three times as long.

Knows no clock, no sink, and none of those who decide.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Final, TypeAlias

from koord.core.engine.decision_trace import RefusingNodes, ScoreTable
from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.plan import Assignment, Unit
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason

MOST_UIDS: Final = 3
MOST_NODES: Final = 64
"""Nodes of one placement that are named; of the others only the number is kept."""
MOST_PODS: Final = 8
"""Evicted pods, and failed writes, that are named."""
MOST_MESSAGE: Final = 256
MOST_NAME: Final = 253
"""Letters of a name; those that an API server has looked at are no longer."""
MOST_SHAPES: Final = 16
"""Different requests of one unit that are recorded."""


class RecordKind(StrEnum):
    """What was decided, or has happened."""

    SEEN = "Seen"
    """The first pod of a unit, or its PodGroup, is there."""
    COMPLETE = "Complete"
    """It has all members that it needs."""
    ATTEMPT = "Attempt"
    """It was refused: planned without success, or not planned for the reason that is given."""
    HELD = "Held"
    """Somebody holds it from now on: it was refused for a reason of the class ``Held``."""
    RELEASED = "Released"
    """Nobody holds it any more."""
    CHANGED = "Changed"
    """Its settings, its quota or its priority were changed; or the settings of a quota were."""
    PLACED = "Placed"
    """The planner has found nodes for it."""
    COMMITTED = "Committed"
    """Its plan was written, as far as that was possible."""
    PREEMPTING = "Preempting"
    """Others are evicted for it, or no longer: then the outcome says why."""
    VICTIM_GONE = "VictimGone"
    """A pod that was evicted for it does not exist, or has ended."""
    EVICTED = "Evicted"
    """Pods of it were evicted."""
    DEGRADED = "Degraded"
    """It had started, and fell below its minimum."""
    TIMED_OUT = "TimedOut"
    """It waits longer for a place than it allows."""
    RUNNING = "Running"
    """All members that it needs run."""
    ENDED = "Ended"
    """Nothing of it runs any more, or is to run."""
    GONE = "Gone"
    """None of its objects exists any more."""
    TERM = "Term"
    """A process became the leader."""
    CONFIG = "Config"
    """The configuration that it has."""
    FLAGS = "Flags"
    """A debug flag was set, or has ended."""
    GAP = "Gap"
    """Records are missing: there was no room for them."""


Requests: TypeAlias = tuple[tuple[str, int], ...]
"""What a pod requests, as its shape has it."""


@dataclass(slots=True)
class RecordedOwner:
    """What the pods of a unit belong to."""

    kind: str
    name: str
    uid: str


@dataclass(slots=True)
class RecordedUnit:
    """Whom a record is about. ``trace`` is the same for the life of a unit.

    ``names`` are its gangs, or its pod; ``uids`` those of its first pods. ``asks`` is what its pods
    request, and how many request the same; it is put together when somebody reads. ``quota`` and
    ``priority`` are known once it was planned: empty and None before.
    """

    key: str
    namespace: str
    trace: str
    names: tuple[str, ...]
    owner: RecordedOwner | None = None
    uids: tuple[str, ...] = ()
    pods: int = 0
    required: int = 0
    quota: str = ""
    priority: int | None = None
    asks: tuple[tuple[Requests, int], ...] = ()


class UnitSketch:
    """Whom records are about, before somebody has read one of them: ``finish`` tells the rest."""

    __slots__ = ("_made", "_quota", "_unit", "namespace", "trace")

    def __init__(self, unit: Unit, trace: str, quota: str) -> None:
        self.namespace, self.trace = unit.pods[0].namespace, trace
        self._unit: Unit | None = unit
        self._quota = quota
        self._made: RecordedUnit | None = None

    def is_about(self, unit: Unit) -> bool:
        """Whether it tells the same of a unit as a new one would."""
        pods, made = unit.pods, self._made
        if self._unit is not None:
            return self._unit is unit or (
                len(self._unit.pods) == len(pods) and self._unit.pods[0].uid == pods[0].uid
            )
        return made is not None and made.pods == len(pods) and made.uids[0] == pods[0].uid

    def finish(self) -> RecordedUnit:
        """Return what is recorded, made once; no pod is kept afterwards. In any thread."""
        unit, made = self._unit, self._made
        if made is None and unit is not None:
            made = self._made = _describe(unit, self.trace, self._quota)
            self._unit = None
        assert made is not None, "one of both is there"  # noqa: S101 - for the type checker
        return made


def _describe(unit: Unit, trace: str, quota: str) -> RecordedUnit:
    pods = unit.pods
    names = dict.fromkeys(demand.gang for demand in unit.demands if demand.gang)
    return RecordedUnit(
        key=unit.group or pods[0].title,
        namespace=pods[0].namespace,
        trace=trace,
        names=tuple(islice(names, MOST_NODES)) or (pods[0].title,),
        owner=find_recorded_owner(pods[0]),
        uids=tuple(pod.uid for pod in pods[:MOST_UIDS]),
        pods=len(pods),
        required=unit.required,
        quota=quota,
        priority=unit.priority,
        asks=tuple(Counter(pod.shape.requests for pod in pods).items())[:MOST_SHAPES],
    )


def find_recorded_owner(pod: Pod) -> RecordedOwner | None:
    """Return the controller of a pod, or its first owner."""
    owners = pod.owners
    if not owners:
        return None
    owner = next((owner for owner in owners if owner.is_controller), owners[0])
    # Whoever makes a pod writes what it likes there.
    return RecordedOwner(owner.kind[:MOST_NAME], owner.name[:MOST_NAME], owner.uid[:MOST_NAME])


@dataclass(slots=True)
class Began:
    """When a unit was created, or complete, in milliseconds since the epoch."""

    since: int


@dataclass(slots=True)
class Attempt:
    """A refusal. Equal ones in a row are one record that counts them.

    ``attempt`` is the number of the first of them, 0 if it was not planned at all; ``position`` is
    that of the last one, ``of`` so many. ``cycle`` and ``micros`` are about the plan of all units
    of that cycle.
    """

    attempt: int
    reason: Reason
    position: int | None
    of: int
    cycle: int
    micros: int
    first_at: int
    last_at: int
    repeats: int = 0
    refusing: tuple[RefusingNodes, ...] = ()
    """The nodes, by name, if somebody wanted to see them."""

    def is_repeated_by(self, reason: Reason) -> bool:
        """Whether a refusal says the same; who happens to hold what is lacking is no difference."""
        own = self.reason
        if own == reason:
            return True
        if not (isinstance(own, InsufficientNodes) and isinstance(reason, InsufficientNodes)):
            return False
        return _numbers_of(own) == _numbers_of(reason)


def _numbers_of(reason: InsufficientNodes) -> tuple[object, ...]:
    counts = reason.want, reason.fit, reason.nodes, reason.request, reason.more_nodes
    return (*counts, reason.resource, reason.refused)


@dataclass(slots=True)
class PlacedNode:
    """How many pods of a unit a node gets, and the first of their names."""

    node: str
    pods: int
    names: tuple[str, ...]


@dataclass(slots=True)
class Placed:
    """Where a unit goes. ``due`` is when planning began, ``ahead`` counts refusals before it.

    ``created`` is when the first pod of the unit was, ``complete`` when it had all members, in
    milliseconds since the epoch; ``domain`` is the lowest that holds all of it.
    """

    plan_id: str
    assignments: tuple[Assignment, ...]
    """Of its pods, before somebody has read it; then there are only ``names``."""
    domain: tuple[str, ...]
    created: int
    complete: int
    due: int
    ahead: int
    cycle: int
    quotas: tuple[str, ...] = ()
    position: int | None = None
    """Its last place in the queue."""
    score: tuple[ScoreTable, ...] = ()
    """The best nodes, if somebody wanted to see them."""
    names: tuple[tuple[str, str], ...] = ()
    """Nodes and pods."""

    def finish(self) -> None:
        """Keep names, and no pod. In any thread."""
        assignments = self.assignments
        if assignments:
            self.names = tuple((each.node, each.pod.name) for each in assignments)
            self.assignments = ()

    def list_nodes(self) -> tuple[tuple[PlacedNode, ...], int]:
        """Return the first nodes, and how many more there are."""
        self.finish()
        by_node: dict[str, list[str]] = {}
        for node, pod in self.names:
            by_node.setdefault(node, []).append(pod)
        most = max(1, MOST_NODES // max(1, len(by_node)))
        named = tuple(
            PlacedNode(node, len(names), tuple(names[:most]))
            for node, names in islice(by_node.items(), MOST_NODES)
        )
        return named, len(by_node) - len(named)


@dataclass(slots=True)
class FailedWrite:
    """A write that did not succeed: the answer of the API server, status 0 for none."""

    pod: str
    status: int
    message: str


@dataclass(slots=True)
class Committed:
    """How the writes of a plan ended. ``not_bound`` have no node."""

    plan_id: str
    releases: int
    binds: int
    left_to_others: int
    not_bound: int
    took_ms: int
    failures: tuple[FailedWrite, ...] = ()
    more_failures: int = 0


@dataclass(slots=True)
class Preempting:
    """Others go for a unit. ``outcome`` is how that ended, empty while it goes on."""

    policy: str
    victims: int
    outcome: str = ""


@dataclass(slots=True)
class Held:
    """Why a unit may not start before somebody lets it."""

    reason: Reason


@dataclass(slots=True)
class FieldChange:
    """A setting, and its values before and after as text; empty for none."""

    field: str
    before: str
    after: str


@dataclass(slots=True)
class SpecChanged:
    """What was changed of a unit, or of the quota that is named."""

    changes: tuple[FieldChange, ...]
    quota: str = ""


@dataclass(slots=True)
class VictimGone:
    """A pod that gave way; ``left`` others of the same plan are still there."""

    policy: str
    pod: str
    left: int
    took_ms: int


@dataclass(slots=True)
class EvictedPod:
    """A pod that was evicted."""

    name: str
    uid: str
    node: str


@dataclass(slots=True)
class Evicted:
    """Pods that were evicted, the first of them by name, by which policy and for whom."""

    policy: str
    by: str
    count: int
    pods: tuple[EvictedPod, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What was told of a gang, in a sentence that is made of numbers and names."""

    why: str


@dataclass(frozen=True, slots=True)
class Term:
    """The term of a leader, and who it is."""

    holder: str


@dataclass(frozen=True, slots=True)
class ConfigInForce:
    """The configuration of a process: its version, a digest, and the fields that somebody set."""

    version: str
    digest: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FlagSet:
    """A debug flag and its value, and who has set it."""

    flag: str
    value: str
    by: str


@dataclass(frozen=True, slots=True)
class RecordGap:
    """Records that are missing; the last of them has the number ``to``."""

    from_: int
    to: int
    count: int


Body: TypeAlias = (
    Began
    | Attempt
    | Placed
    | Committed
    | Held
    | SpecChanged
    | Preempting
    | VictimGone
    | Evicted
    | Told
    | Term
    | ConfigInForce
    | FlagSet
    | RecordGap
    | None
)


@dataclass(frozen=True, slots=True)
class ClosedAttempt:
    """The last numbers of the refusals that came before, for readers who have read them."""

    seq: int
    repeats: int
    last_at: int
    position: int | None


@dataclass(slots=True)
class AuditRecord:
    """One record. ``at`` is the time of the leader's clock, ``mono`` counts from the term's begin.

    Both are milliseconds. Records are ordered by ``term`` and ``seq``, never by time.
    """

    kind: RecordKind
    unit: RecordedUnit | None
    body: Body
    at: int = 0
    mono: int = 0
    closed: ClosedAttempt | None = None
    term: int = field(default=0)
    seq: int = field(default=0)
    size: int = 0
    """About how many bytes it takes as JSON, and more than it takes here."""
    sketch: UnitSketch | None = None
    """In place of ``unit``, until somebody reads it."""

    def finish(self) -> None:
        """Put ``unit`` in place of its sketch: no pod is kept afterwards."""
        sketch = self.sketch
        if sketch is not None:
            self.unit, self.sketch = sketch.finish(), None
        if isinstance(self.body, Placed):
            self.body.finish()

    def forget(self) -> None:
        """Keep no pod, and nothing else of its unit: nobody will read it."""
        self.sketch = None
        if isinstance(self.body, Placed):
            self.body.assignments = ()


def estimate_size(body: Body) -> int:
    """Return about how many bytes a record takes."""
    kind = type(body)
    if kind is Attempt or kind is SpecChanged:
        return 1200
    if isinstance(body, Placed):
        scores = sum([len(table.nodes) for table in body.score]) if body.score else 0
        pods = len(body.assignments)
        return 500 + 150 * (min(pods, MOST_NODES) + scores) + 80 * pods
    if isinstance(body, Committed):
        return 600 + 300 * len(body.failures)
    if isinstance(body, Evicted):
        return 500 + 150 * len(body.pods)
    return 400
