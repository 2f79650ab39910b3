"""Placeholders that tell autoscalers of members without nodes: listed, created and deleted.

They stand in the namespace of the operators' placeholders. Each names a scheduler that nobody runs,
so it is never bound, and has the condition that autoscalers look for. It has what decides where its
member fits: what that requests, selects and tolerates, and that members keep apart. Rules about
pods other than the members are left out: they are about pods of another namespace.
"""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2s
from typing import Any, Final

import msgspec

from koord.api.keys import operators
from koord.core.autoscaler.placeholders import ScaleUpPlaceholder
from koord.core.model.pods import Pod
from koord.core.model.units import CPU, MEMORY
from koord.core.model.units import PODS as PODS_RESOURCE
from koord.core.reservation.model import PLACEHOLDERS
from koord.kube.client import Client, Media
from koord.kube.errors import Conflict, KubeError, NotFound
from koord.kube.objects import ref_of_pod
from koord.kube.placeholders import make_idle_pod
from koord.kube.scale_up_marks import make_scheduled_condition
from koord.kube.translate.amounts import write_amounts
from koord.kube.translate.pod_conditions import POD_SCHEDULED, UNSCHEDULABLE
from koord.kube.wire import WireCondition, WireObjectMeta

log = logging.getLogger(__name__)

NOBODY: Final = "koord-scale-up"
"""The scheduler that placeholders name, and their PriorityClass."""
MOST_LISTED: Final = 10_000
_PATH: Final = f"/api/v1/namespaces/{PLACEHOLDERS}/pods"
_PREFIX: Final = "koord-"
_WITHOUT_LIMIT: Final = frozenset({CPU, MEMORY})


class _PlaceholderStatus(msgspec.Struct):
    conditions: list[WireCondition] | None = None


class _WirePlaceholder(msgspec.Struct):
    metadata: WireObjectMeta
    status: _PlaceholderStatus = msgspec.field(default_factory=_PlaceholderStatus)


class _WirePlaceholders(msgspec.Struct):
    items: list[_WirePlaceholder] | None = None


class ScaleUpPlaceholders:
    """``put`` and ``take_off`` return whether all is as asked by now; ``list`` raises KubeError."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self) -> list[ScaleUpPlaceholder]:
        """Return those that autoscalers see."""
        params = {"labelSelector": operators.SCALE_UP, "limit": str(MOST_LISTED)}
        listed = await self._client.get(_PATH, _WirePlaceholders, params)
        return [
            ScaleUpPlaceholder(wire.metadata.name.removeprefix(_PREFIX))
            for wire in listed.items or ()
            if any(each.type == POD_SCHEDULED for each in wire.status.conditions or ())
        ]

    async def put(self, pod: Pod, message: str) -> bool:
        try:
            seen = await self._client.get(ref_of_pod(pod).path, dict[str, Any])
            with suppress(Conflict):  # it lacks the condition: the process ended in between
                await self._client.post(_PATH, make_placeholder(pod, seen))
            await self._client.patch(
                f"{_PATH}/{_PREFIX}{pod.uid}/status",
                {"status": {"conditions": [make_scheduled_condition(UNSCHEDULABLE, message)]}},
                Media.STRATEGIC_MERGE_PATCH,
            )
        except NotFound:
            return False  # the member is gone
        except KubeError as error:
            extra = {"pod": pod.title, "problem": str(error)}
            log.warning("Cannot create a placeholder", extra=extra)
            return False
        return True

    async def take_off(self, mark: ScaleUpPlaceholder) -> bool:
        try:
            await self._client.delete(f"{_PATH}/{_PREFIX}{mark.uid}", grace_seconds=0)
        except NotFound:
            return True
        except KubeError as error:
            log.warning("Cannot delete a placeholder", extra={"problem": str(error)})
            return False
        return True


def make_placeholder(pod: Pod, seen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the placeholder for a pod, which is ``seen`` as the API has it."""
    unit = pod.uid if pod.gang is None else pod.gang.key
    digest = blake2s(unit.encode(), digest_size=8).hexdigest()
    requests = {name: n for name, n in pod.shape.requests if name != PODS_RESOURCE}
    amounts = write_amounts(requests)
    limits = {name: n for name, n in amounts.items() if name not in _WITHOUT_LIMIT}
    spec = seen.get("spec") or {}
    affinity = _write_affinity(spec.get("affinity") or {}, seen, digest)
    kept = {key: spec[key] for key in ("nodeSelector", "tolerations") if spec.get(key)}
    return make_idle_pod(
        f"{_PREFIX}{pod.uid}",
        {"labels": {operators.SCALE_UP: digest}},
        {"requests": amounts, "limits": limits},
        {
            "schedulerName": NOBODY,
            "priorityClassName": NOBODY,
            **kept,
            **({"affinity": affinity} if affinity else {}),
        },
    )


def _write_affinity(
    affinity: Mapping[str, Any], pod: Mapping[str, Any], digest: str
) -> dict[str, Any]:
    """Return the rules about nodes, and those that keep members apart, said of placeholders."""
    kept = {"nodeAffinity": affinity["nodeAffinity"]} if affinity.get("nodeAffinity") else {}
    apart = (affinity.get("podAntiAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    labels = (pod.get("metadata") or {}).get("labels") or {}
    keys = {term["topologyKey"]: None for term in apart or () if _selects(term, labels)}
    if keys:
        selector = {"matchLabels": {operators.SCALE_UP: digest}}
        terms = [{"topologyKey": key, "labelSelector": selector} for key in keys]
        kept["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return kept


def _selects(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a term with plain labels, of its own namespace, is about the pod itself."""
    selector = term.get("labelSelector") or {}
    wanted: Iterable[tuple[str, str]] = (selector.get("matchLabels") or {}).items()
    is_own = not term.get("namespaces") and not term.get("namespaceSelector")
    expressions = selector.get("matchExpressions") or ()
    return (
        is_own
        and all(labels.get(key) == value for key, value in wanted)
        and all(_meets(labels, each) for each in expressions)
    )


def _meets(labels: Mapping[str, str], need: Mapping[str, Any]) -> bool:
    value, values = labels.get(need["key"]), need.get("values") or ()
    match need["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None
