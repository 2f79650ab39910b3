"""Reads the last valid settings from the status of any kind; their form is up to the kind."""

from typing import Generic, TypeVar

import msgspec

from koord.kube.decode import MALFORMED

T = TypeVar("T")


class _StatusWithSpec(msgspec.Struct, Generic[T], rename="camel"):
    last_valid_spec: T | None = None


def read_last_valid(status: bytes, of: type[T]) -> T | None:
    """Return the last valid settings in a status; None if there are none that can be read."""
    try:
        decoded = msgspec.json.decode(status, type=_StatusWithSpec[of] | None) if status else None  # type: ignore[valid-type]
    except MALFORMED:
        return None
    return decoded.last_valid_spec if decoded is not None else None
