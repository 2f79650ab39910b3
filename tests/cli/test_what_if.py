"""What edits would change: planned on a copy, in order, and taken back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cli.readings import LEADING, make_reading
from tests.objects import upsert_quota
from tests.support.laws import examples
from typer.testing import CliRunner

from koord.answers.edits import (
    AddNodes,
    Cordon,
    Delete,
    Drain,
    Edit,
    EditError,
    RemoveNodes,
    SetMinMember,
    SetPriority,
    SetQuota,
    Submit,
    Trial,
    apply_edits,
)
from koord.answers.encoding import encode
from koord.answers.reading import Reading, ReportedPreemption, Target, TargetKind
from koord.answers.what_if import ask_what_if, view_shares
from koord.cli import manifests, what_if_view
from koord.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path

WAITING, BOUND, PLACEABLE = "Waiting", "Bound", "Placeable"


def make_scene(nodes: int = 2) -> Reading:
    """Return nodes with 8 GPUs; ``ft-3`` has one, the others are full, ``big`` waits for two."""
    objects: list[Any] = [make_node(f"n{at}").gpu(8).build() for at in range(nodes)]
    objects += [
        make_pod_group("team-a/ft-3", min_member=8).build(),
        make_pod_group("team-b/big", min_member=2).build(),
    ]
    for at in range(8):
        pod = make_pod(f"team-a/ft-3-{at}").gang("team-a/ft-3").gpu(1).owners("ft-3")
        objects.append(pod.released("n0", "p", "team-a/ft-3", 8).running("n0").build())
    for at in range(1, nodes):
        full = make_pod(f"team-c/full-{at}").gpu(8).owners("full")
        objects.append(full.released(f"n{at}", "p").running(f"n{at}").build())
    objects += [make_pod(f"team-b/big-{at}").gang("team-b/big").gpu(8).build() for at in (0, 1)]
    return make_reading(*objects, leader=LEADING)


def tell(reading: Reading, *edits: Edit) -> dict[str, Any]:
    return encode(ask_what_if(reading, edits))


def changes(answer: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {
        change["ref"]["name"]: (change["before"]["standing"], change["after"]["standing"])
        for change in answer["units"]
    }


def test_a_drained_node() -> None:
    """Its pods are created again and find no other place."""
    answer = tell(make_scene(), Drain(("n0",)))
    (change,) = answer["units"]
    assert change["ref"]["kind"] == "PodGroup"
    assert (change["ref"]["namespace"], change["ref"]["name"]) == ("team-a", "ft-3")
    assert change["before"] == {"standing": BOUND, "reason": None, "message": None}
    assert change["after"]["standing"] == WAITING
    assert change["after"]["reason"] == "InsufficientNodes"
    assert (answer["shares"], answer["evicted"]) == ([], [])
    assert answer["firstProblem"]["ref"] == change["ref"]
    assert sorted(ref["name"] for ref in answer["order"]) == ["big", "ft-3"]


def test_a_drained_node_with_room_elsewhere() -> None:
    assert changes(tell(make_scene(), AddNodes("n0", 1), Drain(("n0",)))) == {
        "ft-3": (BOUND, PLACEABLE)
    }


def test_edits_are_applied_in_order() -> None:
    reading = make_scene()
    assert changes(tell(reading, AddNodes("n0", 2))) == {"big": (WAITING, PLACEABLE)}
    gone = ("n0-new-1", "n0-new-2")
    assert tell(reading, AddNodes("n0", 2), RemoveNodes(gone))["units"] == []
    with pytest.raises(EditError, match="there is no node n0-new-1"):
        tell(reading, RemoveNodes(gone), AddNodes("n0", 2))


def test_a_job_that_is_submitted_and_one_that_is_deleted() -> None:
    reading = make_scene()
    new = Submit((make_pod("team-b/new").gpu(8).build(),))
    assert changes(tell(reading, new)) == {"new": (None, WAITING)}
    assert changes(tell(reading, Delete("team-a/ft-3"), new)) == {
        "ft-3": (BOUND, None),
        "new": (None, PLACEABLE),
    }
    with pytest.raises(EditError, match="no pod and no gang team-a/none"):
        tell(reading, Delete("team-a/none"))


def test_a_minimum_and_a_priority() -> None:
    reading = make_scene()
    lower = (Delete("team-c/full-1"), SetMinMember("team-b/big", 1))
    assert changes(tell(reading, *lower))["big"] == (WAITING, PLACEABLE)
    urgent = Submit((make_pod("team-b/z").gpu(8).build(),))
    order = tell(reading, urgent, SetPriority("team-b/z", 100))["order"]
    assert [ref["name"] for ref in order] == ["z", "big"]


def test_shares_and_whom_the_operators_would_preempt() -> None:
    reading = replace(make_scene(), preemption=ReportedPreemption())
    upsert_quota(reading.state, make_quota("team", min={GPU: 8}, max={GPU: 16}))
    new = Submit((make_pod("team-b/new").quota("team").gpu(8).build(),))
    (share,) = tell(reading, AddNodes("n0", 1), new)["shares"]
    assert share == {"quota": "team", "resource": GPU, "before": "0", "after": "8"}
    answer = tell(reading, Submit((make_pod("team-b/top").gpu(8).priority(9).build(),)))
    (evicted,) = answer["evicted"]
    assert evicted["by"]["name"] == "top"


EDITS: list[Edit] = [
    Drain(("n0",)),
    Cordon(("n1",)),
    Cordon(("n0", "n1"), is_on=False),
    RemoveNodes(("n1",)),
    AddNodes("n0", 2),
    Delete("team-a/ft-3"),
    Delete("team-c/full-1"),
    SetMinMember("team-b/big", 1),
    SetPriority("team-b/big", 7),
    Submit((make_pod("team-z/new").gpu(4).build(),)),
    Submit((), (make_pod_group("team-z/none", min_member=3).build(),)),
    SetQuota(make_quota("team", min={GPU: 16}, max={GPU: 32})),
    SetQuota(make_quota("other", min={GPU: 2}, max={GPU: 8})),
]


@settings(max_examples=examples(20))
@given(st.lists(st.sampled_from(EDITS), max_size=6, unique_by=id))
def test_nothing_is_left_of_what_was_tried(edits: list[Edit]) -> None:
    reading = make_scene()
    upsert_quota(reading.state, make_quota("team", min={GPU: 8}, max={GPU: 16}))
    nothing, shares = tell(reading), view_shares(reading.state)
    assert nothing["units"] == nothing["shares"] == []
    try:
        first = tell(reading, *edits)
        assert tell(reading, *edits) == first, "the same again"
    except EditError:
        pass
    assert tell(reading) == nothing
    assert view_shares(reading.state) == shares


def test_a_quota_that_was_only_tried_is_missed_by_nobody() -> None:
    """Pods that name it started without it before, and do so afterwards."""
    pod = make_pod("team-b/free").quota("tried").gpu(8).build()
    reading = make_reading(make_node("n").gpu(8).build(), pod)
    assert tell(reading)["order"] == []
    small = SetQuota(make_quota("tried", max={GPU: 1}))
    assert changes(tell(reading, small)) == {"free": (PLACEABLE, WAITING)}
    assert tell(reading)["order"] == []


def test_what_others_place_waits_for_them_after_a_drain() -> None:
    pod = make_pod("team-b/web").owners("web").running("n").not_ours().build()
    reading = make_reading(make_node("n").gpu(8).build(), pod)
    assert changes(tell(reading, Drain(("n",)))) == {"web": (BOUND, "NotOurs")}


def test_what_there_is_no_time_for_is_a_gap() -> None:
    reading = make_scene()
    answer = ask_what_if(reading, (Drain(("n0",)),), lambda: True)
    (gap,) = answer.gaps
    assert (gap.missing, gap.because) == ("units", "TooExpensive")
    assert gap.then == "what becomes of 1 of 2 units that wait is not known"


@given(st.sampled_from(EDITS))
def test_an_edit_and_its_inverse_change_nothing(edit: Edit) -> None:
    reading = make_scene()
    before = tell(reading)
    trial = Trial(reading.state)
    apply_edits(trial, (edit,))
    trial.undo()
    assert tell(reading) == before


# The command line

JOB = f"""
apiVersion: v1
kind: Pod
metadata: {{name: new, namespace: team-b}}
spec:
  schedulerName: koord-scheduler
  schedulingGates: [{{name: operators.koordinator.sh/placement}}]
  containers: [{{name: main, resources: {{limits: {{{GPU}: "8"}}}}}}]
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def run_it(text: str, *words: str) -> Any:
        reading = make_scene()
        upsert_quota(reading.state, make_quota("team", min={GPU: 8}, max={GPU: 16}))
        target = Target(TargetKind.POD, "team-b", "")
        monkeypatch.setattr(what_if_view, "read_without_target", lambda *_: (reading, target))
        monkeypatch.setattr(manifests, "_read_priorities", lambda *_: {"": 0})
        file = tmp_path / "edits.yaml"
        file.write_text(text, "utf-8")
        return CliRunner().invoke(app, ["what-if", *(("-f", str(file)) if text else ()), *words])

    return run_it


def test_a_file_of_manifests(run: Any) -> None:
    done = run(JOB, "-o", "answer")
    assert done.exit_code == 0, done.output
    envelope = json.loads(done.stdout)
    assert envelope["answer"] == "WhatIf"
    assert changes(envelope["value"]) == {"new": (None, WAITING)}
    assert envelope["gaps"][0]["missing"] == "defaults, policies and webhooks"
    assert run(JOB, "--exit-code").exit_code == 1
    assert "pod/team-b/new  does not exist  Waiting InsufficientNodes" in run(JOB).stdout


def test_options_and_a_list_of_edits_mean_the_same(run: Any) -> None:
    listed = """
edits:
- delete: {ref: podgroup/team-a/ft-3}
- cordon: {selector: {kubernetes.io/hostname: n1}}
- addNodes: {like: n0, count: 1, labels: {rack: r9}}
- patch: {ref: pg/big, merge: {spec: {minMember: 1, priority: 5}}}
- patch: {ref: eq/team, merge: {spec: {max: {nvidia.com/gpu: 24}}}}
- uncordon: {nodes: [n1]}
- submit: {manifest: {kind: Pod, metadata: {name: x}, spec: {containers: []}}}
"""
    done = run(listed, "-o", "json")
    assert done.exit_code == 0, done.output
    assert changes(json.loads(done.stdout))["big"] == (WAITING, PLACEABLE)
    options = run("", "--drain", "n0", "--add-nodes", "1xn0", "-o", "name")
    assert options.stdout.split() == ["podgroup/team-a/ft-3"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "give a file with -f"),
        ("edits: [{drain: {nodes: [none]}}]", "there is no node none"),
        ("edits: [{drain: {}}]", "name nodes, or give a selector"),
        ("edits: [{drian: {}}]", "there is no edit drian; did you mean drain?"),
        ("edits: [3]", "each edit is one key"),
        ("edits: [{addNodes: {like: n0, count: 9999}}]", "at most 1024 nodes"),
        ("edits: [{addNodes: {like: n0, count: x}}]", "no whole number"),
        ("edits: [{patch: {ref: eq/team, merge: {spec: {weight: 1}}}}]", "spec.max, spec.min"),
        ("edits: [{patch: {ref: eq/tem, merge: {spec: {max: {cpu: 1}}}}}]", "did you mean team?"),
        ("edits: [{patch: {ref: eq/team, merge: {spec: {max: {cpu: y}}}}}]", "y"),
        ("edits: [{patch: {ref: pg/none, merge: {spec: {minMember: 1}}}}]", "no PodGroup"),
        ("edits: [{delete: {ref: job/none}}]", "no pod belongs to job team-b/none"),
        ("edits: [{submit: {manifest: {kind: ConfigMap}}}]", "there are no pods in it"),
        (f"edits: [{', '.join(['{cordon: {nodes: [n0]}}'] * 33)}]", "33 edits, more than 32"),
    ],
)
def test_nonsense_is_an_error(run: Any, text: str, problem: str) -> None:
    done = run(text)
    assert done.exit_code == 2, done.output
    assert problem in done.stderr
