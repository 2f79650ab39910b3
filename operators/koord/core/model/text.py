"""Helpers for texts that users read: bounded, counted, listed.

Texts are bounded whatever they quote: a condition takes 32 KiB, nobody reads more than a few lines.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from koord.plain_text import escape_line

MAX_TEXT: Final = 1024
"""Length of every text, in characters."""
MAX_LISTED: Final = 8
"""Names or causes that are listed before the rest becomes a count."""
MAX_QUOTED: Final = 256
"""Length of a quoted text that was written by somebody else."""
MAX_NAMES: Final = 4
"""Names in one sentence of advice."""


def cut(text: str, limit: int = MAX_QUOTED) -> str:
    """Return a text in one printable line, at most ``limit`` long, whoever wrote it."""
    shown = escape_line(text[: limit + 1])  # one more, so that it is seen whether any is cut off
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def format_time(seconds: float) -> str:
    """Write seconds since the epoch as the API does, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
