"""The one switch between our rules and Koordinator's, where the two differ on purpose.

What it changes is listed in docs/compatibility.md. It decides nothing itself.
"""

from enum import StrEnum


class Compat(StrEnum):
    """Whose rules are in force where they differ."""

    NONE = "none"
    KOORDINATOR = "koordinator"
