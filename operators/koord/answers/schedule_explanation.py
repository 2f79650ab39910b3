"""Why something waits, in the form of Koordinator's ScheduleExplanation: the answer of ``explain``.

The object is in a namespace, and whoever may create it there learns what pods there are told: of
other namespaces no names. What only Koordinator has is left out, never invented.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from koord.answers.decision_trace import plugin_of_cause
from koord.answers.explain import PlacementState, ShapeOffers
from koord.answers.explanation import Explanation
from koord.answers.reading import Reading, Target, TargetKind, TargetNotFoundError
from koord.answers.redaction import Sight
from koord.answers.why import make_answer
from koord.api.keys.gang import TOPOLOGY_KEY_TO_EXPLAIN
from koord.core.engine.state import ClusterState
from koord.core.model.pods import Pod
from koord.core.model.text import cut, format_time

MOST_NODES: Final = 200
"""Nodes that are named for each cause, and members that are named; nodes are counted beyond."""
MOST_CAUSES: Final = 50
MOST_DOMAINS: Final = 200
_MOST_TEXT: Final = 4096
_PLACED: Final = frozenset({PlacementState.PLACEABLE, PlacementState.BOUND, PlacementState.HELD_UP})


@dataclass(frozen=True, slots=True)
class ScheduleQuestion:
    """What an object asks about: ``key`` as it is written; ``namespace`` is that of the object."""

    namespace: str
    key: str


def explain_schedule(state: ClusterState, question: ScheduleQuestion, now: float) -> dict[str, Any]:
    """Return the status of a ScheduleExplanation at ``now``, in seconds since the epoch."""
    updated = {"lastUpdateTime": format_time(now)}
    try:
        target, pods = _find_target(state, question)
        sight = Sight(frozenset({question.namespace}), quotas=False)
        answer = make_answer(Reading(state, sight=sight), target, now)
    except TargetNotFoundError as error:
        return {**_verdict(str(error)), "detailedExplanation": [], **updated}
    layer = next(
        (pod.profile.labels[TOPOLOGY_KEY_TO_EXPLAIN] for pod in pods if _asks_for_layer(pod)), ""
    )
    whole = _verdict_of(answer)
    explanation = {**whole, "scheduleExplanation": whole | _tell_nodes(answer, pods)}
    domains = [{"topologyDomain": "", **explanation}, *_tell_domains(answer, layer)]
    return {**whole, "detailedExplanation": domains, **updated}


def _asks_for_layer(pod: Pod) -> bool:
    return TOPOLOGY_KEY_TO_EXPLAIN in pod.profile.labels


def _find_target(state: ClusterState, question: ScheduleQuestion) -> tuple[Target, list[Pod]]:
    """Return what is asked about, and its pods: a pod with a gang stands for its gang.

    A key is that of a pod, a PodGroup or a Job; those of a gang group are joined by commas.
    """
    key = question.key.partition(",")[0].strip()
    namespace, _, name = key.partition("/")
    if namespace != question.namespace:
        raise TargetNotFoundError(
            "questionObjectKey must be NAMESPACE/NAME in the namespace of the object"
        )
    pod = state.pod_by_key(key) or _find_pod_of_owner(state, namespace, name)
    gang = key if key in state.gangs else pod.gang.key if pod is not None and pod.gang else ""
    if gang:
        members = sorted(state.gangs.members(gang).values(), key=lambda member: member.key)
        gang_namespace, _, gang_name = gang.partition("/")
        return Target(TargetKind.POD_GROUP, gang_namespace, gang_name), members
    if pod is None:
        raise TargetNotFoundError(f"there is no pod, PodGroup or Job {cut(key)}")
    return Target(TargetKind.POD, pod.namespace, pod.name), [pod]


def _find_pod_of_owner(state: ClusterState, namespace: str, name: str) -> Pod | None:
    """Return the first pod that a controller of this name has made; None if there is none."""
    pods = (
        pod
        for pod in state.pods.values()
        if pod.namespace == namespace
        and any(owner.is_controller and owner.name == name for owner in pod.owners)
    )
    return min(pods, key=lambda pod: pod.key, default=None)


def _verdict(message: str) -> dict[str, Any]:
    """Return what is said of a unit, a node or a domain; without a message it can be placed."""
    return {"schedulable": not message, "failedMessage": cut(message, _MOST_TEXT)}


def _verdict_of(answer: Explanation) -> dict[str, Any]:
    explained = answer.waits or answer.reason
    if answer.standing in _PLACED:
        return _verdict("")
    return _verdict(str(answer.standing) if explained is None else explained.message)


def _tell_nodes(answer: Explanation, pods: Iterable[Pod]) -> dict[str, Any]:
    results = [
        {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "nodeName": pod.node}
        for pod in pods
        if pod.node and pod.namespace == answer.target.namespace
    ]
    return {
        "feasibleSchedulingResult": results[:MOST_NODES],
        "nodeFailedDetails": list(_tell_failures(answer.offers))[:MOST_CAUSES],
    }


def _tell_failures(offers: tuple[ShapeOffers, ...]) -> Iterator[Mapping[str, Any]]:
    """Yield why nodes take none of the first kind of pods, by plugin and reason."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for offer in offers[0].nodes if offers else ():
        if offer.cause is not None and not offer.pods:
            resource = offer.short[0][0] if offer.short else ""
            text = offer.cause.describe(resource, offer.detail)
            nodes.setdefault((plugin_of_cause(offer.cause), text), []).append(offer.node)
    for (plugin, text), names in sorted(nodes.items()):
        yield {
            "failedPlugin": plugin,
            "reason": text,
            "failedNodes": sorted(names)[:MOST_NODES],
            "failedNodeCount": len(names),
        }


def _tell_domains(answer: Explanation, layer: str) -> Iterator[dict[str, Any]]:
    """Yield what each domain of a layer has room for; none without a topology, or without room."""
    if not layer or answer.network is None:
        return
    wanted = sum(shape.pods for shape in answer.offers)
    of_layer = [domain for domain in answer.network.domains if domain.layer == layer]
    for domain in of_layer[:MOST_DOMAINS]:
        lacks = f"room for {domain.offer} of {wanted} pods on {domain.nodes} nodes"
        text = lacks if domain.offer < wanted else ""
        yield {"topologyDomain": "/".join(domain.path), **_verdict(text)}
