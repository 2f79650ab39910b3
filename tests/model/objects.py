"""Builders of the objects that users create in the model, and readers of their fields."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.model.store import Obj

from koord.api.keys import gang, operators, quota
from koord.api.keys.preemption import SOFT_EVICTION_TIME

GPU = "nvidia.com/gpu"
NAMESPACE = "ns"
OTHER_GATE = "example.org/quota"
OTHER_SCHEDULER = "default-scheduler"


MADE_UP_OWNER = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "name": "made-up",
    "uid": "00000000-0000-0000-0000-000000000000",
    "controller": True,
}


@dataclass(frozen=True, slots=True)
class PodPlan:
    """A pod to create: its scheduler, its request, its gang, its quota."""

    name: str
    gpus: int = 4
    gated: bool = True
    scheduler: str = operators.SCHEDULER_NAME
    other_gate: bool = False
    gang: str = ""
    quota: str = ""
    zone: str = ""
    priority: int = 0
    finalizer: bool = False
    node: str = ""
    app: str = ""
    soft: str = ""
    """Time that it wants before it is preempted."""
    grace: int = 0
    """Seconds that it takes to end after its deletion; 0: it ends at once."""
    is_daemon: bool = False
    """It says that it is of a DaemonSet, which does not exist."""

    def render(self) -> Obj:
        """Return the object to create."""
        gates = [OTHER_GATE] * self.other_gate + [operators.PLACEMENT_GATE] * self.gated
        amounts = {GPU: str(self.gpus)}
        spec: dict[str, Any] = {
            "schedulerName": self.scheduler,
            "priority": self.priority,
            "containers": [
                {"name": "c", "image": "x", "resources": {"limits": amounts, "requests": amounts}}
            ],
        }
        if gates:
            spec["schedulingGates"] = [{"name": gate} for gate in gates]
        if self.zone:
            spec["nodeSelector"] = {"zone": self.zone}
        if self.node:
            spec["nodeName"] = self.node
        meta: dict[str, Any] = {"name": self.name, "namespace": NAMESPACE}
        labels = {gang.POD_GROUP: self.gang, quota.NAME: self.quota, "app": self.app}
        if given := {key: value for key, value in labels.items() if value}:
            meta["labels"] = given
        if self.finalizer:
            meta["finalizers"] = ["example.org/keep"]
        if self.is_daemon:
            meta["ownerReferences"] = [MADE_UP_OWNER]
        if self.grace:
            spec["terminationGracePeriodSeconds"] = self.grace
        if self.soft:
            meta["annotations"] = {SOFT_EVICTION_TIME: self.soft}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def make_node(name: str, gpus: int, zone: str = "") -> Obj:
    """Return a node to create."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
    labels = {"kubernetes.io/hostname": name, **({"zone": zone} if zone else {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def make_pod_group(name: str, minimum: int, groups: tuple[str, ...] = (), policy: str = "") -> Obj:
    """Return a PodGroup to create."""
    annotations = {}
    if groups:
        annotations[gang.GROUPS] = json.dumps([f"{NAMESPACE}/{one}" for one in groups])
    if policy:
        annotations[gang.MATCH_POLICY] = policy
        # Eviction of whole gangs is not modelled.
        annotations[operators.ON_MEMBER_FAILURE] = "Replace"
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {"minMember": minimum},
    }


def name_of(obj: Obj) -> str:
    return obj["metadata"]["name"]


def uid_of(obj: Obj) -> str:
    return obj["metadata"]["uid"]


def node_of(pod: Obj) -> str:
    return pod["spec"].get("nodeName", "")


def gates_of(pod: Obj) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]


def gang_of(pod: Obj) -> str:
    return (pod["metadata"].get("labels") or {}).get(gang.POD_GROUP, "")


def listed_by(group: Obj) -> list[str]:
    """Return the gangs that a PodGroup lists; by itself it lists itself."""
    listed = json.loads((group["metadata"].get("annotations") or {}).get(gang.GROUPS, "[]"))
    return [key.removeprefix(f"{NAMESPACE}/") for key in listed] or [name_of(group)]


def quota_of(pod: Obj) -> str:
    return (pod["metadata"].get("labels") or {}).get(quota.NAME, "")


def gpus_of(pod: Obj) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"][GPU])


def zone_of(pod: Obj) -> str:
    return pod["spec"].get("nodeSelector", {}).get("zone", "")


def plan_of(pod: Obj) -> dict[str, Any] | None:
    """Return the plan annotation; None if there is none."""
    text = (pod["metadata"].get("annotations") or {}).get(operators.PLAN)
    return json.loads(text) if text else None


def pinned_to(pod: Obj) -> str:
    """Return the node that the pod's affinity names; empty if none."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.get("nodeSelectorTerms", ()):
        for one in term.get("matchFields", ()):
            return one["values"][0]
    return ""


def has_ended(pod: Obj) -> bool:
    return pod["status"]["phase"] in {"Succeeded", "Failed"}


def has_succeeded(pod: Obj) -> bool:
    return pod["status"]["phase"] == "Succeeded"


def is_terminating(pod: Obj) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def may_end(pod: Obj, now: float) -> bool:
    """Whether a kubelet has ended a terminating pod: if it takes its grace period, only then."""
    if "terminationGracePeriodSeconds" not in pod["spec"]:
        return True
    due = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]).timestamp()
    return now >= due


def is_alive(pod: Obj) -> bool:
    return not is_terminating(pod) and not has_ended(pod)


def condition_of(obj: Obj, kind: str) -> Obj | None:
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), None)


def allocatable_of(node: Obj) -> int:
    return int(node["status"]["allocatable"][GPU])


def is_open(node: Obj, zone: str) -> bool:
    """Whether the node takes pods that ask for a zone."""
    if node["spec"].get("unschedulable"):
        return False
    return not zone or node["metadata"]["labels"].get("zone") == zone
