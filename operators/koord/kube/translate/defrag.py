"""DefragmentationPolicies from the wire to the core: invalid ones keep their last valid form."""

from typing import Any, Final

import msgspec
from pydantic import TypeAdapter

from koord.api.defragmentationpolicy import (
    DEFAULT_INTERVAL,
    DEFAULT_PER_HOUR,
    DEFAULT_PER_PLAN,
    DefragmentationPolicySpec,
    DefragWindow,
)
from koord.api.parse import InvalidObject, parse_value
from koord.api.quantity import parse_duration_seconds
from koord.core.defrag.policy import (
    DefragSettings,
    MoveWindow,
    ObservedDefragPolicy,
    WaitingFor,
)
from koord.core.defrag.shapes import parse_shape
from koord.kube.translate.statuses import SeenStatuses, read_last_valid_json
from koord.kube.wire import WireCustomResource

_adapter: Final = TypeAdapter(DefragmentationPolicySpec)
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class DefragPolicyTranslator(SeenStatuses):
    """Translates policies, and keeps their status for the status writer."""

    def translate(self, wire: WireCustomResource) -> ObservedDefragPolicy:
        meta = wire.metadata
        status = self._see(meta.uid, wire.status)
        raw = bytes(wire.spec)
        settings, is_valid = translate_settings(raw), True
        if settings is None:
            raw, is_valid = read_last_valid_json(status), False
            settings = translate_settings(raw) if raw else None
        kept = msgspec.json.decode(raw or b"{}") if settings is not None else {}
        return ObservedDefragPolicy(meta.name, meta.uid, meta.generation, settings, is_valid, kept)


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


def translate_settings(raw: bytes) -> DefragSettings | None:
    """Return what a spec says, given as JSON; None if it is invalid."""
    try:
        written: Any = msgspec.json.decode(raw) if raw else {}
    except msgspec.MsgspecError:
        return None
    spec = parse_value(_adapter, written or {}, at=("spec",))
    if isinstance(spec, InvalidObject):
        return None
    shapes = (parse_shape(text) for text in spec.shapes or ())
    waiting = spec.waiting
    per_hour, per_plan = spec.max_moves_per_hour, spec.max_moves_per_plan
    return DefragSettings(
        moves=spec.mode == "Migrate",
        is_paused=bool(spec.paused),
        interval=_seconds(spec.interval or DEFAULT_INTERVAL),
        shapes=tuple(shape for shape in shapes if shape is not None),
        waiting=None
        if waiting is None
        else WaitingFor(
            None if waiting.namespaces is None else frozenset(waiting.namespaces),
            waiting.min_priority,
            _seconds(waiting.after or "0s"),
        ),
        per_hour=DEFAULT_PER_HOUR if per_hour is None else per_hour,
        per_plan=DEFAULT_PER_PLAN if per_plan is None else per_plan,
        windows=tuple(map(_make_window, spec.windows or ())),
    )


def _seconds(text: str) -> float:
    return float(parse_duration_seconds(text) or 0.0)


def _make_window(window: DefragWindow) -> MoveWindow:
    days = frozenset(map(_DAYS.index, window.days)) if window.days else frozenset(range(7))
    return MoveWindow(_minute(window.begin), _minute(window.end), days)


def _minute(clock: str) -> int:
    hour, minute = clock.split(":")
    return int(hour) * 60 + int(minute)
