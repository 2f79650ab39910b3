"""Names that may be meant by one that does not exist."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

MAX_SUGGESTIONS: Final = 3


_MAX_LISTED: Final = 8


def find_similar(name: str, names: Iterable[str]) -> list[str]:
    """Return names that may be meant, whatever their case: like it, or of the same beginning."""
    by_lower_case = {name.lower(): name for name in sorted(names)}
    typed = name.lower()
    stem = typed.rpartition("-")[0] or typed
    begun = (name for name in by_lower_case if name == stem or name.startswith(f"{stem}-"))
    close = get_close_matches(typed, by_lower_case, MAX_SUGGESTIONS) or begun
    return [by_lower_case[name] for name, _ in zip(close, range(MAX_SUGGESTIONS), strict=False)]


def suggest(name: str, names: Iterable[str]) -> str:
    """Return the end of a message that ``name`` does not exist: which names may be meant."""
    candidates = sorted(names)
    if close := find_similar(name, candidates):
        return f"; did you mean {' or '.join(close)}?"
    if not candidates:
        return "; there are none"
    more = f" and {len(candidates) - _MAX_LISTED} more" if len(candidates) > _MAX_LISTED else ""
    return f"; there are: {', '.join(candidates[:_MAX_LISTED])}{more}"
