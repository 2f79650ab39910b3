"""Ages as text, in one unit that is large enough to read."""

from typing import Final

AGES: Final[set[str]] = set()
"""What ``format_age`` has returned, for those who compare outputs without ages."""


def format_age(seconds: float) -> str:
    """Write ``42s``, ``3m``, ``5h`` or ``2d``."""
    age, units = max(0, int(seconds)), (("d", 86400), ("h", 3600), ("m", 60))
    unit, size = next((unit for unit in units if age >= 2 * unit[1]), ("s", 1))
    text = f"{age // size}{unit}"
    AGES.add(text)
    return text
