"""Names of resources that are probably meant by a misspelled one. Knows no cluster."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_LIKENESS: Final = 0.75


def find_nearest_resource(name: str, known: Iterable[str]) -> str:
    """Return the resource that ``name`` may stand for, with or without prefix; empty if none."""
    names = sorted(known)
    if close := get_close_matches(name, names, 1, _LIKENESS):
        return close[0]
    bare = name.rpartition("/")[2].lower()
    for one in names:
        if one.rpartition("/")[2] in {bare, bare.removesuffix("s")}:
            return one
    return ""
