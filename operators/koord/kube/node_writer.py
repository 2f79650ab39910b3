"""Writes nodes: their status and, with the same right, their labels and annotations."""

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from koord.core.device.vendors import Locked, NeedsLock, take_lock
from koord.core.model.nodes import Node
from koord.kube.client import Client, Media
from koord.kube.errors import Conflict, KubeError, NotFound
from koord.kube.wire import WireNode

log = logging.getLogger(__name__)


class NodeWriter:
    """Merges patches into nodes."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def patch(self, node: Node, body: Mapping[str, Any]) -> bool:
        """Merge into a node and its status; return whether it is to be tried again.

        A node that was deleted and created again is left alone.
        """
        metadata = {"uid": node.uid, **body.get("metadata", {})}
        path = f"/api/v1/nodes/{node.name}/status"
        try:
            await self._client.patch(path, {**body, "metadata": metadata}, Media.MERGE_PATCH)
        except (NotFound, Conflict):
            return False
        except KubeError as error:
            log.warning(
                "Cannot publish the devices of a node",
                extra={"node": node.name, "problem": str(error)},
            )
            return True
        return False

    async def change(self, node: Node, operations: Iterable[Mapping[str, Any]]) -> None:
        """Apply a JSON patch to a node and its status. Raises ``KubeError``.

        A node that was deleted and created again is left alone: ``Invalid``, as where one of the
        operations tests for another value than there is.
        """
        path = f"/api/v1/nodes/{node.name}/status"
        same_node = {"op": "test", "path": "/metadata/uid", "value": node.uid}
        await self._client.patch(path, [same_node, *operations], Media.JSON_PATCH)

    async def take(self, node: str, key: str, pod: str, needs_it: NeedsLock) -> Locked | None:
        """Lock a node for a pod with the annotation ``key``; return the lock of another pod.

        What keeps the lock from being written is returned like a lock.
        """
        path = f"/api/v1/nodes/{node}"
        try:
            node_meta = (await self._client.get(path, WireNode)).metadata
            lock_before = (node_meta.annotations or {}).get(key)
            lock = take_lock(lock_before, pod, needs_it, datetime.now(UTC))
            if isinstance(lock, Locked):
                return lock
            metadata = {"resourceVersion": node_meta.resource_version, "annotations": {key: lock}}
            await self._client.patch(f"{path}/status", {"metadata": metadata}, Media.MERGE_PATCH)
        except NotFound:
            return None  # the binding will say so
        except KubeError as error:
            return Locked(str(error), "")
        return None
