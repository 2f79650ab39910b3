"""Finds the gang or pod that a Job or another workload stands for, as a target of commands.

Workloads are known by what their pods say of them: a label that the controller sets, and the owner.
The workload itself is only read if no pod of it lives (``job_state``). Plans nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

from koord.api.gang import parse_pod_gang
from koord.cli.answer import TargetNotFoundError
from koord.cli.cluster import PAGE_SIZE, Target, TargetKind
from koord.cli.common import ExitCode, fail, suggest
from koord.cli.connection import path_in
from koord.cli.job_state import JobState, read_job
from koord.kube.client import Client
from koord.kube.errors import ApiError, NotFound
from koord.kube.kinds import PODS, RESERVATIONS
from koord.kube.translate.reservations import ReservationTranslator
from koord.kube.wire import Identified, ObjectList, ObjectMeta, WireReservation

JOB_LABEL: Final = "batch.kubernetes.io/job-name"
"""On the pods of a Job: its name."""
_HASH_LABEL: Final = "pod-template-hash"
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class _Workload:
    """A kind whose pods have a ``label`` and are controlled by an ``owner``."""

    label: str
    owner: str
    is_name: bool = False
    """The value of the label is the name of the workload."""
    is_above: bool = False
    """The workload controls the owner, whose name ends with the value of the label."""


_WORKLOADS: Final[Mapping[TargetKind, _Workload]] = {
    TargetKind.JOB: _Workload(JOB_LABEL, "Job", is_name=True),
    TargetKind.STATEFUL_SET: _Workload("statefulset.kubernetes.io/pod-name", "StatefulSet"),
    TargetKind.REPLICA_SET: _Workload(_HASH_LABEL, "ReplicaSet"),
    TargetKind.DEPLOYMENT: _Workload(_HASH_LABEL, "ReplicaSet", is_above=True),
}


@dataclass(frozen=True, slots=True)
class TargetLookup:
    """What is meant by what was ``typed``; ``job`` is the state of a Job without living pods."""

    typed: Target
    target: Target
    job: JobState | None = None


async def find_reservation(client: Client, name: str) -> Target:
    """Return the reservation of this name as a target; ends the command if there is none."""
    try:
        reservation = await client.get(f"{RESERVATIONS.path}/{name}", WireReservation)
    except NotFound:
        objects = await client.get(RESERVATIONS.path, ObjectList[Identified], {"limit": "500"})
        meant = suggest(name, (item.metadata.name for item in objects.items or ()))
        fail(f"there is no Reservation {name}{meant}", ExitCode.USAGE)
    pod = ReservationTranslator().translate(reservation).pod
    return Target(TargetKind.RESERVATION, "" if pod is None else pod.namespace, name)


async def find_target(client: Client, target: Target, now: float) -> TargetLookup:
    """Return what to look at for what was typed. Raises ``TargetNotFoundError``."""
    if target.kind is TargetKind.RESERVATION:
        return TargetLookup(target, await find_reservation(client, target.name))
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
    return TargetLookup(target, _choose(target, alive or pods))


def _choose(target: Target, pods: Iterable["_Pod"]) -> Target:
    """Return the gang of the pods, or the first of them that has no node."""
    first = min(pods, key=lambda pod: (bool(pod.spec.node_name), pod.metadata.name)).metadata
    return _find_gang(target, first) or Target(TargetKind.POD, target.namespace, first.name)


def _find_gang(target: Target, meta: ObjectMeta) -> Target | None:
    gang = parse_pod_gang(target.namespace, meta.labels or {}, meta.annotations or {})
    return None if gang is None else Target(TargetKind.POD_GROUP, target.namespace, gang.name)


async def _find_by_job(
    client: Client, target: Target, ended: Sequence["_Pod"], now: float
) -> TargetLookup:
    """Find out what a Job without living pods stands for: its gang, if its template names one."""
    job = await read_job(client, target, now, has_pods=bool(ended))
    if ended:  # the Job may be deleted
        return TargetLookup(target, _choose(target, ended), job)
    return TargetLookup(
        target, target if job is None else _find_gang(target, job.template) or target, job
    )


async def _list_pods(client: Client, target: Target, workload: _Workload) -> Sequence["_Pod"]:
    if not workload.is_name:
        pods = await _list_labelled(client, target, workload.label)
        return [pod for pod in pods if _name_of_owner(pod, workload) == target.name]
    try:
        return await _list_labelled(client, target, f"{workload.label}={target.name}")
    except ApiError as error:
        if error.status != HTTPStatus.BAD_REQUEST:  # no name that a label can have
            raise
        return ()


async def _list_labelled(client: Client, target: Target, labels: str) -> Sequence["_Pod"]:
    params = {"labelSelector": labels, "limit": str(PAGE_SIZE)}
    page = await client.get(path_in(PODS.path, target.namespace), ObjectList[_Pod], params)
    return page.items or ()


def _name_of_owner(pod: "_Pod", workload: _Workload) -> str:
    owners = pod.metadata.owner_references or ()
    name = next((o.name for o in owners if o.controller and o.kind == workload.owner), "")
    if not workload.is_above:
        return name
    value = (pod.metadata.labels or {}).get(workload.label, "")
    return name.removesuffix(f"-{value}") if name.endswith(f"-{value}") else ""


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _PodStatus(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: ObjectMeta
    spec: _PodSpec
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def is_alive(self) -> bool:
        return self.metadata.deletion_timestamp is None and self.status.phase not in _ENDED
