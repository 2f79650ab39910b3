"""The operator ``podgroup``: keeps the status of PodGroups."""

import time
from typing import TYPE_CHECKING, Final

from koord.api.podgroup import PodGroup
from koord.controllers.history import HistoryRecorder
from koord.controllers.pod_group import PodGroupStatusPolicy, ProblemReports
from koord.controllers.status_publishing import StatusPublisher
from koord.controllers.validation import ValidationSink
from koord.core.model.gang_history import OF_POD_GROUPS, Happened
from koord.domains.gang import NATIVE_POD_GROUPS, POD_GROUPS
from koord.domains.placement import NODES, PODS
from koord.domains.topology import TOPOLOGIES
from koord.kube.objects import ref_of_pod_group
from koord.kube.status import AFTER_BINDINGS, AT_ONCE, Pace, StatusWriter, applied_by
from koord.kube.write_check import Write
from koord.operators.names import POD_GROUP
from koord.operators.operator import Operator

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> ValidationSink:
    writer = make_group_writer(parts, "koord-podgroup", pace=AFTER_BINDINGS)
    policy = PodGroupStatusPolicy(
        state=parts.reader.state,
        sink=StatusPublisher(writer, ref_of_pod_group, events=parts.events),
        clock=time.monotonic,
        wall_clock=time.time,
        record=make_history(parts, "koord-podgroup-history", OF_POD_GROUPS).record,
        present=parts.reader.translator(POD_GROUPS).status_of,
    )
    controller = parts.keep_status(policy, when_synced=False)
    return ProblemReports(policy, controller.wake)


def make_history(parts: "Parts", manager: str, own: frozenset[Happened]) -> HistoryRecorder:
    writer = make_group_writer(parts, manager, pace=AFTER_BINDINGS)
    return HistoryRecorder(writer, own, parts.events, time.time)


def make_group_writer(parts: "Parts", manager: str, *, pace: Pace = AT_ONCE) -> StatusWriter:
    seen = parts.reader.translator(POD_GROUPS)
    return parts.make_writer(
        POD_GROUPS.plural,
        applied_by(manager),
        lambda ref: seen.status_of(ref.uid),
        pace=pace,
    )


OPERATOR: Final = Operator(
    POD_GROUP,
    PodGroup,
    start,
    reads=(PODS, NODES, POD_GROUPS, NATIVE_POD_GROUPS, TOPOLOGIES),
    writes=frozenset({Write("scheduling.sigs.k8s.io", "podgroups/status", "patch")}),
)
