"""What the status of a quota keeps of its queue, read and written."""

from collections.abc import Iterable
from typing import Final

from koord.api.elasticquota import ElasticQuotaStatus
from koord.api.queue import QueueMemoryStatus, RememberedRuns, RememberedUse
from koord.api.shape import Shape
from koord.core.queue.history import MOST_RUNS, WRITTEN_KINDS, KindRecord
from koord.core.queue.memory import QueueRecord
from koord.core.queue.users import MOST_USERS, UseRecord
from koord.kube.decode import MALFORMED

_STATUS: Final = Shape(ElasticQuotaStatus, only={ElasticQuotaStatus: ("queue_memory",)})
_MOST_DIGITS: Final = 80
_LONGEST: Final = 2**31
"""No run took longer, in seconds."""


def read_record(status: bytes) -> QueueRecord | None:
    """Return what a status keeps of a queue; None if that is nothing that can be read."""
    if b"queueMemory" not in status:
        return None
    try:
        memory = _STATUS.read(status).queue_memory
    except MALFORMED:
        return None
    if memory is None:
        return None
    runs = (
        KindRecord(kept.user, kept.kind, tuple(kept.seconds[-MOST_RUNS:]), kept.ended)
        for kept in (memory.runs or ())[:WRITTEN_KINDS]
    )
    valid = tuple(run for run in runs if run.seconds and all(map(_is_run_time, run.seconds)))
    ledgers = {
        kept.user: _read_amounts(kept.amounts.items()) for kept in (memory.used or ())[:MOST_USERS]
    }
    return QueueRecord(valid, UseRecord(max(0, memory.used_until), ledgers))


def encode_record(record: QueueRecord) -> QueueMemoryStatus | None:
    """Return a record in the form of the status; None if it is empty."""
    if not record.runs and not record.used.ledgers:
        return None
    runs = [
        RememberedRuns(user=run.user, kind=run.kind, seconds=list(run.seconds), ended=run.ended)
        for run in record.runs
    ]
    used = [
        RememberedUse(user=user, amounts={key: str(n) for key, n in sorted(ledger.items())})
        for user, ledger in sorted(record.used.ledgers.items())
    ]
    return QueueMemoryStatus(runs=runs or None, used=used or None, used_until=record.used.until)


def _is_run_time(seconds: int) -> bool:
    return 0 < seconds < _LONGEST


def _read_amounts(amounts: Iterable[tuple[str, str]]) -> dict[str, int]:
    return {
        key: int(text)
        for key, text in amounts
        if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    }
