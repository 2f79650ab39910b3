"""Finds names that may be meant by one that does not exist, quickly, whoever makes names.

There may be thousands, each of 253 letters: few of them are compared letter by letter.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from heapq import nsmallest
from typing import Final

MAX_SUGGESTIONS: Final = 3
LIKENESS: Final = 0.6
"""Of two names at least, from 0 to 1."""
_MOST_NEAR: Final = 100
"""Names that are compared letter by letter."""
_MOST_COMPARED: Final = 64
"""Letters of each."""


def find_similar(name: str, names: Iterable[str]) -> list[str]:
    """Return names that may be meant, whatever their case: like it, or of the same beginning."""
    typed = name.lower()[:_MOST_COMPARED]
    by_lower_case = {name.lower()[:_MOST_COMPARED]: name for name in sorted(names)}
    stem = typed.rpartition("-")[0] or typed
    begun = (name for name in by_lower_case if name == stem or name.startswith(f"{stem}-"))
    close = _find_close(typed, by_lower_case, LIKENESS) or begun
    return [by_lower_case[name] for name, _ in zip(close, range(MAX_SUGGESTIONS), strict=False)]


def find_nearest(name: str, names: Iterable[str], likeness: float) -> str:
    """Return the name that is most like one that was typed; empty if none is like it."""
    by_letters = {name[:_MOST_COMPARED]: name for name in sorted(names)}
    close = _find_close(name[:_MOST_COMPARED], by_letters, likeness)
    return by_letters[close[0]] if close else ""


def _find_close(typed: str, names: Iterable[str], likeness: float) -> list[str]:
    near = list(names)
    if len(near) > _MOST_NEAR:  # there may be thousands, and comparing takes long
        near = nsmallest(_MOST_NEAR, near, key=lambda each: _tell_apart(each, typed))
    return get_close_matches(typed, near, MAX_SUGGESTIONS, likeness)


def _tell_apart(name: str, typed: str) -> tuple[int, int]:
    """Return a number that is small for names that look alike; it is found quickly."""
    alike = next((at for at, (a, b) in enumerate(zip(name, typed, strict=False)) if a != b), 0)
    return len(set(name) ^ set(typed)) + abs(len(name) - len(typed)), -alike
