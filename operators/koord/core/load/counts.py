"""How many nodes are reported about, by whom, and how many use too much: for series."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from koord.core.load.aware import LoadAware
from koord.core.load.numbers import Family

_NOBODY: Final = "None"


def count_reports(aware: LoadAware) -> Counter[tuple[str, str]]:
    """Return the number of nodes by who reports about them, and how the report counts."""
    columns, counts = aware.columns, Counter[tuple[str, str]]()
    for node in columns.table.row_of:
        report = columns.loads.of(node)
        if report is None:
            counts[_NOBODY, "Absent"] += 1
        else:
            counts[report.source, "Outdated" if node in columns.expired else "Fresh"] += 1
    return counts


def count_above(aware: LoadAware) -> Mapping[str, int]:
    """Return the number of nodes that are above their threshold of a resource, by resource."""
    columns, table = aware.columns, aware.columns.table
    if not columns.is_ready:
        return {}
    above = {}
    for at in columns.limited:
        column = columns.column(Family.GENERAL, at)
        is_above = table.is_live & (table.used[column] > table.allocatable[column])
        above[columns.options.resources[at]] = int(np.count_nonzero(is_above))
    return above
