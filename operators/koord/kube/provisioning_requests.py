"""ProvisioningRequests, and the PodTemplates that they name: listed, created and deleted.

A template has what decides where a pod of the gang fits, and nothing else: no commands, no
environment, no volumes, no gate. It goes with its request, and that with the gang. Which requests
there are to be is not known here.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from koord.api.keys import operators
from koord.core.autoscaler.demand import NodeDemand
from koord.core.autoscaler.requests import NodeRequest, RequestCondition, unit_of
from koord.core.model.pods import Pod, PodShape
from koord.kube.client import Client
from koord.kube.errors import Conflict, NotFound
from koord.kube.objects import ref_of_pod
from koord.kube.translate.pod_conditions import read_time
from koord.kube.wire import ListMeta, WireCondition, WireObjectMeta

API: Final = "autoscaling.x-k8s.io/v1"
CLASS: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""All nodes that are lacking, by one decision, or none."""
MOST_LISTED: Final = 2000
"""Of all namespaces; whoever may create requests may label more of them as ours."""
MOST_OF_NAMESPACE: Final = 500
"""Of one that is asked by itself."""
_MOST_DIGITS: Final = 4
_REQUESTS: Final = "provisioningrequests"
_OF_CONTAINER: Final = ("name", "image", "resources", "restartPolicy")
_OF_SPEC: Final = (
    "affinity",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)


class _RequestStatus(msgspec.Struct):
    conditions: list[WireCondition] | None = None


class _WireRequest(msgspec.Struct):
    metadata: WireObjectMeta
    status: _RequestStatus = msgspec.field(default_factory=_RequestStatus)


class _WireRequests(msgspec.Struct):
    items: list[_WireRequest] | None = None
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class _CreatedRequest(msgspec.Struct):
    metadata: WireObjectMeta


class ProvisioningRequests:
    """Each method raises the errors of ``koord.kube.errors``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self, namespaces: Collection[str] = ()) -> list[NodeRequest]:
        """Return ours: of all namespaces as far as one list goes, and of these in any case."""
        path = f"/apis/{API}/{_REQUESTS}?labelSelector={operators.SCALE_UP}&limit={MOST_LISTED}"
        listed = await self._client.get(path, _WireRequests)
        by_uid = {wire.metadata.uid: wire for wire in listed.items or ()}
        if listed.metadata.continue_:
            for namespace in sorted(namespaces):
                by_uid |= {wire.metadata.uid: wire for wire in await self._list_of(namespace)}
        return [_read(wire) for wire in by_uid.values()]

    async def _list_of(self, namespace: str) -> Iterable[_WireRequest]:
        query = f"labelSelector={operators.SCALE_UP}&limit={MOST_OF_NAMESPACE}"
        path = f"/apis/{API}/namespaces/{namespace}/{_REQUESTS}?{query}"
        listed = await self._client.get(path, _WireRequests)
        return listed.items or ()

    async def create(self, demand: NodeDemand, attempt: int, owner: Mapping[str, str]) -> None:
        """Create the request of a gang, which goes with ``owner``, and its templates."""
        by_shape: dict[PodShape, list[Pod]] = {}
        for pod in demand.pods:
            by_shape.setdefault(pod.shape, []).append(pod)
        namespace, digest = unit_of(demand)
        name = f"koord-{digest}-{attempt}"
        bodies = [
            await self._make_template(pods[0], f"{name}-{at}")
            for at, pods in enumerate(by_shape.values())
        ]
        counts = [len(pods) for pods in by_shape.values()]
        pod_sets = [
            {"podTemplateRef": {"name": f"{name}-{at}"}, "count": count}
            for at, count in enumerate(counts)
        ]
        request = {
            "apiVersion": API,
            "kind": "ProvisioningRequest",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {operators.SCALE_UP: digest},
                "ownerReferences": [dict(owner)],
            },
            "spec": {"provisioningClassName": CLASS, "podSets": pod_sets},
        }
        path = f"/apis/{API}/namespaces/{namespace}/{_REQUESTS}"
        try:
            answer = await self._client.post(path, request)
        except Conflict:
            return  # it is there, and was not listed yet
        made = msgspec.json.decode(answer, type=_CreatedRequest).metadata
        of_request = {
            "apiVersion": API,
            "kind": "ProvisioningRequest",
            "name": name,
            "uid": made.uid,
        }
        for body in bodies:
            body["metadata"]["ownerReferences"] = [of_request]
            await self._client.post(f"/api/v1/namespaces/{namespace}/podtemplates", body)

    async def delete(self, request: NodeRequest) -> None:
        path = f"/apis/{API}/namespaces/{request.namespace}/{_REQUESTS}/{request.name}"
        try:
            await self._client.delete(path, uid=request.uid)
        except (NotFound, Conflict):
            return

    async def _make_template(self, pod: Pod, name: str) -> dict[str, Any]:
        seen = await self._client.get(ref_of_pod(pod).path, dict[str, Any])
        return make_template(seen, name)


def make_template(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a PodTemplate with what of a pod decides where it fits."""
    spec = pod["spec"]
    kept = {key: spec[key] for key in _OF_SPEC if key in spec}
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            kept[kind] = [
                {key: container[key] for key in _OF_CONTAINER if key in container}
                for container in spec[kind]
            ]
    metadata = pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "template": {"metadata": {"labels": metadata.get("labels") or {}}, "spec": kept},
    }


def _read(wire: _WireRequest) -> NodeRequest:
    meta = wire.metadata
    attempt = meta.name.rpartition("-")[2]
    conditions = {
        each.type: RequestCondition(
            each.status == "True",
            each.reason,
            each.message,
            read_time(each.last_transition_time or ""),
        )
        for each in wire.status.conditions or ()
    }
    return NodeRequest(
        meta.namespace,
        meta.name,
        meta.uid,
        (meta.labels or {}).get(operators.SCALE_UP, ""),
        int(attempt) if attempt.isdecimal() and len(attempt) <= _MOST_DIGITS else 1,
        conditions,
    )
