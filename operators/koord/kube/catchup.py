"""After a change of leaders: waits until our copy shows all that the leader before wrote to pods.

What it bound in its last moments may be on its way to us still, and planning without it would give
the same room away twice. How far a watch lags cannot be asked for; but it keeps the order. So a
mark is written on a pod that waits, and once the watch has brought that, it has brought everything
before. Where nothing waits there is no need: pods that come later come by the same watch.
"""

import asyncio
import logging
from itertools import count
from typing import Final

import msgspec

from koord.api.keys import own
from koord.core.pods import Pod
from koord.core.state import ClusterState
from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.kube.request import Media
from koord.kube.retry import Backoff
from koord.kube.wire import ObjectMeta

log = logging.getLogger(__name__)

MOST_ATTEMPTS: Final = 20
"""A few pods may be gone, or protected; if none can be marked, none can be placed either."""
_BACKOFF: Final = Backoff(base=0.05, cap=2.0)
_TICK: Final = 0.01


class _Marked(msgspec.Struct):
    metadata: ObjectMeta


async def catch_up(client: Client, state: ClusterState, identity: str) -> None:
    """Return when ``state`` is newer than this call; ``identity`` is what is written."""
    for attempt in count():
        waiting = [pod for pod in state.pods.values() if pod.is_plannable]
        if not waiting:
            return
        pod = waiting[attempt % len(waiting)]
        try:
            revision = await _mark(client, pod, identity)
        except KubeError as error:
            if attempt >= MOST_ATTEMPTS:
                log.warning(
                    "planning begins without proof of a fresh copy",
                    extra={"pod": pod.key, "problem": str(error)},
                )
                return
            await asyncio.sleep(_BACKOFF.delay(attempt, error))
        else:
            await _wait_seen(state, pod.uid, revision)
            return


async def _mark(client: Client, pod: Pod, identity: str) -> int:
    """Write on a pod, if it is still the same; return the revision that this made."""
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    annotations = {own.TAKEN_OVER_BY: identity}
    patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
    body = await client.patch(path, patch, Media.MERGE_PATCH)
    return int(msgspec.json.decode(body, type=_Marked).metadata.resource_version)


async def _wait_seen(state: ClusterState, uid: str, revision: int) -> None:
    while True:
        pod = state.observed(uid)
        if pod is None or int(pod.resource_version) >= revision:
            return
        await asyncio.sleep(_TICK)
