"""All known ways to bypass the operators by writing a pod.

Each is one request. What it does to the pod is found out by looking at the pod afterwards, so that
an attack that the server accepts and ignores counts as what it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.manifests.someone import APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC, Answer, Someone

GATE = "operators.koordinator.sh/placement"
OTHER_GATE = "example.com/other"
PLAN = "operators.koordinator.sh/plan"
DEVICES = "scheduling.koordinator.sh/device-allocated"
CARD = "huawei.com/npu-core"
HAMI = "hami.io/vgpu-node"
LIMIT = "scheduling.koordinator.sh/gpu-memory-limit-0"

PodBody = dict[str, Any]


class Ends(Enum):
    """The result of an attack while the policy is active."""

    DENIED = "by our policy"
    INVALID = "by the API server's own rules"
    IGNORED = "accepted, and nothing comes of it"


@dataclass(frozen=True)
class Attack:
    """One request on a pod that is held by our gate, or placed; or that creates one."""

    name: str
    method: str
    media: str
    body: Callable[[PodBody], Any]
    path: str = "/{name}"
    ends: Ends = Ends.DENIED

    def launch(self, someone: Someone, pod: PodBody) -> Answer:
        path = f"{someone.pods}{self.path}"
        if self.path.startswith("/bindings"):
            path = f"/api/v1/namespaces/{someone.namespace}{self.path}"
        path = path.format(name=pod["metadata"]["name"])
        return someone.send(self.method, path, self.body(pod), self.media)


def make_pod(name: str, *, gates=(GATE, OTHER_GATE), annotations=None) -> PodBody:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"a": "b", **(annotations or {})}},
        "spec": {
            "schedulerName": "koord-scheduler",
            "schedulingGates": [{"name": gate} for gate in gates],
            "containers": [{"name": "c", "image": "x"}],
        },
    }


def release() -> list[dict[str, Any]]:
    """The patch with which the operators release a pod, in short."""
    return [
        {"op": "replace", "path": "/spec/schedulingGates", "value": []},
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {"a": "b", PLAN: "{}", DEVICES: "{}"},
        },
    ]


def _with(value: Any) -> Callable[[PodBody], Any]:
    return lambda _: value


def _gates(*gates: Any) -> Callable[[PodBody], Any]:
    return _with({"spec": {"schedulingGates": list(gates)}})


def _annotations(**values: Any) -> Callable[[PodBody], Any]:
    keys = {"plan": PLAN, "devices": DEVICES, "card": CARD, "limit": LIMIT}
    return _with({"metadata": {"annotations": {keys[key]: one for key, one in values.items()}}})


def _put(change: Callable[[PodBody], None]) -> Callable[[PodBody], Any]:
    def body(pod: PodBody) -> PodBody:
        copy = {**pod, "metadata": {**pod["metadata"]}, "spec": {**pod["spec"]}}
        change(copy)
        return copy

    return body


def _without_gates(pod: PodBody) -> None:
    del pod["spec"]["schedulingGates"]


def _forged(pod: PodBody) -> None:
    pod["metadata"]["annotations"] = {PLAN: "forged"}


def _labelled(pod: PodBody) -> None:
    pod["metadata"]["labels"] = {HAMI: "x"}


def _apply(**options: Any) -> Callable[[PodBody], Any]:
    return lambda pod: make_pod(pod["metadata"]["name"], **options)


def _ephemeral(pod: PodBody) -> None:
    pod["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "x"}]


def _binding(annotations: dict[str, str]) -> Callable[[PodBody], Any]:
    return lambda pod: {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod["metadata"]["name"], "annotations": annotations},
        "target": {"kind": "Node", "name": "somewhere"},
    }


OWNED = "/{name}?fieldManager=owner"
FORCED = "/{name}?fieldManager=other&force=true"
_OTHER = {"name": OTHER_GATE}

ON_HELD = [
    Attack("gate, strategic", "PATCH", STRATEGIC, _gates({"$patch": "delete", "name": GATE})),
    Attack("gate, strategic replace", "PATCH", STRATEGIC, _gates(_OTHER, {"$patch": "replace"})),
    Attack("gate, merge", "PATCH", MERGE, _gates(_OTHER)),
    Attack("gate, merge null", "PATCH", MERGE, _with({"spec": {"schedulingGates": None}})),
    Attack("gate, json", "PATCH", JSON_PATCH, _with(release()[:1])),
    Attack(
        *("gate, json remove", "PATCH", JSON_PATCH),
        _with([{"op": "remove", "path": "/spec/schedulingGates/0"}]),
    ),
    Attack("gate, apply by its owner", "PATCH", APPLY, _apply(gates=[OTHER_GATE]), OWNED),
    Attack("gate, put", "PUT", JSON, _put(_without_gates)),
    Attack(
        *("gate under another name", "PATCH", JSON_PATCH),
        _with([{"op": "replace", "path": "/spec/schedulingGates/0/name", "value": "x.y/z"}]),
        ends=Ends.INVALID,
    ),
    Attack(
        *("gate, apply by force", "PATCH", APPLY, _apply(gates=[OTHER_GATE]), FORCED),
        ends=Ends.IGNORED,
    ),
    *(
        Attack(f"gate, {what}", "PATCH", MERGE, _gates(), f"/{{name}}/{what}", Ends.IGNORED)
        for what in ("status", "ephemeralcontainers", "resize")
    ),
    Attack("gate, put status", "PUT", JSON, _put(_without_gates), "/{name}/status", Ends.IGNORED),
    Attack("binding", "POST", JSON, _binding({}), "/{name}/binding", Ends.INVALID),
    Attack("plan, strategic", "PATCH", STRATEGIC, _annotations(plan="forged")),
    Attack("plan, merge", "PATCH", MERGE, _annotations(plan="forged")),
    Attack("plan, json", "PATCH", JSON_PATCH, _with(release()[1:])),
    Attack("plan, apply", "PATCH", APPLY, _apply(annotations={PLAN: "forged"}), FORCED),
    Attack("plan, as our manager", "PATCH", MERGE, _annotations(plan="x"), f"{OWNED}-koord"),
    Attack("plan, put", "PUT", JSON, _put(_forged)),
    Attack("plan, status", "PATCH", MERGE, _annotations(plan="x"), "/{name}/status"),
    Attack("plan, put status", "PUT", JSON, _put(_forged), "/{name}/status"),
    Attack(
        "plan, apply status",
        "PATCH",
        APPLY,
        _apply(annotations={PLAN: "x"}),
        "/{name}/status?fieldManager=o&force=true",
    ),
    *(
        Attack(
            *(f"plan, {what}", "PATCH", MERGE, _annotations(plan="x")),
            *(f"/{{name}}/{what}", Ends.IGNORED),
        )
        for what in ("ephemeralcontainers", "resize")
    ),
    Attack("card of a device plugin", "PATCH", MERGE, _annotations(card="7")),
    Attack("limit of memory", "PATCH", MERGE, _annotations(limit="1")),
    Attack("node for HAMi", "PATCH", MERGE, _with({"metadata": {"labels": {HAMI: "x"}}})),
    Attack("release like the operators", "PATCH", JSON_PATCH, _with(release())),
]

ON_PLACED = [
    Attack("change", "PATCH", MERGE, _annotations(plan="other")),
    Attack("change devices", "PATCH", STRATEGIC, _annotations(devices="[]")),
    Attack("remove", "PATCH", MERGE, _annotations(devices=None)),
    Attack(
        *("remove all", "PATCH", JSON_PATCH),
        _with([{"op": "remove", "path": "/metadata/annotations"}]),
    ),
    Attack("remove through status", "PATCH", MERGE, _annotations(plan=None), "/{name}/status"),
    Attack("binding", "POST", JSON, _binding({PLAN: "forged"}), "/{name}/binding"),
    Attack("legacy binding", "POST", JSON, _binding({DEVICES: "[]"}), "/bindings"),
]

CREATING = [
    Attack("post for HAMi", "POST", JSON, _put(_labelled), ""),
    Attack("post", "POST", JSON, _apply(annotations={PLAN: "forged"}), ""),
    Attack("post without gate", "POST", JSON, _apply(annotations={DEVICES: "x"}, gates=()), ""),
    Attack("apply", "PATCH", APPLY, _apply(annotations={PLAN: "forged"}), FORCED),
]
