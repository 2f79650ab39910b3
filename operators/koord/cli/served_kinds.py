"""Finds the kind that somebody wrote among those that the cluster serves, as kubectl does.

A kind is written as its plural, its singular, the kind itself or a short name, in any case, alone
or with its group behind (``pytorchjobs.kubeflow.org``) or version and group
(``pytorchjobs.v1.kubeflow.org``). Of several groups with the same name the first one that the
server lists counts. Knows no gangs, and what no kind is for.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from koord.cli.connection import path_in
from koord.core.model.text import cut
from koord.kube.client import Client
from koord.similar_names import MAX_SUGGESTIONS, find_similar

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class UnknownKindError(LookupError):
    """The cluster serves no such kind."""


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A kind in one of its versions."""

    kind: str
    group: str
    """Empty for the first kinds of Kubernetes."""
    version: str
    plural: str
    names: frozenset[str]
    """What stands for it in full: plural, singular, kind."""
    short_names: frozenset[str] = frozenset()
    is_namespaced: bool = True

    @property
    def title(self) -> str:
        """As RBAC and kubectl name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        path = f"{root}/{self.plural}"
        return path_in(path, namespace) if self.is_namespaced else path

    def is_in(self, group: str) -> bool:
        """Whether ``group`` is its group, or its version and group; every kind is in none."""
        return group in {"", self.group, f"{self.version}.{self.group}"}


async def read_served_kinds(client: Client) -> tuple[ServedKind, ...]:
    """Return all kinds, in the order and the version that the server prefers."""
    lists = await asyncio.gather(
        *(client.get_as(_AGGREGATED, root, _DiscoveryList) for root in ("/api", "/apis"))
    )
    return tuple(
        kind for groups in lists for group in groups.items or () for kind in _read_group(group)
    )


def _read_group(group: "_DiscoveredGroup") -> Iterable[ServedKind]:
    seen: set[str] = set()
    for version in group.versions or ():
        for resource in version.resources or ():
            kind = resource.response_kind.kind
            if resource.resource in seen or not kind or "get" not in (resource.verbs or ()):
                continue
            seen.add(resource.resource)
            names = {resource.resource, resource.singular_resource, kind.lower()} - {""}
            yield ServedKind(
                kind,
                group.metadata.name,
                version.version,
                resource.resource,
                frozenset(names),
                frozenset(resource.short_names or ()),
                resource.scope == "Namespaced",
            )


def find_served(kinds: Sequence[ServedKind], written: str) -> ServedKind:
    """Return what was written. Raises ``UnknownKindError``, with what there is."""
    name, _, group = written.lower().partition(".")
    in_full = [kind for kind in kinds if name in kind.names]
    for named in (in_full, [kind for kind in kinds if name in kind.short_names]):
        if served := next((kind for kind in named if kind.is_in(group)), None):
            return served
        if named:
            titles = " or ".join(dict.fromkeys(kind.title for kind in named[:MAX_SUGGESTIONS]))
            raise UnknownKindError(
                f"there is no kind {cut(written)} in this cluster; there is {titles}"
            )
    names = {each for kind in kinds for each in kind.names}
    close = find_similar(name, names)
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    raise UnknownKindError(
        f"there is no kind {cut(written)} in this cluster{meant}; of what it would have made ask "
        "about a pod: pod/NAME"
    )


def list_namesakes(kinds: Sequence[ServedKind], kind: ServedKind) -> tuple[ServedKind, ...]:
    """Return kinds of other groups that share a name with one."""
    return tuple(
        other
        for other in kinds
        if other.is_namespaced and other.title != kind.title and other.names & kind.names
    )


class _DiscoveredName(msgspec.Struct):
    name: str = ""


class _DiscoveredKind(msgspec.Struct):
    kind: str = ""


class _DiscoveredResource(msgspec.Struct, rename="camel"):
    resource: str = ""
    response_kind: _DiscoveredKind = msgspec.field(default_factory=_DiscoveredKind)
    scope: str = ""
    singular_resource: str = ""
    verbs: list[str] | None = None
    short_names: list[str] | None = None


class _DiscoveredVersion(msgspec.Struct):
    version: str = ""
    resources: list[_DiscoveredResource] | None = None


class _DiscoveredGroup(msgspec.Struct):
    metadata: _DiscoveredName = msgspec.field(default_factory=_DiscoveredName)
    versions: list[_DiscoveredVersion] | None = None


class _DiscoveryList(msgspec.Struct):
    items: list[_DiscoveredGroup] | None = None
