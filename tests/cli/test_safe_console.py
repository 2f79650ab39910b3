"""Nothing that strangers have written steers a terminal, in any form of any answer."""

import ast
import io
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree
from tests.text.test_plain_text import EVIL, is_harmless

import koord
from koord.answers.envelope import AnswerHead
from koord.cli.common import Output, TreeOutput, fail, say, warn
from koord.cli.output import GraphNode, SafeConsole, make_table, print_in, print_parts, write_graph

SHOWN = EVIL.removesuffix("\ud800")


def parts() -> list:
    tree = Tree(Text(SHOWN, "bold"))
    tree.add(Text.assemble("a", (SHOWN, "red")))
    table = make_table("A", "B")
    table.add_row(SHOWN, Text(SHOWN, "yellow"))
    table.add_row("short", Text.assemble(SHOWN, ("x", "bold")))
    return [SHOWN, Text(SHOWN), Padding(Text(SHOWN), 2), tree, table]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_renderings_are_harmless(is_terminal: bool) -> None:  # noqa: FBT001 - a parameter
    stream = io.StringIO()
    console = SafeConsole(
        file=stream, force_terminal=is_terminal, color_system=None, width=400, highlight=False
    )
    print_parts(parts(), console)
    assert is_harmless(stream.getvalue())
    assert "owned" in stream.getvalue()


def test_styles_of_ours_get_through() -> None:
    stream = io.StringIO()
    console = SafeConsole(file=stream, force_terminal=True, color_system="standard", width=80)
    console.print(Text("\x1b[31mx", "bold"))
    assert stream.getvalue() == "\x1b[1m\\u001b[31mx\x1b[0m\n"


def test_a_cell_stays_in_its_row() -> None:
    stream = io.StringIO()
    table = make_table("A", "B")
    table.add_row("x\nforged   row", "b")
    print_parts([table], SafeConsole(file=stream, width=80))
    assert stream.getvalue().splitlines()[1] == "x\\nforged   row   b"


@pytest.mark.parametrize("form", [form for form in Output if form is not Output.WIDE])
def test_every_form_of_an_answer_is_harmless(
    form: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {"name": SHOWN, "é": ["漢"]}
    print_in(form, AnswerHead("X", 0), document=lambda: document, names=lambda: [SHOWN], text=parts)
    printed = capsys.readouterr().out
    assert is_harmless(printed)
    match form:
        case Output.JSON:
            assert json.loads(printed) == document
        case Output.ANSWER:
            assert json.loads(printed)["value"] == document
        case Output.YAML:
            assert yaml.safe_load(printed) == document
        case Output.SVG:
            assert ET.fromstring(printed).tag.endswith("svg")  # noqa: S314 - our own
        case Output.NAME:
            assert printed.count("\n") == 1


@pytest.mark.parametrize("form", [TreeOutput.DOT, TreeOutput.GRAPHML])
def test_graphs_are_harmless(form: TreeOutput) -> None:
    nodes = [GraphNode("a", None, (SHOWN,)), GraphNode(SHOWN, "a", ("b",), {"k": SHOWN, "n": 1})]
    graph = write_graph("g", nodes, form)
    assert is_harmless(graph)
    if form is TreeOutput.GRAPHML:
        drawn = ET.fromstring(graph)  # noqa: S314 - our own
        assert len(drawn.findall(".//{*}node")) == 2


def test_messages_are_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    say(EVIL)
    warn(EVIL)
    with pytest.raises(Exception, match="2"):
        fail(EVIL, 2)  # type: ignore[arg-type]
    printed = capsys.readouterr()
    assert is_harmless(printed.out)
    assert is_harmless(printed.err)


WRITERS = {
    "common.py": {"echo", "secho"},
    "main.py": {"write"},  # the end of completions
    "output.py": {"write"},
    "quota_view.py": {"write"},  # a graph
    "snapshot_view.py": {"write"},  # a file
    "topology_view.py": {"write"},  # a graph
    "usage_files.py": {"write"},  # Parquet
    "usage_report_view.py": {"write"},  # makes a text, which ``write_document`` prints
    "watching.py": {"write"},  # what was printed already
}
"""Where commands write other than by ``say`` and a ``SafeConsole``."""


def test_commands_print_in_one_place() -> None:
    writers: dict[str, set[str]] = {}
    for path in (Path(koord.__file__).parent / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            name = getattr(called, "attr", getattr(called, "id", ""))
            if name in {"echo", "secho", "write", "Console"} or (
                name == "print" and isinstance(called, ast.Name)
            ):
                writers.setdefault(path.name, set()).add(name)
    assert writers == WRITERS
