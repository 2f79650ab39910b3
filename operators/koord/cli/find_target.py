"""Finds what a name means, and the gang or pod that a Job or another workload stands for.

Workloads are known by what their pods say of them: a label that the controller sets, and the owner.
The workload itself is only read if no pod of it lives (``job_state``). Of all other kinds the
object is read, and the pods below it are found (``owned_pods``). Names that stand for several
things are an error that lists what to write; but a Job and the PodGroup of its pods often share a
name, and stand for the same gang, so either will do. Plans nothing.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from koord.answers.reading import Target, TargetKind, TargetNotFoundError
from koord.api.gang import parse_pod_gang
from koord.cli.common import NO_UNITS, ExitCode, fail
from koord.cli.connection import list_all, open_client, path_in
from koord.cli.job_state import JobState, read_job
from koord.cli.owned_pods import (
    OwnedPod,
    OwnerOfPods,
    Owners,
    describe_without_pods,
    find_owner,
    group_of,
)
from koord.cli.served_kinds import UnknownKindError, find_served, read_served_kinds
from koord.core.engine.state import ClusterState
from koord.core.model.text import listed, named, plural, suggest
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import NODES, PODS
from koord.domains.quota import QUOTAS
from koord.domains.reservation import RESERVATIONS
from koord.kube.client import Client
from koord.kube.errors import ApiError, Forbidden, Garbled, KubeError, NotFound
from koord.kube.translate.reservations import ReservationTranslator
from koord.kube.wire import Identified, ObjectList, WireCustomResource, WireObjectMeta
from koord.similar_names import find_similar

JOB_LABEL: Final = "batch.kubernetes.io/job-name"
"""On the pods of a Job: its name."""
_HASH_LABEL: Final = "pod-template-hash"
_TARGETS: Final[Mapping[str, TargetKind]] = {kind.lower(): kind for kind in TargetKind}
_PLANNED: Final = frozenset({TargetKind.POD, TargetKind.POD_GROUP, TargetKind.RESERVATION})
_MOST_TOLD: Final = 4


@dataclass(frozen=True, slots=True)
class _Workload:
    """A kind whose pods have a ``label`` and are controlled by an ``owner``."""

    label: str
    owner: str
    is_name: bool = False
    """The value of the label is the name of the workload."""
    is_above: bool = False
    """The workload controls the owner, whose name ends with the value of the label."""


_WORKLOADS: Final[Mapping[str, _Workload]] = {
    TargetKind.JOB: _Workload(JOB_LABEL, "Job", is_name=True),
    TargetKind.STATEFUL_SET: _Workload("statefulset.kubernetes.io/pod-name", "StatefulSet"),
    TargetKind.REPLICA_SET: _Workload(_HASH_LABEL, "ReplicaSet"),
    TargetKind.DEPLOYMENT: _Workload(_HASH_LABEL, "ReplicaSet", is_above=True),
}


@dataclass(frozen=True, slots=True)
class TargetLookup:
    """What is meant by what was ``typed``; ``job`` is the state of a Job without living pods.

    ``notes`` tell what else was meant, and what could not be read; ``pods`` are those of a workload
    or another owner that have no node yet.
    """

    typed: Target
    target: Target
    job: JobState | None = None
    notes: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


def make_target(kind: str, namespace: str, name: str) -> Target | None:
    """Return what was typed, its kind as ``koord explain`` writes it; None for no unit's kind."""
    if kind in NO_UNITS:
        return None
    return Target(_TARGETS.get(kind, kind), namespace, name)


async def find_planned(client: Client, typed: Target, now: float) -> Target:
    """Return what is planned for what was typed. Raises ``TargetNotFoundError`` if nothing is."""
    return (await look_up_planned(client, typed, now)).target


async def look_up_planned(client: Client, typed: Target, now: float) -> TargetLookup:
    """Return the same with the pods of it. Raises ``TargetNotFoundError`` if nothing is planned."""
    lookup = await find_target(client, typed, now)
    if lookup.job is not None:
        raise TargetNotFoundError(" ".join((*lookup.job.notes, *lookup.job.advice)))
    return lookup


async def find_reservation(client: Client, name: str) -> Target:
    """Return the reservation of this name as a target; ends the command if there is none."""
    try:
        reservation = await client.get(f"{RESERVATIONS.path}/{name}", WireCustomResource)
    except NotFound:
        objects = await client.get(RESERVATIONS.path, ObjectList[Identified], {"limit": "500"})
        meant = suggest(name, (item.metadata.name for item in objects.items or ()))
        fail(f"there is no Reservation {name}{meant}", ExitCode.USAGE)
    pod = ReservationTranslator().translate(reservation).pod
    return Target(TargetKind.RESERVATION, "" if pod is None else pod.namespace, name)


def follow_owners(typed: Target, target: Target, state: ClusterState) -> Target:
    """Return the gang of a pod that stands for an owner, if only its owners say the gang."""
    pod = state.pod_by_key(target.key)
    is_owner = typed.kind not in _PLANNED and target.kind is TargetKind.POD
    if not is_owner or pod is None or pod.gang is None:
        return target
    namespace, _, name = pod.gang.key.partition("/")
    return Target(TargetKind.POD_GROUP, namespace, name)


async def find_target(client: Client, target: Target, now: float) -> TargetLookup:
    """Return what to look at for what was typed. Raises ``TargetNotFoundError``."""
    if target.kind is TargetKind.RESERVATION:
        return TargetLookup(target, await find_reservation(client, target.name))
    if not isinstance(target.kind, TargetKind):
        return _look_below(await find_owner(client, target), now)
    workload = _WORKLOADS.get(target.kind)
    if workload is None:
        return TargetLookup(target, target)
    pods = await _list_pods(client, target, workload)
    alive = [pod for pod in pods if pod.is_alive]
    if not alive and target.kind is TargetKind.JOB:
        return await _find_by_job(client, target, pods, now)
    if not pods:
        labelled = await _list_labelled(client, target, workload.label)
        names = {name for pod in labelled if (name := _name_of_owner(pod, workload))}
        raise TargetNotFoundError(
            f"{target.kind} {target.key} has no pods: it does not exist or has no replicas, or its "
            f"controller cannot create them{suggest(target.name, names)}"
        )
    return TargetLookup(target, _choose(target, alive or pods), pods=_name_waiting(alive))


def _look_below(owner: OwnerOfPods, now: float) -> TargetLookup:
    """Return what an object of any kind stands for: the gang of its pods that waits, or a pod."""
    target = owner.target
    notes = tuple(
        f"You may not list {kind}: {target.kind} {target.name} may have more pods."
        for kind in owner.unread
    )
    alive = [pod for pod in owner.pods if pod.is_alive]
    if not alive:
        state = describe_without_pods(owner, now)
        return TargetLookup(target, target, replace(state, notes=(*state.notes, *notes)))
    chosen = _choose(target, alive)
    units = {_stands_for(target, pod.metadata) for pod in alive}
    gangs = sorted(unit.name for unit in units if unit.kind is TargetKind.POD_GROUP)
    left_out = [name for name in gangs if name != chosen.name]
    if left_out and chosen.kind is TargetKind.POD_GROUP:
        count, names = plural(len(gangs), "gang"), named(left_out, _MOST_TOLD)
        notes = (f"{target.kind} {target.name} has {count}; others are {names}.", *notes)
    return TargetLookup(target, chosen, notes=notes, pods=_name_waiting(alive))


def _name_waiting(pods: Iterable[OwnedPod]) -> tuple[str, ...]:
    return tuple(sorted(pod.metadata.name for pod in pods if not pod.spec.node_name))


def _choose(target: Target, pods: Iterable[OwnedPod]) -> Target:
    """Return the gang of the pods, or the first of them that has no node."""
    first = min(pods, key=lambda pod: (bool(pod.spec.node_name), pod.metadata.name)).metadata
    return _stands_for(target, first)


def _stands_for(target: Target, pod: WireObjectMeta) -> Target:
    return _find_gang(target, pod) or Target(TargetKind.POD, target.namespace, pod.name)


def _find_gang(target: Target, meta: WireObjectMeta) -> Target | None:
    gang = parse_pod_gang(target.namespace, meta.labels or {}, meta.annotations or {})
    return None if gang is None else Target(TargetKind.POD_GROUP, target.namespace, gang.name)


async def _find_by_job(
    client: Client, target: Target, ended: Sequence[OwnedPod], now: float
) -> TargetLookup:
    """Find out what a Job without living pods stands for: its gang, if its template names one."""
    job = await read_job(client, target, now, has_pods=bool(ended))
    if ended:  # the Job may be deleted
        return TargetLookup(target, _choose(target, ended), job)
    return TargetLookup(
        target, target if job is None else _find_gang(target, job.template) or target, job
    )


async def _list_pods(client: Client, target: Target, workload: _Workload) -> Sequence[OwnedPod]:
    if not workload.is_name:
        pods = await _list_labelled(client, target, workload.label)
        return [pod for pod in pods if _name_of_owner(pod, workload) == target.name]
    try:
        return await _list_labelled(client, target, f"{workload.label}={target.name}")
    except ApiError as error:
        if error.status != HTTPStatus.BAD_REQUEST:  # no name that a label can have
            raise
        return ()


async def _list_labelled(client: Client, target: Target, labels: str) -> Sequence[OwnedPod]:
    return await list_all(client, path_in(PODS.path, target.namespace), OwnedPod, labels)


def _name_of_owner(pod: OwnedPod, workload: _Workload) -> str:
    owners = pod.metadata.owner_references or ()
    name = next((o.name for o in owners if o.controller and o.kind == workload.owner), "")
    if not workload.is_above:
        return name
    value = (pod.metadata.labels or {}).get(workload.label, "")
    return name.removesuffix(f"-{value}") if name.endswith(f"-{value}") else ""


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
class NamedObject:
    """What a name means: the kind of ``koord explain``, and where it is."""

    kind: str
    namespace: str
    name: str

    @property
    def argument(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}".replace("//", "/")


def find_named(namespace: str, name: str, kubeconfig: str, context: str) -> NamedObject:
    """Return what a name means; ends the command if that is nothing, or not one thing."""
    try:
        return asyncio.run(_find(namespace, name, kubeconfig, context))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)


async def _find(namespace: str, name: str, kubeconfig: str, context: str) -> NamedObject:
    async with open_client(kubeconfig, context) as (client, access):
        where = namespace or access.namespace
        kinds = list(_KINDS)
        matches = await asyncio.gather(*(_find_one(client, kind, where, name) for kind in kinds))
        named = [named for named in matches if named is not None]
        if not namespace and not any(match.kind == "quota" for match in named):
            named += await _find_quota(client, name)
        if not named:
            named = await _find_others(client, namespace, access.namespace, name)
        if not named:
            await _fail_unknown(client, where, name)
        if len(named) > 1:
            named = await _join_those_of_one_gang(client, named)
        if len(named) > 1:
            choices = " or ".join(f"koord explain {match.argument}" for match in named)
            kinds_found = listed([_title_of(match.kind) for match in named])
            fail(f"{name} names several objects ({kinds_found}): {choices}", ExitCode.USAGE)
        return named[0]


async def _find_one(client: Client, kind: str, namespace: str, name: str) -> NamedObject | None:
    row = _KINDS[kind]
    where = namespace if row.is_namespaced else ""
    path = path_in(row.path, where) if where else row.path
    try:
        await client.get(f"{path}/{quote(name, safe='')}", Identified)
    except (NotFound, Forbidden, Garbled):  # not there, or not to be seen, or no name at all
        return None
    return NamedObject(kind, where, name)


def _title_of(kind: str) -> str:
    return _KINDS[kind].title if kind in _KINDS else kind


async def _find_others(client: Client, first: str, default: str, name: str) -> list["NamedObject"]:
    """Read ``first/name`` as kind and name, or find the name among the owners of pods.

    Of several above one pod the topmost is meant.
    """
    kinds = await read_served_kinds(client)
    if first:
        try:
            kind = find_served(kinds, first)
        except UnknownKindError:
            pass
        else:
            return [NamedObject(kind.title, default, name)]
    where, owners = first or default, Owners(kinds)
    try:
        pods = await list_all(client, path_in(PODS.path, where), OwnedPod)
    except ApiError:
        return []
    await owners.read(client, where, [pod.metadata for pod in pods])
    meant = (
        [owner for owner in owners.list_above(pod.metadata) if owner.name == name][-1:]
        for pod in pods
    )
    above = {(group_of(owner), owner.kind) for topmost in meant for owner in topmost}
    return [
        NamedObject(kind.title, where, name)
        for kind in kinds
        if (kind.group, kind.kind) in above and kind.is_namespaced
    ]


async def _find_quota(client: Client, name: str) -> list[NamedObject]:
    """Return the quota of this name, wherever it is: people know it by its name alone."""
    try:
        objects = await client.get(QUOTAS.path, ObjectList[Identified])
    except (NotFound, Forbidden):
        return []
    matching = (item.metadata for item in objects.items or () if item.metadata.name == name)
    return [NamedObject("quota", meta.namespace, name) for meta in matching]


async def _join_those_of_one_gang(client: Client, named: list[NamedObject]) -> list[NamedObject]:
    """Leave the first of those that stand for the same gang or pod."""
    kept: dict[Target | NamedObject, NamedObject] = {}
    for candidate in named:
        kept.setdefault(await _find_meant(client, candidate), candidate)
    return list(kept.values())


async def _find_meant(client: Client, named: NamedObject) -> Target | NamedObject:
    stands_for = _KINDS[named.kind].stands_for if named.kind in _KINDS else named.kind
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
