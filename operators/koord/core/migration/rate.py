"""How fast the pods of one workload or namespace are moved: token buckets, told from past moves.

A bucket holds ``burst`` tokens when its first pod goes, which takes one, and gets ``most`` in each
``seconds``. What has gone is read from the jobs, so that a restart changes nothing.
"""

from collections.abc import Iterable


def wait_until(gone: Iterable[float], most: int, seconds: float, burst: int, now: float) -> float:
    """Return until when the next pod has to wait; ``now`` if it may go. ``gone`` are past times.

    Nobody ever goes if ``most`` is 0, but the first: before it there is no bucket.
    """
    times = sorted(at for at in gone if at <= now)
    if not times:
        return now
    rate, size = most / seconds, float(max(burst, 1))
    tokens, last = size, times[0]
    for at in times:
        tokens = max(min(tokens + (at - last) * rate, size) - 1.0, 0.0)
        last = at
    tokens = min(tokens + (now - last) * rate, size)
    if tokens >= 1.0 - 1e-9:
        return now
    return now + (1.0 - tokens) / rate if rate else float("inf")
