"""The extension points of the planner. Names are those of kube-scheduler's scheduling framework.

A domain joins with one :class:`Plugin`, which lives beside the cluster state and keeps its cache
current. For every planning cycle it opens a :class:`Session`. Sessions answer for all nodes at
once: an answer is an array over the rows of the node table. Every method has a default that does
nothing, and a method that a session does not override is never called.

Rules for whoever writes one:

* Opening a session only reads. What has to be computed first is computed in :meth:`Plugin.absorb`.
* Everything that a session changes while pods are placed is either undone by calling the same
  method with the opposite count (:meth:`Session.apply`), or logged on ``cycle.undo``.
* ``filter`` may promise too much, never too little: what counts in the end is ``reserve``.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from koord.core.framework.arrays import NO_LIMIT, Ints, Mask, Rows
from koord.core.framework.cause import Cause
from koord.core.plan import Allocation, Assignment, Demand, Plan, Refusal, Unit
from koord.core.pods import Pod, PodShape
from koord.core.reasons import Reason

if TYPE_CHECKING:
    from koord.core.changes import Changes
    from koord.core.framework.cycle import Cycle
    from koord.core.nodes import Node
    from koord.core.pod_charge import PodCharge
    from koord.core.state import ClusterState


class Reach(Enum):
    """What placing a pod may change about the answers of ``filter``."""

    NOTHING = auto()
    """Answers depend on the nodes alone."""
    ROW = auto()
    """Answers for the row that the pod is placed on."""
    CLUSTER = auto()
    """Answers for any row."""


class Scale(Enum):
    """How raw scores become points from 0 to 100, over all feasible rows."""

    ABSOLUTE = auto()
    """They are points already."""
    BY_MAX = auto()
    """In proportion to the highest one."""
    BY_MAX_REVERSED = auto()
    """The lowest is the best, in proportion to the highest one."""


@dataclass(frozen=True, slots=True)
class Score:
    """Raw scores, one per row that was asked for; ``weight`` multiplies the points."""

    values: Ints
    weight: int = 1
    scale: Scale = Scale.ABSOLUTE


@dataclass(frozen=True, slots=True)
class Admission:
    """A unit that passed :meth:`Session.pre_filter`, perhaps with fewer surplus pods.

    ``left`` are the surplus pods that may not start, and ``reason`` says why.
    """

    unit: Unit
    left: tuple[Pod, ...] = ()
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Short:
    """Why a pod cannot be reserved where the filters expected room.

    It ends the attempt on this row for pods of this shape. If it ``is_optional``, other held room
    on the row may do; if it ``ends_unit``, no other row would help either.
    """

    reason: Hashable = None
    is_optional: bool = False
    ends_unit: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """Room on a row that is held for somebody, and how many pods of the shape it can take.

    ``most`` counts the free room of the node too, unless the holder is strict about its own.
    """

    uid: str
    most: int


@dataclass(slots=True)
class Draft:
    """One pod being placed on one row: the room it may take, and what was allocated so far."""

    pod: Pod
    shape: PodShape
    row: int
    holders: tuple[Holder, ...] = ()
    allocations: list[Allocation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StrategyResult:
    """Pods that a strategy placed, details for the placement, and why surplus was left over."""

    assignments: list[Assignment]
    details: tuple[Any, ...] = ()
    left_over: Mapping[str, Reason] = field(default_factory=dict)
    """uid of a surplus pod -> why it was not placed."""


class Share(Protocol):
    """The part of a unit that a strategy places itself."""

    @property
    def demands(self) -> Sequence[Demand]:
        """The demands that it places; the planner places the others afterwards."""

    @property
    def is_required(self) -> bool:
        """Whether its refusal refuses the unit; otherwise the planner places all of it."""

    def place(self) -> StrategyResult | Reason:
        """Place the demands; the caller rolls a refusal back."""


class Strategy(Protocol):
    """Places whole units where "shape by shape, best node first" is not enough."""

    def divide(self, unit: Unit) -> Share | None:
        """Return the part of a unit to place by this strategy; None for nothing."""

    def confirm(self, unit: Unit, placed: Sequence[Assignment]) -> None:
        """Note where the pods of a unit were placed in the end."""


class Keep(Protocol):
    """Places a released pod on its recorded node, if it still fits there."""

    def __call__(self, pod: Pod) -> Assignment | None:
        """Return where it was placed; None if it has to be planned again."""


class Session:
    """One domain in one cycle. Methods that change something are undone with the cycle."""

    name: ClassVar[str]
    after: ClassVar[tuple[str, ...]] = ()
    """Sessions whose ``reserve`` runs before."""
    reach: ClassVar[Reach] = Reach.CLUSTER

    def expect(self, pods: Iterable[Pod]) -> None:
        """Learn of pods before any of them is planned."""

    def narrow(self, pod: Pod, shape: PodShape) -> PodShape:  # noqa: ARG002 - for overriding
        """Return the shape with what else the domain requires of the nodes for the pod."""
        return shape

    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:  # noqa: ARG002 - the same
        """Return what the domain has to know of a pod: kept in its shape under ``name``."""
        return None

    def ask_all(self, pods: Sequence[Pod]) -> Sequence[Hashable | None] | None:
        """Return :meth:`ask` of each pod; None if it is None for all of them."""
        return [self.ask(pod, pod.shape) for pod in pods]

    def pre_filter(self, unit: Unit) -> Admission | Refusal:
        """Admit a unit, trim its surplus, charge what it will use; or refuse it."""
        return Admission(unit)

    def obstacles(self, pods: Sequence[Pod]) -> Mapping[str, Reason]:  # noqa: ARG002 - the same
        """Return, by uid, what keeps pods from being placed on any node."""
        return {}

    def concerns(self, shape: PodShape) -> bool:
        """Whether ``apply``, ``reserve``, ``adopt`` and ``release`` matter for a shape."""
        return shape.asked(self.name) is not None

    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:  # noqa: ARG002
        """Yield, per cause, an upper bound of the pods of a shape that each row may take."""
        return ()

    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:  # noqa: ARG002 - the same
        """Return which obstacle is behind a cause that is counted by detail."""
        return ""

    def most_when_empty(self, shape: PodShape) -> Ints | int | None:  # noqa: ARG002 - the same
        """Bound the pods on a node with nothing else on it; None if that depends on other pods."""
        return NO_LIMIT

    def may_fit_later(self, shape: PodShape) -> bool:  # noqa: ARG002 - the same
        """Whether a pod without room may find some after other pods of its unit are placed."""
        return False

    def is_reactive(self, shape: PodShape) -> bool:  # noqa: ARG002 - the same
        """Whether placing one pod of a shape changes where the next one may go."""
        return False

    def retry_within(
        self,
        shapes: Mapping[PodShape, int],  # noqa: ARG002 - the same
    ) -> Iterator[Mapping[PodShape, Mask]]:
        """Yield restrictions under which pods that did not all fit may fit together."""
        return iter(())

    def score(self, shape: PodShape, rows: Ints) -> Iterable[Score]:  # noqa: ARG002 - the same
        """Yield raw scores of feasible rows; nothing where the rows do not differ."""
        return ()

    def strategy(self, keep: Keep) -> Strategy | None:  # noqa: ARG002 - the same
        """Return the strategy with which the domain places units."""
        return None

    def apply(self, shape: PodShape, row: int, count: int) -> None:
        """Account for ``count`` more pods of a shape on a row; negative: fewer."""

    def signature(self, shape: PodShape, rows: Ints) -> Ints | None:  # noqa: ARG002 - the same
        """Return one number per row; rows with equal numbers take equally many pods."""
        return None

    def holders(
        self,
        shape: PodShape,  # noqa: ARG002 - the same
        rows: Ints,  # noqa: ARG002 - the same
    ) -> Mapping[int, Sequence[tuple[Holder, ...]]]:
        """Return, per row, the combinations of held room to try, the best one first."""
        return {}

    def reserve(self, draft: Draft) -> Allocation | Short | None:  # noqa: ARG002 - the same
        """Allocate for one pod on one row, exactly; the amounts of the shape are charged."""
        return None

    def adopt(self, pod: Pod, row: int, allocations: Sequence[Allocation]) -> Short | None:  # noqa: ARG002
        """Take exactly these allocations for a pod: the inverse of :meth:`release`."""
        return None

    def release(self, pod: Pod, row: int) -> Sequence[Allocation]:  # noqa: ARG002 - the same
        """Give back what a pod on a row holds, also one from before the cycle; return it."""
        return ()

    def settle(self, unit: Unit, placed: Sequence[Pod]) -> None:
        """Take back charges for pods of an admitted unit that were not placed."""


@dataclass(frozen=True, slots=True)
class QueueingHint:
    """Which refused units are worth another try (QueueingHint), as one domain sees it now.

    While ``version`` stays the same, none is; when ``edits`` changes, all are. In between
    ``is_relieved`` decides about each.
    """

    edits: Hashable
    version: Hashable
    is_relieved: Callable[[Unit, Reason], bool]


class Plugin:
    """One domain beside the cluster state. One writer: whoever owns the state."""

    name: ClassVar[str]

    @property
    def is_in_use(self) -> bool:
        """Whether :meth:`absorb` has anything to do."""
        return type(self).absorb is not Plugin.absorb

    def charge(self, row: int, charge: "PodCharge", count: int) -> None:
        """Account for a pod that takes (1) or gives up (-1) its place on a row.

        The row is below 0 while the node is not known.
        """

    def upsert_node(self, row: int, node: "Node") -> None:
        """Take in a node as observed."""

    def remove_node(self, row: int, name: str) -> None:
        """Forget a node that is gone."""

    def absorb(self, state: "ClusterState", changes: "Changes", now: float) -> None:
        """Bring the cache up to date; the only place for expensive or observable work."""

    def next_deadline(self) -> float | None:
        """Return when :meth:`absorb` has something to do although nothing changes."""
        return None

    def queueing_hint(
        self,
        pending: Callable[[], Iterable[Unit]],  # noqa: ARG002 - for overriding
    ) -> QueueingHint | None:
        """Judge units refused by this domain; ``pending`` returns all that wait. None: try all."""
        return None

    def open(self, cycle: "Cycle") -> Session | None:  # noqa: ARG002 - for overriding
        """Return the session of a cycle, by reading only; None where the domain is not in use."""
        return None

    def note_plan(self, session: Session, plan: Plan) -> None:
        """Remember what a plan that is carried out means for later cycles."""
