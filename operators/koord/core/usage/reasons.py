"""Why nothing new starts in a quota whose GPU hours of this month are used up."""

from dataclasses import dataclass, field
from typing import ClassVar

from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason, WakesOn

NAME = "budgets"
HOUR_OF_A_GPU = 3_600_000_000


@dataclass(frozen=True, slots=True)
class BudgetSpent(Reason):
    """Its quota has used the GPU hours that it may use in a month.

    ``used`` and ``limit`` are hours of a GPU, ``ends`` is when the month ends, in seconds since the
    epoch.
    """

    code: ClassVar = "BudgetSpent"
    reason_class: ClassVar = ReasonClass.QUOTA
    wakes_on: ClassVar = WakesOn.DOMAIN
    domain: ClassVar = NAME
    rests_on: ClassVar = frozenset({"elasticquotas"})
    meaning: ClassVar = (
        "its quota has used the GPU hours that it may use in a month (`maxGpuHoursPerMonth`)"
    )
    way_out: ClassVar = "wait until the month ends; ask for more `maxGpuHoursPerMonth`"
    says: ClassVar = (
        "queue {queue} has used {used:,} GPU hours of {month}, and {limit:,} may be "
        "(maxGpuHoursPerMonth): nothing new starts in it before {ends:time}"
    )
    advises: ClassVar = ("Wait until {ends:time}, or {ask} raise maxGpuHoursPerMonth of {queue}.",)
    queue: str
    month: str
    used: int = field(compare=False)
    limit: int
    ends: int
