"""What only the operators know takes the place of what was found here, while they run."""

import json
from dataclasses import replace

import msgspec
import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group
from tests.cli.readings import (
    LEADING,
    NOW,
    STOPPED,
    ask_gang,
    ask_pod,
    make_condition,
    make_reading,
)
from tests.cli.test_text import show

from koord.answers.encoding import encode
from koord.answers.explain import PlacementState
from koord.answers.gaps import list_warnings
from koord.answers.hints import _helps, find_help
from koord.answers.leaders import NOBODY, Leader
from koord.answers.queue_view import QueuePlace
from koord.answers.quota_view import ReportedQuota, list_remarks
from koord.answers.reading import Extent, Target, TargetKind, TargetNotFoundError
from koord.answers.reports import make_report
from koord.answers.standing import QueueStanding
from koord.answers.waiting import find_waiting
from koord.api.keys import operators
from koord.api.keys import quota as keys
from koord.cli.cluster import make_reported
from koord.core.gang.status import ConditionType
from koord.core.model.gangs import GangPhase
from koord.core.model.reasons import REASONS
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import NODES, PODS
from koord.domains.quota import QUOTAS
from koord.kube.wire import WireCustomResource

KEPT = "room for 1 pod is reserved for replacements of lost members of default/a, for 90 s more"
A = "default/a"
TARGET = Target(TargetKind.POD, "default", "")


def make_kept(leader: Leader | None = LEADING, code: str = "KeptForReplacements"):
    """A node with room for one more, which is kept for a gang that lost one of two."""
    condition = make_condition(operators.PLACED, "False", code, KEPT)
    left = make_pod("a-0").gang(A).gpu(4).released("n0", "p1", A, 2, 2).running("n0").build()
    return make_reading(
        make_node("n0").gpu(8).build(),
        make_pod_group(A, min_member=2).phase(GangPhase.RUNNING).build(),
        left,
        make_pod("w-0").gpu(4).created(NOW - 60).build(),
        conditions=[condition],
        reports={"default/w-0": make_report(condition)},
        leader=leader,
    )


@pytest.mark.parametrize(
    "code", ["KeptForReplacements", "TooExpensive", "QuotaCheckFailed", "InternalError"]
)
def test_a_reason_that_only_the_operators_know_is_the_reason(code: str) -> None:
    answer = ask_pod(make_kept(code=code))
    assert answer.standing is PlacementState.WAITING
    document = encode(answer)
    assert document["reason"] == {
        "code": code,
        "class": REASONS[code].reason_class,
        "message": KEPT,
        "fields": {},
    }
    assert document["reported"]["reason"] == code


def test_kept_room_is_the_reason_in_the_text_with_the_way_to_give_it_up() -> None:
    lines = show(ask_pod(make_kept())).splitlines()
    assert lines[0].startswith("Pod default/w-0 Waiting KeptForReplacements since")
    assert lines[1] == f"  {KEPT}"
    assert "the operators report; numbers in it may be some minutes old" in lines[2]
    assert "the nodes below are shown without it" in lines[3]
    text = "\n".join(lines)
    assert "There is room" not in text
    assert "The operators report" not in text
    assert "annotate the PodGroups of default/a with" in text


def test_kept_room_is_the_reason_in_the_queue() -> None:
    (waiting,) = find_waiting(make_kept(), TARGET)
    document = encode(waiting)
    assert (document["reason"], document["message"]) == ("KeptForReplacements", KEPT)


def test_a_report_on_a_member_counts_for_its_gang() -> None:
    report = make_report(make_condition(operators.PLACED, "False", "BindFailed"))
    members = [make_pod(f"w-{at}").gang(A).build() for at in range(2)]
    objects = (make_node("n0").build(), make_pod_group(A, min_member=2).build(), *members)
    (waiting,) = find_waiting(make_reading(*objects, reports={"default/w-1": report}), TARGET)
    assert waiting.reason.code == "BindFailed"


@pytest.mark.parametrize("leader", [STOPPED, NOBODY])
def test_what_operators_knew_that_have_stopped_does_not_count(leader: Leader) -> None:
    assert ask_pod(make_kept(leader)).standing is PlacementState.PLACEABLE
    assert [entry.reason.code for entry in find_waiting(make_kept(leader), TARGET)] == ["Planned"]


def test_the_report_counts_if_it_is_not_known_who_leads() -> None:
    assert ask_pod(make_kept(None)).standing is PlacementState.WAITING


def test_a_reason_that_can_be_found_here_does_not_outlive_its_cause() -> None:
    assert ask_pod(make_kept(code="InsufficientNodes")).standing is PlacementState.PLACEABLE


def test_a_restart_that_is_not_allowed_is_why_a_gang_is_degraded() -> None:
    degraded = make_condition(ConditionType.DEGRADED, "True", "RestartProtected", "a budget")
    left = make_pod("a-0").gang(A).released("n0", "p1", A, 2, 2).running("n0").build()
    group = make_pod_group(A, min_member=2).phase(GangPhase.RUNNING).build()
    answer = ask_gang(make_reading(make_node("n0").build(), group, left, conditions=[degraded]))
    assert answer.standing is PlacementState.DEGRADED
    assert answer.reason is not None
    assert (answer.reason.reason.code, answer.reason.message) == ("RestartProtected", "a budget")


WITHOUT_RIGHTS = {NODES: Extent.NOTHING, POD_GROUPS: Extent.NOTHING, PODS: Extent.NAMESPACE}


def test_without_rights_the_report_is_the_reason() -> None:
    condition = make_condition(operators.PLACED, "False", "InsufficientNodes", "0/3 nodes")
    report = make_report(condition)
    members = [make_pod(f"w-{at}").gang(A).build() for at in range(2)]
    reports = {"default/w-1": report, "default/single": report}
    single = make_pod("single").build()
    reading = make_reading(*members, single, gaps=WITHOUT_RIGHTS, reports=reports)
    gang = ask_gang(replace(reading, details=None))
    assert gang.reason is not None
    assert (gang.standing, gang.reason.message) == (PlacementState.WAITING, "0/3 nodes")
    queue = [
        (entry.position, entry.names, entry.reason.code) for entry in find_waiting(reading, TARGET)
    ]
    assert queue == [
        (0, ("default/single",), "InsufficientNodes"),
        (0, (A,), "InsufficientNodes"),
    ]


def test_without_rights_and_without_a_report_the_reason_is_not_known() -> None:
    reading = make_reading(make_pod("w-0").build(), gaps=WITHOUT_RIGHTS)
    assert [entry.reason.code for entry in find_waiting(reading, TARGET)] == ["NotKnown"]


def test_a_podgroup_that_may_not_be_read_is_not_reported_missing() -> None:
    with pytest.raises(TargetNotFoundError, match=r"may not list podgroups.*ask about one of its"):
        ask_gang(make_reading(gaps=WITHOUT_RIGHTS))


def test_places_and_quotas_of_a_partial_reading_are_those_of_the_operators() -> None:
    condition = make_condition(operators.PLACED, "False", "InsufficientMax", "told")
    reading = make_reading(
        make_pod_group(A, 1).build(),
        make_pod("a-0").gang(A).gpu(8).build(),
        make_pod("alone").gpu(8).quota("mine").build(),
        gaps={NODES: Extent.NOTHING, PODS: Extent.NAMESPACE, QUOTAS: Extent.NOTHING},
        reports={"default/a-0": make_report(condition)},
    )
    reading = replace(reading, places={A: QueuePlace(7, 40)}, reported_quotas=(make_team(),))
    told = QueueStanding("team", 3, 9, 2, 8, "WaitingForNodes", expected_start=60)
    reading = replace(reading, standings={A: told})
    first, second = find_waiting(reading, TARGET, lambda: False)
    assert (first.standing, second.standing) == (told, None)
    assert (first.position, first.gpus_ahead, first.quotas) == (7, 40, ("team",))
    assert (first.reason.code, first.reason.text()) == ("InsufficientMax", "told")
    assert (second.position, second.gpus_ahead, second.quotas) == (0, 0, ("mine",))
    (warning,) = list_warnings(reading, TARGET)
    assert warning.startswith("you may read namespace default only")


def make_team(**status: object) -> ReportedQuota:
    body = {
        "metadata": {
            "name": "team",
            "namespace": "default",
            "uid": "u",
            "annotations": {
                keys.NAMESPACES: '["default"]',
                keys.CHILD_REQUEST: f'{{"{GPU}":"24"}}',
            },
        },
        "spec": {"min": {GPU: 8}, "max": {GPU: 16}},
        "status": status,
    }
    return make_reported(msgspec.json.decode(json.dumps(body), type=WireCustomResource))


def test_a_reported_quota_has_the_numbers_of_its_status() -> None:
    over = {"type": "OverEntitlement", "status": "True", "message": "uses 4 more"}
    ready = {"type": "Ready", "status": "True", "message": "the quota is active"}
    reported = make_team(used={GPU: "12"}, runtime={GPU: 8}, conditions=[over, ready])
    summary = reported.view.summary
    assert (summary.used, summary.share, summary.child_request) == ({GPU: 12}, {GPU: 8}, {GPU: 24})
    assert (reported.view.state, reported.view.over[0].over) == ("OverEntitlement", 4)
    assert [*list_remarks(reported)] == ["OverEntitlement: uses 4 more"]


@pytest.mark.parametrize("status", [{"used": {GPU: "many"}}, {"used": 3}, {"conditions": 1}])
def test_a_status_that_makes_no_sense_says_nothing(status: dict[str, object]) -> None:
    assert make_team(**status).view.summary.used == {}


def test_a_reason_of_which_only_the_code_is_known_has_the_help_of_the_reference() -> None:
    condition = make_condition(operators.PLACED, "False", "InsufficientMax", "told")
    reading = make_reading(
        make_pod("w-0").build(), conditions=[condition], gaps={NODES: Extent.NOTHING}
    )
    (advice,) = ask_pod(reading).advice
    assert "ask the administrators to raise max" in advice
    for code in _helps():
        assert not {"[", "`"} & {*find_help(code)}, code
