"""What placement says of the objects of one kind that wait, until the author of their status asks.

Placement writes no status of a custom resource where the operator of the kind runs beside it: that
operator says all in one patch. Where it runs in another process, ``on_news`` writes the report.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from koord.controllers.status_author import read_condition
from koord.core.gang.status import ConditionType
from koord.kube.objects import ObjectRef
from koord.kube.status import StatusPatch, conditions_of

_FIELDS: Final = ("attempts", "lastAttemptTime", "queuePosition", "gpusAhead")
_ONLY_REPORTED: Final = frozenset(
    {ConditionType.PLACED, ConditionType.QUOTA_RESERVED, "Preempting"}
)


@dataclass(slots=True)
class PlacementReports:
    """The last report on each object; ``on_news`` is called with each new one.

    ``is_there`` tells by uid whether an object exists.
    """

    is_there: Callable[[str], bool]
    on_news: Callable[[ObjectRef], None] = field(default=lambda _: None)
    _reports: OrderedDict[str, StatusPatch] = field(default_factory=OrderedDict)
    """By uid; urgent until it is taken."""

    def submit(self, ref: ObjectRef, patch: StatusPatch) -> None:
        """Take a report; it replaces the last one on the same object."""
        self._reports[ref.uid] = replace(patch, is_urgent=True)
        self._reports.move_to_end(ref.uid)
        # Two others are looked at each time, so at most about half of them are gone.
        for _ in range(min(2, len(self._reports))):
            uid = next(iter(self._reports))
            self._reports.move_to_end(uid)
            if not self.is_there(uid):
                del self._reports[uid]
        self.on_news(ref)

    def take(self, uid: str) -> StatusPatch | None:
        """Return the last report on an object: urgent if it is new; None if there is none."""
        report = self._reports.get(uid)
        if report is not None and report.is_urgent:
            self._reports[uid] = replace(report, is_urgent=False)
        return report


def read_gang_report(status: Mapping[str, Any]) -> StatusPatch:
    """Return what the status of a PodGroup shows of a report by an earlier process."""
    fields = {name: status[name] for name in _FIELDS if name in status}
    if not fields:
        return StatusPatch()
    conditions = (
        condition
        for condition in map(read_condition, conditions_of(status).values())
        if condition.type in _ONLY_REPORTED
        and not (condition.type == ConditionType.PLACED and condition.status)
    )
    return StatusPatch(tuple(conditions), fields)
