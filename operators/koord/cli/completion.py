"""Names of objects in the cluster, offered by the shell. Loads no planner: that takes too long."""

import asyncio
from typing import Final

from koord.cli.connection import open_client, path_in
from koord.kube.errors import KubeError
from koord.kube.wire import Identified, ObjectList

MAX_NAMES: Final = 500
_PATHS: Final = {
    "pod": "/api/v1/pods",
    "podgroup": "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups",
    "job": "/apis/batch/v1/jobs",
    "statefulset": "/apis/apps/v1/statefulsets",
    "deployment": "/apis/apps/v1/deployments",
    "replicaset": "/apis/apps/v1/replicasets",
    "quota": "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas",
    "node": "/api/v1/nodes",
    "reservation": "/apis/scheduling.koordinator.sh/v1alpha1/reservations",
    "namespace": "/api/v1/namespaces",
}
_IN_NAMESPACES: Final = frozenset(_PATHS) - {"quota", "node", "reservation", "namespace"}


def list_names(kind: str, namespace: str, kubeconfig: str, context: str) -> list[str]:
    """Return at most 500 names; an empty ``namespace`` means that of the context.

    None on errors: completion has no place to tell them. Quotas of all namespaces are meant.
    """
    try:
        return asyncio.run(_list_names(kind, namespace, kubeconfig, context))
    except (KubeError, OSError):
        return []


async def _list_names(kind: str, namespace: str, kubeconfig: str, context: str) -> list[str]:
    async with open_client(kubeconfig, context) as (client, access):
        path = _PATHS[kind]
        if kind in _IN_NAMESPACES:
            path = path_in(path, namespace or access.namespace)
        page = await client.get(path, ObjectList[Identified], {"limit": str(MAX_NAMES)})
    return sorted({item.metadata.name for item in page.items or ()})
