"""How large a store may get: one rule for the settings of the service and the command."""

from contextlib import suppress
from typing import Final

from koord.api.quantity import InvalidQuantityError, parse_quantity

_LEAST_BYTES: Final = 16 << 20
_MOST_BYTES: Final = 1 << 50


def parse_store_size(text: object) -> int:
    """Return bytes, from 16Mi to 1Pi. Raises ValueError."""
    is_quantity = isinstance(text, str | int) and not isinstance(text, bool)
    with suppress(InvalidQuantityError):
        amount = parse_quantity(text).whole if is_quantity else 0  # type: ignore[arg-type]
        if _LEAST_BYTES <= amount <= _MOST_BYTES:
            return amount
    raise ValueError("is not an amount from 16Mi to 1Pi, such as 5Gi")
