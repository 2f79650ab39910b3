"""``koord queue`` and what is below it: when things start, and what is asked of queues."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group
from tests.cluster import make_cluster
from tests.objects import upsert_namespace
from typer.testing import CliRunner

from koord.answers.reading import Reading, Target, TargetKind
from koord.api.keys import operators
from koord.cli import manifests, queue_answers, queue_eta, queue_view
from koord.cli.main import app
from koord.core.queue.run_time import QueueHints

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders import PodBuilder

    from koord.core.model.pods import Pod

NOON = 1_767_268_800.0  # 2026-01-01T12:00:00Z


def limit(pod: PodBuilder, seconds: int) -> Pod:
    """Return a pod that has run since noon, and is killed after so many seconds."""
    says = (("queue", QueueHints(deadline=seconds)),)
    return replace(pod.build(), started=NOON, extensions=says)


def make_reading() -> Reading:
    """Two nodes of 8 GPUs: one is used for ten minutes, one for ever; two gangs wait."""
    cluster = make_cluster().nodes(*(make_node(f"n{at}").gpu(8).cpu(8000) for at in range(2)))
    upsert_namespace(cluster.state, "default", {})
    cluster.pods(limit(make_pod("short").gpu(8).running("n0"), 600))
    cluster.pods(make_pod("long").gpu(8).running("n1"))
    cluster.pod_groups(make_pod_group("default/one", 1), make_pod_group("default/two", 2))
    cluster.pods(make_pod("one-0").gang("default/one").gpu(8).created(NOON - 60))
    cluster.pods(*(make_pod(f"two-{at}").gang("default/two").gpu(8) for at in range(2)))
    cluster.pods(make_pod("never").gpu(9).created(NOON))
    cluster.state.advance(NOON)
    cluster.state.refresh()
    return Reading(cluster.state)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    """Return what runs a command on such a cluster."""
    target = Target(TargetKind.POD, "default", "")
    for module in (queue_view, queue_answers, queue_eta):
        monkeypatch.setattr(module, "read_without_target", lambda *_: (make_reading(), target))
    monkeypatch.setattr(queue_view.time, "time", lambda: NOON)
    monkeypatch.setattr(queue_view, "read_suspended", lambda *_: [])
    monkeypatch.setattr(manifests, "_read_priorities", lambda *_: {"": 0, "high": 1000})

    def read(question: queue_answers.UnitQuestion) -> tuple[Reading, Target]:
        kinds = {kind.lower(): kind for kind in TargetKind}
        return make_reading(), Target(kinds[question.kind], "default", question.name)

    monkeypatch.setattr(queue_answers, "_read", read)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def turns(done: Any) -> dict[str, dict[str, Any]]:
    waiting = json.loads(done.stdout)["waiting"]
    return {entry["names"][0].partition("/")[2]: entry["turn"] for entry in waiting}


def test_the_queue_says_when_things_start(run) -> None:
    shown = turns(run("queue", "-o", "json"))
    assert shown["two"]["certainty"] == "Unknown"
    one = shown["one"]
    assert (one["certainty"], one["expectedStart"]) == ("Estimated", "2026-01-01T12:10:00Z")
    assert one["waitsFor"] == [
        {"name": "default/short", "end": "2026-01-01T12:10:00Z", "level": "Declared"}
    ]
    assert shown["never"]["state"] == "NeverFits"


def test_the_table_has_start_and_certainty(run) -> None:
    lines = run("queue").stdout.splitlines()
    line = next(line for line in lines if "default/one" in line)
    assert line.split()[-3:] == ["~12:10", "UTC", "Estimated"]


def test_explain_has_the_turn_and_what_it_waits_for(run) -> None:
    done = run("queue", "explain", "pg/one")
    assert done.exit_code == 0
    assert "Turn: Position 2 of 3 in koord" in done.stdout
    assert "Expected to start at 12:10 UTC (estimated)" in done.stdout
    assert "Before it: default/two, which is complete since 1970" in done.stdout
    assert run("queue", "explain", "pod/never").exit_code == 2
    assert "does not wait" in run("queue", "explain", "pod/short").stderr


def test_without_reserved_room_there_are_no_reservations(run) -> None:
    assert json.loads(run("queue", "reservations", "-o", "json").stdout) == {"reservations": []}
    assert "No room is reserved" in run("queue", "reservations").stdout


def test_usage_is_by_namespace(run) -> None:
    done = run("queue", "usage", "koordinator-default-quota", "-o", "json")
    assert json.loads(done.stdout)["users"] == [
        {"user": "default", "started": 2, "gpus": 16, "waiting": 3, "gpusWaiting": 33}
    ]
    assert "default" in run("queue", "usage", "koordinator-default-quota").stdout
    assert run("queue", "usage", "koordinator-default-quotas").exit_code == 2


def test_simulate_plays_with_other_settings(run) -> None:
    done = run("queue", "simulate", "--policy", "Strict", "-o", "json")
    shown = {entry["names"][0]: entry for entry in json.loads(done.stdout)["waiting"]}
    one = shown["default/one"]
    assert one["expectedStart"] == "2026-01-01T12:10:00Z"
    assert one["simulatedStart"] is None, "nobody passes the gang that never starts"
    assert "SIMULATED" in run("queue", "simulate", "--depth", "4").stdout
    assert run("queue", "simulate").exit_code == 2


JOB = f"""
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {{name: new}}
spec: {{minMember: PODS}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: new}}
spec:
  parallelism: PODS
  completions: PODS
  template:
    metadata:
      labels: {{pod-group.scheduling.sigs.k8s.io: new}}
    spec:
      schedulerName: koord-scheduler
      schedulingGates: [{{name: {operators.PLACEMENT_GATE}}}]
      priorityClassName: high
      containers: [{{name: main, resources: {{limits: {{{GPU}: "8"}}}}}}]
"""


def ask_eta(run: Any, path: Path, pods: int, job: str = JOB) -> Any:
    file = path / "job.yaml"
    file.write_text(job.replace("PODS", str(pods)), "utf-8")
    return run("queue", "eta", "-f", str(file), "-o", "json")


def test_eta_of_a_job_that_does_not_exist(run, tmp_path: Path) -> None:
    done = ask_eta(run, tmp_path, 1)
    assert done.exit_code == 0, done.output
    (entry,) = json.loads(done.stdout)["waiting"]
    assert entry["names"] == ["default/new"]
    assert (entry["position"], entry["priority"], entry["gpus"]) == (1, 1000, 8)
    assert entry["turn"]["expectedStart"] == "2026-01-01T12:10:00Z"
    assert "new" not in run("queue").stdout


def test_eta_of_what_never_fits_ends_with_2(run, tmp_path: Path) -> None:
    done = ask_eta(run, tmp_path, 3)
    assert done.exit_code == 2
    assert turns(done)["new"]["state"] == "NeverFits"


def test_eta_of_pods_that_do_not_opt_in_says_so(run, tmp_path: Path) -> None:
    done = ask_eta(run, tmp_path, 1, "kind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n")
    assert json.loads(done.stdout) == {"waiting": [], "placedByOthers": 1, "warnings": []}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: ConfigMap", "there are no pods in it"),
        ("a: [", "line 1"),
        ("kind: Pod\nspec: {priorityClassName: none}", "there is no PriorityClass none"),
        ("kind: Job\nspec: {parallelism: 99999, template: {spec: {a: 1}}}", "more than 10000"),
        ("kind: Unknown\nspec: {template: {spec: {a: 1}}}", "how many pods a Unknown has"),
        ("[1, 2]", "there are no pods in it"),
        ("kind: List\nitems: 3", "there are no pods in it"),
        ("kind: PodGroup\nmetadata: {name: g}\nspec: 5", "cannot be understood"),
    ],
)
def test_eta_of_nonsense_is_an_error(run, tmp_path: Path, text: str, problem: str) -> None:
    done = ask_eta(run, tmp_path, 1, text)
    assert done.exit_code == 2
    assert problem in done.stderr


def test_eta_of_no_file_is_an_error(run) -> None:
    done = run("queue", "eta", "-f", "/nowhere.yaml")
    assert (done.exit_code, "cannot be read" in done.stderr) == (2, True)
