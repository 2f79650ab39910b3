"""ScheduleExplanations: listed by their metadata, read one by one, written and deleted.

Their owners may write into them what they like, of any size that the API server takes, so no list
of whole objects is ever read. What is written into a status is not known here.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from koord.api.quantity import parse_duration_seconds
from koord.kube.client import Client, Media
from koord.kube.errors import Conflict, NotFound
from koord.kube.wire import WireObjectMeta

API: Final = "scheduling.koordinator.sh/v1alpha1"
MOST_LISTED: Final = 500
DEFAULT_TTL_SECONDS: Final = 24 * 3600
_MOST_KEY: Final = 4096
_PLURAL: Final = "scheduleexplanations"


class ExplanationKey(NamedTuple):
    """An object, without what is in it; ``created`` in seconds since the epoch."""

    namespace: str
    name: str
    uid: str
    created: float


class ExplanationSpec(NamedTuple):
    """What an object asks; ``ttl`` in seconds, 0: for ever."""

    key: str
    ttl: int


class _WireKey(msgspec.Struct):
    metadata: WireObjectMeta


class _WireKeys(msgspec.Struct):
    items: list[_WireKey] | None = None


class _WireSpec(msgspec.Struct, rename="camel"):
    question_object_key: Any = ""
    ttl: Any = None


class _WireExplanation(msgspec.Struct):
    metadata: WireObjectMeta
    spec: _WireSpec = msgspec.field(default_factory=_WireSpec)


class ScheduleExplanations:
    """Each method raises the errors of ``koord.kube.errors``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self) -> list[ExplanationKey]:
        """Return the first objects that there are."""
        path, params = f"/apis/{API}/{_PLURAL}", {"limit": str(MOST_LISTED)}
        answer = await self._client.list(path, params, is_metadata_only=True)
        listed = msgspec.json.decode(answer, type=_WireKeys, strict=False).items or ()
        return [_read_key(wire.metadata) for wire in listed]

    async def read(self, key: ExplanationKey) -> ExplanationSpec | None:
        """Return what an object asks; None if it is gone."""
        try:
            wire = await self._client.get(_path_of(key), _WireExplanation)
        except NotFound:
            return None
        if wire.metadata.uid != key.uid:
            return None
        key_text, ttl = wire.spec.question_object_key, wire.spec.ttl
        seconds = parse_duration_seconds(ttl) if isinstance(ttl, str) else None
        is_valid = seconds is not None and seconds >= 0
        text = key_text[:_MOST_KEY] if isinstance(key_text, str) else ""
        return ExplanationSpec(
            text, seconds if is_valid and seconds is not None else DEFAULT_TTL_SECONDS
        )

    async def write(self, key: ExplanationKey, status: Mapping[str, Any]) -> None:
        """Replace the status of an object, if it is still the same."""
        body = {"metadata": {"uid": key.uid}, "status": status}
        try:
            await self._client.patch(f"{_path_of(key)}/status", body, Media.MERGE_PATCH)
        except (NotFound, Conflict):
            return

    async def delete(self, key: ExplanationKey) -> None:
        try:
            await self._client.delete(_path_of(key), uid=key.uid)
        except (NotFound, Conflict):
            return


def _path_of(key: ExplanationKey) -> str:
    return f"/apis/{API}/namespaces/{key.namespace}/{_PLURAL}/{key.name}"


def _read_key(meta: WireObjectMeta) -> ExplanationKey:
    seconds = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
    return ExplanationKey(meta.namespace, meta.name, meta.uid, seconds)
