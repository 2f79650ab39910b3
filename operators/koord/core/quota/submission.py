"""The limit of what may be submitted: how much may wait and run in a quota together.

It bounds the demand, not the use: pods beyond it are refused when they are created. Source:
Koordinator's annotation ``quota.scheduling.koordinator.sh/admission``; without it, max.
"""

from koord.core.quota.model import BUILT_IN, QuotaSpec
from koord.core.reasons import QuotaShortage, SubmissionExceeded
from koord.core.units import Amounts


def check_submission(
    spec: QuotaSpec, submitted: Amounts, request: Amounts
) -> SubmissionExceeded | None:
    """Check a new pod's request against what its quota has been given to wait and run already."""
    if spec.name in BUILT_IN:
        return None
    limit = spec.admission or spec.max
    short = tuple(
        QuotaShortage(key, limit[key], submitted.get(key, 0), amount)
        for key, amount in sorted(request.items())
        if amount > 0
        and key in limit
        and key in spec.max
        and submitted.get(key, 0) + amount > limit[key]
    )
    return SubmissionExceeded(f"{spec.namespace}/{spec.name}", short) if short else None
