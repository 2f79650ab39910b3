"""Adapters for preemption: cases as API objects, victims by the search of the operators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.conformance.adapters.topology import amounts, decode, decode_gang, decode_topology
from tests.conformance.cases import UnsupportedCaseError
from tests.conformance.compare import IGNORED
from tests.objects import upsert_pod_group, upsert_topology

from koord.api.keys import gang as gang_keys
from koord.api.keys import operators
from koord.api.preemption import is_protected, read_policy
from koord.core.engine.queue import Queue
from koord.core.eviction.candidates import find_candidates
from koord.core.eviction.model import Costs, Exempt, Preemption
from koord.core.eviction.search import plan_preemption
from koord.core.model.plan import Assignment, Demand, Unit
from koord.core.plugins.nominations import Nomination
from koord.domains.registry import make_cluster_state, make_pod_translator
from koord.kube.translate.cluster_objects import translate_node
from koord.kube.wire import WireNode, WirePod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from koord.core.engine.cycle import Cycle
    from koord.core.engine.state import ClusterState
    from koord.core.model.pods import Pod

Fields = dict[str, Any]

PODS = make_pod_translator()
TOLD_OTHERWISE: Mapping[str, tuple[str, ...]] = {
    "job_preempt": ("message", "cycleMessage", "reason", "offersBefore", "victimCondition"),
    "fit_with_nominated": ("reason",),
}
"""Kind -> fields that we tell in other words, or that the controller tells."""
UNRESOLVABLE = "UnschedulableAndUnresolvable"


def decode_pod(pod: Mapping[str, Any], node: str = "", gang: str = "") -> Pod:
    namespace, name = pod.get("namespace", "default"), pod.get("name", "pod")
    labels = dict(pod.get("labels") or {}) | ({gang_keys.POD_GROUP: gang} if gang else {})
    annotations = {}
    if pod.get("index") is not None:
        annotations[gang_keys.NETWORK_TOPOLOGY_INDEX] = str(pod["index"])
    manifest = {
        "metadata": {
            "uid": f"{namespace}/{name}",
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "nodeName": node,
            "schedulerName": operators.SCHEDULER_NAME,
            "priority": pod.get("priority", 0),
            "preemptionPolicy": pod.get("preemptionPolicy"),
            "containers": [{"name": "main", "resources": {"requests": amounts(pod, "requests")}}],
        },
    }
    return PODS.translate(decode(manifest, WirePod))


def fill_state(case: Mapping[str, Any]) -> ClusterState:
    """Make the cluster of a case; nodes that preemption cannot help are cordoned."""
    state = make_cluster_state(compat=True)
    if "networkTopologySpec" in case:
        upsert_topology(state, decode_topology(case))
    for node in case["nodes"]:
        status = {"allocatable": {"pods": "110", **amounts(node, "allocatable")}}
        meta = {"name": node["name"], "labels": node.get("labels") or {}}
        is_closed = (case.get("nodeStatus") or {}).get(node["name"]) == UNRESOLVABLE
        manifest = {"metadata": meta, "status": status, "spec": {"unschedulable": is_closed}}
        state.upsert_node(translate_node(decode(manifest, WireNode)))
        for pod in node.get("pods") or ():
            state.upsert_pod(decode_pod(pod, node["name"]))
    return state


def adapt_job_preempt(case: Mapping[str, Any]) -> Fields:
    if case.get("preemptionMessage"):
        raise UnsupportedCaseError("units are decided once, not once per member")
    if not case["pendingPods"]:
        raise UnsupportedCaseError("there are no units without pods")
    if any(pod.get("deletionTimestamp") for node in case["nodes"] for pod in node["pods"]):
        raise UnsupportedCaseError("whoever has preempted for a unit knows it")
    state = fill_state(case)
    unit = add_unit(state, case)
    found = plan_preemption(state, unit)
    waiting = {f"default/{pod['name']}": pod["nodeName"] for pod in case.get("waitingPods") or ()}
    answer: Fields = dict.fromkeys(TOLD_OTHERWISE["job_preempt"], IGNORED) | {
        "success": isinstance(found, Preemption),
        "possibleVictims": possible_victims(state, unit),
        "victims": [],
        "nominated": {},
    }
    if isinstance(found, Preemption):
        places = {one.pod.key: one.node for one in found.placement.assignments}
        answer["nominated"] = places | waiting
        answer["victims"] = [pod.name for pod in found.pods]
    elif case.get("networkTopologySpec"):
        answer["message"] = found.text(compat=True)
    return answer


def possible_victims(state: ClusterState, unit: Unit) -> list[str]:
    found = find_candidates(state, unit, Exempt()).units
    return [pod.name for one in found for pod in one.pods]


def add_unit(state: ClusterState, case: Mapping[str, Any]) -> Unit:
    """Add the waiting members of a case as one gang; return their unit."""
    pods = [decode_pod(pod, gang="job") for pod in case["pendingPods"]]
    feed = state.feed()
    upsert_pod_group(state, decode_gang(case, pods))
    for pod in pods:
        state.upsert_pod(pod)
    queue = Queue()
    queue.absorb(feed.drain(), state)
    (unit,) = queue.take(0.0, len(pods))
    return unit


def adapt_victim_eligible(case: Mapping[str, Any]) -> Fields:
    state = make_cluster_state(compat=True)
    state.upsert_node(translate_node(decode({"metadata": {"name": "n"}}, WireNode)))
    state.upsert_pod(decode_pod({"name": "victim", **case["victim"]}, "n"))
    trigger = decode_pod(case["trigger"])
    unit = Unit(trigger.uid, (Demand("", (trigger,), 1),))
    return {"eligible": bool(possible_victims(state, unit))}


def adapt_victim_order(case: Mapping[str, Any]) -> Fields:
    state = make_cluster_state(compat=True)
    state.upsert_node(translate_node(decode({"metadata": {"name": "n"}}, WireNode)))
    for pod in case["victims"]:
        state.upsert_pod(decode_pod(pod, "n"))
    trigger = decode_pod({"name": "trigger", "priority": 1 << 30})
    unit = Unit(trigger.uid, (Demand("", (trigger,), 1),))
    units = find_candidates(state, unit, Exempt()).units
    return {"order": [one.pods[0].name for one in reversed(Costs(()).sort(units))]}


def adapt_pod_preemptible(case: Mapping[str, Any]) -> Fields:
    return {"preemptible": not is_protected(case["labels"] or {})}


def adapt_preemption_policy_label(case: Mapping[str, Any]) -> Fields:
    return {"policy": read_policy(case["labels"] or {})}


def adapt_preemption_cost(case: Mapping[str, Any]) -> Fields:
    raise UnsupportedCaseError("victims are compared as sets, not by ranks per node")


def adapt_nominated_pods_counted(case: Mapping[str, Any]) -> Fields:
    """Count the nominated pods, each on a node of its own, that leave no room for a pod there."""
    nominated = [*case["nativeNominated"], *case["crossSchedulerNominated"]]
    nodes = [{"name": f"n{at}", "allocatable": {"cpu": 1}} for at in range(len(nominated))]
    state = fill_state({"nodes": nodes})
    pods = [replace(read_nominee(one), node=f"n{at}") for at, one in enumerate(nominated)]
    pod = read_nominee({"name": "p", **case["pod"]})
    cycle = nominate(state, pods, pod, case["sameJobUIDs"])
    room = cycle.room(cycle.shape_of(pod))
    return {"counted": sum(not room[row] for _, row in state.table.live_rows())}


def adapt_fit_with_nominated(case: Mapping[str, Any]) -> Fields:
    state = fill_state({"nodes": [case["node"]]})
    pods = [replace(read_nominee(one), node=one["nominatedNodeName"]) for one in case["nominated"]]
    pod = read_nominee(case["pod"])
    cycle = nominate(state, pods, pod, case["sameJobUIDs"])
    fits = cycle.has_room(cycle.shape_of(pod), state.table.row_of[case["node"]["name"]])
    return {"fits": fits, "reason": IGNORED}


def read_nominee(pod: Mapping[str, Any]) -> Pod:
    requests = pod.get("requests") or {"cpu": 1}
    return replace(decode_pod({**pod, "requests": requests}), uid=pod.get("uid", pod["name"]))


def nominate(state: ClusterState, pods: list[Pod], pod: Pod, siblings: list[str]) -> Cycle:
    """Nominate pods to their nodes, those of the job of ``pod`` together; return a cycle."""
    own = [one for one in pods if one.uid in {*siblings, pod.uid}]
    if own and pod.uid not in {one.uid for one in own}:
        own.append(pod)
    for unit in ([own] if own else []) + [[one] for one in pods if one not in own]:
        places = tuple(Assignment(replace(one, node=""), one.node) for one in unit)
        state.nominations.begin(Nomination("p", unit[0].uid, places))
    state.refresh()
    return state.open_cycle()


def adapt_preemption_state_json(case: Mapping[str, Any]) -> Fields:
    raise UnsupportedCaseError("plans are told by conditions, events and koord explain")


ADAPTERS = {
    "job_preempt": adapt_job_preempt,
    "victim_eligible": adapt_victim_eligible,
    "victim_order": adapt_victim_order,
    "pod_preemptible": adapt_pod_preemptible,
    "preemption_policy_label": adapt_preemption_policy_label,
    "nominated_pods_counted": adapt_nominated_pods_counted,
    "fit_with_nominated": adapt_fit_with_nominated,
    "preemption_cost": adapt_preemption_cost,
    "preemption_state_json": adapt_preemption_state_json,
}
