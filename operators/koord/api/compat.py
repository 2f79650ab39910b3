"""The switch to Koordinator's behaviour where ours deliberately differs.

docs/compatibility.md lists what it changes.
"""

from enum import StrEnum


class Compat(StrEnum):
    """Whose behaviour applies where they differ."""

    NONE = "none"
    KOORDINATOR = "koordinator"
