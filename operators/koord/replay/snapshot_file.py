"""A recorded cluster, and what was decided in it, as the file of a snapshot, and back.

Says which document holds what. Whatever is wrong with a file makes it unusable, with the document
and the line; nothing of a damaged file is planned with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from koord.answers.reading import Extent
from koord.replay.archive import (
    MANIFEST,
    OBJECTS,
    UnusableFile,
    pack,
    read_document,
    read_lines,
    unpack,
    write_lines,
)
from koord.replay.decisions import UnitDecision
from koord.replay.recorded import KindGap, RecordedCluster
from koord.replay.values import UnreadableValue, ValueReader, ValueWriter

T = TypeVar("T")

FORMAT: Final = 1
DISTRIBUTION: Final = "koord-operators"
_DECISIONS: Final = "decision.json"
_PARTS: Final = {
    "assumed.json": ("assumed",),
    "preemptions.json": ("nominations", "preemption"),
    "reclaim.json": ("reclaim",),
    "settings.json": ("options", "migration"),
}
"""Document -> the fields of the cluster that are in it."""
_QUEUE: Final = "queue.json"
"""What one cycle of the leader planned; only in its snapshots."""
_OF_LEADER: Final = ("turn", "absences")


class SnapshotSource(StrEnum):
    """Who recorded a cluster."""

    API = "Api"
    """A reader of the API: each list is of one moment, and the lists are of several."""
    LEADER = "Leader"
    """The leader, before it planned."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """What one file holds. ``records`` are those of the leader about the unit that was asked for.

    ``version`` is that of what decided; ``kept`` what an anonymised snapshot has left readable.
    """

    cluster: RecordedCluster
    decisions: tuple[UnitDecision, ...]
    source: SnapshotSource = SnapshotSource.API
    unit: str = ""
    records: tuple[Mapping[str, Any], ...] = ()
    version: str = field(default_factory=lambda: version(DISTRIBUTION))
    is_anonymised: bool = False


class _Manifest(msgspec.Struct, rename="camel", kw_only=True):
    format: int
    version: str
    source: SnapshotSource
    now: float
    compat: bool
    hooks: tuple[str, ...]
    gaps: tuple[tuple[str, str, Extent], ...]
    unit: str
    anonymised: bool


class _Decision(msgspec.Struct, rename="camel", kw_only=True):
    names: tuple[str, ...]
    plan_id: str
    nodes: tuple[tuple[str, str], ...]
    reason: str
    fields: dict[str, Any]


class _Decisions(msgspec.Struct, rename="camel", kw_only=True):
    units: list[_Decision]
    records: list[dict[str, Any]]


def write_snapshot(snapshot: SnapshotFile) -> bytes:
    """Return the file of a snapshot."""
    cluster = snapshot.cluster
    manifest = _Manifest(
        format=FORMAT,
        version=snapshot.version,
        source=snapshot.source,
        now=cluster.now,
        compat=cluster.compat,
        hooks=cluster.hooks,
        gaps=tuple((gap.name, gap.title, Extent(gap.extent)) for gap in cluster.gaps),
        unit=snapshot.unit,
        anonymised=snapshot.is_anonymised,
    )
    files = {MANIFEST: msgspec.json.format(msgspec.json.encode(manifest))}
    for name, fields in _PARTS.items():
        writer = ValueWriter()
        parts = {field: writer.write(getattr(cluster, field)) for field in fields}
        files[name] = msgspec.json.encode(parts)
    if cluster.turn is not None:
        writer = ValueWriter()
        parts = {field: writer.write(getattr(cluster, field)) for field in _OF_LEADER}
        files[_QUEUE] = msgspec.json.encode(parts)
    units = [
        _Decision(
            names=decision.names,
            plan_id=decision.plan_id,
            nodes=decision.nodes,
            reason=decision.reason,
            fields=dict(decision.fields),
        )
        for decision in snapshot.decisions
    ]
    files[_DECISIONS] = msgspec.json.encode(
        _Decisions(units=units, records=[dict(record) for record in snapshot.records])
    )
    for name, values in sorted(cluster.values.items()):
        if values:
            writer = ValueWriter()
            ordered = sorted(values, key=_key_of)
            files[f"{OBJECTS}{name}.jsonl"] = write_lines(map(writer.write, ordered))
    return pack(files)


def read_snapshot(path: Path) -> SnapshotFile:
    """Return what a file holds. Raises ``UnusableFile``."""
    files = unpack(path)
    head = read_document(MANIFEST, files[MANIFEST])
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise UnusableFile(f"{path} is of a format that this version does not know")
    manifest = _convert(MANIFEST, head, _Manifest)
    decided = _convert(
        _DECISIONS, read_document(_DECISIONS, files.get(_DECISIONS, b"null")), _Decisions
    )
    parts: dict[str, Any] = {}
    expected = _PARTS | ({_QUEUE: _OF_LEADER} if _QUEUE in files else {})
    for name, fields in expected.items():
        document = read_document(name, files.get(name, b"null"))
        reader = ValueReader()
        for part in fields:
            if not isinstance(document, dict) or part not in document:
                raise UnusableFile(f"{name} says nothing of {part}")
            parts[part] = _read(name, reader.read, document[part])
    cluster = RecordedCluster(
        now=manifest.now,
        compat=manifest.compat,
        hooks=manifest.hooks,
        gaps=tuple(KindGap(*gap) for gap in manifest.gaps),
        values={
            name.removeprefix(OBJECTS).removesuffix(".jsonl"): _read_objects(name, content)
            for name, content in files.items()
            if name.startswith(OBJECTS)
        },
        **parts,
    )
    decisions = tuple(
        UnitDecision(unit.names, unit.plan_id, unit.nodes, unit.reason, unit.fields)
        for unit in decided.units
    )
    return SnapshotFile(
        cluster,
        decisions,
        manifest.source,
        manifest.unit,
        tuple(decided.records),
        manifest.version,
        manifest.anonymised,
    )


def _read_objects(name: str, content: bytes) -> tuple[object, ...]:
    reader = ValueReader()
    return tuple(
        _read(f"{name}:{number}", reader.read, document)
        for number, document in enumerate(read_lines(name, content), start=1)
    )


def _read(where: str, read: Callable[[Any], object], document: object) -> object:
    try:
        return read(document)
    except UnreadableValue as error:
        raise UnusableFile(f"{where}: {error}") from error


def _convert(name: str, document: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise UnusableFile(f"{name}: {error}") from error


def _key_of(value: object) -> tuple[str, ...]:
    """Return by what objects of one kind are sorted."""
    return tuple(str(getattr(value, name, "")) for name in ("namespace", "key", "name", "uid"))
