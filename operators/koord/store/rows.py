"""Documents of records as rows: what is searched for stands in columns, all of it in the body.

What a leader sends is checked here: a line that is no record is refused, and what else is odd in it
does no harm later.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from koord.answers.audit import to_ms

MOST_LINE_BYTES: Final = 16 * 1024
"""The leader sends no line of more than half of it."""
MOST_NAMES: Final = 128
"""Names under which one record makes a unit known."""
_MOST_NUMBER: Final = 1 << 53
_OVER: Final = frozenset({"Ended", "Gone"})
_LATEST: Final = 253402300799999
"""The last millisecond that a calendar has."""


class _Owner(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _Unit(msgspec.Struct):
    key: str = ""
    namespace: str = ""
    names: list[str] = []
    owner: _Owner | None = None


class _Closed(msgspec.Struct, rename="camel"):
    seq: int
    repeats: int
    last_at: str
    position: int | None = None


class _Document(msgspec.Struct):
    term: int
    seq: int
    at: str
    kind: str
    trace: str = ""
    unit: _Unit | None = None
    code: str | None = None
    nodes: msgspec.Raw = msgspec.Raw(b"null")
    pods: msgspec.Raw = msgspec.Raw(b"null")
    closed: _Closed | None = None


class _Node(msgspec.Struct):
    names: list[str] = []


class _Pod(msgspec.Struct):
    name: str = ""


class NameRow(NamedTuple):
    """A name under which a unit is found."""

    namespace: str
    name: str
    kind: str
    trace: str


class ClosedRow(NamedTuple):
    """The last numbers of a record of refusals, known once it is over."""

    seq: int
    repeats: int
    last_at: str
    position: int | None


@dataclass(frozen=True, slots=True)
class RecordRow:
    """One record. ``at`` in milliseconds; ``line`` is its document."""

    term: int
    seq: int
    at: int
    kind: str
    namespace: str
    trace: str
    unit: str
    code: str
    line: bytes
    names: tuple[NameRow, ...] = ()
    closed: ClosedRow | None = field(default=None)

    @property
    def is_over(self) -> bool:
        """Whether nothing of the unit exists, or is to run, after it."""
        return self.kind in _OVER


_DECODER: Final = msgspec.json.Decoder(_Document)
_NODES: Final = msgspec.json.Decoder(list[_Node])
_PODS: Final = msgspec.json.Decoder(list[_Pod])
_ANY: Final = msgspec.json.Decoder(dict[str, Any])


def parse_line(line: bytes) -> RecordRow:
    """Return a line of the feed as a row; raise ``ValueError`` if it is no record."""
    if len(line) > MOST_LINE_BYTES:
        raise ValueError("a record is too long")
    try:
        document = _DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"a line is no record: {error}") from error
    at = to_ms(document.at)
    if not (0 <= document.term < _MOST_NUMBER and 0 < document.seq < _MOST_NUMBER):
        raise ValueError("the numbers of a record are out of bounds")
    if at is None or not 0 <= at <= _LATEST:
        raise ValueError("a record has no time")
    unit, closed = document.unit, document.closed
    return RecordRow(
        document.term,
        document.seq,
        at,
        document.kind,
        "" if unit is None else unit.namespace,
        document.trace,
        "" if unit is None else unit.key,
        document.code or "",
        line.rstrip(b"\n"),
        () if unit is None or not document.trace else tuple(_list_names(document, unit)),
        None
        if closed is None
        else ClosedRow(closed.seq, closed.repeats, closed.last_at, closed.position),
    )


def read_document(line: bytes) -> dict[str, Any]:
    """Return the document of a row; raise ``ValueError`` if it is none."""
    try:
        return _ANY.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"a row is damaged: {error}") from error


def close_line(line: bytes, closed: ClosedRow) -> bytes:
    """Return a record of refusals with the numbers that it had in the end."""
    document = read_document(line)
    document |= {
        "repeats": closed.repeats,
        "lastAt": closed.last_at,
        "position": closed.position,
    }
    return msgspec.json.encode(document)


def write_line(document: dict[str, Any]) -> bytes:
    return msgspec.json.encode(document)


def _list_names(document: _Document, unit: _Unit) -> list[NameRow]:
    names = dict.fromkeys(
        NameRow(*_split(key), "Unit", document.trace) for key in (unit.key, *unit.names)
    )
    if unit.owner is not None and unit.owner.name:
        owner = unit.owner
        names[NameRow(unit.namespace, owner.name, owner.kind, document.trace)] = None
    for pod in _list_pods(document):
        names[NameRow(unit.namespace, pod, "Pod", document.trace)] = None
    return list(names)[:MOST_NAMES]


def _split(key: str) -> tuple[str, str]:
    namespace, _, name = key.partition("/")
    return namespace, name


def _list_pods(document: _Document) -> list[str]:
    try:
        if document.kind == "Placed":
            return [name for node in _NODES.decode(document.nodes) for name in node.names]
        if document.kind == "Evicted":
            return [pod.name for pod in _PODS.decode(document.pods)]
    except msgspec.DecodeError:
        return []  # the record is kept all the same
    return []
