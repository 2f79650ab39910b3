"""Adapters for gangs: cases as API objects, decoded like those of the operators."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from tests.builders import make_pod
from tests.conformance.compare import Exact

from koord.api.gang import (
    BadSetting,
    GangDefaults,
    encode_bind_record,
    parse_gang_name,
    parse_groups,
    parse_min_available,
    resolve_wait_seconds,
)
from koord.api.keys import gang as keys
from koord.core.gang.cache import GangCache
from koord.core.gang.group import make_gang_key, make_group_id
from koord.core.gang.phase import PhaseInput, make_occupied_by, step_phase
from koord.core.gang.quorum import is_satisfied
from koord.core.gang.start import Permit, PermitState, make_bind_record, permit_member
from koord.core.gang.status import observe
from koord.core.gang.tally import Tally
from koord.core.model.gangs import GangPhase, GangSource, GangSpec, MatchPolicy, ObservedPodGroup
from koord.core.model.pods import Pod, PodPhase, RecordedPlan
from koord.domains.registry import make_pod_translator
from koord.kube.kind import TranslatorOptions
from koord.kube.translate.gangs import PodGroupTranslator
from koord.kube.wire import WireCustomResource, WirePod

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Fields = dict[str, Any]

NANOSECONDS = 10**9
CREATED = datetime(2026, 1, 1, tzinfo=UTC)


def make_defaults(case: Mapping[str, Any]) -> GangDefaults:
    return GangDefaults(wait_seconds=case.get("defaultTimeoutSeconds", 600))


def decode_pod(pod: Mapping[str, Any], defaults: GangDefaults, number: int = 0) -> Pod:
    """Decode the pod of a case; ``number`` is its position."""
    labels = dict(pod.get("labels") or {})
    if pod.get("gang"):
        labels[keys.POD_GROUP] = pod["gang"]
    owners = [{"name": owner} for owner in pod.get("owners", ())]
    manifest = {
        "metadata": {
            "uid": make_uid(pod),
            "name": pod.get("name", ""),
            "namespace": pod.get("namespace", ""),
            "labels": labels,
            "annotations": dict(pod.get("annotations") or {}),
            "ownerReferences": owners,
            "creationTimestamp": datetime.fromtimestamp(number, UTC),
        },
        "spec": {"nodeName": pod.get("nodeName", "")},
        "status": {"phase": pod.get("phase", "Pending")},
    }
    wire = msgspec.json.decode(msgspec.json.encode(manifest), type=WirePod)
    return make_pod_translator(TranslatorOptions(gang_defaults=defaults)).translate(wire)


def make_uid(pod: Mapping[str, Any]) -> str:
    return f"{pod.get('namespace', '')}/{pod.get('name', '')}"


def decode_pod_group(pod_group: Mapping[str, Any], defaults: GangDefaults) -> ObservedPodGroup:
    """Decode the PodGroup of a case."""
    annotations = dict(pod_group.get("annotations") or {})
    manifest = {
        "metadata": {
            "uid": make_uid(pod_group),
            "name": pod_group["name"],
            "namespace": pod_group["namespace"],
            "annotations": annotations,
            "creationTimestamp": pod_group.get("created"),
        },
        "spec": {
            "minMember": pod_group.get("minMember", 0),
            "scheduleTimeoutSeconds": pod_group.get("scheduleTimeoutSeconds"),
        },
        "status": pod_group.get("status", {}),
    }
    wire = msgspec.json.decode(msgspec.json.encode(manifest), type=WireCustomResource)
    return PodGroupTranslator(defaults).translate(wire)


def fill_book(case: Mapping[str, Any]) -> GangCache:
    defaults = make_defaults(case)
    book = GangCache(compat=True)
    for number, pod in enumerate(case.get("pods") or ()):
        book.upsert_pod(decode_pod(pod, defaults, number))
    for pod_group in case.get("podGroups") or ():
        book.upsert_pod_group(decode_pod_group(pod_group, defaults))
    return book


def keys_of(pods: Iterable[Pod]) -> list[str]:
    return [pod.key for pod in pods]


def describe(book: GangCache, key: str) -> Fields:
    """Write a gang with the field names of the cases."""
    spec = book.spec(key)
    settings = spec or GangSpec(key, 0, 0, 0, group=(key,), source=GangSource.ANNOTATION)
    members = book.members(key).values()
    return {
        "id": key,
        "initialized": spec is not None,
        "from": "crd" if settings.source is GangSource.POD_GROUP else "annotation",
        "source": settings.source.value,
        "minRequired": settings.min_member,
        "total": settings.total,
        "waitSeconds": settings.wait_seconds,
        "mode": settings.mode.value,
        "matchPolicy": settings.match_policy.value,
        "groups": list(settings.group),
        "children": keys_of(members),
        "pending": keys_of(pod for pod in members if not pod.node),
        "waiting": keys_of(pod for pod in members if not pod.node and pod.recorded),
        "bound": keys_of(pod for pod in members if pod.node),
        "onceSatisfied": is_satisfied(book, key),
    }


def gang_group_id(case: Fields) -> Fields:
    return {"id": make_group_id(case["gangs"] or ())}


def gang_id(case: Fields) -> Fields:
    return {"id": make_gang_key(case["namespace"], case["name"])}


def gang_name(case: Fields) -> Fields:
    pod = case["pod"] or {}
    named = parse_gang_name(pod.get("labels") or {}, pod.get("annotations") or {})
    return {"gang": named[0] if named else ""}


def gang_min(case: Fields) -> Fields:
    pod = case["pod"] or {}
    minimum = parse_min_available(pod.get("labels") or {}, pod.get("annotations") or {})
    return {"error": minimum.problem} if isinstance(minimum, BadSetting) else {"min": minimum}


def wait_seconds(case: Fields) -> Fields:
    defaults = GangDefaults(wait_seconds=case["defaultSeconds"])
    spec = case["podGroupSpec"] or {}
    return {"seconds": resolve_wait_seconds(spec.get("scheduleTimeoutSeconds"), defaults)}


def groups(case: Fields) -> Fields:
    listed = parse_groups(case["value"])
    if isinstance(listed, BadSetting):
        return {"error": listed.problem}
    return {"groups": listed}


def gang_cache(case: Fields) -> Fields:
    book = fill_book(case)
    for uid in case.get("thenDelete", ()):
        book.remove_pod(uid)
    return {"gangs": Exact({key: describe(book, key) for key in book.keys()})}  # noqa: SIM118


def gang_cache_update(case: Fields) -> Fields:
    defaults = make_defaults(case)
    pod_group = decode_pod_group(case["podGroup"], defaults)
    book = GangCache(compat=True)
    book.upsert_pod_group(pod_group)
    book.upsert_pod_group(decode_pod_group(case["podGroup"] | case["update"], defaults))
    return describe(book, pod_group.key)


def gang_cache_delete(case: Fields) -> Fields:
    defaults = make_defaults(case)
    book = GangCache(compat=True)
    for key in case["crdGangs"]:
        namespace, name = key.split("/")
        pod_group = {"namespace": namespace, "name": name, "minMember": 1}
        book.upsert_pod_group(decode_pod_group(pod_group, defaults))
    for number, pod in enumerate(case["annotationPods"]):
        book.upsert_pod(decode_pod(pod, defaults, number))
    book.remove_pod_group(case["deletePodGroup"])
    remaining = book.keys()
    return {
        "remaining": remaining,
        "gang": describe(book, remaining[0]) if remaining else None,
    }


def gang_summary(case: Fields) -> Fields:
    book = fill_book(case)
    key = case.get("gang") or book.keys()[0]
    gang = describe(book, key)
    return {
        "summary": {
            "name": key,
            "waitTime": gang["waitSeconds"] * NANOSECONDS,
            "mode": gang["mode"],
            "gangMatchPolicy": gang["matchPolicy"],
            "minRequiredNumber": gang["minRequired"],
            "totalChildrenNum": gang["total"],
            "gangGroup": gang["groups"],
            "hasGangInit": gang["initialized"],
            "onceResourceSatisfied": gang["onceSatisfied"],
            "gangFrom": gang["source"],
            "children": gang["children"],
            "pendingChildren": gang["pending"],
            "waitingForBindChildren": gang["waiting"],
            "boundChildren": gang["bound"],
        }
    }


def once_satisfied(case: Fields) -> Fields:
    book = GangCache(compat=True)
    for number, op in enumerate(case["ops"]):
        if op != "satisfy":
            raise NotImplementedError(op)
        book.upsert_pod(
            make_pod(f"p-{number}").gang("ns/a").released("n1", "p").bound("n1").build()
        )
    return {"onceSatisfied": is_satisfied(book, "ns/a")}


def permit(case: Fields) -> Fields:
    asking = case["pod"]["gang"]
    if asking is None:
        return {"status": "PodGroup not specified", "waitSeconds": 0}
    standings = {
        key: PermitState(
            min_member=gang["min"],
            policy=MatchPolicy(gang["matchPolicy"]),
            waiting=(case["waiting"] or {}).get(key, 0) + (key == asking),
            bound=(case["bound"] or {}).get(key, 0),
            is_satisfied=case["onceSatisfied"],
        )
        for key, gang in (case["gangs"] or {}).items()
    }
    own = (case["gangs"] or {}).get(asking)
    answer = permit_member(
        standings.get(asking),
        [standings.get(key) for key in own["groups"]] if own else [],
        compat=True,
    )
    status = "Success" if answer is Permit.GO else "Wait"
    return {"status": status, "waitSeconds": own["wait"] if answer is Permit.WAIT else 0}


def bind_annotations(case: Fields) -> Fields:
    group = make_group_id(case.get("groups") or [case["gang"]]) if case["gang"] else ""
    pods: dict[str, Pod] = {}
    released: frozenset[str] | None = None
    for name in case.get("permitOrder") or ():
        pods[name] = make_pod(name).uid(name).build()
        standing = PermitState(
            case["min"],
            MatchPolicy.ONCE_SATISFIED,
            waiting=len(pods),
            bound=0,
            is_satisfied=released is not None,
        )
        answer = permit_member(standing, [standing], compat=True)
        if answer is Permit.GO and released is None:
            released = frozenset(pods)
    pod = pods.get(case["bind"]) or make_pod(case["bind"]).uid(case["bind"]).build()
    if pod.name in case.get("thenPermit", ()):
        pod, released = release(pod, group, released or frozenset()), frozenset({pod.uid})
    record = make_bind_record(pod, group, released or ())
    annotations = encode_bind_record(record.group, record.member_count) if record else {}
    return {"annotations": Exact(annotations)}


def release(pod: Pod, group: str, members: frozenset[str]) -> Pod:
    """Release a pod whose binding then fails."""
    record = make_bind_record(pod, group, members)
    if record is None:
        return pod
    return replace(pod, recorded=RecordedPlan("n1", "plan", record.group, record.member_count))


def binding_info(case: Fields) -> Fields:
    members = case["bindingMembers"] or []
    asking = case.get("pod") or (members[0] if members else "pod")
    group = make_group_id(case["groups"] or ()) if case["gang"] else ""
    record = make_bind_record(make_pod("p").uid(asking).build(), group, members)
    if record is None:
        return {"info": None}
    return {"info": {"gangGroupId": record.group, "memberCount": record.member_count}}


def count_phases(case: Fields) -> PhaseInput:
    tally = Tally()
    for number, phase in enumerate(case["podPhases"]):
        pod = make_pod(f"p-{number}").phase(PodPhase(phase))
        tally.add((pod.bound("n1") if number < case["boundPods"] else pod).build())
    return PhaseInput(case["minMember"], tally, tally.succeeded, compat=True)


def podgroup_phase_settled(case: Fields) -> Fields:
    status = {**case.get("status", {}), "phase": case["previousPhase"]}
    if "createdHoursBeforeScheduleStart" in case:
        hours = case["createdHoursBeforeScheduleStart"]
        status["scheduleStartTime"] = CREATED + timedelta(hours=hours)
    pod_group = {
        "namespace": "ns",
        "name": "a",
        "minMember": case["minMember"],
        "created": CREATED,
        "status": status,
    }
    pods = [
        {
            "namespace": "ns",
            "name": f"p-{number}",
            "gang": "a",
            "phase": phase,
            "nodeName": "n1" if number < case["boundPods"] else "",
        }
        for number, phase in enumerate(case["podPhases"])
    ]
    book = fill_book({"pods": pods, "podGroups": [pod_group]})
    observed = observe(book, "ns/a", now=0.0)
    return write_phase(observed.phase, count_phases(case))


def podgroup_phase_step(case: Fields) -> Fields:
    counts = count_phases(case)
    return write_phase(step_phase(GangPhase(case["previousPhase"]), counts), counts)


def write_phase(phase: GangPhase, counts: PhaseInput) -> Fields:
    tally = counts.tally
    return {
        "phase": phase.value,
        "scheduled": tally.bound,
        "running": tally.running,
        "succeeded": tally.succeeded,
        "failed": tally.failed,
    }


def podgroup_occupied(case: Fields) -> Fields:
    namespace = case["podNamespace"]
    status = {"phase": case["previousPhase"], "occupiedBy": case["previousOccupiedBy"]}
    pod_group = {
        "namespace": namespace,
        "name": "a",
        "minMember": case["minMember"],
        "status": status,
    }
    pods = [
        {"namespace": namespace, "name": f"p-{i}", "gang": "a", "owners": case["ownerNames"]}
        for i in range(case["pods"])
    ]
    book = fill_book({"pods": pods, "podGroups": [pod_group]})
    observed = observe(book, make_gang_key(namespace, "a"), now=0.0)
    return {"occupiedBy": observed.occupied_by}


def occupied_fill(case: Fields) -> Fields:
    return {"occupiedBy": make_occupied_by(case["podNamespace"], case["ownerNames"])}


ADAPTERS = {
    "bind_annotations": bind_annotations,
    "binding_info": binding_info,
    "gang_cache": gang_cache,
    "gang_cache_delete": gang_cache_delete,
    "gang_cache_update": gang_cache_update,
    "gang_group_id": gang_group_id,
    "gang_id": gang_id,
    "gang_min": gang_min,
    "gang_name": gang_name,
    "gang_summary": gang_summary,
    "occupied_fill": occupied_fill,
    "once_satisfied": once_satisfied,
    "parse_groups": groups,
    "permit": permit,
    "podgroup_occupied": podgroup_occupied,
    "podgroup_phase_settled": podgroup_phase_settled,
    "podgroup_phase_step": podgroup_phase_step,
    "wait_seconds": wait_seconds,
}
