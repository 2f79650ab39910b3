"""Opens the connection to the cluster with the user's own credentials. Loads no planner."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar
from urllib.parse import quote

from koord.kube.client import Client
from koord.kube.config import Access, find_credentials
from koord.kube.errors import ConnectionLost, KubeError
from koord.kube.wire import ObjectList

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
