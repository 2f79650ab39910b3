"""Instants and segments for tests of usage; times of day are of 25 November 2026, in UTC."""

from datetime import UTC, datetime

from koord.core.usage.segments import Holder, Segment, Window, make_segment

CARD = 1_000
"""One GPU, in thousandths."""


def at(clock: str, day: int = 25) -> int:
    """Return milliseconds since the epoch of a time such as ``08:30`` or ``08:30:15``."""
    hours, minutes, *seconds = map(int, clock.split(":"))
    moment = datetime(2026, 11, day, hours, minutes, *seconds, tzinfo=UTC)
    return int(moment.timestamp()) * 1_000


def between(start: str, end: str) -> Window:
    return Window(at(start), at(end))


def hold(pod: str, milli_gpus: int, start: str, end: str, **holder: str) -> Segment:
    names = {"namespace": "team-a", "pod": pod, **holder}
    return make_segment(f"uid-{pod}", Holder(**names), at(start), at(end), milli_gpus)
