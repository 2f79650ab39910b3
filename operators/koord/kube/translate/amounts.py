"""Parses and encodes resource maps as integers in the core's units.

Results are shared by all objects with the same bytes and must not be modified.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from koord.api.quantity import Quantity, parse_quantity
from koord.caches import cached_by_text
from koord.core.model.units import AMOUNT_LIMIT, CPU, Amounts, format_amount, is_usable

_NOTHING: Final[Amounts] = {}


class _Requirements(msgspec.Struct, gc=False):
    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None


_map_decoder = msgspec.json.Decoder(dict[str, str | int] | None)
_requirements_decoder = msgspec.json.Decoder(_Requirements | None)


def parse_amount(resource: str, text: str | int) -> int:
    """Parse a quantity: milli for CPU, otherwise whole units, rounded up, clamped to the limits."""
    return _clamp(resource, parse_quantity(text))


def _clamp(resource: str, quantity: Quantity) -> int:
    return max(0, min(_scale(resource, quantity), AMOUNT_LIMIT))


def _scale(resource: str, quantity: Quantity) -> int:
    return quantity.milli if resource == CPU else quantity.whole


def parse_usage(resource: str, text: str | int) -> int:
    """Parse what is reported to be used. Raises ValueError for what nothing can use.

    Counters that start again are reported as negative use, and as 18 billion CPUs.
    """
    return check_usage(resource, _scale(resource, parse_quantity(text)))


def check_usage(resource: str, amount: int) -> int:
    """Return an amount that can be used. Raises ValueError for others."""
    if not is_usable(resource, amount):
        raise ValueError(f"nothing can use {amount} of {resource}")
    return amount


@cached_by_text()
def parse_amounts(raw: bytes) -> Amounts:
    """Parse a resource map such as ``status.allocatable``; empty bytes mean it is absent."""
    return _amounts(_map_decoder.decode(raw) if raw else None)


@cached_by_text()
def parse_requests(raw: bytes) -> Amounts:
    requirements = _requirements_decoder.decode(raw) if raw else None
    return _amounts(requirements.requests if requirements else None)


@cached_by_text()
def parse_limits(raw: bytes) -> Amounts:
    requirements = _requirements_decoder.decode(raw) if raw else None
    return _amounts(requirements.limits if requirements else None)


def to_amounts(quantities: Mapping[str, Quantity] | None) -> Amounts:
    """Return the amounts of a map that a model has read. Raises ValueError for unreadable ones."""
    return {name: _clamp(name, quantity) for name, quantity in (quantities or {}).items()}


def write_amounts(amounts: Amounts) -> dict[str, str]:
    return {key: format_amount(key, amount) for key, amount in sorted(amounts.items())}


def write_quantities(amounts: Amounts) -> dict[str, Quantity]:
    """Return amounts for a model."""
    return {key: parse_quantity(text) for key, text in write_amounts(amounts).items()}


def encode_amounts(amounts: Amounts) -> str:
    """Encode amounts for an annotation: ``{"cpu":"53","memory":"80Gi"}``."""
    return msgspec.json.encode(write_amounts(amounts)).decode()


def _amounts(quantities: dict[str, str | int] | None) -> Amounts:
    if not quantities:
        return _NOTHING
    return {name: parse_amount(name, text) for name, text in quantities.items()}
