"""A hook of quotas: no gang, and no single pod, takes more than half of what its quota may use."""

from collections.abc import Iterator

from koord.core.model.units import Amounts, format_amount
from koord.core.quota.hooks import HookCondition, QuotaHook
from koord.core.quota.model import QuotaSpec
from koord.core.quota.status import Summary

CONDITION = "example.com/LargestUnit"


class LargestUnit(QuotaHook):
    """Compares what one unit asks with the ``max`` of its quota."""

    def check_unit(self, quota: QuotaSpec, used: Amounts, request: Amounts) -> str:
        """Name the first resource of which a unit asks too much."""
        for key, amount in sorted(request.items()):
            most = quota.max.get(key)
            if most is not None and 2 * amount > most:
                text = f"{format_amount(key, amount)} {key}"
                return f"it asks for {text}, more than half of the max of {quota.name}"
        return ""

    def augment_status(self, summary: Summary) -> Iterator[HookCondition]:
        """Say how large a unit can be."""
        halves = (f"{format_amount(key, most // 2)} {key}" for key, most in summary.max.items())
        text = f"no unit starts that asks for more than {', '.join(sorted(halves))}"
        yield HookCondition(CONDITION, True, "HalfOfMax", text)
