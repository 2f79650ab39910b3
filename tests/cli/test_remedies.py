"""What would help, tried on a copy: the smallest change that is enough, and only what starts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cli.readings import LEADING, NOW, make_reading
from tests.objects import upsert_quota
from tests.support.laws import examples
from typer.testing import CliRunner

from koord.answers.edits import AddNodes, Cordon, SetMinMember, Trial, apply_edits
from koord.answers.encoding import encode
from koord.answers.reading import Reading, ReportedPreemption, Target, TargetKind
from koord.answers.remedy_search import find_remedies
from koord.answers.what_if import ask_what_if
from koord.answers.why import make_answer
from koord.cli import explain_view
from koord.cli.find_target import TargetLookup
from koord.cli.main import app
from koord.core.model.nodes import Taint
from koord.core.model.pods import OwnerReference, Pod

if TYPE_CHECKING:
    from koord.answers.remedies import Remedy

JOB = OwnerReference("too-large", "Job", "batch/v1", "u1", is_controller=True)


def gang(name: str, pods: int, minimum: int, gpus: int, owner: OwnerReference = JOB) -> list[Any]:
    members = [make_pod(f"{name}-{at}").gang(name).gpu(gpus).build() for at in range(pods)]
    owned: list[Pod] = [replace(pod, owners=(owner,)) for pod in members]
    return [make_pod_group(name, min_member=minimum).build(), *owned]


def too_large() -> Reading:
    """Five pods of 8 GPUs, and four nodes, one of which is tainted."""
    nodes = [make_node(f"a100x8-000{at}").gpu(8).build() for at in range(4)]
    nodes[3] = replace(nodes[3], taints=(Taint("maintenance", "yes"),))
    return make_reading(*nodes, *gang("team-a/too-large", 5, 5, 8), leader=LEADING)


def ask(reading: Reading, kind: TargetKind, key: str) -> Any:
    return make_answer(reading, Target(kind, *key.split("/")), NOW)


def try_remedies(reading: Reading, key: str) -> dict[str, Remedy]:
    answer = ask(reading, TargetKind.POD_GROUP, key)
    reason = next(iter(answer.reasons), None)
    remedies = find_remedies(reading, answer.target, (reason, answer.closed))
    assert all(
        remedy.text().endswith("then it would start.") == remedy.helps for remedy in remedies
    )
    return {str(remedy.kind): remedy for remedy in remedies if remedy.helps}


def test_one_reason_causes_of_nodes_and_the_owner() -> None:
    value = encode(ask(too_large(), TargetKind.POD_GROUP, "team-a/too-large"))
    assert (value["standing"], value["reason"]["class"]) == ("Waiting", "Room")
    assert value["dominant"] == {
        "code": "InsufficientNodes",
        "class": "Room",
        "sentence": "Room for 3 of 5 pods.",
    }
    assert value["nodes"] == [
        {"cause": "UntoleratedTaint", "nodes": 1, "examples": ["a100x8-0003"]}
    ]
    assert value["owner"] == {
        "kind": "Job",
        "namespace": "team-a",
        "name": "too-large",
        "uid": "u1",
    }
    for at in range(5):
        pod = encode(ask(too_large(), TargetKind.POD, f"team-a/too-large-{at}"))
        assert [pod[key] for key in ("dominant", "nodes", "owner")] == [
            value[key] for key in ("dominant", "nodes", "owner")
        ]


def test_the_cause_comes_before_noise() -> None:
    """The pods name a PodGroup that does not exist, and the cluster is full."""
    wrong = [make_pod(f"team-e/w-{at}").gang("team-e/tset").gpu(8).build() for at in (0, 1)]
    empty = make_pod_group("team-e/test", min_member=2).build()
    reading = make_reading(make_node("n").gpu(4).build(), empty, *wrong)
    dominant = encode(ask(reading, TargetKind.POD, "team-e/w-0"))["dominant"]
    assert (dominant["code"], dominant["class"]) == ("MissingPodGroup", "Misconfigured")
    assert "tset" in dominant["sentence"]
    assert "gpu" not in dominant["sentence"]


def test_remedies_of_a_gang_that_is_too_large() -> None:
    reading = too_large()
    found = try_remedies(reading, "team-a/too-large")
    items = {kind: (dict(remedy.change), str(remedy.by)) for kind, remedy in found.items()}
    like = "a100x8-0000"
    taint = {"key": "maintenance", "value": "yes"}
    assert items == {
        "AddNodes": ({"nodes": 2, "like": like}, "ClusterAdmin"),
        "LowerMinMember": ({"path": "/spec/minMember", "from": 5, "to": 3}, "Owner"),
        "Tolerate": ({"taint": taint, "and": {"nodes": 1, "like": like}}, "Owner"),
    }
    assert encode(ask(reading, TargetKind.POD_GROUP, "team-a/too-large")) == encode(
        ask(too_large(), TargetKind.POD_GROUP, "team-a/too-large")
    )


def test_a_toleration_alone_where_it_is_enough() -> None:
    nodes = [make_node(f"n{at}").gpu(8).build() for at in range(2)]
    nodes[1] = replace(nodes[1], taints=(Taint("team", "b"),))
    found = try_remedies(make_reading(*nodes, *gang("t/g", 2, 2, 8)), "t/g")
    assert found["Tolerate"].change == {"taint": {"key": "team", "value": "b"}}


def test_cordoned_nodes_and_requests_that_are_too_large() -> None:
    nodes = [replace(make_node(f"n{at}").gpu(8).build(), is_unschedulable=True) for at in range(4)]
    found = try_remedies(make_reading(*nodes, *gang("t/g", 2, 2, 8)), "t/g")
    assert found["Uncordon"].change == {"nodes": ["n0", "n1"]}
    free = [make_node(f"n{at}").gpu(8).build() for at in range(2)]
    found = try_remedies(make_reading(*free, *gang("t/g", 2, 2, 11)), "t/g")
    assert found["AskLess"].change == {"resource": GPU, "from": "11", "to": "8"}
    assert "AddNodes" not in found


def test_members_names_holds_and_victims() -> None:
    node = make_node("n").gpu(8).build()
    assert try_remedies(make_reading(node, *gang("t/g", 1, 3, 1)), "t/g")["AddMembers"].change == {
        "members": 2,
        "like": "g-0",
    }
    victim = make_pod("t/low").gpu(8).owners("low").released("n", "p").running("n").build()
    group, *pods = gang("t/g", 1, 1, 8)
    high = [group, *(replace(pod, priority=9) for pod in pods)]
    reading = replace(make_reading(node, victim, *high), preemption=ReportedPreemption())
    preempt = try_remedies(reading, "t/g")["Preempt"]
    assert (preempt.affects, str(preempt.by)) == (("t/low",), "Time")
    wrong = [make_pod(f"t/w-{at}").gang("t/tset").gpu(1).build() for at in (0, 1)]
    reading = make_reading(node, make_pod_group("t/test", min_member=2).build(), *wrong)
    assert try_remedies(reading, "t/tset")["FixName"].change == {"from": "tset", "to": "test"}


def test_a_quota_that_is_too_small() -> None:
    nodes = [make_node(f"n{at}").gpu(8).build() for at in range(4)]
    members = gang("t/g", 3, 3, 8)
    in_quota = [replace(item, quota="q") if isinstance(item, Pod) else item for item in members]
    reading = make_reading(*nodes, *in_quota)
    upsert_quota(reading.state, make_quota("q", min={GPU: 8}, max={GPU: 16}))
    found = try_remedies(reading, "t/g")
    assert found["RaiseMax"].change == {
        "path": f"/spec/max/{GPU}",
        "quota": "q",
        "from": "16",
        "to": "24",
    }
    assert found["LowerMinMember"].change["to"] == 2
    assert "AddNodes" not in found


@settings(max_examples=examples(20))
@given(
    nodes=st.integers(0, 4),
    full=st.integers(0, 2),
    cordoned=st.integers(0, 3),
    pods=st.integers(1, 7),
    gpus=st.sampled_from([3, 4, 8]),
)
def test_what_is_said_to_start_starts_and_one_less_does_not(
    nodes: int, full: int, cordoned: int, pods: int, gpus: int
) -> None:
    objects: list[Any] = [make_node(f"n{at}").gpu(8).build() for at in range(nodes + 1)]
    objects += [
        replace(make_node(f"c{at}").gpu(8).build(), is_unschedulable=True) for at in range(cordoned)
    ]
    objects += [make_pod(f"x/full-{at}").gpu(7).running(f"n{at}").build() for at in range(full)]
    reading = make_reading(*objects, *gang("t/g", pods, pods, gpus))

    def starts(*edits: Any) -> bool:
        trial = Trial(reading.state)
        apply_edits(trial, edits)
        outcome = ask_what_if(reading, ())
        waits = any(ref.name == "g" for ref in outcome.order)
        trial.undo()
        return not waits

    found = try_remedies(reading, "t/g")
    if "AddNodes" in found:
        count, like = found["AddNodes"].change["nodes"], found["AddNodes"].change["like"]
        assert starts(AddNodes(like, count))
        assert count == 1 or not starts(AddNodes(like, count - 1))
    if "Uncordon" in found:
        names = tuple(found["Uncordon"].change["nodes"])
        assert starts(Cordon(names, is_on=False))
        assert not starts(Cordon(names[:-1], is_on=False))
    if "LowerMinMember" in found:
        least = found["LowerMinMember"].change["to"]
        assert starts(SetMinMember("t/g", least))
        assert not starts(SetMinMember("t/g", least + 1))
    assert not found or not starts()


def test_without_time_nothing_is_said_to_start() -> None:
    answer = ask(too_large(), TargetKind.POD_GROUP, "team-a/too-large")
    reason = answer.reasons[0]
    late = find_remedies(too_large(), answer.target, (reason, answer.closed), lambda: True)
    assert {str(remedy.verified) for remedy in late} == {"NotTried"}


@pytest.mark.parametrize("form", ["text", "json", "answer"])
def test_the_command_line(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(question: explain_view.Question, _: float) -> tuple[TargetLookup, Reading]:
        named = Target(question.kind, question.namespace, question.name)
        return TargetLookup(named, named), too_large()

    monkeypatch.setattr(explain_view, "_read", read)
    words = ["explain", "pg/too-large", "-n", "team-a", "--verify", "-o", form]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    if form == "text":
        assert "Tried on a copy" in done.stdout
        assert "- Add 2 nodes like a100x8-0000: then it would start." in done.stdout
        return
    document = json.loads(done.stdout)
    value = document["value"] if form == "answer" else document
    assert [item["id"] for item in value["remedies"]["items"]] == ["r1", "r2", "r3"]
    assert value["remedies"]["items"][0] == {
        "id": "r1",
        "kind": "AddNodes",
        "change": {"nodes": 2, "like": "a100x8-0000"},
        "by": "ClusterAdmin",
        "verified": "Yes",
        "then": "Add 2 nodes like a100x8-0000: then it would start.",
        "affects": [],
    }
    if form == "answer":
        assert document["gaps"] == []
