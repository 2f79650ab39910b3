"""Reads what API objects say of what happened to a pod, gang or Job, with the user's rights.

What may not be read, or is gone, is left out; the story says what it is made of.
"""

from typing import Any, Final
from urllib.parse import quote

import msgspec

from koord.answers.audit import to_ms
from koord.answers.happenings import SeenObjects, Subject
from koord.api.gang import parse_pod_gang
from koord.api.keys import operators
from koord.cli.connection import path_in
from koord.cli.find_target import JOB_LABEL
from koord.cli.job_state import ObjectEvent
from koord.core.gang.status import ConditionType
from koord.core.model.gang_history import Episode
from koord.core.model.text import cut
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import PODS
from koord.kube.client import Client
from koord.kube.errors import ApiError, Garbled
from koord.kube.wire import ObjectList, WireCondition, WireObjectMeta

_EVENTS: Final = "/api/v1/events"
_MOST_EVENTS: Final = "500"
_TOLD: Final = frozenset(
    {*map(str, ConditionType), operators.PLACED, "PodScheduled", "DisruptionTarget", "Ready"}
)
"""Conditions that are part of a story."""


class _Status(msgspec.Struct):
    conditions: list[WireCondition] | None = None
    history: list[dict[str, Any]] | None = None
    phase: str = ""


class _Object(msgspec.Struct):
    metadata: WireObjectMeta
    status: _Status = msgspec.field(default_factory=_Status)


async def read_objects(client: Client, subject: Subject) -> SeenObjects:
    """Return what the PodGroup says if there is one, else the pod. May raise ``KubeError``."""
    pod = await _find_pod(client, subject)
    group = subject.name if subject.kind in {"", "PodGroup"} else ""
    if pod is not None:
        meta = pod.metadata
        gang = parse_pod_gang(meta.namespace, meta.labels or {}, meta.annotations or {})
        group = gang.name if gang is not None else group
    pod_group = await _get(client, POD_GROUPS.path, subject.namespace, group) if group else None
    if pod_group is not None:
        return await _see(client, pod_group, "PodGroup")
    return SeenObjects() if pod is None else await _see(client, pod, "Pod")


async def _find_pod(client: Client, subject: Subject) -> _Object | None:
    if subject.kind == "PodGroup":
        return None
    if subject.kind in {"", "Pod"}:
        pod = await _get(client, PODS.path, subject.namespace, subject.name)
        if pod is not None or subject.kind:
            return pod
    params = {"labelSelector": f"{JOB_LABEL}={subject.name}", "limit": "1"}
    try:
        pods = await client.get(path_in(PODS.path, subject.namespace), ObjectList[_Object], params)
    except (ApiError, Garbled):
        return None
    return next(iter(pods.items or ()), None)


async def _get(client: Client, path: str, namespace: str, name: str) -> _Object | None:
    try:
        return await client.get(f"{path_in(path, namespace)}/{quote(name, safe='')}", _Object)
    except (ApiError, Garbled):
        return None


async def _see(client: Client, found_object: _Object, kind: str) -> SeenObjects:
    meta, status = found_object.metadata, found_object.status
    created = meta.creation_timestamp
    conditions = tuple(
        (seen.type, seen.status == "True", seen.reason, seen.message, since)
        for seen in status.conditions or ()
        if seen.type in _TOLD and (since := to_ms(seen.last_transition_time)) is not None
    )
    return SeenObjects(
        created=None if created is None else int(created.timestamp() * 1000),
        episodes=tuple(filter(None, map(_read_episode, status.history or ()))),
        conditions=conditions,
        events=await _read_events(client, kind, meta),
        runs=status.phase == "Running",
        uid=meta.uid,
        ref=f"{meta.namespace}/{meta.name}",
    )


def _read_episode(entry: dict[str, Any]) -> Episode | None:
    at = to_ms(entry.get("time"))
    if at is None:
        return None
    why, by = str(entry.get("why") or ""), str(entry.get("by") or "")
    return Episode(at // 1000, str(entry.get("what") or ""), why, by)


async def _read_events(
    client: Client, kind: str, meta: WireObjectMeta
) -> tuple[tuple[int, str, str], ...]:
    selector = f"involvedObject.kind={kind},involvedObject.name={meta.name}"
    params = {"fieldSelector": selector, "limit": _MOST_EVENTS}
    try:
        page = await client.get(path_in(_EVENTS, meta.namespace), ObjectList[ObjectEvent], params)
    except (ApiError, Garbled):
        return ()
    return tuple(
        (int(event.when.timestamp() * 1000), event.reason, cut(event.message))
        for event in page.items or ()
        if event.when is not None
    )
