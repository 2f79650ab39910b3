"""Policies that move pods, from the wire to the core: how their specs are read is up to the kind.

While the spec is invalid, the last valid one stays in force; the status keeps it over a restart.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from pydantic import TypeAdapter

from koord.api.parse import InvalidObject, parse_value
from koord.api.quantity import parse_duration_seconds
from koord.core.engine.policies import ObservedPolicy
from koord.kube.translate.statuses import SeenStatuses, read_last_valid_json
from koord.kube.wire import WireCustomResource

M = TypeVar("M")
S = TypeVar("S")


class PolicyTranslator(SeenStatuses, Generic[S]):
    """Translates policies of one kind, and keeps their status for the status writer.

    ``read`` returns the settings that a spec in JSON says; None if it is invalid.
    """

    def __init__(self, read: Callable[[bytes], S | None]) -> None:
        super().__init__()
        self._read = read

    def translate(self, wire: WireCustomResource) -> ObservedPolicy[S]:
        meta = wire.metadata
        status = self._see(meta.uid, wire.status)
        raw = bytes(wire.spec)
        settings = self._read(raw)
        if settings is None:
            raw = read_last_valid_json(status)
            settings = self._read(raw) if raw else None
        return ObservedPolicy(
            meta.name,
            meta.uid,
            meta.generation,
            meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
            settings,
            msgspec.json.decode(raw or b"{}") if settings is not None else {},
        )


def make_spec_reader(model: type[M], make: Callable[[M], S]) -> Callable[[bytes], S | None]:
    """Return what reads specs of a model, and makes settings of them."""
    adapter = TypeAdapter(model)

    def read(raw: bytes) -> S | None:
        try:
            written: Any = msgspec.json.decode(raw) if raw else {}
        except msgspec.MsgspecError:
            return None
        spec = parse_value(adapter, written or {}, at=("spec",))
        return None if isinstance(spec, InvalidObject) else make(spec)

    return read


def read_seconds(text: str) -> float:
    """Return a duration that a model has checked."""
    return float(parse_duration_seconds(text) or 0.0)
