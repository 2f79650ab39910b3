"""Writes nodes: their status and, with the same right, their labels and annotations."""

import logging
from collections.abc import Mapping
from typing import Any

from koord.core.nodes import Node
from koord.kube.client import Client, Media
from koord.kube.errors import Conflict, KubeError, NotFound

log = logging.getLogger(__name__)


class NodeWriter:
    """Merges patches into nodes."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def patch(self, node: Node, body: Mapping[str, Any]) -> bool:
        """Merge into a node and its status; return whether it is to be tried again.

        A node that was created anew is left alone.
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
