"""What waits, played forward with other settings of queues: who would start when."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from koord.answers.encoding import encode
from koord.answers.queue_view import QueueEntry
from koord.answers.reading import Reading, Target
from koord.answers.waiting import find_waiting
from koord.core.model.text import format_time
from koord.core.queue.plugin import Queues


@dataclass(frozen=True, slots=True)
class TriedStart:
    """One unit: when it is expected to start now, and by the settings that are tried."""

    entry: QueueEntry
    now: int | None
    then: int | None

    @property
    def seconds(self) -> int | None:
        """How much later it would start; None: one of both is not known."""
        return None if self.now is None or self.then is None else self.then - self.now


def try_queue_settings(
    reading: Reading,
    target: Target,
    values: Mapping[str, Any],
    make_time_limit: Callable[[], Callable[[], bool]],
) -> tuple[TriedStart, ...]:
    """Return what settings would change; afterwards the reading follows them."""
    present = find_waiting(reading, target, make_time_limit())
    reading.state.plugin(Queues).try_settings(values)
    tried = {entry.names: entry for entry in find_waiting(reading, target, make_time_limit())}
    return tuple(
        TriedStart(entry, _start_of(entry), _start_of(tried.get(entry.names)))
        for entry in present
        if entry.position
    )


def _start_of(entry: QueueEntry | None) -> int | None:
    return None if entry is None or entry.standing is None else entry.standing.expected_start


@encode.register
def _(start: TriedStart) -> dict[str, Any]:
    return {
        "kind": start.entry.kind,
        "names": list(start.entry.names),
        "expectedStart": None if start.now is None else format_time(start.now),
        "simulatedStart": None if start.then is None else format_time(start.then),
        "secondsLater": start.seconds,
    }
