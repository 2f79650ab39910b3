"""Kubernetes quantities (``100m``, ``1.5Gi``, ``2e3``) and Go durations (``1h30m``), exactly.

Quantities have nine decimal places, so an amount is an integer number of billionths; no floats are
used. Finer amounts are rounded away from zero, and amounts above 2**63-1 are capped, as the API
server does.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from math import ceil
from typing import Final

NANO_PER_UNIT: Final = 10**9
NANO_PER_MILLI: Final = 10**6
MAX_NANO: Final = (2**63 - 1) * NANO_PER_UNIT
"""The largest amount in the API server; larger ones are capped."""
MAX_TEXT: Final = 64
"""Longer texts are rejected; the longest canonical quantity has 21 characters."""

# Larger exponents give the cap or one billionth, without computing the power.
_MAX_EXPONENT: Final = 2 * MAX_TEXT

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<decimals>[0-9]*))?"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
_DECIMAL_EXPONENT: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY_SHIFT: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

DURATION_PATTERN: Final = "(0|(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)"
"""A duration without sign, for schemas."""

_DURATION: Final = re.compile(f"[+-]?{DURATION_PATTERN}", re.ASCII)
_MOST_DAY_DIGITS: Final = 5
_DURATION_PART: Final = re.compile(r"([0-9.]+)([a-zµμ]+)", re.ASCII)
_NANOSECONDS: Final = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6,
    "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
_MAX_NANOSECONDS: Final = 2**63 - 1


class InvalidQuantityError(ValueError):
    """The text is not a quantity."""

    def __init__(self, value: object) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= MAX_TEXT else f"{shown[:MAX_TEXT]}…"
        super().__init__(f"{shown} is not a quantity; write it like 4, 500m, 1.5 or 64Gi")


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount and its original text."""

    nano: int
    """The amount in billionths of the unit."""
    text: str = field(compare=False)
    """As written; ignored in comparisons."""

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero (``100m`` -> 100)."""
        return _divide_away_from_zero(self.nano, NANO_PER_MILLI)

    @property
    def whole(self) -> int:
        """The amount in units (bytes, devices), rounded away from zero (``1Ki`` -> 1024)."""
        return _divide_away_from_zero(self.nano, NANO_PER_UNIT)


class UnreadableQuantity(Quantity):
    """What is no quantity, in an object that nobody has checked; its amount raises."""

    __slots__ = ("_error",)
    _error: InvalidQuantityError

    def __init__(self, error: InvalidQuantityError) -> None:
        object.__setattr__(self, "text", "")
        object.__setattr__(self, "_error", error)

    @property
    def nano(self) -> int:
        raise self._error

    def __repr__(self) -> str:
        return f"UnreadableQuantity({self._error})"


def to_quantity(value: Quantity | str | int) -> Quantity:
    """Parse a quantity, unless it is one already. Raises InvalidQuantityError."""
    return value if isinstance(value, Quantity) else parse_quantity(value)


def read_quantities(value: object) -> dict[str, Quantity]:
    """Parse a map of quantities; what is wrong with it is raised when its amounts are used."""
    if not isinstance(value, Mapping):
        return {"": UnreadableQuantity(InvalidQuantityError(value))}
    return {name: _read_quantity(text) for name, text in value.items()}


def _read_quantity(value: str | int) -> Quantity:
    try:
        return parse_quantity(value)
    except InvalidQuantityError as error:
        return UnreadableQuantity(error)


def parse_quantity(value: str | int) -> Quantity:
    if isinstance(value, str):
        return _parse_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Quantity(_cap(value * NANO_PER_UNIT), str(value))
    raise InvalidQuantityError(value)


# A cluster has many objects and few distinct quantities.
@lru_cache(maxsize=4096)
def _parse_text(text: str) -> Quantity:
    match = _QUANTITY.fullmatch(text) if len(text) <= MAX_TEXT else None
    if match is None:
        raise InvalidQuantityError(text)
    decimals = match["decimals"] or ""
    digits = match["whole"] + decimals
    if not digits:
        raise InvalidQuantityError(text)
    suffix = match["suffix"] or ""
    exponent = int(match["exponent"] or _DECIMAL_EXPONENT.get(suffix, 0)) - len(decimals)
    nano = _scale(int(digits) << _BINARY_SHIFT.get(suffix, 0), exponent + 9)
    return Quantity(_cap(-nano if match["sign"] == "-" else nano), text)


def _scale(amount: int, exponent: int) -> int:
    power: int = 10 ** min(abs(exponent), _MAX_EXPONENT)
    return amount * power if exponent >= 0 else _divide_away_from_zero(amount, power)


def _divide_away_from_zero(amount: int, divisor: int) -> int:
    return -(-amount // divisor) if amount >= 0 else amount // divisor


def _cap(nano: int) -> int:
    return max(-MAX_NANO, min(MAX_NANO, nano))


def parse_duration_seconds(text: str) -> int | None:
    """Parse a duration, rounded up to seconds; None if Go would reject it."""
    if len(text) > MAX_TEXT or not _DURATION.fullmatch(text):
        return None
    total = sum(
        (Decimal(n) * _NANOSECONDS[unit] for n, unit in _DURATION_PART.findall(text)), Decimal(0)
    )
    if total > _MAX_NANOSECONDS:
        return None
    seconds = ceil(total / 10**9)
    return -seconds if text.startswith("-") else seconds


def parse_age_seconds(text: str) -> int | None:
    """Parse ``90m`` or, in whole days, ``7d``; None for anything else, and for 0."""
    days = text.removesuffix("d")
    if days != text and days.isascii() and days.isdigit() and len(days) <= _MOST_DAY_DIGITS:
        return int(days) * 86_400 or None
    seconds = parse_duration_seconds(text)
    return seconds if seconds is not None and seconds > 0 else None


def is_positive_duration(text: str) -> bool:
    return parse_duration_seconds(text) is not None and text[0] not in "+-"
