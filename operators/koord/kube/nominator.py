"""Writes nominations: ``status.nominatedNodeName`` and our signed record, in one patch of a pod.

A reservation has the record alone.
"""

import logging
from typing import Any, Final

from koord.api.keys import operators
from koord.core.model.pods import Handling, Nominated, Pod
from koord.kube.client import Client, Media
from koord.kube.errors import Garbled, KubeError, NotFound
from koord.kube.objects import ref_of_pod
from koord.kube.plan_keys import PlanKeys
from koord.kube.preemption_records import encode_nomination

log = logging.getLogger(__name__)

_NOTHING: Final[dict[str, str | None]] = {
    operators.NOMINATION: None,
    operators.NOMINATION_SIGNATURE: None,
}
_LARGE: Final = 1 << 20
"""Bytes of a pod, as JSON, from which it may be near the limit of etcd."""
_ROOM: Final = 8 * 1024
"""At least what is written with a binding, as for annotations that are counted."""
_FILLER: Final = operators.PREEMPTED_BY
"""Counts only with a condition, which a waiting pod has not."""


class Nominator:
    """Every method returns after the server's response, whether it has done as asked."""

    def __init__(self, client: Client, keys: PlanKeys) -> None:
        self._client = client
        self._keys = keys

    async def nominate(self, pod: Pod, nominated: Nominated) -> bool:
        """Write a nomination; not on a pod that has no room for what it is given afterwards.

        Its victims would go in vain. How etcd keeps an object is not known here: so room is tried.
        """
        annotations = encode_nomination(pod.uid, nominated, self._keys)
        answer = await self._write(pod, nominated.node, annotations)
        if answer is None or len(answer) < _LARGE:
            return answer is not None
        filled = await self._write(pod, nominated.node, {_FILLER: " " * _ROOM})
        emptied = await self._write(pod, nominated.node, {_FILLER: None})
        return filled is not None and emptied is not None

    async def clear(self, pod: Pod) -> bool:
        """Remove a nomination; a pod that is gone has none."""
        return await self._write(pod, None, _NOTHING) is not None

    async def _write(self, pod: Pod, node: str | None, annotations: Any) -> bytes | None:
        """Return the answer; None if it was not done as asked."""
        body: dict[str, Any] = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        path, media = ref_of_pod(pod).path, Media.MERGE_PATCH
        if pod.handling is not Handling.RESERVE:
            body["status"] = {"nominatedNodeName": node}
            path, media = f"{path}/status", Media.STRATEGIC_MERGE_PATCH
        try:
            return await self._client.patch(path, body, media)
        except NotFound:
            return b"" if node is None else None
        except (KubeError, Garbled) as error:
            log.warning("Cannot nominate a pod", extra={"pod": pod.title, "problem": str(error)})
            return None
