"""What the status of a quota keeps of its budget, read and written."""

from typing import Final

from koord.api.elasticquota import ElasticQuotaStatus
from koord.api.shape import Shape
from koord.api.usage_budget import BudgetStatus
from koord.core.usage.budgets import BudgetRecord
from koord.core.usage.periods import PeriodError, find_period, month_at
from koord.core.usage.tables import format_hours
from koord.kube.decode import MALFORMED

_STATUS: Final = Shape(ElasticQuotaStatus, only={ElasticQuotaStatus: ("budget",)})


def read_budget(status: bytes) -> BudgetRecord | None:
    """Return what a status keeps of a budget; None if that is nothing that can be read."""
    if b'"budget"' not in status:
        return None
    try:
        budget = _STATUS.read(status).budget
        month = None if budget is None else find_period(budget.month).window
    except (*MALFORMED, PeriodError):
        return None
    if budget is None or month is None:
        return None
    return BudgetRecord(month.start, max(0, budget.held), max(0, budget.until))


def encode_budget(record: BudgetRecord, limit: int) -> BudgetStatus:
    """Return a record in the form of the status; ``limit`` is in GPU hours."""
    return BudgetStatus(
        month=month_at(record.month).name,
        gpu_hours=format_hours(record.used),
        max_gpu_hours=limit,
        held=record.used,
        until=record.until,
    )
