"""What the status of a pod says: conditions of the operators, of kube-scheduler and the kubelet."""

from datetime import datetime
from typing import Final

import msgspec

from koord.api.keys import operators
from koord.core.eviction.model import read_victim_text
from koord.core.model.pods import PodPhase, PreemptedBy
from koord.kube.decode import MALFORMED
from koord.kube.preemption_records import read_preempted_by
from koord.kube.wire import PodStatus, WireCondition, WirePod

POD_SCHEDULED: Final = "PodScheduled"
UNSCHEDULABLE: Final = "Unschedulable"
_OUT_OF: Final = "OutOf"
_ADMISSION_FAILURES: Final = frozenset(
    {
        "InvalidNodeInfo",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "TaintToleration",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
"""``status.reason`` of pods that a kubelet rejected, besides ``OutOf`` and a resource."""


def find_unschedulable(wire: WirePod) -> WireCondition | None:
    conditions = () if wire.spec.node_name else wire.status.conditions or ()
    wanted = POD_SCHEDULED, UNSCHEDULABLE
    matching = (
        condition for condition in conditions if (condition.type, condition.reason) == wanted
    )
    return next(matching, None)


def has_condition(wire: WirePod, kind: str) -> bool:
    return any(
        condition.type == kind and condition.status == "True"
        for condition in wire.status.conditions or ()
    )


def read_preemption(wire: WirePod) -> PreemptedBy | None:
    """Return for whom a marked pod goes: as its condition says, which its owner cannot write.

    Marks of earlier releases, and in other words, have it in the annotation.
    """
    if not has_condition(wire, operators.PREEMPTED):
        return None
    conditions = wire.status.conditions or ()
    text = next(
        (condition.message for condition in conditions if condition.type == operators.PREEMPTED), ""
    )
    preempted_by = read_victim_text(text or "")
    return preempted_by or read_preempted_by(
        (wire.metadata.annotations or {}).get(operators.PREEMPTED_BY, "")
    )


def read_marked(wire: WirePod, is_eviction_pending: bool, by: PreemptedBy | None) -> float:  # noqa: FBT001
    """Return when a pod was marked: only operators write the conditions."""
    if not is_eviction_pending and by is None:
        return 0.0
    kind = operators.PREEMPTED if by is not None else operators.OVER_ENTITLEMENT
    conditions = wire.status.conditions or ()
    times = (condition.last_transition_time for condition in conditions if condition.type == kind)
    return read_time(next(times, None) or "")


def find_protected(wire: WirePod) -> float:
    """Return since when disruption budgets protect a pod from reclaim: only operators write it."""
    wanted = operators.OVER_ENTITLEMENT, operators.PROTECTED_BY_BUDGET
    conditions = wire.status.conditions or ()
    protections = (
        condition for condition in conditions if (condition.type, condition.reason) == wanted
    )
    return next((read_time(condition.last_transition_time or "") for condition in protections), 0.0)


def read_rejection(status: PodStatus) -> str:
    if status.phase != PodPhase.FAILED:
        return ""
    reason = status.reason
    is_known = reason in _ADMISSION_FAILURES or reason.startswith(_OUT_OF)
    return reason if is_known else ""


def read_wait_reason(wire: WirePod) -> str:
    for condition in wire.status.conditions or ():
        if condition.type == operators.PLACED:
            return condition.reason
    return ""


def read_time(text: str) -> float:
    """Return a time of RFC 3339 in seconds since the epoch; 0 if there is none."""
    if not text:
        return 0.0
    try:
        return msgspec.convert(text, datetime).timestamp()
    except MALFORMED:
        return 0.0
