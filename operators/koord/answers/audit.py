"""Records of decisions as documents, the form in which they leave the process that made them.

Flat objects with the fields of the record, of its unit, and of its kind. Fields are never renamed,
removed or left out. Names and amounts only: what a reason quotes of annotations or of messages of
others is left out, so that a reader of records learns no more than what was decided.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, Final

from koord.answers.decision_trace import encode_scores
from koord.answers.encoding import encode, encode_amounts, name_of_field
from koord.answers.gpus import measure_request
from koord.core.audit.records import (
    Attempt,
    AuditRecord,
    Began,
    Held,
    Placed,
    RecordGap,
    Requests,
    SpecChanged,
)
from koord.core.engine.decision_trace import RefusingNodes
from koord.core.engine.reasons import InsufficientNodes
from koord.core.gang.reasons import InvalidAnnotation
from koord.core.model.reasons import InvalidPodAnnotation, Reason, RefusedByScheduler

MOST_CAUSES: Final = 16
MOST_EXAMPLES: Final = 3
MOST_ITEMS: Final = 64
"""Items of one list in a record; longer ones are cut."""
_QUOTING: Final = (InvalidPodAnnotation, InvalidAnnotation, RefusedByScheduler)
"""Reasons that repeat what users or other programs have written."""
_NOT_NUMBERS: Final = frozenset({"remark", "refused", "elsewhere"})
"""Fields of reasons with a form of their own here, or none."""
_TIMES: Final = frozenset({"since", "created", "complete", "due"})
"""Fields of bodies that are milliseconds since the epoch."""


def write_record(record: AuditRecord) -> dict[str, Any]:
    """Return a record as JSON has it."""
    document: dict[str, Any] = {
        "term": record.term,
        "seq": record.seq,
        "at": to_text(record.at),
        "mono": record.mono,
        "kind": str(record.kind),
    }
    unit = record.unit
    if unit is not None:
        document["unit"] = {
            "key": unit.key,
            "namespace": unit.namespace,
            "names": list(unit.names),
            "owner": encode(unit.owner),
            "uids": list(unit.uids),
            "pods": unit.pods,
            "required": unit.required,
            "quota": unit.quota or None,
            "priority": unit.priority,
            **_write_asks(unit.asks),
        }
        document["trace"] = unit.trace
    document |= _write_body(record)
    if unit is not None:
        closed = record.closed
        document["closed"] = (
            None if closed is None else encode(closed) | {"lastAt": to_text(closed.last_at)}
        )
    return document


def _write_asks(asks: Sequence[tuple[Requests, int]]) -> dict[str, Any]:
    """Return what all pods of a unit request together; null if that is not known."""
    amounts: Counter[str] = Counter()
    milli = 0
    for requests, pods in asks:
        milli += measure_request(dict(requests)).amount * pods
        for name, amount in requests:
            amounts[name] += amount * pods
    cut = dict(sorted(amounts.items())[:MOST_ITEMS])
    return {
        "asks": encode_amounts(cut) if asks else None,
        "milliGpus": milli if asks else None,
    }


def _write_body(record: AuditRecord) -> dict[str, Any]:
    body = record.body
    if isinstance(body, Attempt):
        return _write_attempt(body)
    if isinstance(body, Held):
        return {"code": body.reason.code, "text": _write_text(body.reason)}
    if isinstance(body, SpecChanged):
        return {
            "quota": body.quota or None,
            "changes": [
                {"field": change.field, "from": change.before, "to": change.after}
                for change in body.changes
            ],
        }
    if isinstance(body, RecordGap):
        return {"from": body.from_, "to": body.to, "count": body.count}
    if body is None:
        return {}
    if isinstance(body, Placed):
        document: dict[str, Any] = encode(replace(body, assignments=(), names=(), score=()))
        named, more = body.list_nodes()
        del document["assignments"], document["names"]
        document |= {"nodes": encode(named), "moreNodes": more, "score": encode_scores(body.score)}
    else:
        document = encode(body)
    if isinstance(body, Began | Placed):
        document |= {name: to_text(document[name]) for name in _TIMES & document.keys()}
    return document


def _write_attempt(attempt: Attempt) -> dict[str, Any]:
    reason = attempt.reason
    kind = reason.reason_class
    return {
        "attempt": attempt.attempt,
        "position": attempt.position,
        "of": attempt.of,
        "cycle": attempt.cycle,
        "cycleMicros": attempt.micros,
        "class": None if kind is None else str(kind),
        "code": reason.code,
        "fields": write_fields(reason),
        "nodes": _write_nodes(reason, attempt.refusing),
        "text": _write_text(reason),
        "repeats": attempt.repeats,
        "firstAt": to_text(attempt.first_at),
        "lastAt": to_text(attempt.last_at),
    }


def _write_text(reason: Reason) -> str:
    return "" if isinstance(reason, _QUOTING) else reason.text()


def write_fields(reason: Reason) -> dict[str, Any]:
    """Return the numbers and names of a reason."""
    if isinstance(reason, _QUOTING):
        return {}
    names = [(field.name, name_of_field(type(reason), field.name)) for field in fields(reason)]  # type: ignore[arg-type]
    return {
        name: _cut(encode(getattr(reason, field)))
        for field, name in names
        if name not in _NOT_NUMBERS
    }


def _cut(value: Any) -> Any:
    if isinstance(value, list):
        return [_cut(item) for item in value[:MOST_ITEMS]]
    if isinstance(value, Mapping):
        return {key: _cut(item) for key, item in list(value.items())[:MOST_ITEMS]}
    return value


def _write_nodes(reason: Reason, refusing: Sequence[RefusingNodes]) -> dict[str, Any] | None:
    """Return what the nodes lack, the causes of most of them first.

    Examples are null where nobody wanted to see the names of the nodes.
    """
    if not isinstance(reason, InsufficientNodes):
        return None
    counts = sorted(reason.refused, key=lambda count: -count.nodes)[:MOST_CAUSES]
    names = {group.text: list(group.nodes[:MOST_EXAMPLES]) for group in refusing}
    texts = [count.cause.describe(count.resource, count.detail) for count in counts]
    causes = [
        {"cause": text, "nodes": count.nodes, "examples": names.get(text)}
        for text, count in zip(texts, counts, strict=True)
    ]
    return {"total": reason.nodes, "fit": reason.fit, "causes": causes}


def to_text(ms: int) -> str:
    """Write milliseconds since the epoch as the API does times."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def to_ms(text: object) -> int | None:
    """Read a time of the API; None for what is no time."""
    try:
        moment = datetime.fromisoformat(text if isinstance(text, str) else "")
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
