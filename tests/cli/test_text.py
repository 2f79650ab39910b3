"""Answers as text: the same words on a terminal and in a file, the nearest nodes first."""

import io
import re

import pytest
from rich.console import Console
from tests.builders import make_node, make_pod, make_pod_group, select_pods
from tests.cli.readings import NOW, STOPPED, ask_gang, ask_pod, make_condition, make_reading

from koord.answers.explanation import Explanation
from koord.answers.leaders import NOBODY
from koord.api.keys import operators
from koord.cli.explain_view import BEST_NODES, make_parts
from koord.cli.output import make_console, print_parts
from koord.core.gang.reasons import MissingMembers
from koord.core.model.gangs import BadValue

A = "default/a"


def show(answer: Explanation, *, all_nodes: bool = False, colours: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file,
        width=200,
        force_terminal=colours,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},
    )
    print_parts(make_parts(answer, NOW, None if all_nodes else BEST_NODES), console)
    return file.getvalue()


def make_incomplete(**reading):
    group = make_pod_group(A, 3).build()
    pods = [make_pod(f"w-{i}").gang(A).created(NOW - 240).build() for i in range(2)]
    return make_reading(group, *pods, **reading)


def test_a_pod_that_waits_for_members() -> None:
    node = make_node("n").build()
    group = make_pod_group(A, 3).build()
    pods = [
        make_pod(f"w-{i}").requests(cpu=1500).gang(A).created(NOW - 240).build() for i in (0, 1)
    ]
    assert show(ask_pod(make_reading(node, group, *pods))) == (
        """\
Pod default/w-0 Waiting MissingMembers since 2026-03-01T11:56:00Z (4m ago)
  2 of 3 members of default/a present
  The operators have not reported on it. If that lasts longer than a few seconds, \
they are not running or cannot reach the cluster. \
An object that is as large as etcd takes has events only.

GANG        PRESENT   NEEDED
default/a         2        3
Members of default/a: 2 present

What would help
  - Create 1 more member of default/a, or lower its minimum to 2.

1 waiting pod asking for cpu 1500m: room for 42 on 1 of 1 node
NODE   FIT   IN THE WAY
n       42
"""
    )


def test_colours_do_not_change_the_text() -> None:
    answer = ask_pod(make_incomplete())
    coloured = show(answer, colours=True)
    assert "\x1b[" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in plain.splitlines()] == show(answer).splitlines()


def test_files_get_unwrapped_lines(monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", "40")
    console = make_console()
    assert not console.is_terminal
    print_parts(make_parts(ask_pod(make_incomplete()), NOW, BEST_NODES), console)
    written = console.file.getvalue()
    assert "2 of 3 members of default/a present\n" in written
    assert "\x1b" not in written


def test_markup_in_names_is_printed_as_it_is() -> None:
    pod = make_pod("w-0").foreign_gates("[bold]x[/bold]", ":smile:").build()
    text = show(ask_pod(make_reading(pod)))
    assert "[bold]x[/bold]" in text
    assert ":smile:" in text


@pytest.mark.parametrize(
    ("code", "message", "report"),
    [
        ("MissingMembers", None, None),
        ("MissingMembers", "1 of 3 members", " since {}: MissingMembers: 1 of 3 members"),
        ("InsufficientNodes", "0/4 nodes", " since {}: InsufficientNodes: 0/4 nodes"),
        (
            "MissingMembers",
            "2 of 3 members of default/b present",
            " since {}: MissingMembers: 2 of 3 members of default/b present",
        ),
        (
            "MissingMembers",
            "1 of 4 members of default/a present",
            "ed it with other numbers: 1 instead of 2, 4 instead of 3.",
        ),
    ],
)
def test_a_reported_condition_is_shown_if_it_differs(code, message, report) -> None:
    first = ask_pod(make_incomplete())
    assert first.reason is not None
    assert isinstance(first.reason.reason, MissingMembers)
    message = first.reason.reason.text_for("default/w-0") if message is None else message
    condition = make_condition(operators.PLACED, "False", code, message)
    text = show(ask_pod(make_incomplete(conditions=[condition])))
    if report is None:
        assert "The operators" not in text
    else:
        since = "2026-03-01T11:58:00Z (2m ago)"
        assert f"The operators report{report.format(since)}\n" in text


def test_held_up_pods_show_the_rejection() -> None:
    condition = make_condition(
        operators.PLACED, "False", "BindFailed", "the API server refused (403)"
    )
    reading = make_reading(make_pod("w-0").build(), make_node("n").build(), conditions=[condition])
    text = show(ask_pod(reading))
    assert "Pod default/w-0 HeldUp BindFailed since 2026-03-01T11:58:00Z" in text
    assert "  the API server refused (403)\n" in text
    assert "place it at once" not in text


def test_foreign_pods_need_no_report() -> None:
    assert "have not said" not in show(ask_gang(make_reading(make_pod("w-0").gang(A).build())))
    assert "have not said" not in show(ask_pod(make_reading(make_pod("w-0").not_ours().build())))


def test_invalid_settings_are_shown() -> None:
    bad = BadValue("k/mode", "strict", "Strict", "must be Strict or NonStrict")
    group = make_pod_group(A, 3)._set_spec(bad_values=(bad,)).build()
    text = show(ask_gang(make_reading(group)))
    line = 'Cannot be used: k/mode "strict" must be Strict or NonStrict (in force: Strict)\n'
    assert f"Members of {A}: none\n{line}" in text


def test_a_gang_placed_by_another_scheduler_is_marked() -> None:
    group = make_pod_group(A, 1).build()
    theirs = make_pod("w-0").gang(A).running("n").build()
    assert "1 bound, 1 running; another scheduler placed them\n" in show(
        ask_gang(make_reading(group, theirs))
    )
    ours = make_pod("w-0").gang(A).released("n", "p1").running("n").build()
    assert "1 running; plan p1 on 1 node\n" in show(ask_gang(make_reading(group, ours)))


def test_evicted_members_are_not_called_those_of_another_scheduler() -> None:
    group = make_pod_group(A, 2).build()
    ours = make_pod("w-0").gang(A).released("n", "p1").running("n").terminating().build()
    text = show(ask_gang(make_reading(group, ours)))
    assert "1 terminating" in text
    assert "another scheduler" not in text
    theirs = make_pod("w-1").gang(A).running("n").terminating().build()
    text = show(ask_gang(make_reading(group, ours, theirs)))
    assert "; another scheduler placed 1 of them\n" in text


def test_the_missing_settings_are_printed_as_yaml() -> None:
    text = show(ask_pod(make_reading(make_pod("w-0").not_ours().build(), scheduler="other")))
    assert (
        "    spec:\n"
        "      schedulerName: koord-scheduler\n"
        "      schedulingGates:\n"
        "        - name: operators.koordinator.sh/placement\n"
    ) in text


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (
            make_pod("w-0").released("n", "p1", A, 4).running("n"),
            "It is bound to node n by plan p1, with 4 members of default/a.",
        ),
        (make_pod("w-0").running("n"), "It is bound to node n; another scheduler placed it."),
        (
            make_pod("w-0").released("n", "p1").not_ours(),
            "It has node n by plan p1, and its scheduler may bind it.",
        ),
        (make_pod("w-0").terminating(), "It has ended or is being deleted."),
    ],
)
def test_pods_that_do_not_wait(pod, sentence) -> None:
    assert sentence in show(ask_pod(make_reading(pod.build())))


def test_a_gang_with_all_its_nodes_is_placed() -> None:
    pod = make_pod("w-0").gang(A).released("n", "p1", A, 1).running("n").build()
    text = show(ask_gang(make_reading(make_pod_group(A, 1).build(), pod)))
    assert text.startswith("PodGroup default/a Placed\n  All members have nodes.\n")


def rows_of(text: str) -> list[str]:
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("NODE "))
    return [line.split()[0] for line in lines[start + 1 :]]


def test_nodes_nearest_to_fitting_come_first() -> None:
    nodes = [
        make_node("a-selector-and-short").gpu(2),
        make_node("b-short-of-two").gpu(4).cpu(1000).label("pool", "x"),
        make_node("c-selector").gpu(8),
        make_node("d-fits-once").gpu(8).label("pool", "x"),
        make_node("e-lacks-half").gpu(4).label("pool", "x"),
        make_node("f-tainted").gpu(8).label("pool", "x").taint("team", "b"),
        make_node("g-lacks-one").gpu(7).label("pool", "x"),
        make_node("h-fits-twice").gpu(16).label("pool", "x"),
        make_node("i-tainted-and-lacks-one").gpu(7).label("pool", "x").taint("team", "b"),
    ]
    pod = make_pod("w-0").gpu(8).requests(cpu=2000).selector(pool="x").build()
    text = show(ask_pod(make_reading(*(node.build() for node in nodes), pod)))
    assert [name[0] for name in rows_of(text)] == list("hdcfgeiab")
    assert "nvidia.com/gpu 8 asked, 7 free" in text
    assert "not selected; nvidia.com/gpu 8 asked, 2 free" in text
    assert "taint {team: b}" in text


def test_a_pod_with_anti_affinity_is_named_per_node_and_summed_up() -> None:
    names = [f"n{at:02}" for at in range(BEST_NODES + 2)]
    apart = make_pod("w-0").apart(select_pods(app="w"), "kubernetes.io/hostname").build()
    there = [make_pod(f"on-{name}").labels(app="w").running(name).build() for name in names]
    nodes = [make_node(name).build() for name in names]
    text = show(ask_pod(make_reading(*nodes, *there, apart)))
    assert "anti-affinity {default/on-n00 on kubernetes.io/hostname=n00}" in text
    assert "… and 2 more nodes: 2 node(s) didn't match pod anti-affinity rules" in text


@pytest.mark.parametrize(
    ("requested", "free", "shown"),
    [
        (4 << 30, 1 << 30, "4Gi asked, 1Gi free"),
        (64 << 30, (63 << 30) + (1 << 29) + 1, "64Gi asked, 63.5Gi free"),
        ((1 << 30) + 2, (1 << 30) + 1, "1.1Gi asked, 1.0Gi free"),
        (2_000_000, 1_999_999, "2000000 asked, 1999999 free"),
        (1 << 40, 1023 << 30, "1Ti asked, 1023Gi free"),
        (1000, 999, "1000 asked, 999 free"),
    ],
)
def test_requested_bytes_are_rounded_up_and_free_bytes_down(requested, free, shown) -> None:
    node = make_node("n").memory(free).build()
    text = show(ask_pod(make_reading(node, make_pod("w-0").requests(memory=requested).build())))
    assert f"n        0   memory {shown}" in text


def make_crowd():
    nodes = [make_node(f"n-{i:02}").gpu(8).build() for i in range(BEST_NODES + 3)]
    nodes += [make_node(f"s-{i:02}").gpu(4).build() for i in range(5)]
    nodes += [make_node(f"t-{i:02}").gpu(8).taint("team", "b").build() for i in range(2)]
    return make_reading(*nodes, make_pod("w-0").gpu(8).build())


def test_the_best_nodes_are_listed_and_the_others_summed_up() -> None:
    *rows, summary = show(ask_pod(make_crowd())).splitlines()
    assert sum(row.startswith("n-") for row in rows) == BEST_NODES
    assert summary == (
        "… and 10 more nodes: room for 3, 5 Insufficient nvidia.com/gpu, "
        "2 node(s) had untolerated taint {team: b} (--all-nodes lists them)"
    )


def test_all_nodes_lists_every_node() -> None:
    text = show(ask_pod(make_crowd()), all_nodes=True)
    assert len(rows_of(text)) == BEST_NODES + 10
    assert "more nodes" not in text


def test_each_kind_of_pods_has_a_table_up_to_a_limit() -> None:
    group = make_pod_group(A, 8).build()
    pods = [make_pod(f"w-{i}").gpu(i).gang(A).build() for i in range(1, 9)]
    text = show(ask_gang(make_reading(make_node("n").gpu(8).build(), group, *pods)))
    assert text.count("IN THE WAY") == 5
    assert "3 more kinds of pods" in text


def test_operators_that_have_stopped_place_nothing() -> None:
    objects = make_pod("w-0").build(), make_node("n").build()
    answer = ask_pod(make_reading(*objects, leader=STOPPED))
    (warning,) = answer.warnings
    assert warning.startswith("nobody leads, the operators stopped 4m ago: what follows is")
    text = show(answer)
    assert "There is room for it, and no operators run to place it." in text
    assert "The operators" not in text


def test_a_cluster_without_operators_is_told() -> None:
    (warning,) = ask_pod(make_reading(make_pod("w-0").build(), leader=NOBODY)).warnings
    assert warning.startswith("no operators have run in namespace koord-system: what follows")
