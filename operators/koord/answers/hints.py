"""Hints: similar names and exact keys, found in the rest of the cluster.

The advice of a reason itself is in the core. A hint only names what really exists.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from koord.answers.conditions import list_conditions
from koord.answers.quota_users import hint_at_quota
from koord.answers.reports import ReportedReason
from koord.api.keys import gang as keys
from koord.api.keys import operators
from koord.api.misspelled_keys import MisspelledKey
from koord.api.pod_qos import AGENT_KEYS
from koord.api.resource_names import find_nearest_resource
from koord.core.engine.reasons import InsufficientNodes
from koord.core.engine.state import ClusterState
from koord.core.gang.quorum import count_to_replace
from koord.core.gang.reasons import (
    BelowMin,
    GangCount,
    HeldForReplacements,
    MissingMembers,
    MissingPodGroup,
)
from koord.core.model.gangs import GangKey
from koord.core.model.nodes import Node
from koord.core.model.pods import Pod, PodShape
from koord.core.model.qos_rules import describe, find_qos_problems
from koord.core.model.reasons import Reason, WaitingForForeignGate
from koord.core.model.text import named, plural
from koord.core.quota.entitlement import UNKNOWN, ReclaimSetting
from koord.core.quota.reasons import QuotaExceeded

MAX_HINTS: Final = 2
MAX_NAMES: Final = 4
_LIKENESS: Final = 0.75
_NOT_OF_GANGS: Final = AGENT_KEYS | {operators.PLAN}
"""Keys that are told of a pod, and keep it from no gang."""
_OVER_COMMITTED: Final = ("/batch-cpu", "/batch-memory", "/mid-cpu", "/mid-memory")
"""Resources that nodes offer beside their own, from what prod pods leave."""


def find_hints(
    state: ClusterState,
    reason: Reason,
    ignored: Iterable[tuple[Pod, MisspelledKey]] = (),
    reclaim: ReclaimSetting = UNKNOWN,
) -> tuple[str, ...]:
    """Return hints for a reason; ``ignored`` are gated pods, and a misspelled key of each."""
    match reason:
        case MissingPodGroup(gang):
            hints = _find_pod_group(state, gang)
        case MissingMembers(gangs):
            hints = (hint for gang in gangs for hint in _find_members(state, gang, tuple(ignored)))
        case InsufficientNodes():
            hints = _find_on_nodes(state, reason)
        case ReportedReason(code=HeldForReplacements.code):
            hints = _find_kept(state)
        case QuotaExceeded():
            hints = hint_at_quota(state, reason, reclaim)
        case _:
            return ()
    return tuple(hint for hint, _ in zip(hints, range(MAX_HINTS), strict=False))


def find_gate_hints(state: ClusterState, reason: Reason) -> tuple[str, ...]:
    """Return all there is to say if gates that are probably misspelled are behind a reason."""
    match reason:
        case WaitingForForeignGate(_, gates):
            return hint_at_gates(gates)
        case MissingMembers(gangs):
            members = (
                pod for gang_count in gangs for pod in state.gangs.members(gang_count.gang).values()
            )
            waiting = (pod for pod in members if pod.is_alive and not pod.node)
            return hint_at_gates(sorted({gate for pod in waiting for gate in pod.foreign_gates}))
        case _:
            return ()


def hint_at_gates(gates: Iterable[str]) -> tuple[str, ...]:
    """Return hints for those of other controllers' gates that are nearly ours."""
    hints = tuple(
        f"Nobody removes the gate {gate}. Did you mean {operators.PLACEMENT_GATE}?"
        for gate in gates
        if gate.startswith(operators.PREFIX) or _nearest(gate, (operators.PLACEMENT_GATE,))
    )
    correct = (
        "Correct it in the pod template and create the pods again: no gate can be added later."
    )
    return (*hints[:MAX_HINTS], correct) if hints else ()


def find_qos_hints(pod: Pod) -> tuple[str, ...]:
    """Return which rules of QoS and priority class a pod breaks: policies may refuse its like."""
    requests = {name: amount for name, amount in pod.shape.requests if amount}
    problems = find_qos_problems(pod.profile.labels, pod.priority, requests)
    texts = map(describe, problems)
    return tuple(f"{text[0].upper()}{text[1:]}." for text in texts)[:MAX_HINTS]


def find_owner_hints(state: ClusterState, gang: GangKey, below: BelowMin) -> tuple[str, ...]:
    """Return who replaces the lost members of a gang, and where to look if nobody does."""
    members = state.gangs.members(gang).values()
    owners = {(own.kind, own.name) for pod in members for own in pod.owners if own.is_controller}
    if not owners:
        return below.advice()
    namespace = gang.partition("/")[0]
    kind, name = min(owners)
    all_named = named([f"{kind} {name}" for kind, name in sorted(owners)])
    are = "is" if len(owners) == 1 else "are"
    return (
        f"{all_named} {are} expected to create {plural(below.lacking, 'member')} again.",
        f"If that does not happen, see why: kubectl describe {kind.lower()} -n {namespace} {name}",
    )


def _find_pod_group(state: ClusterState, gang: GangKey) -> Iterator[str]:
    namespace, name = gang.split("/", 1)
    gang_keys = state.gangs.keys()
    groups = [key.split("/", 1) for key in gang_keys if state.gangs.pod_group(key) is not None]
    if close := _nearest(name, (other for place, other in groups if place == namespace)):
        yield f"There is a PodGroup {close}. Did you mean that?"
    elif elsewhere := [place for place, other in groups if other == name]:
        places = ", ".join(elsewhere[:MAX_NAMES])
        yield f"There is a PodGroup {name} in {places}: it must be in the namespace of its pods."


def _find_members(
    state: ClusterState, count: GangCount, ignored: Iterable[tuple[Pod, MisspelledKey]]
) -> Iterator[str]:
    if state.gangs.members(count.gang):
        return
    namespace, name = count.gang.split("/", 1)
    tallies = {key: state.gangs.tally(key) for key in state.gangs.keys()}  # noqa: SIM118 - no dict
    orphans = {
        key.split("/", 1)[1]: tally.label_claims
        for key, tally in tallies.items()
        if key.startswith(f"{namespace}/") and state.gangs.pod_group(key) is None
    }
    if close := _nearest(name, (orphan for orphan, claims in orphans.items() if claims)):
        pods = "1 pod names" if orphans[close] == 1 else f"{orphans[close]} pods name"
        yield f"{pods} {close}, and there is no such PodGroup. Did you mean {name}?"
        return
    near = (key for pod, key in ignored if pod.namespace == namespace)
    wrong = Counter(key for key in near if key.key not in _NOT_OF_GANGS)
    for key, number in wrong.items():
        have = "pod of the namespace has" if number == 1 else "pods of the namespace have"
        yield f"{number} {have} the key {key.key}, which {key.problem}."
    loose = [pod for pod in state.pods.values() if pod.namespace == namespace and pod.gang is None]
    owners = Counter((owner.kind, owner.name) for pod in loose for owner in pod.owners)
    of_name = {kind: number for (kind, owner), number in owners.items() if owner == name}
    for kind, number in of_name.items():
        template = f"its template lacks the label {keys.POD_GROUP}: {name}"
        yield f"{kind} {name} has {plural(number, 'pod')} that do not join it: {template}."
    if not wrong and not of_name:
        yield f"Pods join it by their label {keys.POD_GROUP}: {name}, in namespace {namespace}."


def _find_kept(state: ClusterState) -> Iterator[str]:
    """Yield what would help if the operators say that room is kept for lost members."""
    losing = (key for key in state.gangs.keys() if count_to_replace(state.gangs, key))  # noqa: SIM118
    keeping = ((key, state.gangs.spec(key)) for key in losing)
    if gangs := tuple(sorted(key for key, spec in keeping if spec is not None and spec.keeps_room)):
        yield from HeldForReplacements(gangs, 0, 0).advice()


def _find_on_nodes(state: ClusterState, reason: InsufficientNodes) -> Iterator[str]:
    pod = state.pod_by_key(reason.first)
    if pod is None or not state.table.row_of:
        return
    nodes = [state.table.node_at(row) for _, row in state.table.live_rows()]
    yield from _find_resource(nodes, pod.shape)
    yield from _find_labels(nodes, pod.shape)


def _find_resource(nodes: Iterable[Node], shape: PodShape) -> Iterator[str]:
    offered = {
        resource for node in nodes for resource, amount in node.allocatable.items() if amount
    }
    for resource, amount in shape.requests:
        if not amount or resource in offered:
            continue
        if resource.endswith(_OVER_COMMITTED):
            yield (
                f"No node offers any {resource}. Nodes do once over-commit is on: ask the "
                "administrators for a ColocationPolicy."
            )
            continue
        nearest = find_nearest_resource(resource, offered)
        if "/" in resource and not nearest:
            yield f"No node has any {resource}: look whether the device plugin that offers it runs."
        else:
            yield f"No node has any {resource}{_suggest(nearest)}"


def _find_labels(nodes: Iterable[Node], shape: PodShape) -> Iterator[str]:
    values: dict[str, set[str]] = {}
    for node in nodes:
        for key, value in node.labels.items():
            values.setdefault(key, set()).add(value)
    for key, value in shape.node_selector:
        if key not in values:
            yield f"No node has a label {key}{_suggest(_nearest(key, values))}"
        elif value not in values[key]:
            listed = ", ".join(sorted(values[key])[:MAX_NAMES])
            more = ", …" if len(values[key]) > MAX_NAMES else ""
            yield f"No node has the label {key}={value}; its values are {listed}{more}."


def _nearest(name: str, names: Iterable[str]) -> str:
    return next(iter(get_close_matches(name, sorted(names), 1, _LIKENESS)), "")


def _suggest(name: str) -> str:
    return f". Did you mean {name}?" if name else "."


_IN_BRACKETS: Final = re.compile(r" \(\[[^\]]*\]\([^)]*\)\)")


_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def find_help(code: str) -> str:
    """Return a sentence of the reference; empty if it has none."""
    text = _LINK.sub(r"\1", _IN_BRACKETS.sub("", _helps().get(code, ""))).replace("`", "")
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _helps() -> dict[str, str]:
    return {entry.name: entry.helps for entry in list_conditions() if entry.is_reason}
