"""Segments in a store, by (uid, start), and their sums by hour.

A segment that goes on is written again with each look, ``end`` being the time of the look. Once it
is closed it is added to the hours that it lies in; written again, it replaces what it was. So hours
are at any time the sums of the closed segments, and can be made anew from them.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from koord.core.usage.segments import EndBasis, Flag, Segment, Window
from koord.store.codec import Codec
from koord.store.days import HOUR_MS, read_floor

MOST_HOURS: Final = 400 * 24
"""Hours that are kept; of a segment that claims to be older, its last ones."""
_FIND_HOUR: Final = (
    "SELECT held, estimated, amounts FROM hour WHERE"
    " hour = ? AND namespace = ? AND quota = ? AND user = ? AND model = ? AND band = ?"
)
_DELETE_HOUR: Final = (
    "DELETE FROM hour WHERE"
    " hour = ? AND namespace = ? AND quota = ? AND user = ? AND model = ? AND band = ?"
)
_DECODER: Final = msgspec.json.Decoder(Segment)


class HourKey(NamedTuple):
    """An hour, by when it begins (milliseconds), and who held something in it."""

    hour: int
    namespace: str
    quota: str
    user: str
    model: str
    band: str


@dataclass(frozen=True, slots=True)
class HourSum:
    """What was held in an hour: thousandths of GPUs, and other amounts, times milliseconds.

    ``estimated`` is the part of ``held`` that is an estimate.
    """

    key: HourKey
    held: int
    estimated: int = 0
    amounts: tuple[tuple[str, int], ...] = ()


def encode_segment(segment: Segment) -> bytes:
    return msgspec.json.encode(segment)


def decode_segment(text: bytes) -> Segment:
    """Return a segment; raise ``ValueError`` if the text is none."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"a row is damaged: {error}") from error


def split_hours(segment: Segment) -> Iterator[HourSum]:
    """Yield what a segment held, hour by hour."""
    holder = segment.holder
    is_estimate = Flag.ESTIMATED in segment.flags
    begin = max(segment.start, segment.end - MOST_HOURS * HOUR_MS)
    begin -= begin % HOUR_MS
    for hour in range(begin, segment.end, HOUR_MS):
        part = Window(hour, hour + HOUR_MS).clip(segment)
        if part is None:
            continue
        ms = part.milliseconds
        yield HourSum(
            HourKey(hour, holder.namespace, holder.quota, holder.user, holder.model, holder.band),
            part.held,
            part.held if is_estimate else 0,
            tuple((name, amount * ms) for name, amount in part.amounts),
        )


@dataclass(slots=True)
class SegmentWriter:
    """Writes segments and sums, inside a transaction of the writer."""

    connection: sqlite3.Connection
    codec: Codec

    def put(self, segments: Iterable[Segment]) -> None:
        """Write segments; one with the same uid and start is replaced."""
        for segment in segments:
            before = self._find(segment)
            if before is not None and before.basis is not EndBasis.OPEN:
                self._add(before, -1)
            self._write(segment)
            if segment.basis is not EndBasis.OPEN:
                self._add(segment, 1)

    def rebuild_hours(self) -> None:
        """Make the hours anew of all closed segments, of the days of which all are kept."""
        floor = read_floor(self.connection)
        self.connection.execute("DELETE FROM hour WHERE hour >= ?", (floor,))
        rows = self.connection.execute(
            "SELECT body FROM segment WHERE is_open = 0 AND until >= ? ORDER BY uid, start",
            (floor,),
        )
        for (body,) in rows:
            for hour in split_hours(decode_segment(self.codec.inflate(body))):
                if hour.key.hour >= floor:
                    self._add_hour(hour, 1)

    def blank_user(self, user: str) -> None:
        """Make the hours of a user those of nobody, also where segments are not kept any more."""
        rows = self.connection.execute("SELECT * FROM hour WHERE user = ?", (user,)).fetchall()
        self.connection.execute("DELETE FROM hour WHERE user = ?", (user,))
        for *key, held, estimated, amounts in rows:
            nobody = HourKey(*key)._replace(user="")
            sums = tuple(decode_amounts(amounts).items())
            self._add_hour(HourSum(nobody, held, estimated, sums), 1)

    def _find(self, segment: Segment) -> Segment | None:
        row = self.connection.execute(
            "SELECT body FROM segment WHERE uid = ? AND start = ?", (segment.uid, segment.start)
        ).fetchone()
        return None if row is None else decode_segment(self.codec.inflate(row[0]))

    def _write(self, segment: Segment) -> None:
        self.connection.execute(
            "REPLACE INTO segment VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                segment.uid,
                segment.start,
                segment.end,
                segment.basis is EndBasis.OPEN,
                segment.holder.namespace,
                segment.holder.user,
                self.codec.deflate(encode_segment(segment)),
            ),
        )

    def _add(self, segment: Segment, sign: int) -> None:
        for hour in split_hours(segment):
            self._add_hour(hour, sign)

    def _add_hour(self, hour: HourSum, sign: int) -> None:
        row = self.connection.execute(_FIND_HOUR, hour.key).fetchone()
        held, estimated, text = row or (0, 0, "{}")
        amounts = decode_amounts(text)
        for name, amount in hour.amounts:
            amounts[name] = amounts.get(name, 0) + sign * amount
        left = {name: amount for name, amount in sorted(amounts.items()) if amount}
        held, estimated = held + sign * hour.held, estimated + sign * hour.estimated
        if not held and not left:
            self.connection.execute(_DELETE_HOUR, hour.key)
            return
        self.connection.execute(
            "REPLACE INTO hour VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*hour.key, held, estimated, encode_amounts(left)),
        )


def encode_amounts(amounts: dict[str, int]) -> str:
    """Write amounts of any size as JSON."""
    return msgspec.json.encode({name: str(amount) for name, amount in amounts.items()}).decode()


def decode_amounts(text: str) -> dict[str, int]:
    decoded = msgspec.json.decode(text, type=dict[str, str])
    return {name: int(amount) for name, amount in decoded.items()}
