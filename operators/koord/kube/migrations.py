"""Reads and writes that moving a pod needs besides its status: its reservation, and the job itself.

The reservation is made from the manifest of the pod: what a scheduler asks of a place, but not what
others have recorded on the pod. It is named after the job, so that a repeated write finds it.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Struct

from koord.api.keys import gang, operators
from koord.api.keys import migration as keys
from koord.api.keys import quota as quota_keys
from koord.api.keys.preemption import SOFT_EVICTION
from koord.api.keys.reservation import ORDER
from koord.core.migration.model import OPERATOR, MigrationJob, MoveOrigin
from koord.core.migration.workload import Workload, replicas_of_job
from koord.core.model.pods import OwnerReference
from koord.core.model.selectors import is_selected
from koord.kube.client import Client, Media
from koord.kube.errors import Conflict, KubeError, NotFound
from koord.kube.objects import ObjectRef, is_object_name
from koord.kube.retry import is_transient
from koord.kube.translate.migration import WireMovedPod, write_origin
from koord.kube.translate.pod_constraints import WireSelector, parse_selector
from koord.kube.wire import WireObjectMeta

Document = dict[str, Any]

_KOORDINATOR: Final = "/apis/scheduling.koordinator.sh/v1alpha1"
RESERVATIONS_PATH: Final = f"{_KOORDINATOR}/reservations"
JOBS_PATH: Final = f"{_KOORDINATOR}/podmigrationjobs"
_GROUPS: Final = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces"
DESCHEDULER_LEASE: Final = (
    "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koord-descheduler"
)
_NAME_FIELD: Final = "metadata.name"
_TOPOLOGY: Final = (gang.NETWORK_TOPOLOGY_SPEC, operators.TOPOLOGY)
_RECORDS: Final = re.compile(
    r".*(-allocated|/resource-status|/bind-timestamp|/soft-eviction|/gpu-minors|/gpu-uuids|"
    r"bind-gang-[a-z-]+|/last-applied-configuration)"
)
"""Annotations of pods that say what was done with this one."""
_FOREIGN: Final = (operators.PREFIX, gang.PREFIX, "pod-group.scheduling.sigs.k8s.io")
"""Beginnings of keys that are about this pod, or its gang."""


class _Scaled(Struct, rename="camel"):
    replicas: int | None = None
    selector: Any = None
    parallelism: int | None = None
    completions: int | None = None


class _WorkloadStatus(Struct):
    succeeded: int = 0


class _WireWorkload(Struct):
    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: _Scaled = msgspec.field(default_factory=_Scaled)
    status: _WorkloadStatus = msgspec.field(default_factory=_WorkloadStatus)


class _PodList(Struct):
    items: list[WireMovedPod] | None = None


class _LeaseSpec(Struct, rename="camel"):
    holder_identity: str = ""


class _DeschedulerLease(Struct):
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


_SCALED: Final = {
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("v1", "ReplicationController"): "replicationcontrollers",
    ("batch/v1", "Job"): "jobs",
    ("apps.kruise.io/v1alpha1", "CloneSet"): "clonesets",
    ("apps.kruise.io/v1beta1", "StatefulSet"): "statefulsets",
}
"""Workloads of which it is known how many pods they should have -> their plural."""


@dataclass(frozen=True, slots=True)
class WantedPlace:
    """Where a pod is to go: not to the nodes ``avoided``, and how long its place is kept.

    ``is_pinned``: we have pinned the pod to its node, which is no wish of its owner. ``gang`` is
    the gang of the pod, if the place is part of a group.
    """

    lifetime: float
    avoided: frozenset[str]
    now: float
    is_pinned: bool = False
    gang: str = ""


@dataclass(frozen=True, slots=True)
class Membership:
    """What the reservations of a group are placed as: a gang, in the domain that its gang wants."""

    name: str
    size: int
    topology: Mapping[str, str]


class MigrationApi:
    """Every method returns after the response of the server. Raises KubeError."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list_pods(self, namespace: str) -> list[WireMovedPod]:
        body = await self._client.list(f"/api/v1/namespaces/{namespace}/pods")
        return msgspec.json.decode(body, type=_PodList).items or []

    async def find_pod(self, namespace: str, name: str) -> WireMovedPod | None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        pod: WireMovedPod | None = await self._find(path, WireMovedPod)
        return pod

    async def find_workload(
        self, owner: OwnerReference, namespace: str, pods: Collection[WireMovedPod]
    ) -> Workload:
        """Return the workload of a controller; that of a ReplicaSet is its Deployment."""
        wire = await self._read_workload(owner, namespace)
        if wire is None:
            return Workload(owner.uid, f"{owner.kind} {owner.name}")
        if owner.kind == "Job":
            spec = wire.spec
            parallelism = 1 if spec.parallelism is None else spec.parallelism
            replicas = replicas_of_job(parallelism, spec.completions, wire.status.succeeded)
            return _count(owner, replicas, _made_by(owner.uid, pods))
        above = next((ref for ref in wire.metadata.owner_references or () if ref.controller), None)
        if owner.kind != "ReplicaSet" or above is None:
            return _count(owner, wire.spec.replicas or 0, _made_by(owner.uid, pods))
        top = OwnerReference(above.name, above.kind, above.api_version, above.uid, True)
        deployment = await self._read_workload(top, namespace)
        if deployment is None:
            return Workload(top.uid, f"{top.kind} {top.name}")
        selector = parse_selector(msgspec.convert(deployment.spec.selector, WireSelector | None))
        alike = [
            pod
            for pod in pods
            if is_selected(pod.metadata.labels or {}, selector)
            and any(ref.kind == "ReplicaSet" for ref in pod.metadata.owner_references or ())
        ]
        return _count(top, deployment.spec.replicas or 0, alike)

    async def _read_workload(self, owner: OwnerReference, namespace: str) -> _WireWorkload | None:
        plural = _SCALED.get((owner.api_version, owner.kind))
        if plural is None or not is_object_name(owner.name):
            return None
        root = "/apis" if "/" in owner.api_version else "/api"
        path = f"{root}/{owner.api_version}/namespaces/{namespace}/{plural}/{owner.name}"
        wire: _WireWorkload | None = await self._find(path, _WireWorkload)
        return wire if wire is not None and wire.metadata.uid == owner.uid else None

    async def finds_descheduler(self) -> bool:
        """Whether Koordinator's own descheduler holds its Lease."""
        lease = await self._find(DESCHEDULER_LEASE, _DeschedulerLease)
        return lease is not None and bool(lease.spec.holder_identity)

    async def find_topology(self, gang_key: str, pod: Document) -> Mapping[str, str]:
        """Return what a gang wants of the network: annotations of its PodGroup, or of its pod."""
        namespace, _, name = gang_key.partition("/")
        path = f"{_GROUPS}/{namespace}/podgroups/{name}"
        group = await self._find(path, Document) if is_object_name(name) else None
        annotations = _annotations(group or {}) | _annotations(pod)
        return {key: annotations[key] for key in _TOPOLOGY if key in annotations}

    async def admit(self, job: MigrationJob, uid: str, origin: MoveOrigin) -> None:
        """Write that a job starts, and what it moves, in one request."""
        body = {
            "metadata": {
                "uid": job.uid,
                "annotations": {
                    keys.PASSED_ARBITRATION: "true",
                    keys.ORIGIN: write_origin(origin),
                },
            },
            "spec": {"podRef": {"uid": uid}},
        }
        await self._client.patch(f"{JOBS_PATH}/{job.name}", body, Media.MERGE_PATCH)

    async def reserve(self, job: MigrationJob, wanted: WantedPlace) -> str:
        """Create the reservation of a job; return why that cannot be done, "" if it is there."""
        pod = await self._find(_path_of(job), Document)
        read = await self._find(f"{JOBS_PATH}/{job.name}", Document)
        if pod is None or pod["metadata"]["uid"] != job.pod.uid:
            return f"the pod {job.pod.key} has gone"
        if read is None or read["metadata"]["uid"] != job.uid:
            return ""
        membership = None
        if job.group:
            topology = await self.find_topology(wanted.gang, pod) if wanted.gang else {}
            membership = Membership(f"migration-{job.group}", job.group_size, topology)
        options = read["spec"].get("reservationOptions") or {}
        template = options.get("template") or {}
        body = make_reservation(job, pod, wanted, template=template, membership=membership)
        try:
            await self._client.post(RESERVATIONS_PATH, body)
        except Conflict:
            return ""  # it was written before, without an answer
        except KubeError as error:
            if is_transient(error):
                raise
            return str(error)
        return ""

    async def release(self, name: str, uid: str) -> None:
        await self._delete(f"{RESERVATIONS_PATH}/{name}", uid)

    async def forget(self, job: MigrationJob) -> None:
        await self._delete(f"{JOBS_PATH}/{job.name}", job.uid)

    async def unask(self, job: MigrationJob) -> None:
        """Take back that the pod of a job was asked to end by itself."""
        metadata = {"uid": job.pod.uid, "annotations": {SOFT_EVICTION: None}}
        try:
            path = _path_of(job)
            await self._client.patch(path, {"metadata": metadata}, Media.MERGE_PATCH)
        except (NotFound, Conflict):
            return

    async def is_asked(self, job: MigrationJob) -> bool:
        pod = await self.find_pod(job.pod.namespace, job.pod.name)
        if pod is None or pod.metadata.uid != job.pod.uid:
            return False
        return SOFT_EVICTION in (pod.metadata.annotations or {})

    async def _delete(self, path: str, uid: str) -> None:
        try:
            await self._client.delete(path, uid=uid)
        except (NotFound, Conflict):
            return  # it has gone, or is another one

    async def _find(self, path: str, of: Any) -> Any:
        try:
            return await self._client.get(path, of)
        except NotFound:
            return None


def ref_of_job(job: MigrationJob) -> ObjectRef:
    return ObjectRef(
        "scheduling.koordinator.sh/v1alpha1",
        "PodMigrationJob",
        "podmigrationjobs",
        job.name,
        job.uid,
    )


def make_reservation(
    job: MigrationJob,
    pod: Document,
    wanted: WantedPlace,
    *,
    template: Document,
    membership: Membership | None = None,
) -> Document:
    """Return the reservation for what replaces a pod.

    What the ``template`` of the job says of it takes precedence, but not for whom it is.
    """
    meta, own = pod["metadata"], template.get("spec") or {}
    owner = next(ref for ref in meta.get("ownerReferences", ()) if ref.get("controller"))
    inner = deepcopy(own.get("template")) or _make_template(pod, is_pinned=wanted.is_pinned)
    inner.setdefault("metadata", {})["namespace"] = meta["namespace"]
    if membership is not None:
        annotations = inner["metadata"].setdefault("annotations", {})
        annotations |= {
            **membership.topology,
            gang.NAME: membership.name,
            gang.MIN_AVAILABLE: str(membership.size),
            gang.WAITING_TIME: f"{int(wanted.lifetime)}s",
        }
    _place_elsewhere(inner["spec"], wanted.avoided, job.target)
    labels = (template.get("metadata") or {}).get("labels") or {}
    reference = {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {
            "name": job.uid,
            "labels": {
                **labels,
                ORDER: str(int(wanted.now * 1000)),
                keys.CREATED_BY: OPERATOR,
                keys.JOB_UID: job.uid,
            },
            "ownerReferences": [
                {
                    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                    "kind": "PodMigrationJob",
                    "name": job.name,
                    "uid": job.uid,
                }
            ],
        },
        "spec": {
            **own,
            "template": inner,
            "owners": [
                {"controller": {**reference, "controller": True, "namespace": meta["namespace"]}}
            ],
            "allocateOnce": True,
            "ttl": f"{int(wanted.lifetime)}s",
        },
    }


def _make_template(pod: Document, *, is_pinned: bool) -> Document:
    meta = pod["metadata"]
    spec = deepcopy(pod["spec"])
    for field in (
        "nodeName", "schedulingGates", "priorityClassName", "priority", "preemptionPolicy",
        "serviceAccount", "serviceAccountName", "ephemeralContainers", "hostname",
    ):  # fmt: skip
        spec.pop(field, None)
    if is_pinned:
        node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        for term in _terms_of(node_affinity):
            term["matchFields"] = [
                field for field in term.get("matchFields") or () if field["key"] != _NAME_FIELD
            ]
    metadata = {
        kind: {key: text for key, text in (meta.get(kind) or {}).items() if _is_asked(key)}
        for kind in ("labels", "annotations")
    }
    return {"metadata": metadata, "spec": spec}


def _is_asked(key: str) -> bool:
    """Whether a label or annotation says what is asked of a place, for any such pod."""
    is_foreign = key.startswith(_FOREIGN) or key == quota_keys.NAME
    return not is_foreign and _RECORDS.fullmatch(key) is None


def _place_elsewhere(spec: Document, avoided: Iterable[str], target: str) -> None:
    """Have every required term of the node affinity leave nodes out."""
    fields = [
        {"key": _NAME_FIELD, "operator": "NotIn", "values": [node]} for node in sorted(avoided)
    ]
    if target:
        fields.append({"key": _NAME_FIELD, "operator": "In", "values": [target]})
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    # A term without requirements matches no node, and must not match others now.
    terms = [term for term in _terms_of(node_affinity) if _has_requirements(term)]
    terms = terms or [{}]
    for term in terms:
        term["matchFields"] = [*(term.get("matchFields") or ()), *fields]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    spec["affinity"] = {**affinity, "nodeAffinity": node_affinity}


def _terms_of(node_affinity: Document) -> list[Document]:
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: list[Document] = required.get("nodeSelectorTerms") or []
    return terms


def _has_requirements(term: Document) -> bool:
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _annotations(document: Document) -> dict[str, str]:
    return dict((document.get("metadata") or {}).get("annotations") or {})


def _path_of(job: MigrationJob) -> str:
    return f"/api/v1/namespaces/{job.pod.namespace}/pods/{job.pod.name}"


def _made_by(uid: str, pods: Iterable[WireMovedPod]) -> list[WireMovedPod]:
    return [
        pod
        for pod in pods
        if any(ref.uid == uid and ref.controller for ref in pod.metadata.owner_references or ())
    ]


def _count(owner: OwnerReference, replicas: int, pods: Iterable[WireMovedPod]) -> Workload:
    unready = frozenset(pod.metadata.uid for pod in pods if not _is_available(pod))
    return Workload(owner.uid, f"{owner.kind} {owner.name}", replicas, unready)


def _is_available(pod: WireMovedPod) -> bool:
    is_active = pod.metadata.deletion_timestamp is None and pod.status.phase == "Running"
    return is_active and any(
        condition.type == "Ready" and condition.status == "True"
        for condition in pod.status.conditions or ()
    )
