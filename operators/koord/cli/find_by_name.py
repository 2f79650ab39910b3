"""Finds the object that a bare name means, of any kind that ``koord explain`` knows.

A Job and the PodGroup of its pods often share a name; both stand for the same gang, so either will
do. Names that stand for several things are an error that lists what to write. Plans nothing.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from koord.cli.answer import TargetNotFoundError
from koord.cli.cluster import Target, TargetKind
from koord.cli.common import ExitCode, fail, find_similar, suggest
from koord.cli.connection import open_client, path_in
from koord.cli.workload_target import find_target
from koord.core.model.text import listed
from koord.kube.client import Client
from koord.kube.errors import Forbidden, Garbled, KubeError, NotFound
from koord.kube.kinds import NODES, POD_GROUPS, PODS, QUOTAS, RESERVATIONS
from koord.kube.wire import Identified, ObjectList

_SOME: Final = {"limit": "500"}
"""Objects whose names may be meant."""


@dataclass(frozen=True, slots=True)
class _Kind:
    title: str
    path: str
    is_namespaced: bool = True
    stands_for: TargetKind | None = None
    """What is asked about in its place, which may be the gang of its pods."""


_KINDS: Final[Mapping[str, _Kind]] = {
    "job": _Kind("Job", "/apis/batch/v1/jobs", stands_for=TargetKind.JOB),
    "podgroup": _Kind("PodGroup", POD_GROUPS.path, stands_for=TargetKind.POD_GROUP),
    "pod": _Kind("Pod", PODS.path, stands_for=TargetKind.POD),
    "statefulset": _Kind(
        "StatefulSet", "/apis/apps/v1/statefulsets", stands_for=TargetKind.STATEFUL_SET
    ),
    "deployment": _Kind(
        "Deployment", "/apis/apps/v1/deployments", stands_for=TargetKind.DEPLOYMENT
    ),
    "replicaset": _Kind(
        "ReplicaSet", "/apis/apps/v1/replicasets", stands_for=TargetKind.REPLICA_SET
    ),
    "quota": _Kind("ElasticQuota", QUOTAS.path),
    "reservation": _Kind("Reservation", RESERVATIONS.path, is_namespaced=False),
    "node": _Kind("Node", NODES.path, is_namespaced=False),
}
"""By the kind of ``koord explain``; of those that mean the same, the first is taken."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a name means: the kind of ``koord explain``, and where it is."""

    kind: str
    namespace: str
    name: str

    @property
    def argument(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}".replace("//", "/")


def find_named(namespace: str, name: str, kubeconfig: str, context: str) -> Named:
    """Return what a name means; ends the command if that is nothing, or not one thing."""
    try:
        return asyncio.run(_find(namespace, name, kubeconfig, context))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)


async def _find(namespace: str, name: str, kubeconfig: str, context: str) -> Named:
    async with open_client(kubeconfig, context) as (client, access):
        where = namespace or access.namespace
        kinds = list(_KINDS)
        matches = await asyncio.gather(*(_find_one(client, kind, where, name) for kind in kinds))
        named = [named for named in matches if named is not None]
        if not namespace and not any(match.kind == "quota" for match in named):
            named += await _find_quota(client, name)
        if not named:
            await _fail_unknown(client, where, name)
        if len(named) > 1:
            named = await _join_those_of_one_gang(client, named)
        if len(named) > 1:
            choices = " or ".join(f"koord explain {match.argument}" for match in named)
            kinds_found = listed([_KINDS[match.kind].title for match in named])
            fail(f"{name} names several objects ({kinds_found}): {choices}", ExitCode.USAGE)
        return named[0]


async def _find_one(client: Client, kind: str, namespace: str, name: str) -> Named | None:
    row = _KINDS[kind]
    where = namespace if row.is_namespaced else ""
    path = path_in(row.path, where) if where else row.path
    try:
        await client.get(f"{path}/{quote(name, safe='')}", Identified)
    except (NotFound, Forbidden, Garbled):  # not there, or not to be seen, or no name at all
        return None
    return Named(kind, where, name)


async def _find_quota(client: Client, name: str) -> list[Named]:
    """Return the quota of this name, wherever it is: people know it by its name alone."""
    try:
        objects = await client.get(QUOTAS.path, ObjectList[Identified])
    except (NotFound, Forbidden):
        return []
    matching = (item.metadata for item in objects.items or () if item.metadata.name == name)
    return [Named("quota", meta.namespace, name) for meta in matching]


async def _join_those_of_one_gang(client: Client, named: list[Named]) -> list[Named]:
    """Leave the first of those that stand for the same gang or pod."""
    kept: dict[Target | Named, Named] = {}
    for candidate in named:
        kept.setdefault(await _find_meant(client, candidate), candidate)
    return list(kept.values())


async def _find_meant(client: Client, named: Named) -> Target | Named:
    stands_for = _KINDS[named.kind].stands_for
    if stands_for is None:
        return named
    named_target = Target(stands_for, named.namespace, named.name)
    try:
        return (await find_target(client, named_target, time.time())).target
    except TargetNotFoundError:  # a workload without pods
        return named_target


async def _fail_unknown(client: Client, namespace: str, name: str) -> None:
    names: set[str] = set()
    for kind in ("job", "podgroup", "pod"):
        try:
            path = path_in(_KINDS[kind].path, namespace)
            objects = await client.get(path, ObjectList[Identified], _SOME)
        except (NotFound, Forbidden):
            continue
        names |= {item.metadata.name for item in objects.items or ()}
    kinds = find_similar(namespace, _KINDS)
    meant = f"; did you mean {kinds[0]}/{name}?" if kinds else suggest(name, names)
    fail(
        f"nothing is named {name} in namespace {namespace}: no Pod, PodGroup, workload or quota, "
        f"and no Reservation or node of that name{meant}",
        ExitCode.USAGE,
    )
