"""Writes a store of usage: what ``koord usage record``, ``import`` and ``rebuild`` do.

Not imported for ``--help``.
"""

import asyncio
import gc
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.usage import look_at
from koord.answers.usage_rows import read_segment
from koord.cli.cluster import read_cluster, refuse_gaps
from koord.cli.common import ExitCode, fail, say, warn
from koord.cli.connection import open_client
from koord.core.usage.late import correct
from koord.core.usage.segments import MS_PER_SECOND, EndBasis, Segment
from koord.domains.placement import NODES, PODS
from koord.kube.errors import KubeError
from koord.store import usage_sums
from koord.store.days import HOUR_MS
from koord.store.errors import StoreError
from koord.store.keeper import RecordStore
from koord.store.usage_recording import UsageRecorder
from koord.store.usage_sums import SumRow, What
from koord.store.writing import StoreWriter

MOST_LINE_BYTES: Final = 64 * 1024
_AT_ONCE: Final = 1_000
_SHARE: Final = 20
"""Reading takes at most so small a part of the time, as for the page."""


@dataclass(frozen=True, slots=True)
class UsageRecordRequest:
    """How often to look, in seconds; how many times (0: for ever), and who is a user."""

    seconds: int
    looks: int
    user_label: str


def record(path: Path, request: UsageRecordRequest, kubeconfig: str, context: str) -> None:
    """Look again and again, until Ctrl-C or after some looks."""
    gc.enable()  # unlike in commands that end soon
    with _open(path) as store, suppress(KeyboardInterrupt), _ended_by(signal.SIGTERM):
        _record(store, request, kubeconfig, context)


@contextmanager
def _ended_by(number: signal.Signals) -> Iterator[None]:
    """Have a signal end this process as Ctrl-C does: what was handed over is written."""
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _record(store: RecordStore, request: UsageRecordRequest, kubeconfig: str, context: str) -> None:
    try:
        recorder = UsageRecorder(store)
    except StoreError as error:
        _fail_of(error)
    done, looks = 0, request.looks
    while not looks or done < looks:
        began = time.monotonic()
        try:
            reading = asyncio.run(_read(kubeconfig, context))
        except KubeError as error:
            if not done:
                fail(str(error), ExitCode.UNREADABLE)
            warn(str(error))  # and that nobody looked meanwhile is written with the next look
        else:
            if not done:
                refuse_gaps(reading, PODS, NODES)
            _look(recorder, reading, request.user_label)
            done += 1
            say(f"look {done}: {len(reading.state.pods)} pods")
        if not looks or done < looks:
            pause = max(request.seconds, _SHARE * (time.monotonic() - began))
            time.sleep(max(0.0, began + pause - time.monotonic()))


async def _read(kubeconfig: str, context: str) -> Reading:
    async with open_client(kubeconfig, context) as (client, access):
        return await read_cluster(client, Target(TargetKind.POD, access.namespace, ""))


def _look(recorder: UsageRecorder, reading: Reading, user_label: str) -> None:
    try:
        recorder.look(look_at(reading.state, time.time(), user_label)).result()
    except StoreError as error:
        _fail_of(error)


def import_file(file: Path, path: Path) -> None:
    """Add the segments of a file to a store; a line that is none ends it before anything is."""
    segments = list(_read_lines(file))
    now = int(time.time() * MS_PER_SECOND)
    adjusted = 0
    with _open(path) as store:
        for first in range(0, len(segments), _AT_ONCE):
            part = segments[first : first + _AT_ONCE]
            try:
                adjusted += store.submit(partial(import_segments, part, now)).result()
            except StoreError as error:
                _fail_of(error)
    say(f"{len(segments)} segments")
    if adjusted:
        say(f"{adjusted} of them are about closed periods, and count as adjustments of now")


def import_segments(segments: list[Segment], now: int, writer: StoreWriter) -> int:
    """Write segments; return how many of them are about closed periods."""
    usage_sums.prepare(writer.connection)
    since = usage_sums.read_watch(writer.connection).since
    parts: list[Segment] = []
    rows: list[SumRow] = []
    for segment in segments:
        correction = correct(segment, since, now)
        parts += correction.parts
        name = f"{segment.uid}@{segment.start}"
        if correction.adjusted and not usage_sums.has_adjustment(writer.connection, name):
            holder, hour = segment.holder, now - now % HOUR_MS
            key = (holder.quota, holder.namespace, name, "")
            rows.append(SumRow(hour, What.ADJUSTED, *key, correction.adjusted))
    usage_sums.put_segments(writer, parts)
    usage_sums.add_rows(writer.connection, rows)
    return len(rows)


def _read_lines(file: Path) -> Iterator[Segment]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _parse(line, f"{file}:{number}")
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}", ExitCode.USAGE)


def _parse(line: bytes, where: str) -> Segment:
    if len(line) > MOST_LINE_BYTES:
        fail(f"{where}: the line is longer than {MOST_LINE_BYTES} bytes", ExitCode.USAGE)
    try:
        segment = read_segment(msgspec.json.decode(line, type=dict[str, Any]))
    except (ValueError, RecursionError) as error:
        fail(
            f"{where}: {error}; the form is that of koord usage --segments -o jsonl", ExitCode.USAGE
        )
    if segment.basis is EndBasis.OPEN:
        fail(f"{where}: basis Open: only what has ended can be imported", ExitCode.USAGE)
    return segment


def rebuild(path: Path) -> None:
    """Make the sums of a store anew."""
    with _open(path) as store:
        try:
            store.submit(_rebuild).result()
        except StoreError as error:
            _fail_of(error)
    say("The sums by hour and by job are those of the segments.")


def _rebuild(writer: StoreWriter) -> None:
    usage_sums.prepare(writer.connection)
    usage_sums.rebuild(writer)


def _open(path: Path) -> RecordStore:
    try:
        return RecordStore(path, f"koord usage on {socket.gethostname()}", batch_seconds=0.05)
    except StoreError as error:
        _fail_of(error)


def _fail_of(error: StoreError) -> NoReturn:
    fail(str(error), ExitCode.UNREADABLE)
