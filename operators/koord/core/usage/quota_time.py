"""What a quota was guaranteed, used, borrowed and was owed over time.

Between two changes all amounts are constant, so they are added up exactly. What is guaranteed is at
every instant used, owed to pods that wait, or idle because nobody asks for it; what is used beyond
it is borrowed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from koord.core.usage.segments import Window


@dataclass(frozen=True, slots=True)
class QuotaLevel:
    """The amounts of a quota from ``at`` (milliseconds) on, in thousandths of GPUs.

    ``demand`` is what its pods hold or ask for. ``lent`` is what others use of what is idle.
    """

    at: int
    used: int
    guaranteed: int
    demand: int
    lent: int = 0


@dataclass(frozen=True, slots=True)
class QuotaTime:
    """Amounts times milliseconds, over a window."""

    used: int = 0
    guaranteed: int = 0
    within_min: int = 0
    """Used, and within what was guaranteed."""
    borrowed: int = 0
    """Used beyond what was guaranteed."""
    owed: int = 0
    """Guaranteed, asked for, and not used."""
    idle_min: int = 0
    """Guaranteed, and neither used nor asked for."""
    lent: int = 0

    def __add__(self, other: "QuotaTime") -> "QuotaTime":
        names = [name.name for name in fields(QuotaTime)]
        return QuotaTime(*(getattr(self, name) + getattr(other, name) for name in names))


def integrate(levels: Iterable[QuotaLevel], window: Window) -> QuotaTime:
    """Return the time of a quota in a window; before its first level there was no quota.

    ``levels`` are in the order of their times; the last one goes on.
    """
    total, current = QuotaTime(), None
    for level in (*levels, None):
        end = window.end if level is None else min(max(level.at, window.start), window.end)
        if current is not None:
            start = min(max(current.at, window.start), window.end)
            total += hold_level(current, max(0, end - start))
        current = level
    return total


def hold_level(level: QuotaLevel, milliseconds: int) -> QuotaTime:
    """Return the time of a quota whose amounts do not change."""
    used, guaranteed = level.used, level.guaranteed
    wanted = max(used, level.demand)
    return QuotaTime(
        used=used * milliseconds,
        guaranteed=guaranteed * milliseconds,
        within_min=min(used, guaranteed) * milliseconds,
        borrowed=max(0, used - guaranteed) * milliseconds,
        owed=max(0, min(wanted, guaranteed) - used) * milliseconds,
        idle_min=max(0, guaranteed - wanted) * milliseconds,
        lent=level.lent * milliseconds,
    )
