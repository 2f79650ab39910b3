"""Keeps the last observed status of objects for their status writers.

A translator of a kind whose status we write inherits this. The bytes are decoded on demand.
"""

from typing import Any, Protocol

import msgspec


class HasUid(Protocol):
    """A translated value."""

    @property
    def uid(self) -> str: ...


class SeenStatuses:
    """The last observed status by object uid."""

    def __init__(self) -> None:
        self._statuses: dict[str, bytes] = {}

    def status_of(self, uid: str) -> dict[str, Any] | None:
        """Return the last observed status of an object; None if there is no such object."""
        raw = self._statuses.get(uid)
        if raw is None:
            return None
        return (msgspec.json.decode(raw) or {}) if raw else {}

    def forget(self, value: HasUid) -> None:
        self._statuses.pop(value.uid, None)

    def _see(self, uid: str, status: msgspec.Raw) -> bytes:
        raw = self._statuses[uid] = bytes(status)
        return raw
