"""Counts the work of planning in steps, so that one unit cannot occupy the planner for long.

A step is about one operation on one row of the node table: a nanosecond or two. Every domain counts
what its own work costs. Steps depend on the cluster and the unit alone, not on the machine or its
load, so the same cluster gives the same plan anywhere. Answers that a domain remembers cost
nothing: a unit that has used up its budget finds what it has paid for the next time.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PER_UNIT: Final = 100_000_000
"""Steps that any unit may take: more than any that was recorded."""
PER_NODE: Final = 110_000
"""Further steps per row of the node table: what a domain with exact allocations takes when it looks
at a node for the first time."""
PER_ROW: Final = 500
"""Further steps per pod of the unit and row of the node table."""
MOST_PER_UNIT: Final = 1_000_000_000
"""However large unit and cluster are: one or two seconds."""
LEAST_PER_ROW: Final = 50
"""Per pod and row, whatever its namespace has wasted: pods without rules about others take less."""
MOST_PER_CALL: Final = 100_000_000
"""Steps of one call; the remaining units are planned in the next one."""
PER_CALL: Final = 1000
"""Of each array operation, besides one per row."""


class TooManySteps(Exception):  # noqa: N818 - says what is wrong
    """A unit has used up its budget, or would: ``taken`` are the steps of the cycle by then."""

    def __init__(self, taken: int) -> None:
        super().__init__(taken)
        self.taken = taken


class Steps:
    """The steps of one cycle."""

    __slots__ = ("late", "limit", "most", "spent", "taken", "units", "wasted")

    def __init__(self) -> None:
        self.taken = 0
        self.units = 0
        """Number of units that were begun."""
        self.spent: Counter[str] = Counter()
        """Namespace -> steps that deciding its units has taken."""
        self.wasted: Mapping[str, int] = {}
        """Namespace -> steps by which the budget of each of its units is less."""
        self.late: Collection[str] = ()
        """Namespaces whose units come after others as important."""
        self.most = float("inf")
        """Number of steps after which no further unit is begun."""
        self.limit = float("inf")
        """Number of steps after which :meth:`check` raises, and which :meth:`spend` keeps to."""

    def begin(self, most: int) -> None:
        """Begin to decide a unit, which may take so many steps."""
        self.units += 1
        self.limit = self.taken + most

    def end(self) -> None:
        """End the unit; what follows has no budget."""
        self.limit = float("inf")

    def take(self, rows: int, operations: int = 1) -> None:
        """Count operations on ``rows`` rows each. Raises nothing: changes may be half done."""
        self.taken += (rows + PER_CALL) * operations

    def spend(self, rows: int, operations: int = 1) -> None:
        """Count work that is about to begin; raise ``TooManySteps`` instead if it is too much.

        Called between changes only.
        """
        taken = self.taken + (rows + PER_CALL) * operations
        if taken > self.limit:
            raise TooManySteps(taken)
        self.taken = taken

    def take_for_others(self, operations: int) -> None:
        """Count work that rules of pods on nodes cause: the current unit may take as much more."""
        self.take(0, operations)
        self.limit += PER_CALL * operations

    def check(self) -> None:
        """Raise ``TooManySteps`` if the budget is used up. Called between changes only."""
        if self.taken > self.limit:
            raise TooManySteps(self.taken)

    @property
    def is_over(self) -> bool:
        return self.taken > self.most


def budget_of(rows: int, pods: int, wasted: int = 0) -> int:
    """Return the steps that planning a unit of ``pods`` pods may take."""
    each = (rows + PER_CALL) * pods
    most = min(PER_UNIT + PER_NODE * rows + PER_ROW * each, MOST_PER_UNIT)
    return max(most - wasted, min(LEAST_PER_ROW * each, most))
