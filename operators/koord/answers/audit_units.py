"""One unit as its records tell of it, in their order: what it asks for, and where its time went.

Made for hundreds of thousands of records: it keeps what is needed of each, and no record.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from koord.answers.audit import to_ms
from koord.answers.story import Phase, PhaseMarks, PhaseSpan, split_phases
from koord.api.quantity import InvalidQuantityError, parse_quantity
from koord.core.model.koordinator_class import find_class_by_priority
from koord.core.model.units import PODS, is_extended
from koord.core.usage.segments import Window

SIZES: Final = (("1", 1), ("2-8", 8), ("9-64", 64))
LARGEST: Final = "65+"
"""Classes of sizes: a name, and how many pods there are at most."""
NO_BAND: Final = "other"
_AFTER: Final = frozenset({Phase.STARTING, Phase.RUNNING})
_OVER: Final = frozenset({"Ended", "Gone"})


@dataclass(slots=True)
class UnitLife:
    """What is known of a unit; times are milliseconds since the epoch."""

    trace: str
    key: str
    namespace: str
    created: int
    pods: int = 0
    quota: str = ""
    priority: int | None = None
    milli_gpus: int = 0
    asks: tuple[tuple[str, int], ...] = ()
    kinds: frozenset[str] = frozenset()
    """What it competes for: devices if it asks for some, else what all pods ask for."""
    marks: PhaseMarks = field(default_factory=PhaseMarks)
    code: str = ""
    last: int = 0
    """The time of its last record."""
    over: int | None = None
    bound: int | None = None
    """Since when it holds room."""

    def add(self, record: Mapping[str, Any], unit: Mapping[str, Any], at: int) -> None:
        """Take in what a record says of the unit itself, and its description in it."""
        kind = record.get("kind")
        self._describe(unit, record)
        self.marks.add(record, at)
        self.last = at
        self.over = at if kind in _OVER else None
        if kind in {"Seen", "Placed"}:
            began = to_ms(record.get("since") or record.get("created"))
            self.created = min(self.created, at if began is None else began)
        elif kind == "Attempt":
            self.code = str(record.get("code"))

    def _describe(self, unit: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        pods, priority, milli = unit.get("pods"), unit.get("priority"), unit.get("milliGpus")
        if isinstance(pods, int) and pods > self.pods:
            self.pods = pods
        if isinstance(priority, int):
            self.priority = priority
        if isinstance(milli, int) and (milli != self.milli_gpus or not self.asks):
            self.milli_gpus, self.asks = milli, read_amounts(unit.get("asks"))
            names = [name for name, _ in self.asks if name != PODS]
            self.kinds = frozenset(filter(is_extended, names)) or frozenset(names)
        quota = unit.get("quota")
        if quota or not self.quota:
            self.quota = str(quota or "") or _find_quota(record)

    @property
    def size(self) -> str:
        return next((name for name, most in SIZES if self.pods <= most), LARGEST)

    @property
    def band(self) -> str:
        band = None if self.priority is None else find_class_by_priority(self.priority)
        return NO_BAND if band is None else str(band)

    def spans(self, window: Window) -> tuple[PhaseSpan, ...]:
        """Return where its time in a window went."""
        until = window.end if self.over is None else min(self.over, window.end)
        start = max(self.created, window.start)
        return split_phases(start, _clip(self.marks.marks, start), until) if until > start else ()

    def phase_at_end(self, window: Window) -> Phase | None:
        """Return its last phase; None if it was over before the window ended."""
        if self.over is not None and self.over <= window.end:
            return None
        marks = [mark for mark in self.marks.marks if mark[0] <= window.end]
        # Of several that begin at the same time the last one counts, as in spans.
        return max(reversed(marks), key=lambda mark: mark[0])[1] if marks else Phase.INCOMPLETE


def _clip(marks: Iterable[tuple[int, Phase]], start: int) -> list[tuple[int, Phase]]:
    """Return marks as of a start: the last one before it is one at it."""
    ordered = sorted(marks, key=lambda mark: mark[0])
    before = [mark for mark in ordered if mark[0] <= start]
    return [*((start, phase) for _, phase in before[-1:]), *ordered[len(before) :]]


def is_waiting(phase: Phase | None) -> bool:
    """Whether a unit in a phase waits for its pods to be bound."""
    return phase is not None and phase not in _AFTER


def sum_waits(spans: Iterable[PhaseSpan]) -> int:
    return sum(span.ms for span in spans if span.phase not in _AFTER)


def _find_quota(record: Mapping[str, Any]) -> str:
    """Return the quota of the pods, where the unit does not name it."""
    placed, fields = record.get("quotas"), record.get("fields")
    if isinstance(placed, list) and placed:
        return str(placed[0])
    path = fields.get("topo") if isinstance(fields, Mapping) else None
    return str(path[-1]) if isinstance(path, list) and path else ""


def read_amounts(asks: object) -> tuple[tuple[str, int], ...]:
    """Return amounts of a document, in whole pieces, bytes or cores."""
    if not isinstance(asks, Mapping):
        return ()
    return tuple((str(name), _parse(str(amount))) for name, amount in asks.items())


@lru_cache(maxsize=4096)
def _parse(amount: str) -> int:
    try:
        return parse_quantity(amount).whole
    except InvalidQuantityError:
        return 0
