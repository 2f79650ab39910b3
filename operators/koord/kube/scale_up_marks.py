"""Marks pods with a gate for cluster autoscalers, and takes the marks off: their ``PodScheduled``.

The API server says of a pod with a gate ``False`` with the reason ``SchedulingGated``; autoscalers
look for ``Unschedulable``. Each pod is read first, and written only as it was read: the condition
of one that is bound meanwhile must not be touched. Which pods are marked is not known here.
"""

import logging
from datetime import UTC, datetime
from typing import Any, Final

from koord.core.model.pods import Pod
from koord.kube.client import Client, Media
from koord.kube.errors import Conflict, KubeError, NotFound
from koord.kube.objects import ref_of_pod
from koord.kube.translate.pod_conditions import (
    GATED,
    POD_SCHEDULED,
    UNSCHEDULABLE,
    is_scale_up_mark,
)
from koord.kube.wire import WireCondition, WirePod

log = logging.getLogger(__name__)

SAYS_GATED: Final = "Scheduling is blocked due to non-empty scheduling gates"
"""As the API server says it."""


class ScaleUpMarks:
    """Each method returns whether the pod is, by now, as asked, or cannot be any more."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def put(self, pod: Pod, message: str) -> bool:
        """Mark a pod that waits with a gate; ``message`` begins as all marks do."""
        return await self._write(pod, UNSCHEDULABLE, message)

    async def take_off(self, pod: Pod) -> bool:
        """Say again of a marked pod that its gate holds it."""
        return await self._write(pod, GATED, SAYS_GATED)

    async def _write(self, pod: Pod, reason: str, message: str) -> bool:
        path = ref_of_pod(pod).path
        try:
            seen = await self._client.get(path, WirePod)
            now = _find(seen)
            is_marked = now is not None and is_scale_up_mark(now)
            is_over = seen.metadata.uid != pod.uid or bool(seen.spec.node_name)
            is_over |= not seen.spec.scheduling_gates and not is_marked
            if is_over or is_marked is (reason == UNSCHEDULABLE):
                return True
            await self._client.patch(
                f"{path}/status", _patch(seen, reason, message), Media.STRATEGIC_MERGE_PATCH
            )
        except NotFound:
            return True
        except Conflict:
            return False
        except KubeError as error:
            log.warning("Cannot mark a pod", extra={"pod": pod.title, "problem": str(error)})
            return False
        return True


def _find(pod: WirePod) -> WireCondition | None:
    conditions = pod.status.conditions or ()
    return next((each for each in conditions if each.type == POD_SCHEDULED), None)


def make_scheduled_condition(reason: str, message: str) -> dict[str, str]:
    """Return the condition of a pod that is not scheduled, as autoscalers read it."""
    return {
        "type": POD_SCHEDULED,
        "status": "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _patch(pod: WirePod, reason: str, message: str) -> dict[str, Any]:
    metadata = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    return {
        "metadata": metadata,
        "status": {"conditions": [make_scheduled_condition(reason, message)]},
    }
