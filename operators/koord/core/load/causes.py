"""Why a node is refused for its load."""

from typing import Final

from koord.core.engine.cause import Cause

EXPIRED: Final = Cause(
    "NodeMetricExpired",
    90,
    "node(s) nodeMetric expired",
    "Check what reports the use of {nodes}.",
)
_FIRST_RANK: Final = 91


def make_cause(resource: str, at: int, *, is_aggregated: bool) -> Cause:
    """Return the cause that a node uses too much of a resource; ``at`` is its turn."""
    kind = "aggregated usage" if is_aggregated else "usage"
    return Cause(
        f"UsageAboveThreshold/{resource}",
        _FIRST_RANK + at,
        f"node(s) {resource} {kind} exceed threshold",
        f"Wait for {{nodes}} to use less {resource}.",
    )
