"""Helpers for texts that users read: bounded, counted, listed; times, ages, suggestions.

Texts are bounded whatever they quote: a condition takes 32 KiB, nobody reads more than a few lines.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from koord.plain_text import escape_line
from koord.similar_names import find_similar

MAX_TEXT: Final = 1024
"""Length of every text, in characters."""
MAX_LISTED: Final = 8
"""Names or causes that are listed before the rest becomes a count."""
MAX_QUOTED: Final = 256
"""Length of a quoted text that was written by somebody else."""
MAX_NAMES: Final = 4
"""Names in one sentence of advice."""
_FIRST_TIME: Final = datetime.min.replace(tzinfo=UTC).timestamp()
_LAST_TIME: Final = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()


def cut(text: str, limit: int = MAX_QUOTED) -> str:
    """Return a text in one printable line, at most ``limit`` long, whoever wrote it."""
    shown = escape_line(text[: limit + 1])  # one more, so that it is seen whether any is cut off
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def format_time(seconds: float) -> str:
    """Write seconds since the epoch as the API does, to the second.

    Users may write times that no calendar has, such as a year 1 that is a year 0 in UTC.
    """
    return _format(seconds, "seconds")


def format_milliseconds(seconds: float) -> str:
    """Write seconds since the epoch to the millisecond: times of our own."""
    return _format(seconds, "milliseconds")


def _format(seconds: float, precision: str) -> str:
    within = min(max(_FIRST_TIME, seconds), _LAST_TIME)
    moment = datetime.fromtimestamp(within, UTC).replace(tzinfo=None)
    return f"{moment.isoformat(timespec=precision)}Z"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(texts: Iterable[str], separator: str = ", ") -> str:
    """Write ``a, b, 7 more``, each text cut to ``MAX_QUOTED``."""
    all_texts = list(texts)
    shown = [cut(text) for text in all_texts[:MAX_LISTED]]
    if len(all_texts) > MAX_LISTED:
        shown.append(f"{len(all_texts) - MAX_LISTED} more")
    return separator.join(shown)


def named(names: Sequence[str], most: int = MAX_NAMES) -> str:
    """Write ``a, b and 7 more``."""
    shown = ", ".join(names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown


AGES: Final[set[str]] = set()
"""What ``format_age`` has returned, for those who compare outputs without ages."""


def format_age(seconds: float) -> str:
    """Write ``42s``, ``3m``, ``5h`` or ``2d``."""
    age, units = max(0, int(seconds)), (("d", 86400), ("h", 3600), ("m", 60))
    unit, size = next((unit for unit in units if age >= 2 * unit[1]), ("s", 1))
    text = f"{age // size}{unit}"
    AGES.add(text)
    return text


_MAX_LISTED: Final = 8


def suggest(name: str, names: Iterable[str]) -> str:
    """Return the end of a message that ``name`` does not exist: which names may be meant."""
    candidates = sorted(names)
    if close := find_similar(name, candidates):
        return f"; did you mean {' or '.join(close)}?"
    if not candidates:
        return "; there are none"
    more = f" and {len(candidates) - _MAX_LISTED} more" if len(candidates) > _MAX_LISTED else ""
    return f"; there are: {', '.join(candidates[:_MAX_LISTED])}{more}"
