"""The output of ``koord quota`` for invented clusters."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING

import networkx as nx
import pytest
from rich.console import Console
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.objects import upsert_pod_group, upsert_quota
from typer.testing import CliRunner

from koord.answers.encoding import encode
from koord.answers.gaps import warn_of_gaps
from koord.answers.quota_simulation import simulate_gang
from koord.answers.quota_view import view_quota, view_quotas
from koord.answers.reading import Extent, Gap, Reading, Target, TargetKind
from koord.cli import quota_view
from koord.cli.common import TreeOutput
from koord.cli.main import app
from koord.cli.quota_text import (
    BLOCKS,
    choose_glyphs,
    make_bar,
    make_quota_lines,
    make_tree_lines,
)
from koord.cli.top_view import draw_quotas
from koord.core.quota.hooks import Hooks, QuotaHook
from koord.core.quota.profile import GENERATED_MAX
from koord.domains.quota import QUOTAS

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    from koord.answers.quota_view import QuotaOverview
    from koord.core.engine.state import ClusterState
    from koord.core.model.units import Amounts
    from koord.core.quota.model import QuotaSpec


def team(name: str, parent: str = "", minimum: int = 0, most: int = 16, **more: bool) -> QuotaSpec:
    above = {"parent": parent} if parent else {}
    return make_quota(name, namespace="q", min={GPU: minimum}, max={GPU: most}, **above, **more)


def make_state(hooks: Hooks | None = None) -> ClusterState:
    state = make_cluster(hooks=hooks).state
    for at in range(2):
        state.upsert_node(make_node(f"n{at}").gpu(8).build())
    for spec in (
        team("org", most=16, is_parent=True, minimum=16),
        team("a", "org", minimum=4),
        team("b", "org", minimum=12),
        team("lost", "gone"),
    ):
        upsert_quota(state, spec)
    state.upsert_pod(make_pod("a-0").gpu(8).quota("a").running("n0").build())
    state.upsert_pod(make_pod("b-0").gpu(8).quota("b").build())
    upsert_pod_group(state, make_pod_group("default/g", min_member=2).build())
    state.upsert_pod(make_pod("g-0").gpu(4).quota("b").gang("default/g").build())
    return state


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr(quota_view, "read", lambda *_: Reading(make_state()))
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, ["quota", *arguments])


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_tree(run: Callable[..., Result]) -> None:
    assert lines(run("tree")) == [
        "QUOTA RESOURCE MIN MAX ENTITLED USED DEMAND",
        "org nvidia.com/gpu 16 16 16 8 16 ██████████▒▒▒▒▒▒▒▒▒┃",
        "a nvidia.com/gpu 4 16 8 8 8 █████┃████·········· borrows 4 (4 of b)",
        "b nvidia.com/gpu 12 16 8 0 8 ▒▒▒▒▒▒▒▒▒▒·····┃···· lends 4 to a",
        "Bars, from 0 to max: █ used, ▒ entitled to, ┃ guaranteed",
        "Nodes to share: 128 cpu, 512Gi memory, 16 nvidia.com/gpu, 220 pods",
        (
            "lost is not active: its parent gone does not exist, or is itself not active; "
            "create or correct it, or name another in the label parent"
        ),
    ]


def test_generated_limits_are_unlimited_and_trees_have_names() -> None:
    state = make_cluster(1).state
    upsert_quota(
        state,
        make_quota(
            *("pool-a-root", "q"),
            min={GPU: 8},
            max={GPU: GENERATED_MAX},
            total={GPU: 8},
            tree_id="1834044",
            is_tree_root=True,
            is_parent=True,
        ),
    )
    shown = write_tree(view_quotas(state))
    assert "unlimited" in shown
    assert str(GENERATED_MAX) not in shown
    documents = [encode(view) for view in view_quotas(state).quotas]
    assert documents[0]["max"] == {GPU: "unlimited"}
    graph = quota_view.write_quota_graph(view_quotas(state), TreeOutput.GRAPHML)
    assert str(GENERATED_MAX) not in f"{documents} {graph}"
    assert f"Tree of pool-a-root (id 1834044) to share: 8 {GPU}" in shown


def write_tree(overview: QuotaOverview) -> str:
    console = Console(file=StringIO(), width=200, highlight=False, markup=False)
    with console.capture() as capture:
        for part in make_tree_lines(overview, BLOCKS):
            console.print(part)
    return capture.get()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_number_is_cut_where_the_terminal_is_narrow(width: int) -> None:
    state = make_state()
    big = {GPU: 16, "memory": (512 << 30) - 4097, "koordinator.sh/gpu-memory-ratio": 1600}
    upsert_quota(state, make_quota("team-with-a-long-name", namespace="q", min=big, max=big))
    overview = view_quotas(state)
    view = view_quota(state, "team-with-a-long-name", ())
    assert view is not None
    console = Console(file=StringIO(), width=width, highlight=False, markup=False)
    with console.capture() as capture:
        for part in (*make_tree_lines(overview, BLOCKS), *make_quota_lines(view, BLOCKS, 0.0)):
            console.print(part)
        for part in draw_quotas(overview.quotas):
            console.print(part)
    shown = capture.get()
    assert "…" not in shown
    assert all(len(line) <= width for line in shown.splitlines())
    for word in ("ENTITLED", "DEMAND", "GUARANTEED", "512.0Gi"):
        assert word in shown
    assert ("┃" in shown) is (width == 200)


def test_tree_as_dot(run: Callable[..., Result]) -> None:
    written = run("tree", "--output", "dot").stdout.splitlines()
    assert written[0] == 'digraph "quotas" {'
    a = next(line for line in written if line.startswith('  "a" ['))
    assert f"{GPU}: min 4, max 16, entitled 8, used 8, demand 8" in a
    assert f'"used {GPU}"="8"' in a
    assert '  "org" -> "a";' in written
    assert not any("lost" in line for line in written)


def test_tree_as_graphml(run: Callable[..., Result]) -> None:
    graph = nx.parse_graphml(run("tree", "--output", "graphml").stdout)
    assert set(graph.edges) == {("org", "a"), ("org", "b")}
    assert graph.nodes["b"][f"min {GPU}"] == "12"


def test_explain_shows_borrowing(run: Callable[..., Result]) -> None:
    assert lines(run("explain", "a"))[3:9] == [
        "",
        "nvidia.com/gpu: entitled to 8",
        "wants 8 asked 8",
        "scaled min 4 min 4",
        "starts with 4 the smaller of the two",
        "left over 4 rest of 16 after the first step for all quotas of org",
    ]
    document = json.loads(run("explain", "a", "-o", "json").stdout)
    assert document["terms"][GPU]["borrows"] == "4"
    assert document["loans"] == [
        {"lender": "b", "borrower": "a", "resource": GPU, "amount": "4"},
    ]


def test_what_if_with_an_edit(run: Callable[..., Result]) -> None:
    assert lines(run("what-if", "q/a", "--max", f"{GPU}=6")) == [
        "QUOTA RESOURCE ENTITLED THEN",
        "a nvidia.com/gpu 8 6",
        "org nvidia.com/gpu 16 14",
        "a would use 2 nvidia.com/gpu more than it is entitled to",
    ]
    assert lines(run("what-if", "a", "--weight", f"{GPU}=1")) == ["No share would change now."]
    refused = lines(run("what-if", "a", "--min", f"{GPU}=20"))
    assert refused[0].startswith("a would be invalid: ")


def test_what_if_as_json(run: Callable[..., Result]) -> None:
    arguments = ("what-if", "a", "--max", f"{GPU}=6", "-r", f"{GPU}=1", "-o", "json")
    document = json.loads(run(*arguments).stdout)
    assert document["edit"]["over"] == {f"a/{GPU}": "2"}
    assert (document["starts"], document["reason"]) == (False, "InsufficientMax")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["a"], "give --request for a gang"),
        (["nobody", "--min", f"{GPU}=1"], "there is no quota nobody"),
    ],
)
def test_what_if_needs_a_change(
    run: Callable[..., Result], arguments: list[str], text: str
) -> None:
    result = run("what-if", *arguments)
    assert result.exit_code == 2
    assert text in result.stderr


@pytest.mark.parametrize(
    ("used", "entitled", "guaranteed", "bar"),
    [
        (0, 0, 0, "...................."),
        (10, 20, 0, "##########=========="),
        (1, 1, 100, "#..................|"),
        (100, 4, 4, "####|###############"),
    ],
)
def test_bars(used: int, entitled: int, guaranteed: int, bar: str) -> None:
    assert make_bar(used, entitled, guaranteed, 20, choose_glyphs("ascii")).plain == bar


def test_tree_as_json(run: Callable[..., Result]) -> None:
    document = json.loads(run("tree", "-o", "json").stdout)
    assert [quota["name"] for quota in document["quotas"]] == ["org", "a", "b"]
    assert document["quotas"][1]["entitled"] == {GPU: "8"}
    assert document["invalid"][0]["reason"] == "ParentNotFound"


def test_explain(run: Callable[..., Result]) -> None:
    assert lines(run("explain", "q/b")) == [
        "Quota q/b below org",
        "RESOURCE MIN MAX ENTITLED USED DEMAND",
        "nvidia.com/gpu 12 16 8 0 8 ▒▒▒▒▒▒▒▒▒▒·····┃···· lends 4 to a",
        "",
        "nvidia.com/gpu: entitled to 8",
        "wants 8 asked 8",
        "scaled min 12 min 12",
        "starts with 8 the smaller of the two",
        "Submitted by incomplete gangs, no demand yet: 4 nvidia.com/gpu",
        "",
        "WAITS nvidia.com/gpu PODS AGE REASON",
        "pod default/b-0 8 1 Placeable",
        "gang default/g 4 1 MissingMembers",
    ]


def make_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let gangs and a pod use ``a``, below ``org``; the times are relative to now."""
    state = make_state()
    now = time.time()
    for at in range(12):
        state.upsert_pod(
            make_pod(f"t/x-{at}").gpu(0).requests(cpu=1).quota("a").bound("n1").build()
        )
    for at in range(2):
        pod = make_pod(f"t/hog-{at}").gpu(2).quota("b").gang("t/hog").running("n1").build()
        state.upsert_pod(replace(pod, started=now - 300))
    monkeypatch.setattr(quota_view, "read", lambda *_: Reading(state))


def test_explain_lists_what_uses_a_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    make_busy(monkeypatch)
    text = lines(CliRunner().invoke(app, ["explain", "eq/b"]))
    at = text.index("USED BY nvidia.com/gpu PODS AGE STATE")
    assert text[at + 1 : at + 4] == ["gang t/hog 4 2 5m Running", "", text[at + 3]]
    assert text[at + 3].startswith("WAITS ")
    many = lines(CliRunner().invoke(app, ["explain", "eq/a"]))
    assert many[-1] == "… and 3 more (-o json lists them)"


def test_explain_of_a_parent_lists_what_uses_the_quotas_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_busy(monkeypatch)
    text = lines(CliRunner().invoke(app, ["explain", "eq/org"]))
    at = text.index("USED BY QUOTA nvidia.com/gpu PODS AGE STATE")
    assert text[at + 1 : at + 3] == [
        "pod default/a-0 a 8 1 Running",
        "gang t/hog b 4 2 5m Running",
    ]
    document = json.loads(CliRunner().invoke(app, ["explain", "eq/org", "-o", "json"]).stdout)
    assert document["users"][1] | {"since": ""} == {
        "kind": "gang",
        "name": "t/hog",
        "quota": "b",
        "used": {GPU: "4"},
        "pods": 2,
        "running": 2,
        "state": "Running",
        "since": "",
    }
    assert [(unit["name"], unit["asks"][GPU], unit["reason"]) for unit in document["waits"]] == [
        ("default/b-0", "8", "AncestorInsufficient"),
        ("default/g", "4", "MissingMembers"),
    ]


def test_explain_of_demand_below_min(monkeypatch: pytest.MonkeyPatch) -> None:
    state = make_state()
    upsert_quota(state, team("above", most=8, minimum=8, is_parent=True))
    upsert_quota(state, team("idle", "above", most=8, minimum=4))
    monkeypatch.setattr(quota_view, "read", lambda *_: Reading(state))
    result = CliRunner().invoke(app, ["quota", "explain", "idle"])
    assert "scaled min 0 min 4, scaled to 0: its demand is lower" in lines(result)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lost", "quota lost is not active: its parent gone does not exist"),
        ("nobody", "there is no quota nobody; there are: a, b, lost, org"),
    ],
)
def test_explain_of_a_missing_quota(run: Callable[..., Result], name: str, text: str) -> None:
    result = run("explain", name)
    assert result.exit_code == 2
    assert text in result.stderr


@pytest.mark.parametrize(
    ("pods", "first"),
    [
        ("1", "1 pod of 8 nvidia.com/gpu in quota a would wait: InsufficientEntitlement"),
        ("3", "3 pods of 8 nvidia.com/gpu in quota a would wait: RequestAboveMax"),
    ],
)
def test_what_if_for_a_gang_that_does_not_fit(
    run: Callable[..., Result], pods: str, first: str
) -> None:
    assert lines(run("what-if", "a", "--pods", pods, "-r", f"{GPU}=8"))[0] == first


def test_what_if_for_a_gang_that_fits(run: Callable[..., Result]) -> None:
    assert lines(run("what-if", "a", "--pods", "2", "-r", "cpu=500m")) == [
        "2 pods of 500m cpu in quota a would start now",
        "there is room for 2 pods on 2 nodes now",
        "1 unit waits in other quotas, ahead of it (koord queue)",
    ]


def test_what_if_for_a_gang_that_does_not_fit_says_what_would_help(
    run: Callable[..., Result],
) -> None:
    text = lines(run("what-if", "a", "--pods", "3", "-r", f"{GPU}=8"))
    assert f"- Quota a uses 8 {GPU}: pod default/a-0 (8)." in text[text.index("What would help") :]


def test_what_if_tells_what_waits_ahead(run: Callable[..., Result]) -> None:
    text = lines(run("what-if", "b", "--pods", "2", "-r", f"{GPU}=1", "-r", "cpu=500m"))
    assert text[0].startswith("2 pods of 500m cpu, 1 nvidia.com/gpu in quota b would wait: ")
    assert text[0].endswith("; it would start now if nothing was ahead of it")
    assert text[2] == f"1 pod waits in b already, ahead of it: default/b-0 (8 {GPU})"
    document = json.loads(run("what-if", "b", "-r", f"{GPU}=1", "-o", "json").stdout)
    assert (document["starts"], document["startsAlone"]) == (False, True)
    assert [unit["name"] for unit in document["ahead"]] == ["default/b-0"]


def test_what_if_names_a_waiting_gang_that_would_start(monkeypatch: pytest.MonkeyPatch) -> None:
    state = make_state()
    upsert_quota(state, team("small", most=2))
    upsert_pod_group(state, make_pod_group("t/y", min_member=2).build())
    for at in range(2):
        state.upsert_pod(make_pod(f"t/y-{at}").gpu(2).quota("small").gang("t/y").build())
    upsert_quota(state, team("org", most=16, is_parent=True))
    state.remove_pod("uid-default-b-0")
    monkeypatch.setattr(quota_view, "read", lambda *_: Reading(state))
    arguments = ["quota", "what-if", "small", "--max", f"{GPU}=4"]
    assert lines(CliRunner().invoke(app, arguments))[-1] == (
        f"With this, gang t/y (4 {GPU}), which waits now, would start"
    )


def test_what_if_names_what_would_still_wait(run: Callable[..., Result]) -> None:
    assert lines(run("what-if", "b", "--max", f"{GPU}=15"))[-2:] == [
        "No share would change now.",
        f"gang default/g (4 {GPU}) would still wait: MissingMembers",
    ]
    edit = ("--min", f"{GPU}=4", "--max", f"{GPU}=4")
    of_b = [
        f"pod default/b-0 (8 {GPU}) would still wait: RequestAboveMax",
        f"gang default/g (4 {GPU}) would still wait: MissingMembers",
    ]
    assert lines(run("what-if", "b", *edit))[-2:] == of_b
    waiting = json.loads(run("what-if", "b", *edit, "-o", "json").stdout)["edit"]["waiting"]
    assert [(unit["name"], unit["reason"]) for unit in waiting] == [
        ("default/b-0", "RequestAboveMax"),
        ("default/g", "MissingMembers"),
    ]
    of_parent = lines(run("what-if", "org", "--max", f"{GPU}=17"))
    assert any("default/g" in line for line in of_parent), "what is below it counts"
    assert not any("default/g" in line for line in lines(run("what-if", "a", *edit)))


def test_what_if_says_what_the_max_leaves_after_those_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(*_: str) -> Reading:
        state = make_state()
        upsert_quota(state, team("org", most=32, is_parent=True))
        upsert_quota(state, team("b", "org", most=12))
        return Reading(state)

    monkeypatch.setattr(quota_view, "read", read)
    arguments = ["quota", "what-if", "b", "-r", f"{GPU}=4", "--pods"]
    sentence = f"After those ahead of it, quota b could hold only 4 {GPU} more (its max)"
    is_said = {
        pods: sentence in lines(CliRunner().invoke(app, [*arguments, str(pods)]))
        for pods in (1, 2, 4)
    }
    assert is_said == {1: False, 2: True, 4: False}, "4 pods are more than its max by themselves"
    as_json = json.loads(CliRunner().invoke(app, [*arguments, "2", "-o", "json"]).stdout)
    assert as_json["roomAfterAhead"] == {GPU: "4"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-r", "gpu=8"], f"--request gpu=8: no node has any gpu. Did you mean {GPU}?"),
        (["--max", "nvidia.com/gpus=8"], f"Did you mean {GPU}?"),
    ],
)
def test_what_if_suggests_resources(
    run: Callable[..., Result], arguments: list[str], text: str
) -> None:
    result = run("what-if", "a", *arguments)
    assert result.exit_code == 2
    assert text in result.stderr


def test_what_if_of_a_resource_that_nobody_knows_warns(run: Callable[..., Result]) -> None:
    result = run("what-if", "a", "-r", "example.com/fpga=1")
    assert result.exit_code == 0
    assert "no node has any example.com/fpga, and no quota names it" in result.stderr


@pytest.mark.parametrize("request_text", ["example.com/fpga=1", "cpu=9000", f"{GPU}=9"])
def test_what_if_shows_no_internal_name(run: Callable[..., Result], request_text: str) -> None:
    for form in ("text", "json"):
        assert "what_if" not in run("what-if", "a", "-r", request_text, "-o", form).stdout


@pytest.mark.parametrize("request_text", [f"{GPU}=lots", "=1", GPU])
def test_invalid_amounts_are_usage_errors(run: Callable[..., Result], request_text: str) -> None:
    result = run("what-if", "a", "-r", request_text)
    assert result.exit_code == 2
    assert "--request" in result.stderr


def test_without_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_view, "read", lambda *_: Reading(make_cluster().state))
    assert lines(CliRunner().invoke(app, ["quota", "tree"])) == ["There are no quotas."]


def test_quotas_that_may_not_be_listed_are_not_reported_missing(monkeypatch) -> None:
    gaps = (Gap(QUOTAS, Extent.NOTHING),)
    reading = Reading(make_cluster().state, gaps=gaps), Target(TargetKind.POD, "default", "")
    monkeypatch.setattr(quota_view, "read_without_target", lambda *_: reading)
    done = CliRunner().invoke(app, ["quota", "tree"])
    assert (done.exit_code, done.stdout) == (3, "")
    assert "you may not list elasticquotas" in done.stderr
    assert "koord-user" in done.stderr


class Budget(QuotaHook):
    def check_unit(self, quota: QuotaSpec, used: Amounts, request: Amounts) -> str:
        return "no money"


def test_what_if_asks_the_hooks() -> None:
    hooks = Hooks({"budget": Budget()})
    reason = simulate_gang(make_state(hooks), "b", {GPU: 2}, 1).reason
    assert "hook plugin budget, err: no money" in reason.text()


@pytest.mark.parametrize(
    ("hooks", "operators_have_hooks", "part"),
    [
        (Hooks(), True, "the operators use quota hooks, and none is installed here"),
        (Hooks({"budget": Budget()}), False, "budget is used here, and the operators use none"),
        (Hooks({"budget": Budget()}), True, ""),
        (Hooks({"budget": Budget()}), None, ""),
        (Hooks(), False, ""),
        (Hooks(), None, ""),
    ],
)
def test_hooks_that_differ_from_the_operators_get_a_warning(
    *, hooks: Hooks, operators_have_hooks: bool | None, part: str
) -> None:
    reading = Reading(make_state(hooks), operators_have_hooks=operators_have_hooks)
    warnings = [*warn_of_gaps(reading, Target(TargetKind.POD, "default", "p"))]
    assert [part in warning for warning in warnings] == ([True] if part else [])


def test_a_hook_that_cannot_be_loaded_is_named() -> None:
    hooks = Hooks()
    hooks.fail("budget", "load", ImportError("no such module"))
    reading = Reading(make_state(hooks), operators_have_hooks=True)
    (text,) = warn_of_gaps(reading, Target(TargetKind.POD, "default", "p"))
    assert text.startswith("hook budget fails here (ImportError: no such module, in load)")
