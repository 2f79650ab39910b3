"""What stands in the status of objects, kept for those who write it.

A translator of a kind whose status we write inherits this. The bytes are decoded only when somebody
asks; what they mean is the translator's business, or the writer's.
"""

from typing import Any, Protocol

import msgspec


class HasUid(Protocol):
    """Every value that a translator returns."""

    @property
    def uid(self) -> str:
        """Of the object."""


class SeenStatuses:
    """Object uid -> the status that it was last seen with."""

    def __init__(self) -> None:
        self._statuses: dict[str, bytes] = {}

    def status_of(self, uid: str) -> dict[str, Any] | None:
        """Return the status that was last seen on an object; None if there is no such object."""
        raw = self._statuses.get(uid)
        if raw is None:
            return None
        return (msgspec.json.decode(raw) or {}) if raw else {}

    def forget(self, value: HasUid) -> None:
        """Drop what is remembered of an object that is gone."""
        self._statuses.pop(value.uid, None)

    def _see(self, uid: str, status: msgspec.Raw) -> bytes:
        """Remember a status, and return it."""
        raw = self._statuses[uid] = bytes(status)
        return raw
