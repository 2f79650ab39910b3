"""DefragmentationPolicies: what their specs say, and the moves that their status counts."""

from typing import Any, Final

import msgspec

from koord.api.defragmentationpolicy import (
    DEFAULT_INTERVAL,
    DEFAULT_PER_HOUR,
    DEFAULT_PER_PLAN,
    DefragmentationPolicySpec,
    DefragWindow,
)
from koord.core.defrag.policy import (
    DefragSettings,
    MoveWindow,
    WaitingFor,
)
from koord.core.defrag.shapes import parse_shape
from koord.kube.translate.policies import make_spec_reader, read_seconds

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class _RecentMoves(msgspec.Struct, rename="camel"):
    moves: int = 0
    recent_moves: list[int] = msgspec.field(default_factory=list)


def read_moves(status: Any) -> tuple[int, list[float]]:
    """Return how many moves a status counts, and when those of the last hour were."""
    try:
        seen = msgspec.convert(status, _RecentMoves)
    except msgspec.MsgspecError:
        return 0, []
    return seen.moves, [float(time) for time in seen.recent_moves]


def _make_settings(spec: DefragmentationPolicySpec) -> DefragSettings:
    shapes = (parse_shape(text) for text in spec.shapes or ())
    waiting = spec.waiting
    per_hour, per_plan = spec.max_moves_per_hour, spec.max_moves_per_plan
    return DefragSettings(
        moves=spec.mode == "Migrate",
        is_paused=bool(spec.paused),
        interval=read_seconds(spec.interval or DEFAULT_INTERVAL),
        shapes=tuple(shape for shape in shapes if shape is not None),
        waiting=None
        if waiting is None
        else WaitingFor(
            None if waiting.namespaces is None else frozenset(waiting.namespaces),
            waiting.min_priority,
            read_seconds(waiting.after or "0s"),
        ),
        per_hour=DEFAULT_PER_HOUR if per_hour is None else per_hour,
        per_plan=DEFAULT_PER_PLAN if per_plan is None else per_plan,
        windows=tuple(map(_make_window, spec.windows or ())),
    )


def _make_window(window: DefragWindow) -> MoveWindow:
    days = frozenset(map(_DAYS.index, window.days)) if window.days else frozenset(range(7))
    return MoveWindow(_minute(window.begin), _minute(window.end), days)


def _minute(clock: str) -> int:
    hour, minute = clock.split(":")
    return int(hour) * 60 + int(minute)


translate_settings: Final = make_spec_reader(DefragmentationPolicySpec, _make_settings)
