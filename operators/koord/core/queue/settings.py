"""The settings of a queue: inherited key by key from the quotas above, then from the operators.

Knows neither how settings are written nor quotas: values come by name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

_HOUR: Final = 3600


class Policy(StrEnum):
    """Who may start while an earlier unit waits for room."""

    STRICT = "Strict"
    """No later unit that competes with it."""
    BEST_EFFORT = "BestEffort"
    """Everybody who fits."""
    BACKFILL = "Backfill"
    """Those who do not delay a protected unit."""


class Across(StrEnum):
    """How quotas below one quota take turns."""

    GUARANTEE = "Guarantee"
    """What is guaranteed to a quota comes first: priority classes are free for all to use."""
    PRIORITY = "Priority"
    """Priorities come first, then what is guaranteed."""
    TIME = "Time"
    """By priority and time, whatever they use."""


ALIASES: Final[Mapping[str, Policy]] = MappingProxyType(
    {"Priority": Policy.BEST_EFFORT, "Block": Policy.STRICT}
)
"""Policies of Koord-Queue -> ours."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What is in effect for one queue. Times are in seconds; None: no limit."""

    policy: Policy = Policy.BACKFILL
    protect_after: int = 300
    reserve_depth: int = 1
    reserve_queues: int = 4
    backfill_on: str = "Declared"
    short_limit: int = 300
    max_pending: int | None = None
    max_pending_per_user: int | None = None
    max_running: int | None = None
    max_running_per_user: int | None = None
    max_gpu_hours_per_month: int | None = None
    max_run_time: int | None = None
    default_run_time: int | None = None
    enforce_default: bool = False
    user_fairness: str = "None"
    user_weights: Mapping[str, int] = field(default_factory=dict)
    age_step: int = 6 * _HOUR
    age_tiers: int = 4
    across_quotas: Across = Across.GUARANTEE
    max_wait: int | None = None
    max_wait_priority: int | None = None
    prefer_wait: int = 600
    max_idle_share: int = 20
    max_hold: int = 24 * _HOUR
    hold_cool_down: int = _HOUR
    stop: str = "None"


_NAMES: Final = frozenset(setting.name for setting in fields(QueueSettings))
_OURS: Final = QueueSettings()
_KOORDINATORS: Final = replace(
    _OURS, policy=Policy.BEST_EFFORT, across_quotas=Across.TIME, age_tiers=0
)
ORDERING: Final = frozenset({"user_fairness", "across_quotas", "age_tiers", "max_wait"})
"""Settings by which turns are others than by priority and time."""
_CHOICES: Final = {"policy": Policy, "across_quotas": Across}


def settle(
    operators: Mapping[str, Any], path: Iterable[Mapping[str, Any]], *, compat: bool = False
) -> QueueSettings:
    """Return what is in effect for a quota; ``path`` is what each says, from the root to it.

    A map counts as one value. With ``compat`` nothing is reserved unless somebody says so.
    """
    values: dict[str, Any] = dict(operators)
    for level in path:
        values |= level
    valid = {name: value for name, value in values.items() if name in _NAMES}
    for name in valid.keys() & _CHOICES.keys():
        valid[name] = _CHOICES[name](valid[name])
    return replace(_KOORDINATORS if compat else _OURS, **valid)
