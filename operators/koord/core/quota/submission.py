"""The limit of what may be submitted: how much may wait and run in a quota together.

It bounds the demand, not the use: what is beyond it waits, and is no demand. What came first is
within it, and what runs is, whatever came first. Source: Koordinator's annotation
``quota.scheduling.koordinator.sh/admission``. Pods are known here by what they ask, not as such.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from koord.core.quota.capacity import add_up
from koord.core.quota.model import BUILT_IN, QuotaSpec
from koord.core.quota.reasons import QuotaShortage, SubmissionExceeded
from koord.core.units import Amounts

Order: TypeAlias = tuple[bool, float, str]


@dataclass(frozen=True, slots=True)
class Submitted:
    """A pod that waits or runs; ``created`` in seconds."""

    uid: str
    request: Amounts
    created: float
    is_used: bool = False

    @property
    def order(self) -> Order:
        """What comes before it is taken in before it."""
        return (not self.is_used, self.created, self.uid)


def find_beyond(spec: QuotaSpec, pods: Iterable[Submitted]) -> dict[str, SubmissionExceeded]:
    """Return the pods of a quota, by uid, that are more than may be submitted to it."""
    beyond: dict[str, SubmissionExceeded] = {}
    taken: Mapping[str, int] = {}
    for pod in sorted(pods, key=lambda one: one.order):
        refusal = None if pod.is_used else check_submission(spec, taken, pod.request)
        if refusal is None:
            taken = add_up((taken, pod.request))
        else:
            beyond[pod.uid] = refusal
    return beyond


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
