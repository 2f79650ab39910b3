"""Records events for users: one per transition, rate-limited.

An event is sent when the reason for an action on an object differs from the last one. Namespaces
take turns, so that thousands of events about the objects of one tenant do not hide those of others.
Delivery is best effort: events are dropped when there are too many, when the server refuses them,
and when the process ends.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from koord.isolation import Isolation
from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.kube.objects import ObjectRef
from koord.kube.turns import TurnQueue
from koord.plain_text import escape

MAX_NOTE: Final = 1024
"""The API server refuses longer notes."""
MAX_QUEUED: Final = 1024
MAX_REMEMBERED: Final = 1 << 13
"""Objects and actions whose last reason is known; the least recently recorded are forgotten."""
PER_SECOND: Final = 10.0
BURST: Final = 50.0
MAX_AGE_SECONDS: Final = 30.0
"""Later than this an event is of no use."""
YIELD_SECONDS: Final = 5.0
"""How long an event yields to writes that pods wait for."""
_TICK: Final = 0.1


class EventType(StrEnum):
    """The types that Kubernetes has."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(slots=True)
class EventStats:
    """Counters since the start."""

    emitted: int = 0
    repeated: int = 0
    dropped: int = 0
    refused: int = 0


class EventRecorder:
    """Emits events of one ``component``. Run ``run`` in a task group.

    ``instance`` identifies the replica, ``is_busy`` returns whether the API server has more urgent
    work, ``wall_clock`` seconds since the epoch.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        instance: str,
        *,
        is_busy: Callable[[], bool] = lambda: False,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.stats = EventStats()
        self._client = client
        self._component = component
        self._instance = instance
        self._is_busy = is_busy
        self._wall_clock = wall_clock
        self._queue: TurnQueue[tuple[float, dict[str, Any]]] = TurnQueue(MAX_QUEUED)
        """When an event was recorded, and the event."""
        self._has_queued = asyncio.Event()
        self._isolated = Isolation("events")
        self._last: OrderedDict[tuple[str, str], str] = OrderedDict()
        """Object uid and action -> the last reason."""

    def record(
        self, ref: ObjectRef, kind: EventType, *, action: str, reason: str, note: str
    ) -> None:
        """Emit an event unless ``reason``, the outcome of ``action``, is the same as last time."""
        key = (ref.uid, action)
        before, self._last[key] = self._last.get(key), reason
        self._last.move_to_end(key)
        if before == reason:
            self.stats.repeated += 1
            return
        if len(self._last) > MAX_REMEMBERED:
            self._last.popitem(last=False)
        body = self._make(ref, kind, action, reason, note)
        if not self._queue.put(ref.namespace, (time.monotonic(), body)):
            self.stats.dropped += 1
        self._has_queued.set()

    def forget(self, ref: ObjectRef, action: str) -> None:
        """Emit the next event of an action even if its reason is the same."""
        self._last.pop((ref.uid, action), None)

    async def run(self) -> None:
        """Send until cancelled, at most ``PER_SECOND`` on average."""
        tokens, filled_at = BURST, time.monotonic()
        while True:
            await self._has_queued.wait()
            now = time.monotonic()
            tokens = min(BURST, tokens + (now - filled_at) * PER_SECOND)
            filled_at = now
            if tokens < 1:
                await asyncio.sleep(_TICK)
                continue
            recorded, body = self._queue.take()
            if not self._queue:
                self._has_queued.clear()
            if now > recorded + MAX_AGE_SECONDS:
                self.stats.dropped += 1
                continue
            tokens -= 1
            await self._make_room(recorded + YIELD_SECONDS)
            with self._isolated.of(body["regarding"]["uid"]):
                await self._send(body)

    async def _make_room(self, latest: float) -> None:
        while self._is_busy() and time.monotonic() < latest:  # noqa: ASYNC110 - it is polled
            await asyncio.sleep(_TICK)

    async def _send(self, body: dict[str, Any]) -> None:
        namespace = body["metadata"]["namespace"]
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        try:
            await self._client.post(path, body)
        except KubeError:
            self.stats.refused += 1
        else:
            self.stats.emitted += 1

    def _make(
        self, ref: ObjectRef, kind: EventType, action: str, reason: str, note: str
    ) -> dict[str, Any]:
        namespace = ref.namespace or "default"
        when = datetime.fromtimestamp(self._wall_clock(), UTC)
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{ref.name}.{secrets.token_hex(8)}", "namespace": namespace},
            "eventTime": when.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._component,
            "reportingInstance": self._instance,
            "type": str(kind),
            "action": action,
            "reason": reason,
            "note": _cut(note),
            "regarding": {
                "apiVersion": ref.api_version,
                "kind": ref.kind,
                "namespace": ref.namespace,
                "name": ref.name,
                "uid": ref.uid,
            },
        }


def _cut(note: str) -> str:
    note = escape(note)
    raw = note.encode()
    if len(raw) <= MAX_NOTE:
        return note
    return raw[: MAX_NOTE - 3].decode(errors="ignore") + "…"
