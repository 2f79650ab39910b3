"""``koord status``, ``queue`` and ``top``, and what all commands have in common."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.objects import upsert_namespace, upsert_pod_group, upsert_quota
from typer.testing import CliRunner

from koord.answers.queue_view import view_queue
from koord.answers.reading import Reading, Target, TargetKind
from koord.api.keys import operators
from koord.cli import queue_view, quota_view, status_view, top_view
from koord.cli.main import COMMANDS, app
from koord.cli.status_view import make_leader
from koord.core.engine.scoring import Scoring
from koord.core.model.text import suggest
from koord.kube.election import Election, Lease, LeaseSpec
from koord.kube.leader_report import LeaderReport, encode_report

if TYPE_CHECKING:
    from koord.core.engine.state import ClusterState

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def make_state() -> ClusterState:
    """Two nodes with 8 GPUs: one is used, ``first`` fits, ``big`` does not, ``half`` lacks one."""
    state = make_cluster().state
    for name in ("default", "other", "q"):
        upsert_namespace(state, name, {})
    for at in range(2):
        state.upsert_node(make_node(f"n{at}").gpu(8).cpu(8000).build())
    state.upsert_node(make_node("n2").gpu(8).unschedulable().build())
    upsert_quota(state, make_quota("team", namespace="q", min={GPU: 8}, max={GPU: 64}))
    state.upsert_pod(make_pod("run").gpu(8).quota("team").running("n0").build())
    state.upsert_pod(make_pod("first").gpu(4).quota("team").priority(10).created(NOW - 90).build())
    upsert_pod_group(state, make_pod_group("default/big", min_member=2).build())
    for at in range(2):
        pod = make_pod(f"big-{at}").gpu(8).quota("team").gang("default/big").created(NOW - 60)
        state.upsert_pod(pod.build())
    upsert_pod_group(state, make_pod_group("default/half", min_member=2).build())
    state.upsert_pod(make_pod("half-0").gpu(1).gang("default/half").created(NOW - 30).build())
    state.refresh()
    return state


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    reading = Reading(make_state()), Target(TargetKind.POD, "default", "")
    for module in (queue_view, top_view):
        monkeypatch.setattr(module, "read_without_target", lambda *_: reading)
    monkeypatch.setattr(queue_view.time, "time", lambda: NOW)
    monkeypatch.setattr(queue_view, "read_suspended", lambda *_: [])
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_the_queue_has_what_waits_in_the_order_of_planning() -> None:
    shown = view_queue(make_state(), Scoring())
    assert [(entry.position, entry.names, entry.reason.code) for entry in shown] == [
        (1, ("default/first",), "Planned"),
        (2, ("default/big",), "InsufficientEntitlement"),
        (0, ("default/half",), "MissingMembers"),
    ]
    first, big, half = shown
    assert (first.gpus, first.gpus_ahead, big.gpus, big.gpus_ahead) == (4, 0, 16, 4)
    assert big.quotas == ("team",)
    assert (big.pods, big.required, half.pods, half.required) == (2, 2, 1, 2)


def test_queue(run) -> None:
    lines = [line.split() for line in run("queue").stdout.splitlines()]
    heading = ["POS", "UNIT", "QUEUE", "PRIO", "AGE", "ASK", "STATE", "START", "CERTAINTY"]
    assert lines[0] == heading
    first = ["1", "pod/default/first", "team", "10", "90s", "4", "GPUs", "Placeable"]
    assert lines[1][:8] == first
    assert lines[2][:2] == ["2", "podgroup/default/big"]
    assert lines[2][7:] == ["InsufficientEntitlement", "Unknown"]
    assert lines[3][0] == "podgroup/default/half"
    assert lines[3][-1] == "MissingMembers"


def test_the_queue_says_that_nobody_leads(monkeypatch) -> None:
    target = Target(TargetKind.POD, "default", "")
    reading = Reading(make_state(), leader=make_leader(make_lease(holder=""), NOW))
    monkeypatch.setattr(queue_view, "read_without_target", lambda *_: (reading, target))
    monkeypatch.setattr(queue_view, "read_suspended", lambda *_: [])
    done = CliRunner().invoke(app, ["queue"])
    assert "nobody leads, the operators stopped 2s ago" in done.stderr
    assert "podgroup/default/big" in done.stdout
    as_json = json.loads(CliRunner().invoke(app, ["queue", "-o", "json"]).stdout)
    assert as_json["warnings"] == [done.stderr.partition("warning: ")[2].strip()]


@pytest.mark.parametrize(
    "command", ["top", "top quotas", "explain node/n0", "quota tree", "quota explain team"]
)
def test_quotas_and_usage_say_that_nobody_leads(monkeypatch, command: str) -> None:
    target = Target(TargetKind.POD, "default", "")
    reading = Reading(make_state(), leader=make_leader(make_lease(holder=""), NOW))
    for module in (quota_view, top_view):
        monkeypatch.setattr(module, "read_without_target", lambda *_: (reading, target))
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0
    assert "nobody leads, the operators stopped 2s ago: what follows is" in done.stderr
    assert "with default settings" in done.stderr


def test_the_queue_of_a_namespace_keeps_its_positions(run) -> None:
    assert run("queue", "-n", "other").stdout == "Nothing waits.\n"
    assert "podgroup/default/big" in run("queue", "-A", "-o", "name").stdout


def test_nodes_and_quotas_of_a_namespace(run) -> None:
    assert run("top", "-n", "default", "-o", "name").stdout == "node/n0\n"
    assert run("top", "-n", "other", "-o", "name").stdout == ""
    assert run("top", "quotas", "-n", "q", "-o", "name").stdout == "elasticquota/team\n"
    assert run("top", "quotas", "-n", "other", "-o", "name").stdout == ""
    done = run("top", "-n", "othr")
    assert (done.exit_code, "did you mean other?" in done.stderr) == (2, True)


def test_forms_of_output_say_the_same(run) -> None:
    as_json = json.loads(run("queue", "-o", "json").stdout)
    assert yaml.safe_load(run("queue", "-o", "yaml").stdout) == as_json
    assert as_json["waiting"][1]["gpusAhead"] == 4
    assert "NEEDED" in run("queue", "-o", "wide").stdout


def test_top_shows_nodes_and_who_uses_them(run) -> None:
    lines = [line.split() for line in run("top").stdout.splitlines()]
    assert lines[1] == ["n0", "Ready", "8/8", "0%", "0%", "1", "default"]
    assert lines[3][:3] == ["n2", "Cordoned", "0/8"]
    assert json.loads(run("top", "-o", "json").stdout)["nodes"][0]["free"][GPU] == "0"


def test_top_shows_quotas(run) -> None:
    lines = [line.split() for line in run("top", "quotas").stdout.splitlines()]
    assert lines[1][:3] == ["team", GPU, "8"]
    assert lines[1][-1] == "WithinMin"


def test_explain_of_a_node_lists_its_pods(run) -> None:
    shown = run("explain", "node/n0").stdout
    assert "default/run" in shown
    assert "team" in shown
    done = run("explain", "node", "n9")
    assert (done.exit_code, "there are: n0, n1, n2" in done.stderr) == (2, True)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_short_help(name: str) -> None:
    done = CliRunner().invoke(app, [name, "-h"])
    assert (done.exit_code, "Usage" in done.stdout) == (0, True)


def test_similar_names_are_suggested_first() -> None:
    assert suggest("tem", ["team", "other"]) == "; did you mean team?"
    assert suggest("R1", ["r1", "other"]) == "; did you mean r1?"
    assert suggest("tem", ["TEAM"]) == "; did you mean TEAM?"
    assert (
        suggest("r1-0", ["other", "r1-x8kzq", "r1-4pm2c"]) == "; did you mean r1-4pm2c or r1-x8kzq?"
    )
    assert suggest("x", ["b", "a"]) == "; there are: a, b"
    assert suggest("x", []) == "; there are none"


def make_lease(renewed: str = "2025-12-31T23:59:58.000000Z", holder: str = "host_1", **report):
    annotations = {operators.REPORT: encode_report(LeaderReport(**report))} if report else {}
    spec = LeaseSpec(holder, 15, "2025-12-31T22:00:00.000000Z", renewed, 3)
    return Lease({"name": "koord-operators", "annotations": annotations}, spec)


def show_status(
    monkeypatch,
    lease: Lease | None,
    *options: str,
    refused: tuple[str, ...] = (),
    has_key: bool = True,
):
    leaders = [] if lease is None else [make_leader(lease, NOW)]

    async def read(*_):
        return leaders, refused, has_key

    monkeypatch.setattr(status_view, "_read", read)
    monkeypatch.setattr(status_view.time, "time", lambda: NOW)
    return CliRunner().invoke(app, ["status", *options])


def test_status_of_a_leader(monkeypatch) -> None:
    lease = make_lease(version="1.0", ready=0, blocked=3, incomplete=1, reasons={"X": 3})
    done = show_status(monkeypatch, lease, "--exit-code")
    assert done.exit_code == 0
    assert "host_1 leads for 2h, renewed 2s ago" in done.stdout
    assert "0 to plan, 3 wait, 1 incomplete" in done.stdout
    assert "X 3" in done.stdout


def test_status_of_a_leader_that_has_not_read_everything(monkeypatch) -> None:
    done = show_status(monkeypatch, make_lease(not_ready=("nodes",), version="1"), "--exit-code")
    assert (done.exit_code, "no: nodes" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("lease", "says"),
    [
        (None, "No operators have run"),
        (make_lease(holder=""), "kubectl get pods -n koord-system -l app.kubernetes.io/part-of="),
        (make_lease(renewed="2025-12-31T23:00:00.000000Z"), "nobody leads; last renewed 60m ago"),
        (make_lease(holder=""), "nobody leads"),
    ],
)
def test_status_says_that_nobody_runs(monkeypatch, lease: Lease | None, says: str) -> None:
    done = show_status(monkeypatch, lease, "--exit-code")
    assert done.exit_code == 1
    assert says in done.stdout


def test_status_says_how_the_key_is_made(monkeypatch) -> None:
    done = show_status(monkeypatch, None, has_key=False)
    assert "kubectl create secret generic koord-plan-key --namespace koord-system" in done.stderr


@pytest.mark.parametrize(("lease", "code"), [(make_lease(version="1"), 0), (None, 3)])
def test_status_names_the_right_that_is_missing(monkeypatch, lease: Lease | None, code) -> None:
    done = show_status(monkeypatch, lease, refused=("koord-device",))
    assert done.exit_code == code
    assert ("host_1 leads" in done.stdout) is (lease is not None)
    assert "you may not get the Leases" in done.stderr
    assert "the ClusterRole koord-user has the right" in done.stderr


def test_a_renewal_takes_the_report_along_and_drops_that_of_others() -> None:
    ours = Election("me", report="{}")
    assert ours.mark({}, LeaseSpec(), 1.0)["annotations"][operators.REPORT] == "{}"
    theirs = {"annotations": {operators.REPORT: "old"}}
    assert operators.REPORT not in Election("me").mark(theirs, LeaseSpec(), 1.0)["annotations"]
