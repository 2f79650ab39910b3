"""After a change of leaders: waits until our copy shows all that the leader before wrote to pods.

What it bound in its last moments may be on its way to us still, and planning without it would give
the same room away twice. How far a watch lags cannot be asked for; but it keeps the order. So a
mark is written on a pod that waits, and once the watch has brought that, it has brought everything
before. Where nothing waits there is no need: pods that come later come by the same watch.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from itertools import count
from typing import Final

import msgspec

from koord.api.keys import operators
from koord.core.pods import Pod
from koord.core.state import ClusterState
from koord.kube.client import Client, Media
from koord.kube.errors import Garbled, KubeError
from koord.kube.retry import Backoff
from koord.kube.wire import ObjectMeta

log = logging.getLogger(__name__)

MOST_FAILURES: Final = 20
"""A few pods may be gone, or protected; if none can be marked, none can be placed either."""
SEEN_WITHIN_SECONDS: Final = 10.0
"""After that one more pod is marked: of the one before, nothing may be seen that makes sense."""
_BACKOFF: Final = Backoff(base=0.05, cap=2.0)
_TICK: Final = 0.01


class _Marked(msgspec.Struct):
    metadata: ObjectMeta


async def catch_up(client: Client, state: ClusterState, identity: str) -> None:
    """Return when ``state`` is newer than this call; ``identity`` is what is written."""
    failures = 0
    marks: dict[str, int] = {}
    for attempt in count():
        waiting = [pod for pod in state.pods.values() if pod.is_plannable]
        if not waiting:
            return
        pod = waiting[attempt % len(waiting)]
        try:
            marks[pod.uid] = await _mark(client, pod, identity)
        except KubeError as error:
            failures += 1
            if failures > MOST_FAILURES:
                log.warning(
                    "planning begins without proof of a fresh copy",
                    extra={"pod": pod.key, "problem": str(error)},
                )
                return
            await asyncio.sleep(_BACKOFF.delay(attempt, error))
            continue
        if await _is_seen(state, marks):
            return
        log.warning("the mark on a pod is not seen; another one is marked", extra={"pod": pod.key})


async def _mark(client: Client, pod: Pod, identity: str) -> int:
    """Write on a pod, if it is still the same; return the revision that this made."""
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    annotations = {operators.TAKEN_OVER_BY: identity}
    patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
    body = await client.patch(path, patch, Media.MERGE_PATCH)
    try:
        return int(msgspec.json.decode(body, type=_Marked).metadata.resource_version)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Garbled(f"no revision in the answer to a mark: {error}") from error


async def _is_seen(state: ClusterState, marks: Mapping[str, int]) -> bool:
    """Wait until the watch has brought one of the marks; return whether it has, in time."""
    until = time.monotonic() + SEEN_WITHIN_SECONDS
    while not any(_has_brought(state, uid, revision) for uid, revision in marks.items()):
        if time.monotonic() > until:
            return False
        await asyncio.sleep(_TICK)
    return True


def _has_brought(state: ClusterState, uid: str, revision: int) -> bool:
    pod = state.observed(uid)
    return pod is None or int(pod.resource_version) >= revision
