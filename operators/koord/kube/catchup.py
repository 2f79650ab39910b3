"""Waits, after a change of leaders, until the watch has delivered the last leader's writes to pods.

Its last bindings may not have arrived yet, and planning without them would assign the same
resources twice. A watch cannot be asked how far it lags, but it keeps the order: once it delivers
an annotation written now, it has delivered everything before. Without pending pods there is nothing
to wait for: later pods arrive by the same watch.

Where no pod can be annotated, all pods are listed again. That is as good, but takes seconds in a
large cluster, and costs the API server as much as a start.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Final

import msgspec

from koord.api.keys import operators
from koord.core.engine.state import ClusterState
from koord.core.model.pods import Handling, Pod
from koord.kube.client import Client, Media
from koord.kube.errors import Garbled, KubeError
from koord.kube.retry import Backoff
from koord.kube.wire import WireObjectMeta

log = logging.getLogger(__name__)

MOST_FAILURES: Final = 5
"""Some pods may be gone or protected; after this many all pods are listed again."""
SEEN_WITHIN_SECONDS: Final = 10.0
"""After this another pod is annotated: updates of the first may be undecodable."""
_BACKOFF: Final = Backoff(base=0.05, cap=0.5)
_TICK: Final = 0.01


class _Marked(msgspec.Struct):
    metadata: WireObjectMeta


async def catch_up(
    client: Client, state: ClusterState, identity: str, relist: Callable[[], Awaitable[None]]
) -> None:
    """Return when ``state`` is newer than this call; ``identity`` is the annotation's value.

    ``relist`` lists all pods again.
    """
    failures = 0
    marks: dict[str, int] = {}
    for attempt in count():
        waiting = [
            pod
            for pod in state.pods.values()
            if pod.is_plannable and pod.handling not in {Handling.RESERVE, Handling.STAND_IN}
        ]
        if not waiting:
            return
        pod = waiting[attempt % len(waiting)]
        try:
            marks[pod.uid] = await _mark(client, pod, identity)
        except KubeError as error:
            failures += 1
            if failures > MOST_FAILURES:
                log.warning(
                    "Listing all pods again, because none can be annotated",
                    extra={"pod": pod.key, "problem": str(error)},
                )
                await relist()
                return
            await asyncio.sleep(_BACKOFF.delay(attempt, error))
            continue
        if await _is_seen(state, marks):
            return
        log.warning(
            "Annotation on a pod was not observed; trying another pod", extra={"pod": pod.key}
        )


async def _mark(client: Client, pod: Pod, identity: str) -> int:
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    annotations = {operators.TAKEN_OVER_BY: identity}
    patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
    body = await client.patch(path, patch, Media.MERGE_PATCH)
    try:
        return int(msgspec.json.decode(body, type=_Marked).metadata.resource_version)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Garbled(f"no revision in the response to a patch: {error}") from error


async def _is_seen(state: ClusterState, marks: Mapping[str, int]) -> bool:
    """Wait until the watch has delivered one of the marks; return False after a timeout."""
    until = time.monotonic() + SEEN_WITHIN_SECONDS
    while not any(_has_delivered(state, uid, revision) for uid, revision in marks.items()):
        if time.monotonic() > until:
            return False
        await asyncio.sleep(_TICK)
    return True


def _has_delivered(state: ClusterState, uid: str, revision: int) -> bool:
    pod = state.observed(uid)
    return pod is None or int(pod.resource_version) >= revision
