"""Decodes list pages and watch lines to typed objects.

The fast path decodes a page, or all lines that arrived together, at once. Only if that fails, each
object is decoded alone, so that a malformed object affects no other.
"""

import sys
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from koord.kube.errors import Garbled
from koord.kube.wire import Identified, Identity, ListMeta, ObjectList, WatchEvent, WireStatus

W = TypeVar("W")
D = TypeVar("D")

MALFORMED: Final = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""What decoding and translation raise for an object: broken UTF-8 is a ValueError, nesting too deep
a RecursionError, a time that no clock has an OverflowError."""

MAX_DEPTH: Final = 12_000
"""The API server reads JSON of up to 10,000 levels."""

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"
ERROR: Final = "ERROR"


@dataclass(frozen=True, slots=True)
class Poison:
    """A malformed object: its identity, as far as it can be decoded, and the problem."""

    identity: Identity
    problem: str


Line: TypeAlias = tuple[str, W | Poison | WireStatus]
"""Type and object of a watch event: a ``WireStatus`` if and only if the type is ERROR."""


class Decoder(Generic[W]):
    """Decodes lists and watch streams of one kind."""

    def __init__(self, wire: type[W]) -> None:
        # Type checkers cannot follow types made at run time.
        page: Any = ObjectList[wire]  # type: ignore[valid-type]
        event: Any = WatchEvent[wire]  # type: ignore[valid-type]
        self._object = msgspec.json.Decoder(wire)
        self._page = msgspec.json.Decoder(page)
        self._event = msgspec.json.Decoder(event)

    def decode_page(self, body: bytes) -> tuple[ListMeta, list[W | Poison]]:
        """Decode one page. Raises ``Garbled`` if it is not a list."""
        try:
            page = self._page.decode(body)
        except MALFORMED:
            raw = _decode_or_raise(_raw_page, body)
            return raw.metadata, [self._decode_object(item) for item in raw.items or ()]
        return page.metadata, page.items or []

    def decode_lines(self, lines: bytes) -> "list[Line[W]]":
        """Decode complete watch lines. Raises ``Garbled`` for lines that are not events."""
        try:
            events = self._event.decode_lines(lines)
        except MALFORMED:
            return [self._decode_line(line) for line in lines.splitlines()]
        if any(event.type == ERROR for event in events):
            return [self._decode_line(line) for line in lines.splitlines()]
        return [(event.type, event.object) for event in events]

    def _decode_line(self, line: bytes) -> "Line[W]":
        event = _decode_or_raise(_raw_event, line)
        if event.type == ERROR:
            return ERROR, _decode_or_raise(_status, event.object)
        return event.type, self._decode_object(event.object)

    def _decode_object(self, raw: msgspec.Raw) -> W | Poison:
        try:
            return self._object.decode(raw)
        except MALFORMED as error:
            return Poison(_identify(raw), str(error))


def _decode_or_raise(decoder: msgspec.json.Decoder[D], data: bytes | msgspec.Raw) -> D:
    try:
        return _decode_deep(decoder, data)
    except MALFORMED as error:
        raise Garbled(f"cannot decode what the server sent: {error}") from error


def _decode_deep(decoder: msgspec.json.Decoder[D], data: bytes | msgspec.Raw) -> D:
    """Decode what is nested as deeply as the API server allows: one such object garbles no list."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(MAX_DEPTH)
    try:
        return decoder.decode(data)
    finally:
        sys.setrecursionlimit(limit)


def _identify(raw: msgspec.Raw) -> Identity:
    try:
        return _decode_deep(_identified, raw).metadata
    except MALFORMED:
        return Identity()


_raw_page: Final = msgspec.json.Decoder(ObjectList[msgspec.Raw])
_raw_event: Final = msgspec.json.Decoder(WatchEvent[msgspec.Raw])
_identified: Final = msgspec.json.Decoder(Identified)
_status: Final = msgspec.json.Decoder(WireStatus)
