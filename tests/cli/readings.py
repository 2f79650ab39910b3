"""Makes readings of invented clusters, and explains objects in them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from tests.cluster import make_cluster
from tests.objects import upsert_pod_group

from koord.answers.explanation import Explanation
from koord.answers.leaders import Leader
from koord.answers.reading import Extent, Gap, NamedKind, Reading, Target, TargetDetails, TargetKind
from koord.answers.reports import Reported
from koord.answers.why import make_answer
from koord.core.model.gangs import ObservedPodGroup
from koord.core.model.nodes import Node
from koord.core.model.pods import Pod
from koord.kube.wire import WireCondition

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC).timestamp()
SINCE = "2026-03-01T11:58:00Z"

LEADING = Leader("koord-operators", "host_1", "2026-03-01T11:00:00Z", 2.0, None)
STOPPED = replace(LEADING, holder="", renewed=240.0)


def make_condition(kind: str, status: str, reason: str, message: str = "said") -> WireCondition:
    return WireCondition(
        type=kind, status=status, reason=reason, message=message, last_transition_time=SINCE
    )


def make_reading(
    *objects: Pod | Node | ObservedPodGroup,
    conditions: Iterable[WireCondition] = (),
    scheduler: str = "koord-scheduler",
    owners: tuple[str, ...] = (),
    gaps: Mapping[NamedKind, Extent] | None = None,
    rejected: Mapping[str, str] | None = None,
    leader: Leader | None = LEADING,
    reports: Mapping[str, Reported] | None = None,
) -> Reading:
    state = make_cluster().state
    for item in objects:
        match item:
            case Node():
                state.upsert_node(item)
            case ObservedPodGroup():
                upsert_pod_group(state, item)
            case Pod():
                state.upsert_pod(item)
    return Reading(
        state,
        TargetDetails({condition.type: condition for condition in conditions}, scheduler, owners),
        tuple(Gap(kind, extent) for kind, extent in (gaps or {}).items()),
        rejected or {},
        leader=leader,
        reports=reports or {},
    )


def ask_pod(reading: Reading, key: str = "default/w-0") -> Explanation:
    return make_answer(reading, Target(TargetKind.POD, *key.split("/")), NOW)


def ask_gang(reading: Reading, key: str = "default/a") -> Explanation:
    return make_answer(reading, Target(TargetKind.POD_GROUP, *key.split("/")), NOW)
