"""Statuses of objects as last observed, for their writers, and the last valid settings in them.

A translator of a kind whose status we write inherits this. The bytes are decoded on demand.

The form of the last valid settings is up to the kind.
"""

from typing import Any, Protocol, TypeVar

import msgspec

from koord.api.model import Model
from koord.api.shape import Shape
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

    def has(self, uid: str) -> bool:
        """Whether there is such an object."""
        return uid in self._statuses

    def forget(self, value: HasUid) -> None:
        self._statuses.pop(value.uid, None)

    def _see(self, uid: str, status: msgspec.Raw) -> bytes:
        raw = self._statuses[uid] = bytes(status)
        return raw


M = TypeVar("M", bound=Model)


class _StatusWithSpec(msgspec.Struct, rename="camel"):
    last_valid_spec: msgspec.Raw = msgspec.Raw(b"null")


_kept_decoder = msgspec.json.Decoder(_StatusWithSpec | None)


def read_last_valid(status: bytes, shape: Shape[M]) -> M | None:
    """Return the last valid settings in a status; None if there are none that can be read."""
    raw = read_last_valid_json(status)
    try:
        return shape.read(raw) if raw else None
    except MALFORMED:
        return None


def read_last_valid_json(status: bytes) -> bytes:
    """Return the last valid settings in a status as they are; empty if there are none."""
    try:
        decoded = _kept_decoder.decode(status) if status else None
    except MALFORMED:
        return b""
    raw = b"null" if decoded is None else bytes(decoded.last_valid_spec)
    return b"" if raw == b"null" else raw
