"""The settings of a queue, as people write them: an annotation of an ElasticQuota.

Knows neither the order of units nor whose quota it is.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from koord.api.model import Model
from koord.api.quantity import parse_duration_seconds
from koord.api.resource import Int64

_LONGEST_SECONDS: Final = 10 * 365 * 24 * 3600
_MOST_USERS: Final = 1000
_MOST_UNITS: Final = 2**31 - 1


def _read_seconds(text: str) -> str:
    seconds = parse_duration_seconds(text)
    if seconds is None or not 0 <= seconds <= _LONGEST_SECONDS:
        raise ValueError("must be a duration such as 90s, 15m or 1h30m, of at most ten years")
    return text


def _read_some_seconds(text: str) -> str:
    if not parse_duration_seconds(_read_seconds(text)):
        raise ValueError("must be more than 0s")
    return text


_Time = Annotated[str, Field(max_length=64), AfterValidator(_read_seconds)]
_TimeAboveZero = Annotated[str, Field(max_length=64), AfterValidator(_read_some_seconds)]
_Count = Annotated[int, Field(ge=0, le=_MOST_UNITS, strict=True)]
_User = Annotated[str, Field(min_length=1, max_length=253)]
_Weight = Annotated[int, Field(ge=1, le=10_000, strict=True)]


class QueueSpec(Model):
    """What a quota says about its queue; what is absent is as its parent says."""

    max_pending: _Count | None = None
    """How many units wait in the queue; later ones are parked."""
    max_pending_per_user: _Count | None = None
    """How many units of one user wait in the queue."""
    max_running: _Count | None = None
    """How many units of the queue may have started."""
    max_running_per_user: _Count | None = None
    """How many units of one user may have started."""
    max_gpu_hours_per_month: _Count | None = None
    """How many GPU hours its pods may have held in a month (UTC) before nothing new starts."""
    stop: Literal["None", "Hold", "HoldAndDrain"] | None = None
    """Whether nothing new starts."""
    max_run_time: _TimeAboveZero | None = None
    """The longest time limit."""
    default_run_time: _TimeAboveZero | None = None
    """How long units are expected to run that do not say it."""
    enforce_default: Annotated[bool, Field(strict=True)] | None = None
    """Whether `defaultRunTime` is a limit."""
    user_fairness: Literal["None", "Decayed"] | None = None
    """Whether users who have used less lately come first."""
    user_weights: Annotated[dict[_User, _Weight], Field(max_length=_MOST_USERS)] | None = None
    """What users are entitled to, in proportion; 1 for all others."""
    policy: Literal["Strict", "BestEffort", "Backfill"] | None = None
    """Who may start while an earlier unit waits for room."""
    protect_after: _Time | None = None
    """How long a unit is first and waits before room is reserved for it."""
    reserve_depth: Annotated[int, Field(ge=1, le=16, strict=True)] | None = None
    """For how many waiting units room is reserved."""
    reserve_queues: Annotated[int, Field(ge=1, le=64, strict=True)] | None = None
    """How many queues of a quota tree may have room reserved at a time."""
    backfill_on: Literal["Declared", "Stated", "History"] | None = None
    """Which knowledge counts as the end of a unit."""
    short_limit: _Time | None = None
    """Units with a time limit this short may use reserved room while no end is known."""
    max_idle_share: Annotated[int, Field(ge=0, le=100, strict=True)] | None = None
    """How much of the capacity of a tree reserved room may keep idle, in percent."""
    max_hold: _Time | None = None
    """How long reserved room may be idle in all."""
    hold_cool_down: _Time | None = None
    """For how long nothing is reserved for a unit after that."""
    prefer_wait: _Time | None = None
    """How long a unit that could preempt waits instead, if room becomes free by itself."""
    across_quotas: Literal["Guarantee", "Priority", "Time"] | None = None
    """What comes first among the quotas below one: what is guaranteed to them, priorities, or
    priority and time alone."""
    age_step: _TimeAboveZero | None = None
    """After how long first units gain a tier."""
    age_tiers: Annotated[int, Field(ge=0, le=100, strict=True)] | None = None
    """How many tiers there are."""
    max_wait: _Time | None = None
    """After how long a unit waits with `maxWaitPriority`."""
    max_wait_priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1, strict=True)] | None = None
    """A priority that orders turns; it never gives the right to evict."""


class RememberedRuns(Model):
    """Runs of one kind, for what the next one is expected to take."""

    user: Annotated[str, Field(max_length=253)]
    """Whose."""
    kind: Annotated[str, Field(max_length=64)]
    """A digest of what they share."""
    seconds: Annotated[list[Int64], Field(max_length=8)]
    """How long the last ones took."""
    ended: Int64 = 0
    """When the last one had ended, in seconds since the epoch."""


class RememberedUse(Model):
    """What one user has used lately."""

    user: Annotated[str, Field(max_length=253)]
    """The user."""
    amounts: Annotated[dict[str, str], Field(max_length=64)]
    """Amount times seconds times weight, by resource; later use has more weight."""


class QueueMemoryStatus(Model):
    """What the operators remember of a queue over a restart; their own."""

    runs: Annotated[list[RememberedRuns], Field(max_length=200)] | None = None
    """Run times by kind."""
    used: Annotated[list[RememberedUse], Field(max_length=100)] | None = None
    """Use by user, of those who have used most."""
    used_until: Int64 = 0
    """Until when that is counted, in seconds since the epoch."""


TIMES: Final = frozenset(
    {
        "protect_after", "short_limit", "max_run_time", "default_run_time", "age_step",
        "max_wait", "prefer_wait", "max_hold", "hold_cool_down",
    }
)  # fmt: skip
"""Fields that are durations."""


def values_of(spec: QueueSpec) -> Mapping[str, Any]:
    """Return what is set, by field; durations in seconds."""
    return {
        name: parse_duration_seconds(value) if name in TIMES else value
        for name in spec.model_fields_set
        if (value := getattr(spec, name)) is not None
    }


def encode_queue(values: Mapping[str, Any]) -> str:
    """Return the annotation that says these values."""
    written = {
        name: f"{value}s" if name in TIMES else value for name, value in sorted(values.items())
    }
    return QueueSpec.model_validate(written).model_dump_json(by_alias=True, exclude_unset=True)
