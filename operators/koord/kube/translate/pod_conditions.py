"""What the status of a pod says: conditions of the operators, of kube-scheduler and the kubelet."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from koord.api.keys import operators
from koord.core.eviction.model import read_victim_text
from koord.core.model.pods import PodPhase, PreemptedBy
from koord.core.model.text import cut
from koord.kube.decode import MALFORMED
from koord.kube.preemption_records import read_preempted_by
from koord.kube.wire import PodStatus, WireCondition, WirePod

POD_SCHEDULED: Final = "PodScheduled"
UNSCHEDULABLE: Final = "Unschedulable"
GATED: Final = "SchedulingGated"
SCALE_UP: Final = "koord-operators: "
"""How our message begins where we mark a pod with a gate for cluster autoscalers."""
_DISRUPTION: Final = "DisruptionTarget"
_MOST_REASON: Final = 64
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


_TERMINAL: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})
_ENDED_BY: Final = frozenset(
    {"Ready", "ContainersReady", "PodReadyToStartContainers", "DisruptionTarget"}
)
"""Conditions of pods that change when their containers end."""


def find_unschedulable(wire: WirePod) -> WireCondition | None:
    """Return what kube-scheduler says of a pod for which it finds no node."""
    conditions = () if wire.spec.node_name else wire.status.conditions or ()
    wanted = POD_SCHEDULED, UNSCHEDULABLE
    matching = (
        condition
        for condition in conditions
        if (condition.type, condition.reason) == wanted and not is_scale_up_mark(condition)
    )
    return next(matching, None)


def is_scale_up_mark(condition: WireCondition) -> bool:
    """Whether a condition is our mark for autoscalers. It stays when the gate is taken off."""
    is_ours = (condition.message or "").startswith(SCALE_UP)
    return is_ours and (condition.type, condition.reason) == (POD_SCHEDULED, UNSCHEDULABLE)


class PodMarks(NamedTuple):
    """What operators, schedulers and the kubelet say of a pod; only they write its conditions."""

    is_reclaimed: bool = False
    is_eviction_pending: bool = False
    preempted_by: PreemptedBy | None = None
    since: float = 0.0
    """When it was marked for eviction or preemption; 0: it is not."""
    protected: float = 0.0
    """Since when disruption budgets protect it from reclaim; 0: they do not."""
    rejection: str = ""
    wait_reason: str = ""
    bound: float = 0.0
    """When it was bound, as the API server writes with the binding; 0: it was not."""
    disruption: str = ""
    """Why it is ended by something other than itself, as Kubernetes says; empty: it is not."""


def read_marks(wire: WirePod) -> PodMarks:
    conditions: dict[str, WireCondition] = {}
    for condition in wire.status.conditions or ():
        conditions.setdefault(condition.type, condition)
    rejection = _read_rejection(wire.status)
    if not conditions:
        return PodMarks(rejection=rejection)
    is_deleted = wire.metadata.deletion_timestamp is not None
    eviction, placed = conditions.get(operators.OVER_ENTITLEMENT), conditions.get(operators.PLACED)
    is_reclaimed = eviction is not None and eviction.status == "True"
    preempted_by, since, protected = _read_preemption(wire, conditions), 0.0, 0.0
    if preempted_by is not None:
        since = _time_of(conditions[operators.PREEMPTED])
    elif eviction is not None and is_reclaimed and not is_deleted:
        since = _time_of(eviction)
    if eviction is not None and eviction.reason == operators.PROTECTED_BY_BUDGET and not is_deleted:
        protected = _time_of(eviction)
    return PodMarks(
        is_reclaimed,
        is_reclaimed and not is_deleted,
        preempted_by,
        since,
        protected,
        rejection,
        "" if placed is None else placed.reason,
        _read_bound(wire, conditions.get(POD_SCHEDULED)),
        _read_disruption(conditions.get(_DISRUPTION)),
    )


def _read_disruption(target: WireCondition | None) -> str:
    is_target = target is not None and target.status == "True"
    return cut(target.reason, _MOST_REASON) if target is not None and is_target else ""


def _read_bound(wire: WirePod, scheduled: WireCondition | None) -> float:
    is_bound = bool(wire.spec.node_name) and scheduled is not None and scheduled.status == "True"
    return _time_of(scheduled) if scheduled is not None and is_bound else 0.0


def _time_of(condition: WireCondition) -> float:
    return read_time(condition.last_transition_time or "")


def _read_preemption(wire: WirePod, conditions: Mapping[str, WireCondition]) -> PreemptedBy | None:
    """Return for whom a marked pod goes: as its condition says, which its owner cannot write.

    Marks of earlier releases, and in other words, have it in the annotation.
    """
    condition = conditions.get(operators.PREEMPTED)
    if condition is None or condition.status != "True":
        return None
    return read_victim_text(condition.message or "") or read_preempted_by(
        (wire.metadata.annotations or {}).get(operators.PREEMPTED_BY, "")
    )


def _read_rejection(status: PodStatus) -> str:
    if status.phase != PodPhase.FAILED:
        return ""
    reason = status.reason
    is_known = reason in _ADMISSION_FAILURES or reason.startswith(_OUT_OF)
    return reason if is_known else ""


def read_finished(status: PodStatus) -> float:
    """Return when a pod had succeeded or failed, in seconds since the epoch; 0 if nobody knows.

    Kubelets say it for each container, and of the whole pod that it is no longer ready.
    """
    if status.phase not in _TERMINAL:
        return 0.0
    times = [_time_of(each) for each in status.conditions or () if each.type in _ENDED_BY]
    return max(times, default=0.0)


def read_time(text: str) -> float:
    """Return a time of RFC 3339 in seconds since the epoch; 0 if there is none."""
    if not text:
        return 0.0
    try:
        return msgspec.convert(text, datetime).timestamp()
    except MALFORMED:
        return 0.0
