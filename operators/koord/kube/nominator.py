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


class Nominator:
    """Every method returns after the server's response, whether it has done as asked."""

    def __init__(self, client: Client, keys: PlanKeys) -> None:
        self._client = client
        self._keys = keys

    async def nominate(self, pod: Pod, nominated: Nominated) -> bool:
        annotations = encode_nomination(pod.uid, nominated, self._keys)
        return await self._write(pod, nominated.node, annotations)

    async def clear(self, pod: Pod) -> bool:
        """Remove a nomination; a pod that is gone has none."""
        return await self._write(pod, None, _NOTHING)

    async def _write(self, pod: Pod, node: str | None, annotations: Any) -> bool:
        body: dict[str, Any] = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        path, media = ref_of_pod(pod).path, Media.MERGE_PATCH
        if pod.handling is not Handling.RESERVE:
            body["status"] = {"nominatedNodeName": node}
            path, media = f"{path}/status", Media.STRATEGIC_MERGE_PATCH
        try:
            await self._client.patch(path, body, media)
        except NotFound:
            return node is None
        except (KubeError, Garbled) as error:
            log.warning("Cannot nominate a pod", extra={"pod": pod.title, "problem": str(error)})
            return False
        return True
