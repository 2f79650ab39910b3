"""The extension points of the planner. Names are those of kube-scheduler's scheduling framework.

A domain joins with one :class:`Plugin`, which lives beside the cluster state and keeps its cache
current. For every planning cycle it opens a :class:`Session`. Sessions evaluate all nodes at once:
a result is an array over the rows of the node table. Every method has a default that does nothing,
and a method that a session does not override is never called.

What few domains need are capabilities: a session that has one inherits from its class, too. The
planner looks up once per set of sessions who overrides what, so a capability that no session has
costs nothing. A method that is defined without its capability would never be called: that is an
error.

Rules for authors:

* Opening a session only reads. Expensive computations belong in :meth:`Plugin.absorb`.
* Changes that a session makes while pods are placed are either undone by calling the same method
  with the opposite count (:meth:`Session.apply`), or logged on ``cycle.undo``.
* ``filter`` may overestimate but never underestimate; ``reserve`` is exact.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from koord.core.engine.arrays import NO_LIMIT, Ints, Mask, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.reasons import NewNodes
from koord.core.engine.scoring import ScoreTerms
from koord.core.model.plan import (
    Assignment,
    Demand,
    ObjectWrite,
    Placement,
    Plan,
    Unit,
    UnitKey,
    Unplaced,
)
from koord.core.model.pods import Allocation, Pod, PodShape
from koord.core.model.reasons import Reason
from koord.core.model.zone_hints import Hints

if TYPE_CHECKING:
    from koord.core.engine.cycle import Cycle
    from koord.core.engine.state_view import StateView
    from koord.core.model.nodes import Node
    from koord.core.model.pod_charge import PodCharge


class FilterReach(Enum):
    """Which results of ``filter`` may change when a pod is placed."""

    NOTHING = auto()
    """None: they depend on the nodes alone."""
    ROW = auto()
    """Those for the row of the pod."""
    CLUSTER = auto()
    """Those for any row."""


class Scale(Enum):
    """How raw scores become points from 0 to 100, over all feasible rows."""

    ABSOLUTE = auto()
    """Raw scores are points."""
    BY_MAX = auto()
    """In proportion to the highest raw score."""
    BY_MAX_REVERSED = auto()
    """The same, subtracted from 100: the lowest raw score is the best."""


@dataclass(frozen=True, slots=True)
class Score:
    """Raw scores, one per requested row; ``weight`` multiplies the points."""

    values: Ints
    weight: int = 1
    scale: Scale = Scale.ABSOLUTE


@dataclass(frozen=True, slots=True)
class Admission:
    """A unit that passed :meth:`Session.pre_filter`, possibly with fewer surplus pods.

    ``left`` are the surplus pods that were not admitted, for ``reason``.
    """

    unit: Unit
    left: tuple[Pod, ...] = ()
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Why a pod could not be reserved although the filters expected room.

    Ends the attempt on this row for pods of this shape. If it ``is_optional``, other held room on
    the row is tried; if it ``ends_unit``, no other row is tried.
    """

    reason: Hashable = None
    is_optional: bool = False
    ends_unit: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """Room on a row that is held for certain pods, and how many pods of the shape fit.

    ``uid`` is that of the pod to which the room is charged, with its allocations. ``most`` includes
    free room of the node, unless the hold only allows its own room. Of the resources in
    ``strict`` a pod gets only what is held. With ``is_user`` it is no held room but a pod that
    runs: what is placed is room that is held around what this pod has.

    It is offered to pods from ``start`` until ``end``, in seconds since the epoch, by the time of
    the cycle. What it keeps from others before its start, the filter of its session says.
    """

    uid: str
    most: int
    strict: frozenset[str] = frozenset()
    is_user: bool = False
    start: float = float("-inf")
    end: float = float("inf")

    def is_open(self, now: float) -> bool:
        """Whether pods may use it now."""
        return self.start <= now < self.end


@dataclass(slots=True)
class Draft:
    """One pod being placed on one row: the held room to use, and its allocations so far.

    ``zones``: the parts of the node, one bit each, that everything it gets must be in; None: any.
    """

    pod: Pod
    shape: PodShape
    row: int
    holds: tuple[Hold, ...] = ()
    zones: int | None = None
    allocations: list[Allocation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StrategyResult:
    """Pods that a strategy placed, details for the placement, and why surplus was left over."""

    assignments: list[Assignment]
    details: tuple[Any, ...] = ()
    left_over: Mapping[str, Reason] = field(default_factory=dict)
    """uid of a surplus pod -> why it was not placed."""


class StrategyShare(Protocol):
    """The part of a unit that a strategy places itself."""

    @property
    def demands(self) -> Sequence[Demand]:
        """The demands that the strategy places; the planner places the others afterwards."""

    @property
    def is_required(self) -> bool:
        """Whether its refusal refuses the unit; otherwise the planner places the whole unit."""

    def place(self) -> StrategyResult | Reason:
        """Place the demands; the caller rolls back if they are refused."""


class UnitStrategy(Protocol):
    """Places whole units where "shape by shape, best node first" is not enough."""

    def divide(self, unit: Unit) -> StrategyShare | None:
        """Return the part of a unit that this strategy places; None for nothing."""

    def confirm(self, unit: Unit, placed: Sequence[Assignment]) -> None:
        """Record where the pods of a unit were finally placed."""


class PlaceRecorded(Protocol):
    """Places a released pod on its recorded node, if it still fits there."""

    def __call__(self, pod: Pod) -> Assignment | None:
        """Return the assignment; None if the pod has to be planned again."""


class Session:
    """One domain in one cycle: what any domain may want to say about pods and nodes.

    What few domains need is in ``capabilities``.
    """

    name: ClassVar[str]
    after: ClassVar[tuple[str, ...]] = ()
    """Sessions whose ``reserve`` runs before."""
    reach: ClassVar[FilterReach] = FilterReach.CLUSTER

    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:  # noqa: ARG002 - the same
        """Return the data of the domain about a pod; it becomes part of its shape."""
        return None

    def ask_all(self, pods: Sequence[Pod]) -> Sequence[Hashable | None] | None:
        """Return :meth:`ask` of each pod; None if it is None for all of them."""
        return [self.ask(pod, pod.shape) for pod in pods]

    def blocking_reasons(self, pods: Sequence[Pod]) -> Mapping[str, Reason]:  # noqa: ARG002 - the same
        """Return, by uid, why pods cannot be placed on any node."""
        return {}

    def concerns(self, shape: PodShape) -> bool:
        """Whether ``apply``, ``reserve``, ``adopt`` and ``release`` matter for a shape."""
        return any(name == self.name for name, _ in shape.asks)

    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:  # noqa: ARG002
        """Yield, per cause, an upper bound of the pods of a shape per row."""
        return ()

    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:  # noqa: ARG002 - the same
        """Return the detail of a cause that is counted by detail."""
        return ""

    def explain(self, cause: Cause, shape: PodShape, row: int) -> str:  # noqa: ARG002 - the same
        """Return what exactly is in the way on a row, for people; empty without details."""
        return ""

    def most_when_empty(self, shape: PodShape) -> Ints | int | None:  # noqa: ARG002 - the same
        """Return an upper bound of pods on an empty node; None if other pods matter."""
        return NO_LIMIT

    def score(self, shape: PodShape, rows: Ints) -> Iterable[Score]:  # noqa: ARG002 - the same
        """Yield raw scores of feasible rows; nothing if the rows do not differ."""
        return ()

    def apply(self, shape: PodShape, row: int, count: int) -> None:
        """Count ``count`` more pods of a shape on a row (negative: fewer)."""

    def spend_apply(self, shape: PodShape) -> None:
        """Count the steps of one :meth:`apply` and of its opposite, which are about to be done."""

    def signature(self, shape: PodShape, rows: Ints) -> Ints | None:  # noqa: ARG002 - the same
        """Return one number per row; as many pods fit on rows with equal numbers."""
        return None

    def reserve(self, draft: Draft) -> Allocation | Unschedulable | None:  # noqa: ARG002 - the same
        """Allocate for one pod on one row; the requests of its shape are charged already."""
        return None

    def adopt(self, pod: Pod, row: int, allocations: Sequence[Allocation]) -> Unschedulable | None:  # noqa: ARG002
        """Restore exactly these allocations of a pod: the inverse of :meth:`release`."""
        return None

    def release(self, pod: Pod, row: int) -> Sequence[Allocation]:  # noqa: ARG002 - the same
        """Release and return the allocations of a pod, also of a pod from before the cycle."""
        return ()


@dataclass(frozen=True, slots=True)
class QueueingHint:
    """Which units refused by one domain are worth another attempt (QueueingHint).

    None if ``version`` is unchanged; all if ``edits`` has changed; otherwise those for which
    ``is_relieved`` is true.
    """

    edits: Hashable
    version: Hashable
    is_relieved: Callable[[Unit, Reason], bool]


class Plugin:
    """One domain beside the cluster state. Only the owner of the state calls it."""

    name: ClassVar[str]
    after: ClassVar[tuple[str, ...]] = ()
    """Plugins that absorb before, and open their sessions before."""
    orders_by_default: ClassVar[bool] = False
    """Whether it orders units only where no other plugin does."""
    is_ordering: bool = True
    """Whether it orders units now; what is not in use costs nothing."""

    view: "StateView"
    """The cluster state, from :meth:`attach` on."""

    def attach(self, view: "StateView") -> None:
        """Join a cluster state; called once, before everything else."""
        self.view = view

    def charge(self, row: int, charge: "PodCharge", count: int) -> None:
        """Count a pod that is added to (1) or removed from (-1) a row.

        The row is negative while the node is unknown.
        """

    def upsert_node(self, row: int, node: "Node") -> None:
        """Apply an observed node."""

    def remove_node(self, row: int, name: str) -> None:
        """Remove a deleted node."""

    def complete(self, pod: Pod) -> Pod:
        """Return an observed pod with what only other objects say of it."""
        return pod

    def observe(self, before: Pod | None, pod: Pod) -> None:
        """Apply an observed pod, on a node or not, without assumptions."""

    def forget(self, uid: str) -> None:
        """Apply that a pod is gone."""

    def advance(self, now: float) -> Collection[str]:  # noqa: ARG002 - for overriding
        """Note that it is ``now`` (that of ``view``); return the nodes with more room by now."""
        return ()

    def next_due(self) -> float | None:
        """Return when :meth:`advance` is to be called, at the latest; None for never."""
        return None

    def absorb(self) -> None:
        """Update the cache; the only place for expensive computations and side effects."""

    def take_due(self) -> Collection[UnitKey]:
        """Return units that are to be tried again although nothing has changed, each time once.

        Called after :meth:`absorb`; :meth:`next_due` says when.
        """
        return ()

    def order(self, units: Sequence[Unit]) -> Iterable[Unit]:
        """Yield waiting units in the order of their turns (QueueSort), as far as one reads on.

        ``units`` come in the order of priority and age. At most one plugin overrides this, beside
        one that ``orders_by_default``.
        """
        return units

    def has_turn(self, pod: Pod) -> bool:  # noqa: ARG002 - for overriding
        """Whether room is held for a pod because what it belongs to had its turn before it came."""
        return False

    def queueing_hint(
        self,
        pending: Callable[[], Iterable[Unit]],  # noqa: ARG002 - for overriding
    ) -> QueueingHint | None:
        """Return hints for units refused by this domain; None: requeue all of them.

        ``pending`` returns all waiting units.
        """
        return None

    def open(self, cycle: "Cycle") -> Session | None:  # noqa: ARG002 - for overriding
        """Return the session of a cycle without changing anything; None if not in use."""
        return None

    def pre_bind(self, assignment: Assignment) -> Iterable[ObjectWrite]:  # noqa: ARG002 - the same
        """Yield what has to be written to other objects before a pod is bound; only reads."""
        return ()

    def time_limit(self, pod: Pod) -> int | None:  # noqa: ARG002 - the same
        """Return after how many seconds its kubelet is to end a pod that starts now; None: never.

        What the pod says itself in its spec is lowered to it.
        """
        return None

    def note_plan(self, session: Session, plan: Plan) -> None:
        """Record the effects of a committed plan on later cycles."""


M = TypeVar("M", Plugin, Session)


def in_order(members: Sequence[M]) -> tuple[M, ...]:
    """Sort plugins or sessions so that each comes after those that it names in ``after``."""
    ordered: list[M] = []
    waiting = list(members) if any(member.after for member in members) else []
    while waiting:
        names = {member.name for member in waiting}
        ready = [member for member in waiting if not names & set(member.after)]
        if not ready:
            raise ValueError(f"they wait for each other: {', '.join(sorted(names))}")
        ordered += ready[:1]
        waiting.remove(ready[0])
    return tuple(ordered or members)


def overriding(plugins: Iterable[Plugin], method: str) -> list[Plugin]:
    """Return the plugins that have a method of their own; the others need not be called."""
    default = getattr(Plugin, method)
    return [plugin for plugin in plugins if getattr(type(plugin), method) is not default]


class Admitting(Session):
    """Decides about whole units before nodes are looked for, and charges what they use."""

    def narrow(self, pod: Pod, shape: PodShape) -> PodShape:  # noqa: ARG002 - for overriding
        """Return the shape with further node requirements of the domain."""
        return shape

    def admit(self, unit: Unit) -> Reason | None:  # noqa: ARG002 - for overriding
        """Return why a unit is not to be planned now, whatever room there is; None: it may be.

        The first thing that is asked about a unit, before anything is charged for it.
        """
        return None

    def pre_filter(self, unit: Unit) -> Admission | Unplaced:
        """Admit a unit, trim its surplus and charge it; or refuse it."""
        return Admission(unit)

    def settle(self, unit: Unit, placed: Sequence[Pod]) -> None:
        """Undo the charges for pods of an admitted unit that were not placed."""

    def hold(self, pod: Pod, count: int) -> bool:  # noqa: ARG002 - the same
        """Charge room that is held for ``count`` pods like this one (negative: no longer held).

        False, without a charge, if no room may be held for it.
        """
        return True


class Ordering(Session):
    """Orders units, reserves room for those that wait, and sees what comes of each in its turn."""

    @property
    def version(self) -> int:
        """Grows when limits for units change, apart from placing: results are not reused then."""
        return 0

    def in_turn(
        self,
        units: Sequence[Unit],
        try_plan: Callable[[Unit], Placement | Unplaced],  # noqa: ARG002 - for overriding
    ) -> Iterable[Unit]:
        """Yield units in their turns; the next is asked for when the one before is decided.

        ``try_plan`` plans a unit as if it were its turn; who calls it rolls back.
        """
        return units

    def may_keep(self, unit: Unit, placement: Placement) -> bool:  # noqa: ARG002 - the same
        """Whether a unit may keep what it was given; if not, it is planned once more."""
        return True

    def refused(self, unit: Unit, reason: Reason) -> Reason:  # noqa: ARG002 - the same
        """Take note that a unit does not start; return why, if that is known better."""
        return reason


class Charging(Session):
    """Charges amounts in columns of its own, such as an estimate of what pods really use.

    They are limits like those of resources: filters, removal and rollback are the arithmetic of the
    cycle, and pods without further rules keep being placed by count.
    """

    def demand(self, shape: PodShape) -> Iterable[tuple[int, int]]:  # noqa: ARG002 - for overriding
        """Yield, per column of the plugin, the amount that each pod of a shape is charged."""
        return ()

    def score_terms(self, shape: PodShape) -> Iterable[ScoreTerms]:  # noqa: ARG002 - the same
        """Yield scores by what is used of columns, to be added to that by resources."""
        return ()


class Relieving(Session):
    """Has limits that may be lifted for a unit which nothing else keeps waiting."""

    def relieve(self, unit: Unit) -> bool:  # noqa: ARG002 - for overriding
        """Lift limits for the pods of a unit that was refused, which is on the undo log.

        False: there is nothing to lift. Sessions are asked about its pods again afterwards.
        """
        return False


class Reactive(Session):
    """Has rules about other pods: where a pod may go depends on where others are."""

    def expect(self, pods: Iterable[Pod]) -> None:
        """Take note of pods before any of them is planned."""

    def may_fit_later(self, shape: PodShape) -> bool:  # noqa: ARG002 - the same
        """Whether a pod that does not fit may fit after other pods of its unit are placed."""
        return False

    def is_reactive(self, shape: PodShape) -> bool:  # noqa: ARG002 - the same
        """Whether placing a pod of the shape changes where the next one may go."""
        return False

    def retry_within(
        self,
        shapes: Mapping[PodShape, int],  # noqa: ARG002 - the same
    ) -> Iterator[Mapping[PodShape, Mask]]:
        """Yield restrictions to retry with, after not all pods of a unit fitted."""
        return iter(())


class Aligned(Session):
    """Has parts of nodes that all that a pod gets must be in together."""

    def hints(self, shape: PodShape, row: int) -> Mapping[str, Hints]:  # noqa: ARG002 - the same
        """Return, per resource, which zones of a row could serve a pod; as by ``signature``."""
        return {}

    def align(self, draft: Draft) -> int | Unschedulable | None:  # noqa: ARG002 - the same
        """Return the zones of the row that all allocations of a pod must be in; None: any."""
        return None


class Growing(Session):
    """Knows of nodes that are not there yet and may come."""

    def new_nodes(self, shape: PodShape) -> NewNodes | None:  # noqa: ARG002 - for overriding
        """Return what is known of them for a pod that no node takes even if it is empty."""
        return None


class Holding(Session):
    """Holds room for certain pods."""

    has_windows: ClassVar[bool] = False
    """Whether holds may have a start or an end."""

    def holds(
        self,
        shape: PodShape,  # noqa: ARG002 - the same
        rows: Ints,  # noqa: ARG002 - the same
    ) -> Mapping[int, Sequence[tuple[Hold, ...]]]:
        """Return, per row, the combinations of held room to try, the best one first."""
        return {}


RoomOf: TypeAlias = Callable[[PodShape], Ints | None]
"""Returns, per row, of how many pods of a shape nodes may have room; None: it cannot be told."""


class Strategic(Session):
    """Places whole units itself."""

    def room_check(self, room_of: RoomOf) -> Callable[[Unit], bool] | None:  # noqa: ARG002 - the same
        """Return whether there may be room for all that a unit requires; None if any may do.

        False only for what the strategy is sure to refuse. For hints: it must cost little.
        """
        return None

    def strategy(self, place_recorded: PlaceRecorded) -> UnitStrategy | None:  # noqa: ARG002 - the same
        """Return the strategy of the domain for whole units."""
        return None


CAPABILITIES: Final[tuple[type[Session], ...]] = (
    Session,
    Admitting,
    Ordering,
    Charging,
    Relieving,
    Reactive,
    Aligned,
    Growing,
    Holding,
    Strategic,
)
