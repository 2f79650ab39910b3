"""Placeholder pods and guards: how they are written, created and deleted.

All pods of their namespace are placeholders, because nobody else may create pods there. Which there
are to be, and when, is decided by the caller.
"""

from secrets import token_hex
from typing import Any, Final

import msgspec

from koord.api.keys.operators import RESERVATION_UID
from koord.core.model.units import CPU, MEMORY, Amounts
from koord.core.reservation.model import PLACEHOLDERS, Placeholder, ReservationInfo
from koord.kube.client import Client
from koord.kube.errors import Conflict, NotFound
from koord.kube.objects import ref_of_reservation
from koord.kube.translate.amounts import write_amounts
from koord.kube.wire import WireObjectMeta

_PATH = f"/api/v1/namespaces/{PLACEHOLDERS}/pods"

PRIORITY_CLASS: Final = "koord-placeholder"
_IMAGE: Final = "registry.k8s.io/pause:3.10"
"""A node that cannot pull it keeps the room all the same."""
_NAME_LENGTH: Final = 40
_EVERY_POD: Final = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {},
                "namespaceSelector": {},
            }
        ]
    }
}


def make_placeholder(reservation: ReservationInfo, requests: Amounts) -> dict[str, Any]:
    """Return a pod on the node of a reservation, which the API server deletes with it."""
    ref = ref_of_reservation(reservation)
    owner = {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "name": ref.name,
        "uid": ref.uid,
        "controller": True,
    }
    metadata = {"labels": {RESERVATION_UID: reservation.uid}, "ownerReferences": [owner]}
    amounts = write_amounts(requests)
    limits = {name: n for name, n in amounts.items() if name not in {CPU, MEMORY}}
    resources = {"requests": amounts, "limits": limits}
    return _make_pod(reservation.name, reservation.status.node, metadata, resources, {})


def make_guard(node: str) -> dict[str, Any]:
    """Return a pod that keeps the pods of kube-scheduler off a node.

    Inter-pod anti-affinity is a rule for schedulers: kubelets do not know it.
    """
    return _make_pod("guard", node, {}, {}, {"affinity": _EVERY_POD})


def _make_pod(
    prefix: str,
    node: str,
    metadata: dict[str, Any],
    resources: dict[str, Any],
    spec: dict[str, Any],
) -> dict[str, Any]:
    name = f"{prefix[:_NAME_LENGTH].rstrip('.-')}-{token_hex(6)}"
    on_node = {
        "nodeName": node,
        "priorityClassName": PRIORITY_CLASS,
        "tolerations": [{"operator": "Exists"}],
    }
    return make_idle_pod(name, metadata, resources, {**on_node, **spec})


def make_idle_pod(
    name: str, metadata: dict[str, Any], resources: dict[str, Any], spec: dict[str, Any]
) -> dict[str, Any]:
    """Return a pod of the namespace that does nothing, and may do nothing."""
    container = {
        "name": "pause",
        "image": _IMAGE,
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": PLACEHOLDERS, **metadata},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65535,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            **spec,
        },
    }


class _Created(msgspec.Struct):
    metadata: WireObjectMeta


class PlaceholderWriter:
    """Each method is one request; raises the errors of ``koord.kube.errors``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, reservation: ReservationInfo, requests: Amounts) -> Placeholder:
        body = make_placeholder(reservation, requests)
        meta = await self._post(body)
        node = reservation.status.node
        return Placeholder(meta.uid, meta.name, node, reservation.uid, dict(requests))

    async def create_guard(self, node: str) -> Placeholder:
        meta = await self._post(make_guard(node))
        return Placeholder(meta.uid, meta.name, node, "", {})

    async def delete(self, placeholder: Placeholder) -> None:
        """Delete at once, without a grace period; one that is gone is fine."""
        try:
            await self._client.delete(
                f"{_PATH}/{placeholder.name}", uid=placeholder.uid, grace_seconds=0
            )
        except (NotFound, Conflict):
            return

    async def _post(self, body: object) -> WireObjectMeta:
        return msgspec.json.decode(await self._client.post(_PATH, body), type=_Created).metadata
