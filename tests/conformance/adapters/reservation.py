"""Adapters for reservations: cases as API objects, judged by what the planner uses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from tests.conformance.cases import UnsupportedCaseError

from koord.core.engine.labels import is_tolerated
from koord.core.engine.node_table import NodeTable
from koord.core.model.nodes import Node
from koord.core.model.units import PODS
from koord.core.plugins.node_rules import check_node_rules
from koord.core.reservation.choice import nominate, score, score_nodes
from koord.core.reservation.ledger import (
    ReservationAccount,
    add_up,
    fit_on_node,
    free_through,
    lacks_inside,
    lacks_on_node,
    taken_by,
)
from koord.core.reservation.lifecycle import (
    is_collectable,
    set_available,
    set_unschedulable,
    succeed,
)
from koord.core.reservation.matching import (
    CORDONED,
    is_owner,
    judge,
    matches_affinity,
    matches_exactly,
)
from koord.core.reservation.metrics import phase_series, resource_series
from koord.core.reservation.model import (
    AllocatePolicy,
    IgnoredResources,
    ReservationInfo,
    restricted_names,
)
from koord.core.reservation.pre_allocation import (
    PreAllocation,
    PreAllocationChoice,
    RunningPod,
    choose,
)
from koord.core.reservation.reasons import (
    NO_CANDIDATE,
    NoReservationFits,
    describe_insufficient,
    find_conflict,
)
from koord.domains.registry import make_pod_translator
from koord.domains.reservation_settings import ReservationSettings
from koord.kube.translate.amounts import parse_amount, write_amounts
from koord.kube.translate.reservations import (
    ReservationTranslator,
    read_reservation_hints,
    read_use,
)
from koord.kube.wire import WireCustomResource, WirePod

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from koord.core.model.pods import Pod
    from koord.core.reservation.model import ReservationHints, ReservationState, StatusCondition

Fields = dict[str, Any]
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT = "scheduling.koordinator.sh/exact-match-reservation"
OPTIONS = "scheduling.koordinator.sh/reservation-restricted-options"
PRIORITY = "preAllocatablePriority"
ORDER = "scheduling.koordinator.sh/reservation-order"


def amounts_of(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    return {key: parse_amount(key, text) for key, text in (quantities or {}).items()}


def read_pod(manifest: Mapping[str, Any]) -> Pod:
    wire = msgspec.json.decode(json.dumps(manifest), type=WirePod)
    return make_pod_translator().translate(wire)


def read_reservation(manifest: Mapping[str, Any]) -> ReservationInfo:
    full = {
        "metadata": {"name": "r", "uid": "r", **(manifest.get("metadata") or {})},
        "spec": {"owners": [{"labelSelector": {}}], "template": {}, **(manifest.get("spec") or {})},
        "status": manifest.get("status") or {},
    }
    wire = msgspec.json.decode(json.dumps(full), type=WireCustomResource)
    return ReservationTranslator().translate(wire)


def read_account(
    one: Mapping[str, Any], gone: Mapping[str, Any] | None = None
) -> ReservationAccount:
    """Return a reservation of a case; victims that are ``gone`` do not use it any more."""
    labels = {**(one.get("labels") or {})}
    if one.get("order") is not None:
        labels[ORDER] = one["order"]
    manifest = {
        "metadata": {"name": one["name"], "labels": labels},
        "spec": {
            "allocatePolicy": one.get("allocatePolicy") or None,
            "allocateOnce": one.get("allocateOnce", False),
            "owners": one.get("owners") or [{"labelSelector": {}}],
            "unschedulable": one.get("unschedulable", False),
            "taints": one.get("taints") or [],
        },
        "status": {"phase": "Available", "nodeName": "n", "allocatable": one["allocatable"]},
    }
    reservation = replace(read_reservation(manifest), inner=amounts_of(one.get("reserved")))
    leaving = amounts_of(gone)
    used = {key: n - leaving.get(key, 0) for key, n in amounts_of(one.get("allocated")).items()}
    pods = one.get("assignedPods", 0) - leaving.get(PODS, 0)
    return ReservationAccount(reservation, used, pods)


def affinity_manifest(pod: Mapping[str, Any]) -> Fields:
    annotations = {
        key: json.dumps(pod[field])
        for key, field in ((AFFINITY, "affinity"), (EXACT, "exactMatch"))
        if pod.get(field) is not None
    }
    spec: Fields = {"containers": [{"resources": {"requests": pod.get("requests") or {}}}]}
    if pod.get("requiredNodeAffinity"):
        required = {"requiredDuringSchedulingIgnoredDuringExecution": pod["requiredNodeAffinity"]}
        spec["affinity"] = {"nodeAffinity": required}
    meta = {"name": "p", "labels": pod.get("labels") or {}, "annotations": annotations}
    return {"metadata": meta, "spec": spec}


def wishes_of(manifest: Mapping[str, Any]) -> ReservationHints:
    meta = manifest["metadata"]
    return read_reservation_hints(meta.get("annotations") or {}, meta.get("labels") or {})


def owner_match(case: Any) -> Fields:
    pod, owners = read_pod(case["pod"]), case["owners"]
    found = read_reservation({"spec": {"owners": owners}}).owners if owners else ()
    return {"matched": is_owner(pod, found, pod.namespace)}


def reservation_ignored(case: Any) -> Fields:
    return {"ignored": wishes_of(case["pod"]).is_ignoring}


def exact_match(case: Any) -> Fields:
    meta = {"annotations": {EXACT: json.dumps(case["annotation"])}}
    requests, reserved = amounts_of(case["podRequests"]), amounts_of(case["reservationAllocatable"])
    return {"matched": matches_exactly(requests, reserved, wishes_of({"metadata": meta}).exact)}


def reservation_allocated(case: Any) -> Fields:
    raise UnsupportedCaseError("the annotation is never removed: a pod that has it is released")


def phase_predicates(case: Any) -> Fields:
    status = read_reservation(case).status
    return {
        "active": status.is_active,
        "available": status.is_available,
        "succeeded": status.phase == "Succeeded",
        "failed": status.phase == "Failed",
    }


def is_expired(case: Any) -> Fields:
    return {"expired": read_reservation(case).status.is_expired}


def show_condition(one: StatusCondition | None) -> Fields | None:
    if one is None:
        return None
    shown = {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
    return {key: value for key, value in shown.items() if value}


def show_status(status: ReservationState) -> Fields:
    return {
        "phase": status.phase,
        "nodeName": status.node,
        "allocatable": write_amounts(status.allocatable),
        "conditions": [show_condition(one) for one in status.conditions],
    }


def unschedulable(case: Any) -> Fields:
    return show_status(set_unschedulable(read_reservation(case).status, case["message"]))


def available(case: Any) -> Fields:
    reservation = read_reservation(case["reservation"])
    return show_status(set_available(reservation.status, case["nodeName"], reservation.requests()))


def reservation_requests(case: Any) -> Fields:
    reservation = read_reservation(case["reservation"])
    allocatable = reservation.status.allocatable
    return {"requests": write_amounts(allocatable or reservation.requests())}


def restricted_resources(case: Any) -> Fields:
    options = json.dumps(case["options"])
    found = read_reservation({"metadata": {"annotations": {OPTIONS: options}}})
    return {"resources": list(restricted_names(case["allocatableResources"], found.options))}


def parse_affinity(case: Any) -> Fields:
    annotations = {AFFINITY: json.dumps(case["annotation"])}
    wishes = wishes_of({"metadata": {"annotations": annotations}})
    tolerates = is_tolerated(CORDONED, wishes.tolerations)
    return {"present": wishes.has_affinity, "toleratesUnschedulable": tolerates}


def affinity_labels(case: Any) -> Fields:
    wishes = wishes_of(affinity_manifest({"affinity": case["affinity"]}))
    labels = {**case["nodeLabels"], **case["reservationLabels"]}
    return {"matched": matches_affinity(case["reservationName"], labels, wishes)}


def match_on_node(case: Any) -> Fields:
    manifest, node = affinity_manifest(case["pod"]), case["node"]
    pod = read_pod(manifest)
    accounts = [read_account(one) for one in case["reservations"]]
    verdicts = [
        judge(pod, wishes_of(manifest), one.reservation, node["labels"], every_namespace=True)
        for one in accounts
    ]
    table = NodeTable()
    row = table.upsert(Node(node["name"], labels=node["labels"]))
    is_admitted = all(rows[row] for _, rows in check_node_rules(table.labels, pod.shape))
    return {"anyMatched": is_admitted and any(one.may_use for one in verdicts)}


def specific_nodes(case: Any) -> Fields:
    """Return which nodes the affinity admits by name, whatever else it asks for; null: any name."""
    affinity = case["requiredNodeAffinity"]
    terms = (affinity or {}).get("nodeSelectorTerms") or [{}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": affinity} if affinity else {}
    spec = {"affinity": {"nodeAffinity": required}, "containers": []}
    pod = read_pod({"metadata": {"name": "p", "uid": "p"}, "spec": spec})
    fields = [one for term in terms for one in term.get("matchFields") or ()]
    names = {"", *(name for one in fields for name in one["values"])}
    admitted = set[str]()
    for term in terms:
        table = NodeTable()
        labels = {one["key"]: one["values"][0] for one in term.get("matchExpressions") or ()}
        row_of = {name: table.upsert(Node(name, labels=labels)) for name in names}
        rules = [rows for _, rows in check_node_rules(table.labels, pod.shape)]
        admitted |= {name for name, row in row_of.items() if all(rows[row] for rows in rules)}
    nodes = None if "" in admitted or not admitted else sorted(admitted)
    return {"nodes": nodes, "error": not admitted}


def is_matchable(case: Any) -> Fields:
    if case["kind"] == "Pod":
        raise UnsupportedCaseError("pods do not act as reservations")
    once = case["allocateOnce"]
    spec = {"owners": case["owners"] or [{"labelSelector": {}}]}
    spec |= {} if once is None else {"allocateOnce": once}
    status = {"phase": case["phase"], "nodeName": case["nodeName"]}
    return {
        "matchable": read_reservation({"spec": spec, "status": status}).is_matchable(
            case["assignedPods"]
        )
    }


def accounting(case: Any) -> Fields:
    one = {"name": "r", "allocatable": case["allocatable"], "reserved": case["reserved"]}
    staying = case["assign"][case.get("unassign", 0) :]
    account = replace(read_account(one), used=add_up(map(amounts_of, staying)))
    return {
        "allocated": write_amounts(account.allocated()),
        "available": write_amounts(account.left()),
    }


def restore(case: Any) -> Fields:
    plain = add_up(map(amounts_of, case["normalPods"]))
    accounts = [
        (
            one["matched"],
            ReservationAccount(read_account({**one, "assignedPods": 0}).reservation, used),
        )
        for one in case["reservations"]
        for used in [add_up(map(amounts_of, one["assignedPods"]))]
    ]
    every = [account for _, account in accounts]
    matched = [account for is_matched, account in accounts if is_matched]
    others = [account for is_matched, account in accounts if not is_matched]
    used = [account.allocated() for account in matched]
    held = add_up((taken_by(plain, every), *used))
    seen = add_up((taken_by(plain, others), *used))
    raw = add_up((held, *(account.allocated() for account in others)))
    return {
        "rawRequested": write_amounts(raw),
        "podRequestedAfterTrim": write_amounts(held),
        "nodeRequestedSeenByPod": write_amounts(seen),
    }


def fitting(case: Any, matched: Sequence[ReservationAccount], *, is_required: bool) -> Any:
    """Return through which of the matched accounts the pod of a case fits."""
    requests = amounts_of(case["podRequests"])
    gone = amounts_of(case.get("preemptible"))
    used = [amounts_of(case.get("matchedAllocated"))]
    taken = add_up((*used, *(one.reserved for one in matched)))
    plain = {
        key: n - taken.get(key, 0) - gone.get(key, 0)
        for key, n in {**taken, **gone, **amounts_of(case["podRequested"])}.items()
    }
    sizes = amounts_of(case["nodeAllocatable"])
    no_limit = case.get("skipReservationFitsNode") or not sizes
    free = {
        one.reservation.name: dict.fromkeys(requests, 1 << 60)
        if no_limit
        else free_through(sizes, plain, [each for each in matched if each is not one], one)
        for one in matched
    }
    answer = fit_on_node(requests, matched, free, is_required=is_required)
    outside = [] if no_limit else lacks_on_node(requests, free_through(sizes, plain, matched))
    return answer, outside


def filter_with_reservations(case: Any) -> Fields:
    gone = case["preemptibleInReservation"]
    used = case["matchedAllocated"]
    matched = [
        read_account({**one, "allocated": one["allocated"] or used}, gone.get(one["uid"]))
        for one in case["matched"]
    ]
    answer, outside = fitting(case, matched, is_required=case["hasAffinity"])
    reasons = [f"Insufficient {name} by node" for name in answer.on_node]
    is_named = bool(case["reservationName"])
    lacks = [lack for some in answer.inside.values() for lack in some]
    if case["hasAffinity"]:
        reasons += [describe_insufficient(lack, is_detailed=is_named) for lack in lacks]
        is_fitting = bool(answer.fitting)
    else:
        reasons = reasons or [f"Insufficient {name} by node" for name in outside]
        is_fitting = bool(answer.fitting) or not reasons
    return {"success": is_fitting, "reasons": [] if is_fitting else sorted(set(reasons))}


def place_reservation(case: Any) -> Fields:
    spec = {"allocatePolicy": case["allocatePolicy"] or None}
    if case["templateNodeName"]:
        spec["template"] = {"spec": {"nodeName": case["templateNodeName"]}}
    there = map(AllocatePolicy, case["availableReservationsOnNode"])
    cause = find_conflict(read_reservation({"spec": spec}), case["node"], there)
    if cause is None:
        return {"status": "Success"}
    return {"status": "UnschedulableAndUnresolvable", "reason": cause.text}


def candidates(case: Any, reservations: Sequence[Any]) -> list[ReservationAccount]:
    accounts = [
        replace(account, pods=account.pods or int(bool(one["allocated"] and one["allocateOnce"])))
        for one in reservations
        for account in [read_account(one)]
    ]
    found, _ = fitting(case, [one for one in accounts if one.is_matchable], is_required=True)
    return nominate(amounts_of(case["podRequests"]), found.fitting)


def nominated(case: Any) -> Fields:
    found = candidates(case, case["reservations"])
    return {"nominated": found[0].reservation.name if found else None}


def score_node(case: Any) -> Fields:
    found = candidates(case, case["reservations"])
    return {"score": score(amounts_of(case["podRequests"]), found[0]) if found else 0}


def score_many(case: Any) -> Fields:
    firsts = {node: candidates(case, some)[:1] for node, some in case["nodes"].items()}
    raw = score_nodes(
        amounts_of(case["podRequests"]),
        {node: one[0] if one else None for node, one in firsts.items()},
    )
    most = max(raw.values())
    return {
        "preferredNode": max(raw, key=lambda node: raw[node]),
        "raw": raw,
        "normalized": {node: points * 100 // most for node, points in raw.items()},
    }


def sync_status(case: Any) -> Fields:
    one = case["reservation"]
    reservation = read_reservation({"metadata": {"uid": one["uid"]}, "status": one["status"]})
    users = [
        pod
        for pod in case["podsOnNode"]
        if read_use(pod["uid"], json.dumps(pod["reservationAllocated"])).uid == one["uid"]
    ]
    used = add_up(amounts_of(pod["requests"]) for pod in users)
    account = ReservationAccount(reservation, used, len(users))
    status = succeed(reservation.status) if one["allocateOnce"] and users else reservation.status
    return {
        "phase": status.phase,
        "ready": show_condition(status.condition("Ready")),
        "allocated": write_amounts(account.allocated()),
        "currentOwners": [{key: pod[key] for key in ("namespace", "name", "uid")} for pod in users],
        "requeueAfterSeconds": 0,
    }


def resource_metrics(case: Any) -> Fields:
    series = resource_series(amounts_of(case["allocatable"]), amounts_of(case["allocated"]))
    names = ("type", "resource", "unit", "value")
    return {
        "series": [{"name": case["name"], **dict(zip(names, one, strict=True))} for one in series]
    }


def phase_metric(case: Any) -> Fields:
    return {"series": phase_series(read_reservation({"status": {"phase": case["phase"]}}).status)}


def gc(case: Any) -> Fields:
    now = datetime.fromisoformat(case["now"]).timestamp()
    statuses = {one["name"]: read_reservation(one).status for one in case["reservations"]}
    deleted = {
        name
        for name, status in statuses.items()
        if is_collectable(status, case["existingNodes"], now)
    }
    return {"deleted": sorted(deleted), "kept": sorted(statuses.keys() - deleted)}


def valid_active(case: Any) -> Fields:
    full = {"metadata": {"name": "r"}, "spec": case["spec"], "status": case["status"]}
    wire = msgspec.json.decode(json.dumps(full), type=WireCustomResource)
    found = ReservationTranslator().translate(wire)
    return {"validAndActive": not found.problems and found.status.is_active}


def ignored_of(case: Any) -> IgnoredResources:
    return IgnoredResources(
        frozenset(case["ignoredResources"] or ()), frozenset(case["ignoredResourceGroups"] or ())
    )


def arguments(case: Any) -> Fields:
    args = case["args"]
    if not args.keys() <= {"ignoredResources", "ignoredResourceGroups"}:
        raise UnsupportedCaseError("there are no such settings")
    try:
        ReservationSettings.model_validate(args)
    except ValueError:
        return {"error": True}
    return {"error": False}


def is_resource_ignored(case: Any) -> Fields:
    return {"ignored": case["resource"] in ignored_of(case)}


def fits_node(case: Any) -> Fields:
    sizes, used = amounts_of(case["nodeAllocatable"]), amounts_of(case["podRequested"])
    free = free_through(sizes, used, ())
    requests = amounts_of(case["podRequests"])
    return {"insufficient": lacks_on_node(requests, free, ignored_of(case))}


def fits_reservation(case: Any) -> Fields:
    made = read_account({**case, "name": "r", "allocatePolicy": "Restricted"})
    account = replace(made, ignored=ignored_of(case))
    return {"insufficient": bool(lacks_inside(amounts_of(case["podRequests"]), account))}


def event_message(case: Any) -> Fields:
    counts = {
        text: int(n)
        for n, text in re.findall(r"(\d+) (Reservation[^,.]*(?:\.\w+/\w+)?)", case["error"])
    }
    total = counts.pop("Reservation(s) matched owner total", None)
    if total is None:
        return {"isReservationLevel": False, "message": None}
    reason = NoReservationFits("p", total, tuple(sorted(counts.items())))  # as in claims.py
    return {"isReservationLevel": True, "message": reason.text()}


def preemption(case: Any) -> Fields:
    raise UnsupportedCaseError("victims are searched for elsewhere, not by reservations")


def pre_allocate(
    case: Any, wish: PreAllocation, requested: Mapping[str, int], pods: Sequence[Any]
) -> PreAllocationChoice:
    one = {"name": "r", "allocatable": case["reservation"], "allocatePolicy": "Restricted"}
    sizes, gone = amounts_of(case["nodeAllocatable"]), dict[str, int]()
    for key, text in (case.get("preemptible") or {}).items():
        sign = -1 if text.startswith("-") else 1
        gone[key] = sign * parse_amount(key, text.removeprefix("-"))
    free = {key: n - requested.get(key, 0) + gone.get(key, 0) for key, n in sizes.items()}
    running = [
        RunningPod(one["name"], amounts_of(one["requests"]), int(one.get(PRIORITY) or 0))
        for one in pods
    ]
    return choose(wish, read_account(one), free, running)


def nominate_pre_allocation(case: Any) -> Fields:
    chosen = pre_allocate(
        {**case, "nodeAllocatable": case["reservation"]}, PreAllocation(), {}, case["candidates"]
    )
    return {"nominated": chosen.sets[0][0].uid}


def describe_chosen(chosen: PreAllocationChoice) -> Fields:
    reasons = [f"Insufficient {name} by node" for name in chosen.on_node]
    reasons += [describe_insufficient(lack) for lack in chosen.inside]
    if not chosen.sets and not chosen.is_open and not reasons:
        reasons = [NO_CANDIDATE.text]
    is_fitting = bool(chosen.sets) or chosen.is_open
    return {"success": is_fitting, "reasons": sorted(set(reasons))}


def pre_allocation(case: Any) -> Fields:
    wish = PreAllocation(
        takes_many=case["multiple"],
        is_required=case["required"],
        prefers_none=case["preferNoPreAllocatedPods"],
    )
    requested = amounts_of(case["podRequested"])
    return describe_chosen(pre_allocate(case, wish, requested, case["preAllocatablePods"]))


def pre_allocation_cluster(case: Any) -> Fields:
    wish = PreAllocation(
        is_clusterwide=True,
        takes_many=True,
        is_required=case["required"],
        prefers_none=case["preferNoPreAllocatedPods"],
    )
    requested = add_up(amounts_of(one["requests"]) for one in case["pods"])
    some = [one for one in case["pods"] if one[PRIORITY] is not None]
    chosen = pre_allocate(case, wish, requested, some)
    names = [one.uid for one in chosen.sets[0]] if chosen.sets else []
    found = {**describe_chosen(chosen), "selected": names}
    return {**found, "score": chosen.points} if found["success"] else found


ADAPTERS = {
    "accounting": accounting,
    "affinity_labels": affinity_labels,
    "event_message": event_message,
    "exact_match": exact_match,
    "filter_pre_allocation": pre_allocation,
    "filter_unmatched_preemption": preemption,
    "filter_with_reservations": filter_with_reservations,
    "fits_node": fits_node,
    "fits_reservation": fits_reservation,
    "gc": gc,
    "is_expired": is_expired,
    "is_matchable": is_matchable,
    "is_resource_ignored": is_resource_ignored,
    "match_on_node": match_on_node,
    "nominate": nominated,
    "nominate_pre_allocation": nominate_pre_allocation,
    "owner_match": owner_match,
    "parse_affinity": parse_affinity,
    "phase_metric": phase_metric,
    "phase_predicates": phase_predicates,
    "place_reservation": place_reservation,
    "pre_allocation_cluster": pre_allocation_cluster,
    "reservation_allocated": reservation_allocated,
    "reservation_ignored": reservation_ignored,
    "reservation_requests": reservation_requests,
    "resource_metrics": resource_metrics,
    "restore": restore,
    "restricted_resources": restricted_resources,
    "score_node": score_node,
    "score_nodes": score_many,
    "set_available": available,
    "set_unschedulable": unschedulable,
    "specific_nodes": specific_nodes,
    "sync_status": sync_status,
    "valid_active": valid_active,
    "validate_args": arguments,
}
