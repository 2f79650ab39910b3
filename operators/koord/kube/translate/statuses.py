"""Keeps the last observed status of objects for their status writers.

A translator of a kind whose status we write inherits this. The bytes are decoded on demand.
"""

from typing import Any, Protocol

import msgspec

from koord.kube.decode import MALFORMED

_decoder = msgspec.json.Decoder(dict[str, Any] | None)


class HasUid(Protocol):
    """A translated value."""

    @property
    def uid(self) -> str: ...


class SeenStatuses:
    """The last observed status by object uid."""

    def __init__(self) -> None:
        self._statuses: dict[str, bytes] = {}

    def status_of(self, uid: str) -> dict[str, Any] | None:
        """Return the last observed status of an object; None if there is no such object.

        One that cannot be read counts as empty: the next write replaces it.
        """
        raw = self._statuses.get(uid)
        if raw is None:
            return None
        try:
            return (_decoder.decode(raw) if raw else None) or {}
        except MALFORMED:
            return {}

    def forget(self, value: HasUid) -> None:
        self._statuses.pop(value.uid, None)

    def _see(self, uid: str, status: msgspec.Raw) -> bytes:
        raw = self._statuses[uid] = bytes(status)
        return raw
