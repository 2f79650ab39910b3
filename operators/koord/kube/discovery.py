"""What the API server serves: asked once at the start, for kinds that may not be installed."""

import msgspec

from koord.kube.client import Client
from koord.kube.errors import NotFound


class _Resource(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    resources: list[_Resource] | None = None


async def served_resources(client: Client, group_version: str) -> frozenset[str]:
    """Return the plurals that a group version has, subresources as ``podgroups/status``.

    A group that is not installed has none.
    """
    root = "/apis" if "/" in group_version else "/api"
    try:
        found = await client.get(f"{root}/{group_version}", _ResourceList)
    except NotFound:
        return frozenset()
    return frozenset(resource.name for resource in found.resources or ())
