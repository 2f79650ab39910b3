"""Reads the audit log: all writes, in the order of the answers.

The log holds each write once, and no reads; see audit-policy.yaml.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec


@dataclass(frozen=True, slots=True)
class AuditedWrite:
    """A write request, with its answer."""

    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    """The HTTP status of the answer."""
    received: float = field(default=0.0, compare=False)
    """Seconds since the epoch, as below."""
    answered: float = field(default=0.0, compare=False)


class _AuditUser(msgspec.Struct):
    username: str = ""


class _Reference(msgspec.Struct):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _AuditStatus(msgspec.Struct):
    code: int = 0


class _AuditEvent(msgspec.Struct, rename="camel"):
    stage: str
    verb: str
    user: _AuditUser
    object_ref: _Reference = msgspec.field(default_factory=_Reference)
    response_status: _AuditStatus = msgspec.field(default_factory=_AuditStatus)
    request_received_timestamp: datetime | None = None
    stage_timestamp: datetime | None = None


_DECODER = msgspec.json.Decoder(_AuditEvent)


def read_writes(log: Path) -> Iterator[AuditedWrite]:
    with log.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return  # the server is writing this one
            event = _DECODER.decode(line)
            if event.stage in {"ResponseComplete", "Panic"}:
                yield _make_write(event)


def _make_write(event: _AuditEvent) -> AuditedWrite:
    reference = event.object_ref
    return AuditedWrite(
        user=event.user.username,
        verb=event.verb,
        resource=reference.resource,
        subresource=reference.subresource,
        namespace=reference.namespace,
        name=reference.name,
        code=event.response_status.code,
        received=_seconds(event.request_received_timestamp),
        answered=_seconds(event.stage_timestamp),
    )


def _seconds(moment: datetime | None) -> float:
    return 0.0 if moment is None else moment.timestamp()
