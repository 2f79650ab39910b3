"""When a report is too old to count, and when a node is written.

Amounts are those of batch and mid resources by name; None: the node does not have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from koord.core.colocation.strategy import Strategy
from koord.core.load.model import NodeLoad

Offer: TypeAlias = Mapping[str, int | None]


class Unusable(StrEnum):
    """Why a report does not count."""

    NO_REPORT = "NoReport"
    NO_TIME = "NoTime"
    OLD = "Old"
    FUTURE = "Future"
    UNREADABLE = "Unreadable"


@dataclass(frozen=True, slots=True)
class Degradation:
    """A node offers nothing, because nobody knows what it uses; ``age`` in seconds.

    It is negative for a report from the future: its clock is wrong, and it would count for ever.
    """

    why: Unusable
    age: float = 0.0

    def describe(self, tier: str) -> str:
        """Return Koordinator's text for ``Batch`` or ``Mid``, and what exactly is wrong."""
        details = {
            Unusable.NO_REPORT: "there is no report",
            Unusable.NO_TIME: "the report does not say when it was made",
            Unusable.OLD: f"the report is {int(self.age)} s old",
            Unusable.FUTURE: f"the report is from {int(-self.age)} s in the future",
            Unusable.UNREADABLE: "the report has no numbers that a machine can have",
        }
        text = f"degrade node {tier} resource because of abnormal nodeMetric"
        return f"{text}, reason: degradedBy{tier}Resource; {details[self.why]}"


def find_degradation(report: NodeLoad | None, strategy: Strategy, now: float) -> Degradation | None:
    """Return why a report does not count; None if it does. ``now`` is the time of the epoch."""
    if report is not None and not report.is_readable:
        return Degradation(Unusable.UNREADABLE)
    if report is None or not report.is_reported:
        return Degradation(Unusable.NO_REPORT)
    if report.updated <= 0:
        return Degradation(Unusable.NO_TIME)
    age, most = now - report.updated, strategy.degrade_time_minutes * 60
    if age < -most:
        return Degradation(Unusable.FUTURE, age)
    return Degradation(Unusable.OLD, age) if age > most else None


def needs_sync(old: Offer, new: Offer, strategy: Strategy, elapsed: float) -> bool:
    """Whether a node is written, ``elapsed`` seconds after it was written last.

    If so, all of its amounts are. What appears or vanishes is always written.
    """
    names = old.keys() | new.keys()
    part = strategy.resource_diff_threshold
    if any(_differs(old.get(name), new.get(name), part) for name in names):
        return True
    after = strategy.update_time_threshold_seconds
    is_due = after is not None and elapsed > after
    return is_due and any(old.get(name) != new.get(name) for name in names)


def _differs(old: int | None, new: int | None, part: float) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) > old * part
