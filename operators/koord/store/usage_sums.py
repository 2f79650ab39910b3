"""Sums in a store beside those of its hours: of quotas, of the whole cluster, of jobs, of losses.

Each is an integer of an hour or of a day (UTC); a month is read from its days. What they are sums
of is told by ``what``. Made inside a transaction of the writer; the table comes with the first who
writes to it.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from koord.core.usage.book import loss_key_of, owner_of
from koord.core.usage.following import is_set_back
from koord.core.usage.levels import LevelSums
from koord.core.usage.lost import loss_of
from koord.core.usage.quota_time import QuotaTime
from koord.core.usage.segments import EndBasis, Flag, Segment, Window
from koord.store.days import DAY_MS, HOUR_MS, day_of, find_present, read_floor
from koord.store.segments import MOST_HOURS, decode_segment
from koord.store.writing import StoreWriter

OWNER_DAYS: Final = 93
"""For so many days jobs are told apart: a quarter. Of what is older only sums by hour are left."""
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS usage_sum (hour INTEGER, what TEXT, quota TEXT, namespace TEXT,"
    " name TEXT, part TEXT, amount INTEGER,"
    " PRIMARY KEY (what, hour, quota, namespace, name, part)) WITHOUT ROWID"
)
IS_LONG: Final = f"until - start > {DAY_MS}"
"""Of segments that are longer than a day; few are."""
_LONG: Final = f"CREATE INDEX IF NOT EXISTS segment_long ON segment (until, start) WHERE {IS_LONG}"
_ADD: Final = (
    "INSERT INTO usage_sum VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (what, hour, quota, namespace, name, part)"
    " DO UPDATE SET amount = amount + excluded.amount"
)
_MOST: Final = (1 << 62) - 1
_WATCH: Final = "usage_watch"


class What(StrEnum):
    """What a row is the sum of, each times milliseconds unless it is said."""

    QUOTA = "quota"
    """Thousandths of GPUs of a quota with those below it; ``part`` is a field of QuotaTime."""
    CLUSTER = "cluster"
    """Thousandths of GPUs of a model (``name``); ``part`` is a state."""
    QUOTA_DAY = "quota/day"
    CLUSTER_DAY = "cluster/day"
    HELD = "held/day"
    """Thousandths of GPUs in a day; ``name`` is the user, ``part`` the band and the model."""
    ESTIMATED = "estimated/day"
    """The part of that which is an estimate."""
    OWNER = "owner"
    """Thousandths of GPUs that a job (``name``) has held in a day; ``part`` is the model."""
    LOST = "lost"
    """The same that was lost; ``part`` is cause, basis and for whom."""
    UNCERTAIN = "uncertain"
    """Milliseconds by which ends may differ."""
    WATCHED = "watched"
    """Milliseconds in which somebody watched."""
    ADJUSTED = "adjusted"
    """Thousandths of GPUs that are told after the period was closed; ``name`` is the segment."""


class SumRow(NamedTuple):
    """One sum; ``hour`` is when its hour, or day, begins."""

    hour: int
    what: What
    quota: str = ""
    namespace: str = ""
    name: str = ""
    part: str = ""
    amount: int = 0


class UsageWatch(msgspec.Struct, frozen=True):
    """Since when somebody writes segments, and when that was done last, in milliseconds."""

    since: int = 0
    seen: int = 0


def prepare(connection: sqlite3.Connection) -> None:
    """Make the table and the index, if there are none."""
    connection.execute(_TABLE)
    connection.execute(_LONG)


def read_watch(connection: sqlite3.Connection) -> UsageWatch:
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (_WATCH,)).fetchone()
    with suppress(msgspec.DecodeError, TypeError):
        return msgspec.json.decode(row[0], type=UsageWatch) if row else UsageWatch()
    return UsageWatch()


def note_watch(writer: StoreWriter, now: int) -> None:
    before = read_watch(writer.connection)
    seen = now if is_set_back(before.seen, now) else max(before.seen, now)
    after = UsageWatch(before.since or now, seen)
    writer.set_meta(_WATCH, msgspec.json.encode(after))


def add_rows(connection: sqlite3.Connection, rows: Iterable[SumRow]) -> None:
    """Add sums to those that there are; what is larger than any cluster counts as that."""
    sums = Counter[tuple[int | str, ...]]()
    for hour, what, quota, namespace, name, part, amount in rows:
        sums[hour, str(what), quota, namespace, name, part] += amount
    connection.executemany(
        _ADD, ((*key, max(-_MOST, min(amount, _MOST))) for key, amount in sums.items() if amount)
    )


def put_segments(writer: StoreWriter, segments: Iterable[Segment]) -> None:
    """Write segments with all their sums; one with the same uid and start is replaced."""
    segments = tuple(segments)
    rows: list[SumRow] = []
    for segment in segments:
        before = _find(writer, segment)
        if before is not None:
            rows += _sums_of(before, -1)
        rows += _sums_of(segment, 1)
    writer.segments.put(segments)
    add_rows(writer.connection, rows)


def add_levels(writer: StoreWriter, levels: Iterable[LevelSums]) -> None:
    """Add what quotas and the cluster were, and that somebody watched."""
    rows: list[SumRow] = []
    for part in levels:
        hour, day = _hour_of(part.window.start), day_of(part.window.start)
        rows.append(SumRow(hour, What.WATCHED, amount=part.window.milliseconds))
        for quota, time in part.quotas.items():
            rows += [
                SumRow(begin, what, quota, part=name, amount=getattr(time, name))
                for begin, what in ((hour, What.QUOTA), (day, What.QUOTA_DAY))
                for name in _QUOTA_PARTS
            ]
        for model, states in part.cluster.items():
            rows += [
                SumRow(begin, what, name=model, part=str(state), amount=amount)
                for begin, what in ((hour, What.CLUSTER), (day, What.CLUSTER_DAY))
                for state, amount in states.items()
            ]
    add_rows(writer.connection, rows)


_QUOTA_PARTS: Final = tuple(field.name for field in fields(QuotaTime))


def rebuild(writer: StoreWriter) -> None:
    """Make the sums of segments anew, of the days of which all are kept."""
    writer.segments.rebuild_hours()
    connection, floor = writer.connection, read_floor(writer.connection)
    for what in (What.HELD, What.ESTIMATED, What.OWNER, What.LOST, What.UNCERTAIN):
        of_kind = str(what), floor
        connection.execute("DELETE FROM usage_sum WHERE what = ? AND hour >= ?", of_kind)
    query = "SELECT body FROM segment WHERE is_open = 0 AND until >= ?"
    for (body,) in connection.execute(query, (floor,)).fetchall():
        segment = decode_segment(writer.codec.inflate(body))
        add_rows(connection, (row for row in _sums_of(segment, 1) if row.hour >= floor))


def remove_old(connection: sqlite3.Connection, now: int) -> None:
    """Remove what is older than it is kept for."""
    now = find_present(connection, now)
    owners = str(What.OWNER), day_of(now - OWNER_DAYS * DAY_MS)
    connection.execute("DELETE FROM usage_sum WHERE what = ? AND hour < ?", owners)
    for what in What:
        of_kind = str(what), day_of(now - MOST_HOURS * HOUR_MS)
        connection.execute("DELETE FROM usage_sum WHERE what = ? AND hour < ?", of_kind)


def blank_user(connection: sqlite3.Connection, user: str) -> None:
    """Make the sums of a user those of nobody."""
    _blank(connection, (What.HELD, What.ESTIMATED), "name = ?", (user,))


def blank_jobs(connection: sqlite3.Connection, namespace: str, before: int) -> None:
    """Add up what jobs of a namespace held and lost before the day of a time, without names."""
    condition, values = "namespace = ? AND hour < ?", (namespace, day_of(before))
    _blank(connection, (What.OWNER, What.LOST), condition, values)


def _blank(
    connection: sqlite3.Connection,
    kinds: Iterable[What],
    condition: str,
    values: tuple[str | int, ...],
) -> None:
    if not has_table(connection):
        return
    for what in kinds:
        where = f"what = ? AND name != '' AND {condition}"
        query = f"SELECT * FROM usage_sum WHERE {where}"  # noqa: S608 - a text of this module
        rows = [
            SumRow(hour, what, quota, space, "", part, amount)
            for hour, _, quota, space, _, part, amount in connection.execute(
                query, (str(what), *values)
            )
        ]
        connection.execute(
            f"DELETE FROM usage_sum WHERE {where}",  # noqa: S608 - the same
            (str(what), *values),
        )
        add_rows(connection, rows)


def has_table(connection: sqlite3.Connection) -> bool:
    """Whether somebody makes sums of days in this file."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'usage_sum'"
    return connection.execute(query).fetchone() is not None


def has_adjustment(connection: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM usage_sum WHERE what = ? AND name = ? LIMIT 1"
    return connection.execute(query, (str(What.ADJUSTED), name)).fetchone() is not None


def _find(writer: StoreWriter, segment: Segment) -> Segment | None:
    row = writer.connection.execute(
        "SELECT body FROM segment WHERE uid = ? AND start = ?", (segment.uid, segment.start)
    ).fetchone()
    return None if row is None else decode_segment(writer.codec.inflate(row[0]))


def _sums_of(segment: Segment, sign: int) -> Iterator[SumRow]:
    """Yield the sums of a segment that is closed, other than those by hour."""
    if segment.basis is EndBasis.OPEN:
        return
    holder, owner = segment.holder, owner_of(segment.holder)
    where = holder.quota, holder.namespace
    named = (*where, holder.user, f"{holder.band}/{holder.model}")
    # Of what claims to be older than anything is kept only the last part counts, as for the hours.
    begin = day_of(max(segment.start, segment.end - MOST_HOURS * HOUR_MS))
    for day in range(begin, segment.end, DAY_MS):
        part = Window(day, day + DAY_MS).clip(segment)
        if part is not None:
            amount = sign * part.held
            yield SumRow(day, What.HELD, *named, amount)
            if Flag.ESTIMATED in part.flags:
                yield SumRow(day, What.ESTIMATED, *named, amount)
            yield SumRow(day, What.OWNER, *where, owner.owner, owner.model, amount)
    hour = _hour_of(segment.end)
    yield SumRow(hour, What.UNCERTAIN, holder.quota, amount=sign * segment.uncertain)
    lost = loss_of(segment)
    if lost is not None:
        loss = loss_key_of(holder, lost)
        part_text = f"{loss.cause}/{loss.basis}/{loss.by}"
        key = (loss.quota, loss.namespace, loss.owner, part_text)
        yield SumRow(hour, What.LOST, *key, sign * lost.lost)


def _hour_of(at: int) -> int:
    return at - at % HOUR_MS
