"""What a session may do beside the common extension points. Few domains need any of it.

A session that has a capability inherits from its class; it is still a :class:`Session`. The planner
looks up once per set of sessions who overrides what, so a capability that no session has costs
nothing. A method that is defined without its capability would never be called: that is an error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.plugin import (
    Admission,
    Draft,
    Hold,
    PlaceRecorded,
    Session,
    UnitStrategy,
    Unschedulable,
)
from koord.core.engine.scoring import ScoreTerms
from koord.core.model.plan import Unit, Unplaced
from koord.core.model.pods import Pod, PodShape
from koord.core.model.reasons import Reason
from koord.core.model.zone_hints import Hints


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


class Strategic(Session):
    """Places whole units itself."""

    def strategy(self, place_recorded: PlaceRecorded) -> UnitStrategy | None:  # noqa: ARG002 - the same
        """Return the strategy of the domain for whole units."""
        return None


CAPABILITIES: Final[tuple[type[Session], ...]] = (
    Session,
    Admitting,
    Charging,
    Reactive,
    Aligned,
    Holding,
    Strategic,
)
