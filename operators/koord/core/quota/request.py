"""Adding up from the pods to the root: what every quota asks for, is guaranteed, and uses.

A request stops climbing where a max cuts it off. What is used is never cut off, whatever the limits
say. Each function works on one resource, by row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from koord.core.quota.model import NOTHING, QuotaName, Usage
from koord.core.quota.tree import KeyColumn, Layout, QuotaTree
from koord.core.units import Amounts

Columns: TypeAlias = Mapping[str, Sequence[int]]
"""Resource -> amount by row."""
Pick: TypeAlias = Callable[[Usage], Amounts]


@dataclass(frozen=True, slots=True)
class Requests:
    """Demand by row.

    ``child_request`` is the bare demand of a quota's own pods and its children. ``request`` is not
    less than min where the quota does not lend; ``limited`` is capped by max, too.
    """

    child_request: Sequence[int]
    request: Sequence[int]
    limited: Sequence[int]


@dataclass(frozen=True, slots=True)
class Guarantees:
    """Guarantees by row, where what is used is guaranteed.

    ``allocated`` is what own pods use and children are guaranteed; ``guaranteed`` is not less than
    min.
    """

    allocated: Sequence[int]
    guaranteed: Sequence[int]


def add_up_requests(
    layout: Layout, column: KeyColumn, own: Sequence[int], lends: Sequence[bool]
) -> Requests:
    """Add up the demand of every quota's own pods."""
    child_request = list(own)
    request = list(own)
    limited = list(own)
    parent, minimum, maximum = layout.parent, column.minimum, column.maximum
    for row in range(len(own) - 1, 0, -1):
        amount = child_request[row]
        if not lends[row] and amount < minimum[row]:
            amount = minimum[row]
        request[row] = amount
        if amount > maximum[row]:  # noqa: PLR1730 - the innermost loop: a call costs twice as much
            amount = maximum[row]
        limited[row] = amount
        child_request[parent[row]] += amount
    request[0] = limited[0] = child_request[0]
    return Requests(child_request, request, limited)


def add_up_guarantees(
    layout: Layout, minimum: Sequence[int], own_used: Sequence[int]
) -> Guarantees:
    """Add up what must not be taken away: what is used, or the (unscaled) min if that is more."""
    allocated = list(own_used)
    guaranteed = list(own_used)
    for row in range(len(own_used) - 1, 0, -1):
        guaranteed[row] = max(allocated[row], minimum[row])
        allocated[layout.parent[row]] += guaranteed[row]
    guaranteed[0] = allocated[0]
    return Guarantees(allocated, guaranteed)


def sum_up(layout: Layout, own: Sequence[int]) -> list[int]:
    """Add every quota's own amount to all above it."""
    total = list(own)
    for row in range(len(total) - 1, 0, -1):
        total[layout.parent[row]] += total[row]
    return total


def collect(tree: QuotaTree, usage: Mapping[QuotaName, Usage], pick: Pick) -> dict[str, list[int]]:
    """Return one amount of every quota's own pods as columns, of resources that its max names."""
    columns = {key: [0] * len(tree.specs) for key in tree.columns}
    row_of = tree.layout.row_of
    for name, used in usage.items():
        row = row_of.get(name)
        spec = tree.specs[row] if row else None
        if row is None or spec is None:
            continue
        for key, amount in pick(used).items():
            if key in spec.max:
                columns[key][row] = amount
    return columns


def update(
    tree: QuotaTree,
    usage: Mapping[QuotaName, Usage],
    pick: Pick,
    before: Columns,
    was: Mapping[QuotaName, Usage],
) -> dict[str, Sequence[int]]:
    """Return the same as ``collect``, with the columns of ``before`` where nothing changed.

    ``was`` is the usage that ``before`` was collected from, on a tree of the same columns.
    """
    columns = dict(before)
    copied: dict[str, list[int]] = {}
    row_of = tree.layout.row_of
    for name in [name for name in {**was, **usage} if usage.get(name) is not was.get(name)]:
        row = row_of.get(name)
        spec = tree.specs[row] if row else None
        if row is None or spec is None:
            continue
        now = pick(usage[name]) if name in usage else NOTHING
        for key in spec.max:
            amount = now.get(key, 0)
            if columns[key][row] != amount:
                if key not in copied:
                    columns[key] = copied[key] = list(columns[key])
                copied[key][row] = amount
    return columns
