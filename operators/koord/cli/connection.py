"""Opens the connection to the cluster with the user's own credentials, and lists names.

The shell offers these names. Loads no planner: that takes too long.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar
from urllib.parse import quote

from koord.kube.client import Client
from koord.kube.config import Access, find_credentials
from koord.kube.errors import ConnectionLost, KubeError
from koord.kube.wire import Identified, ObjectList

T = TypeVar("T")
_PAGE_SIZE: Final = 2500


class Unreachable(KubeError):  # noqa: N818 - what it says is what is wrong
    """No answer came from the server that the configuration names."""


@asynccontextmanager
async def open_client(kubeconfig: str, context: str) -> AsyncIterator[tuple[Client, Access]]:
    """Yield a client with the user's own credentials; errors of connection name the server."""
    credentials = find_credentials(kubeconfig, context)
    access = await credentials.current()
    try:
        async with Client(credentials, user_agent="koord") as client:
            yield client, access
    except ConnectionLost as error:
        raise Unreachable(f"the cluster at {access.server} does not answer: {error}") from error


async def list_all(client: Client, path: str, kind: type[T], selector: str = "") -> list[T]:
    """Return all objects of a list, page by page. May raise ``KubeError``."""
    params = {"limit": str(_PAGE_SIZE), **({"labelSelector": selector} if selector else {})}
    items: list[T] = []
    while True:
        page = await client.get(path, ObjectList[kind], params)  # type: ignore[valid-type]
        items += page.items or ()
        if not page.metadata.continue_:
            return items
        params["continue"] = page.metadata.continue_


def path_in(path: str, namespace: str) -> str:
    head, _, plural = path.rpartition("/")
    return f"{head}/namespaces/{quote(namespace, safe='')}/{plural}"


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
    "move": "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs",
}


_IN_NAMESPACES: Final = frozenset(_PATHS) - {
    "quota",
    "node",
    "reservation",
    "namespace",
    "move",
}


def list_names(kind: str, namespace: str, kubeconfig: str, context: str) -> list[str]:
    """Return at most 500 names; an empty ``namespace`` means that of the context.

    None on errors: completion has no place to tell them. Quotas of all namespaces are meant.
    """
    try:
        return asyncio.run(_list_names(kind, namespace, kubeconfig, context))
    except (KubeError, LookupError, OSError):
        return []


def list_kinds(begun: str, kubeconfig: str, context: str) -> list[str]:
    """Return the kinds in namespaces of which a name begins so; none on errors."""
    try:
        return asyncio.run(_list_kinds(begun.lower(), kubeconfig, context))
    except (KubeError, OSError):
        return []


async def _list_kinds(begun: str, kubeconfig: str, context: str) -> list[str]:
    from koord.cli.served_kinds import read_served_kinds  # noqa: PLC0415 - it needs this module

    async with open_client(kubeconfig, context) as (client, _):
        kinds = await read_served_kinds(client)
    names = (kind.kind.lower() for kind in kinds if kind.is_namespaced)
    titles = (kind.title for kind in kinds if kind.is_namespaced)
    return sorted({name for name in (*names, *titles) if name.startswith(begun)})


async def _list_names(kind: str, namespace: str, kubeconfig: str, context: str) -> list[str]:
    async with open_client(kubeconfig, context) as (client, access):
        where = namespace or access.namespace
        if kind in _PATHS:
            path = path_in(_PATHS[kind], where) if kind in _IN_NAMESPACES else _PATHS[kind]
        else:
            from koord.cli.served_kinds import find_served, read_served_kinds  # noqa: PLC0415

            path = find_served(await read_served_kinds(client), kind).path(where)
        page = await client.get(path, ObjectList[Identified], {"limit": str(MAX_NAMES)})
    return sorted({item.metadata.name for item in page.items or ()})
