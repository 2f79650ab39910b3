"""The order of members: what their index says, then their names as people count.

``w-2`` comes before ``w-10``. Members without index come after those with one.
"""

import re
from typing import Final, TypeAlias

NO_INDEX: Final = -1
_DIGITS: Final = re.compile(r"([0-9]+)", re.ASCII)

Rank: TypeAlias = tuple[bool, int, tuple[tuple[int, str], ...], str]


def rank_member(index: int, name: str, uid: str) -> Rank:
    """Return the sort key of a member."""
    has_none = index < 0
    return has_none, NO_INDEX if has_none else index, _natural(name), uid


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Split a name into texts and numbers; a number sorts before a text, by its value."""
    parts = _DIGITS.split(name)
    return tuple((int(part), part) if at % 2 else (-1, part) for at, part in enumerate(parts))
