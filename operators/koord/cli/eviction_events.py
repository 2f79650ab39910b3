"""Finds out from events that pods were evicted by the operators, once the pods are gone.

Best effort: events expire, and not everybody may read them. Read only when an answer would
otherwise be that there is no such pod.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from koord.cli.connection import path_in
from koord.cli.output import format_age
from koord.core.model.text import cut
from koord.kube.client import Client
from koord.kube.errors import ApiError
from koord.kube.wire import ObjectList, ObjectMeta

_EVENTS: Final = "/api/v1/events"
_MOST: Final = "500"
_WHAT: Final[Mapping[str, str]] = {"Preempted": "preempted", "OverEntitlement": "reclaimed"}
"""Reasons of the events on evicted pods, and what happened to the pods."""


@dataclass(frozen=True, slots=True, order=True)
class EvictionEvent:
    """That a pod was evicted, at ``time`` (seconds since the epoch), and why."""

    time: float
    pod: str
    reason: str
    note: str

    def text(self, now: float) -> str:
        """Say what happened to the pod."""
        return f"it was {_WHAT[self.reason]} {format_age(now - self.time)} ago: {self.note}"


async def find_of_pod(client: Client, namespace: str, name: str) -> EvictionEvent | None:
    """Return the last eviction of a pod of this name."""
    evictions = await _read(client, namespace, f"involvedObject.name={name}")
    return max(evictions, default=None)


async def find_of_pods(client: Client, namespace: str, prefix: str) -> EvictionEvent | None:
    """Return the last eviction of a pod whose name begins so."""
    pages = await asyncio.gather(*(_read(client, namespace, f"reason={name}") for name in _WHAT))
    evictions = (event for page in pages for event in page if event.pod.startswith(prefix))
    return max(evictions, default=None)


async def _read(client: Client, namespace: str, selector: str) -> Iterable[EvictionEvent]:
    params = {"fieldSelector": f"involvedObject.kind=Pod,{selector}", "limit": _MOST}
    try:
        page = await client.get(path_in(_EVENTS, namespace), ObjectList[_Event], params)
    except ApiError:
        return ()
    return [
        EvictionEvent(
            when.timestamp(), item.involved_object.name, item.reason, cut(item.message.rstrip("."))
        )
        for item in page.items or ()
        if item.reason in _WHAT and (when := item.when) is not None
    ]


class _Involved(msgspec.Struct):
    name: str = ""


class _Event(msgspec.Struct, rename="camel"):
    metadata: ObjectMeta
    involved_object: _Involved
    reason: str = ""
    message: str = ""
    event_time: datetime | None = None
    last_timestamp: datetime | None = None

    @property
    def when(self) -> datetime | None:
        return self.event_time or self.last_timestamp or self.metadata.creation_timestamp
