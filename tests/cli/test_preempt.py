"""What ``koord preempt`` and ``koord explain`` say of preemption."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cli.readings import ask_pod, make_condition
from tests.cluster import FakeCluster, make_cluster
from tests.objects import upsert_pod_group
from typer.testing import CliRunner

from koord.answers.encoding import encode
from koord.answers.explain import PlacementState, explain_gang
from koord.answers.preemption import PreemptionAnswer, find_plan, find_unit, hint_at_preemption
from koord.answers.queue_view import view_queue
from koord.answers.reading import Reading, ReportedPreemption, Target, TargetDetails, TargetKind
from koord.answers.why import make_answer
from koord.api.keys.operators import OVER_ENTITLEMENT
from koord.cli.main import app
from koord.cli.output import to_json
from koord.cli.preempt_view import make_parts
from koord.core.engine.reasons import InsufficientNodes
from koord.core.engine.scoring import Scoring
from koord.core.eviction.model import Preemption
from koord.core.eviction.preemption import WaitingForPreemption, find_preempting, nominate
from koord.core.eviction.reasons import NobodyLower, VictimsProtected
from koord.core.eviction.search import PreemptionContext
from koord.core.model.gang_history import Episode
from koord.core.model.pods import Handling, PreemptedBy

if TYPE_CHECKING:
    from collections.abc import Callable

    from koord.core.model.plan import Unit
    from koord.core.model.pods import Pod
    from koord.core.model.reasons import Reason

WHY = InsufficientNodes(want=1, fit=0, nodes=1, refused=(), first="")
GANG = Target(TargetKind.POD_GROUP, "default", "high")


def make_full() -> FakeCluster:
    cluster = make_cluster().nodes(make_node("n1").gpu(8), make_node("n2").gpu(8))
    for name, node in (("low-1", "n1"), ("low-2", "n2")):
        cluster.pods(make_pod(name).gpu(8).released(node, "p").running(node))
    cluster.gang("high", 2)
    for at in range(2):
        cluster.pods(make_pod(f"high-{at}").gang("default/high").gpu(8).priority(10))
    return cluster


def find(cluster: FakeCluster) -> Unit:
    unit = find_unit(cluster.state, GANG)
    assert unit is not None
    return unit


def print_parts(
    unit: Unit, outcome: Preemption | Reason, settings: ReportedPreemption | None
) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        for part in make_parts(unit, outcome, settings):
            console.print(part)
    return capture.get()


def test_plan_is_printed_in_full() -> None:
    cluster = make_full()
    unit = find(cluster)
    outcome = find_plan(cluster.state, unit, None)
    assert isinstance(outcome, Preemption)
    text = print_parts(unit, outcome, None)
    assert "default/high (priority 10) would preempt 2 pods and start on 2 nodes" in text
    assert "default/low-1" in text
    assert "No victim can be spared" in text
    document = json.loads(to_json(encode(PreemptionAnswer(unit, outcome, None))))
    assert document["preempts"] is True
    assert set(document["placements"].values()) == {"n1", "n2"}
    assert {victim["name"] for victim in document["victims"]} == {"default/low-1", "default/low-2"}


def test_reason_is_printed_when_nobody_is_preempted() -> None:
    cluster = make_full()
    for at in range(2):
        pod = cluster.pod(f"high-{at}")
        cluster.pods(make_pod(pod.name).gang("default/high").gpu(8))
    unit = find(cluster)
    document = encode(PreemptionAnswer(unit, find_plan(cluster.state, unit, None), None))
    assert document["preempts"] is False
    assert document["reason"] == "NobodyLower"


@pytest.mark.parametrize(
    ("settings", "names", "ends"),
    [
        (None, "low-1 low-2", "unless preemption.enabled is off."),
        (ReportedPreemption(), "low-1 low-2", "; the operators do so."),
        (ReportedPreemption(enabled=False), "low-1 low-2", "preemption.enabled is false."),
        (ReportedPreemption(min_runtime=60.0), "", "2 within their minimum runtime"),
    ],
)
def test_settings_of_the_operators_count(
    settings: ReportedPreemption | None, names: str, ends: str
) -> None:
    cluster = make_full()
    for name in ("low-1", "low-2"):
        cluster.pods(replace(cluster.pod(name), started=1000.0))
    unit = find(cluster)
    outcome = find_plan(cluster.state, unit, settings, PreemptionContext(1059.0))
    document = encode(PreemptionAnswer(unit, outcome, settings))
    named = sorted(
        victim["name"].removeprefix("default/") for victim in document.get("victims", ())
    )
    assert " ".join(named) == names
    assert document["enabled"] == (None if settings is None else settings.enabled)
    printed = print_parts(unit, outcome, settings)
    assert ends in printed.splitlines()[1 if not names else 0] + document.get("message", "")


@pytest.mark.parametrize(
    "make_running",
    [
        lambda pod: replace(pod, priority=10),
        lambda pod: replace(pod, is_terminating=True),
        lambda pod: replace(pod, handling=Handling.NOT_OURS, recorded=None),
    ],
    ids=["nobody-lower", "terminating", "protected"],
)
def test_the_hint_is_what_a_search_would_find(
    make_running: Callable[[Pod], Pod],
) -> None:
    cluster = make_full()
    for name in ("low-1", "low-2"):
        cluster.pods(make_running(cluster.pod(name)))
    unit = find(cluster)
    reason = find_plan(cluster.state, unit, None)
    hints = hint_at_preemption(Reading(cluster.state), GANG, WHY, unit, 0.0)
    assert not isinstance(reason, Preemption)
    silent = isinstance(reason, NobodyLower)
    assert hints == (() if silent else (f"Nobody is preempted for it: {reason.text()}",))


def test_an_answer_shows_the_room_as_it_is_and_not_what_the_gang_would_leave() -> None:
    cluster = make_cluster().nodes(make_node("n1").gpu(8), make_node("n2").gpu(8))
    cluster.gang("a", 2)
    for at in range(2):
        cluster.pods(make_pod(f"a-{at}").gang("default/a").gpu(8))
    explained = explain_gang(cluster.state, "default/a", Scoring())
    assert explained.standing is PlacementState.PLACEABLE
    assert [offers.fit for offers in explained.offers] == [2]
    assert explained.refused is None


def test_while_victims_terminate_every_answer_says_so() -> None:
    cluster = make_full()
    unit = find(cluster)
    outcome = find_plan(cluster.state, unit, None)
    assert isinstance(outcome, Preemption)
    cluster.state.nominations.begin(nominate(outcome))
    for name in ("low-1", "low-2"):
        cluster.pods(
            replace(cluster.pod(name), preempted_by=PreemptedBy("", "", ""), is_terminating=True)
        )
    plan_id = outcome.placement.plan_id
    text = (
        f"preempting default/low-1, default/low-2: 2 of 2 pods still terminating (plan {plan_id})"
    )
    (waiting,) = view_queue(cluster.state, Scoring())
    assert waiting.reason.text() == text
    explained = explain_gang(cluster.state, "default/high", Scoring())
    assert explained.reason is not None
    assert explained.reason.text() == text
    again = find_plan(cluster.state, unit, None)
    assert isinstance(again, WaitingForPreemption)
    printed = print_parts(unit, again, None)
    assert "default/high (priority 10) is preempting." in printed
    assert text in printed


def test_gangs_preempted_often_are_spared() -> None:
    cluster = make_full()
    for name, node in (("low-1", "n1"), ("low-2", "n2")):
        cluster.pods(make_pod(name).gang("default/low").gpu(8).released(node, "p").running(node))
    history = (Episode(1000, "Preempted", "no room"),)
    group = make_pod_group("default/low", 2).build()
    upsert_pod_group(cluster.state, replace(group, history=history))
    unit = find(cluster)
    for most, expected in ((2, Preemption), (1, VictimsProtected)):
        settings = ReportedPreemption(max_per_day=most)
        outcome = find_plan(cluster.state, unit, settings, PreemptionContext(2000.0))
        assert isinstance(outcome, expected)
    assert "preempted as often as allowed" in outcome.text()


def test_explain_says_who_would_go_and_who_took_the_place() -> None:
    cluster = make_full()
    (hint,) = hint_at_preemption(Reading(cluster.state), GANG, WHY, find(cluster), 0.0)
    assert hint.startswith("Preempting default/low-1, default/low-2 (2 pods) frees n1, n2")
    by = PreemptedBy("p1", "default/high", "default/high-0")
    pod = make_pod("low-1").gpu(8).released("n1", "p").running("n1")
    cluster.pods(pod._set(preempted_by=by, is_terminating=True))
    answer = ask_pod(Reading(cluster.state), "default/low-1")
    assert answer.advice[0].startswith("It is preempted by default/high (plan p1)")


@pytest.mark.parametrize(
    ("left", "finalizers", "says"),
    [
        (0.0, (), "marked, and about to be deleted"),
        (2030.0, (), "within 30s"),
        (1700.0, ("example.com/hold",), "due 5m ago; 1 finalizer example.com/hold"),
    ],
)
def test_explain_names_the_victims_that_still_terminate(
    left: float, finalizers: tuple[str, ...], says: str
) -> None:
    cluster = make_full()
    outcome = find_plan(cluster.state, find(cluster), None)
    assert isinstance(outcome, Preemption)
    cluster.state.nominations.begin(nominate(outcome))
    cluster.delete_pods("low-2")
    by = PreemptedBy("p1", "default/high", "default/high-0")
    pod = replace(cluster.pod("low-1"), preempted_by=by, is_terminating=True, gone_by=left)
    cluster.pods(pod)
    reading = Reading(cluster.state, finalizers={pod.key: finalizers} if finalizers else {})
    why = find_preempting(cluster.state, find(cluster).key)
    room, leaving = hint_at_preemption(reading, GANG, why, find(cluster), 2000.0)
    assert room == f"Room on n1, n2 is kept for it (plan {outcome.placement.plan_id})."
    assert leaving == f"Still there: default/low-1 ({says})."
    victim = Target(TargetKind.POD, "default", "low-1")
    assert hint_at_preemption(reading, victim, None, None, 2000.0)[1] == leaving


def test_a_waiting_pod_whose_owner_marks_it_is_told_whom_it_would_preempt() -> None:
    cluster = make_full()
    by = PreemptedBy("p1", "default/other", "default/other-0")
    cluster.pods(replace(cluster.pod("high-0"), preempted_by=by))
    target = Target(TargetKind.POD, "default", "high-0")
    answer = make_answer(Reading(cluster.state), target, 2000.0)
    assert answer.advice[0].startswith("Preempting default/low-1, default/low-2")


def test_explain_names_reclaimed_pods_that_still_terminate() -> None:
    cluster = make_cluster().nodes(*(make_node(f"n{at}").gpu(8) for at in range(4)))
    cluster.quotas(*(make_quota(name, min={GPU: 16}, max={GPU: 32}) for name in "ab"))
    cluster.pods(*(make_pod(f"hog-{at}").gpu(8).quota("a").running(f"n{at}") for at in range(4)))
    cluster.pods(make_pod("mine").gpu(8).quota("b"))
    cluster.pods(
        replace(cluster.pod("hog-0"), is_reclaimed=True, is_terminating=True, gone_by=1700.0)
    )
    mark = make_condition(
        OVER_ENTITLEMENT, "True", "OverEntitlement", "quota a uses 32. For default/mine."
    )
    reading = Reading(
        cluster.state,
        TargetDetails({mark.type: mark}),
        finalizers={"default/hog-0": ("example.com/hold",)},
    )
    mine = make_answer(reading, Target(TargetKind.POD, "default", "mine"), 2000.0)
    assert mine.reason is not None
    assert "Reclaim is under way: 1 evicted pod still terminates (default/hog-0)." in (
        mine.reason.message
    )
    leaving = "Still there: default/hog-0 (due 5m ago; 1 finalizer example.com/hold)."
    assert mine.advice[0] == leaving
    victim = make_answer(reading, Target(TargetKind.POD, "default", "hog-0"), 2000.0)
    assert victim.advice == (
        (
            "It is evicted because its quota uses more than its share: quota a uses 32. For "
            "default/mine."
        ),
        leaving,
    )


@pytest.mark.parametrize("is_reclaim", [False, True])
def test_a_gang_that_is_asked_to_end_is_told_until_when(*, is_reclaim: bool) -> None:
    cluster = make_cluster(2).gang("hog", 2)
    by = None if is_reclaim else PreemptedBy("p1", "default/high", "default/high-0")
    for at in range(2):
        pod = make_pod(f"hog-{at}").gang("default/hog").gpu(8)
        placed = pod.released(f"n{at}", "p", "default/hog", 2, 2).running(f"n{at}").build()
        marked = {"preempted_by": by, "is_reclaimed": is_reclaim, "ends_until": 2013.0}
        cluster.pods(replace(placed, is_terminating=True, **marked))
    target = Target(TargetKind.POD_GROUP, "default", "hog")
    answer = make_answer(Reading(cluster.state), target, 2000.0)
    assert (answer.standing, answer.reason, answer.waits) == ("BeingEvicted", None, None)
    why = "its quota uses more" if is_reclaim else "It is preempted by default/high (plan p1)"
    assert why in answer.advice[0]
    until = "Still there: default/hog-0 (may end by itself within 13s), default/hog-1 (may end"
    assert answer.advice[1].startswith(until)
    assert answer.advice[2].startswith("Until then it may save its work")
    assert not any("Create" in sentence for sentence in answer.advice)
    pod = make_answer(Reading(cluster.state), Target(TargetKind.POD, "default", "hog-0"), 2000.0)
    assert pod.standing == "BeingEvicted"


def test_a_preemptor_is_told_until_when_its_victims_may_end_by_themselves() -> None:
    cluster = make_full()
    outcome = find_plan(cluster.state, find(cluster), None)
    assert isinstance(outcome, Preemption)
    cluster.state.nominations.begin(nominate(outcome))
    by = PreemptedBy("p1", "default/high", "default/high-0")
    for name in ("low-1", "low-2"):
        pod = replace(cluster.pod(name), preempted_by=by, is_terminating=True, ends_until=90.0)
        cluster.pods(pod)
    why = find_preempting(cluster.state, find(cluster).key)
    assert why is not None
    assert "2 of 2 pods may end by themselves until 1970-01-01T00:01:30Z" in why.text()


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        (["job/x"], "koord preempt job/x --dry-run"),
        (["pg", "t/x"], "koord preempt pg t/x --dry-run"),
        (["pod", "x", "-n", "t"], "koord preempt pod x -n t --dry-run"),
    ],
)
def test_without_dry_run_it_says_what_to_type(given: list[str], typed: str) -> None:
    done = CliRunner().invoke(app, ["preempt", *given], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert typed in done.stderr
