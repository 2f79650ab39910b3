"""Which kinds of owners a cluster serves, in how few requests. Reads no object."""

from collections.abc import Iterable

from msgspec import Struct

from koord.api.owner_kinds import WorkloadKind
from koord.kube.client import Client


class _GroupVersion(Struct, rename="camel"):
    group_version: str


class _ApiGroup(Struct):
    versions: list[_GroupVersion]


class _ApiGroupList(Struct):
    groups: list[_ApiGroup]


async def select_served(client: Client, kinds: Iterable[WorkloadKind]) -> list[WorkloadKind]:
    """Return the kinds that are served, one version of each, in the order of the kinds."""
    listed = await client.get("/apis", _ApiGroupList)
    versions = {"v1", *(v.group_version for group in listed.groups for v in group.versions)}
    plurals: dict[str, frozenset[str]] = {}
    served: dict[tuple[str, str], WorkloadKind] = {}
    for kind in kinds:
        version = kind.api_version
        if version not in versions or (kind.group, kind.kind) in served:
            continue
        if version not in plurals:
            plurals[version] = await client.served_resources(version)
        if kind.plural in plurals[version]:
            served[kind.group, kind.kind] = kind
    return list(served.values())
