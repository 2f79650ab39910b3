"""What nodes said to a unit before it was planned, in the forms of Koordinator's scheduler.

Lines of its log, and names of its plugins, for people and scripts that know those.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from koord.core.engine.decision_trace import DecisionTrace, RefusingNodes, ScoreTable
from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.reasons import Reason
from koord.core.model.text import format_time, named

_PLUGINS: Final[Mapping[str, str]] = {
    "": "NodeResourcesFit",
    "node-resources-fit": "NodeResourcesFit",
    "node-resources-fit-plus": "NodeResourcesFitPlus",
    "node-rules": "TaintToleration+NodeAffinity",
    "inter-pod": "InterPodAffinity+PodTopologySpread",
    "scarce-resources": "ScarceResourceAvoidance",
    "device": "DeviceShare",
    "loadaware": "LoadAwareScheduling",
    "numa": "NodeNUMAResource",
    "quota": "ElasticQuota",
    "reservation": "Reservation",
}
"""Session -> the plugin of theirs that does the same."""
_PLUGINS_BY_CAUSE: Final[Mapping[str, str]] = {
    "NodeUnschedulable": "NodeUnschedulable",
    "UntoleratedTaint": "TaintToleration",
    "NodeAffinity": "NodeAffinity",
    "NodePorts": "NodePorts",
    "VolumeRestrictions": "VolumeRestrictions",
    "VolumeBinding": "VolumeBinding",
    "VolumeZone": "VolumeZone",
    "PodTopologySpreadLabel": "PodTopologySpread",
    "PodTopologySpread": "PodTopologySpread",
    "PodAffinity": "InterPodAffinity",
    "PodAntiAffinity": "InterPodAffinity",
    "ExistingPodAntiAffinity": "InterPodAffinity",
}
_CLAIM_IN_USE: Final = "VolumeRestrictions"


def plugin_name(session: str) -> str:
    """Return the plugin of theirs that does what a session does; its own name if there is none."""
    return _PLUGINS.get(session, session)


def plugin_of(refusing: RefusingNodes) -> str:
    """Return the plugin of theirs that refuses nodes for such a cause."""
    return _PLUGINS_BY_CAUSE.get(refusing.cause) or plugin_name(refusing.session)


def plugin_of_cause(cause: str) -> str:
    """Return the plugin of theirs that has such a cause: amounts, if no other has."""
    return _PLUGINS_BY_CAUSE.get(cause, _PLUGINS[""])


def describe_scores(table: ScoreTable) -> Iterator[str]:
    """Yield a table of scores as Markdown, line by line, under a line with its title."""
    names = [plugin_name(name) for name in table.scorers]
    title = f"Top{len(table.nodes)} scores for Pod: {table.pod}, feasibleNodes: {table.feasible}"
    yield f"{title}, plugins:[{' '.join(names)}]"
    columns = ("#", "Pod", "Node", "Score", *names)
    yield _row(columns)
    yield _row("---" for _ in columns)
    for number, score in enumerate(table.nodes):
        yield _row((number, table.pod, score.node, score.total, *score.parts))


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def encode_scores(tables: Iterable[ScoreTable]) -> list[dict[str, Any]]:
    """Return tables of scores for a record of the decision."""
    return [
        {
            "pod": table.pod,
            "node": score.node,
            "total": score.total,
            "parts": dict(zip(map(plugin_name, table.scorers), score.parts, strict=True)),
        }
        for table in tables
        for score in table.nodes
    ]


def dump_refusal(
    key: str, trace: DecisionTrace, reason: Reason, under_way: Reason | None, now: float
) -> str:
    """Return the line that they write for the first pod of a unit that was refused.

    ``under_way`` is how far a preemption for it is. What only they have is empty or null.
    """
    pod = trace.pod
    details = sorted(
        map(_describe_refusing, trace.refusing),
        key=lambda detail: (detail["failedPlugin"], detail["reason"], detail["preemptMightHelp"]),
    )
    document = {
        "timestamp": format_time(now),
        "questionedKey": key,
        "nominatedNode": "",
        "preFilterMessage": "" if isinstance(reason, InsufficientNodes) else reason.text(),
        "topologyKeyToExplain": "",
        "isRootCausePod": True,
        "scheduleDiagnosis": {
            "alreadyWaitForBound": reason.fit if isinstance(reason, InsufficientNodes) else 0,
            "nodeOfferSlot": dict(trace.room or {}),
            "nodeFailedDetails": details,
        },
        "preemptionDiagnosis": {
            "dryRunFilterDiagnosis": None,
            "otherDiagnosis": None,
            "failedMessage": "",
        },
        "suggestion": _suggest(trace, under_way),
    }
    target = f"targetPod: {pod.namespace}/{pod.name}/{pod.uid}"
    return f"dump diagnosis for {key}, {target}: {json.dumps(document)}"


def _suggest(trace: DecisionTrace, under_way: Reason | None) -> dict[str, str] | None:
    if under_way is not None:
        return {"type": "WaitingVictimReleased", "message": under_way.text()}
    for refusing in trace.refusing:
        if refusing.cause == _CLAIM_IN_USE:
            message = refusing.cause.advice.format(nodes=named(refusing.nodes), detail="")
            return {"type": "DeleteConflictPVC", "message": message}
    return None


def _describe_refusing(refusing: RefusingNodes) -> dict[str, Any]:
    return {
        "failedPlugin": plugin_of(refusing),
        "reason": refusing.text,
        "preemptMightHelp": refusing.may_help,
        "failedNodes": list(refusing.nodes),
        "failedNodeCount": refusing.many,
    }
