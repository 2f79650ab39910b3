"""Random clusters, recorded: what they have before anything is planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.recorded.scenarios import make_scenario

from koord.core.model.nodes import Namespace
from koord.core.model.pods import PodPhase
from koord.core.quota.model import QuotaOptions
from koord.replay.recorded import RecordedCluster

KINDS = {
    "pod": "pods",
    "node": "nodes",
    "group": "podgroups",
    "quota": "elasticquotas",
    "topology": "clusternetworktopologies",
    "volume": "persistentvolumes",
    "claim": "persistentvolumeclaims",
    "storage class": "storageclasses",
}
ENDS: dict[str, dict[str, Any]] = {
    "end pod": {"is_terminating": True},
    "fail pod": {"phase": PodPhase.FAILED},
    "finish pod": {"phase": PodPhase.SUCCEEDED},
}


def record_world(number: int) -> RecordedCluster:
    """Return cluster ``number`` as it is before anything is planned."""
    scenario = make_scenario(number)
    step = scenario.steps[0]
    values: dict[str, list[Any]] = {name: [] for name in (*KINDS.values(), "namespaces")}
    for change in step.changes:
        if change.verb == "namespace":
            values["namespaces"].append(Namespace(*change.value))
        elif change.verb in ENDS:
            at, pod = next(
                (at, pod) for at, pod in enumerate(values["pods"]) if pod.uid == change.value
            )
            values["pods"][at] = replace(pod, **ENDS[change.verb])
        elif change.verb == "remove pod":
            values["pods"] = [pod for pod in values["pods"] if pod.uid != change.value]
        else:
            values[KINDS[change.verb]].append(change.value)
    return RecordedCluster(
        now=step.now,
        values={name: tuple(objects) for name, objects in values.items()},
        options=(QuotaOptions(limits_by_share=scenario.limits_by_share),),
        compat=scenario.is_compat,
    )
