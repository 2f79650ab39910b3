"""Opens the connection to the cluster with the user's own credentials. Loads no planner."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

from koord.kube.client import Client
from koord.kube.config import Access, find_credentials
from koord.kube.errors import ConnectionLost, KubeError


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


def path_in(path: str, namespace: str) -> str:
    head, _, plural = path.rpartition("/")
    return f"{head}/namespaces/{quote(namespace, safe='')}/{plural}"
