"""Tables without lines: printed as by rich, but without rich's work where nothing is folded."""

import io
import random

import pytest
from rich.console import Console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from koord.cli.output import make_table

_SIMPLE = ("", "a", "node-12", "日本", "é", "[b]", "two words here", Text("y", "yellow"))
_OTHERS = ("a\nb", "tab\tx", "x" * 30, Text.assemble(("a", "red"), "b"))


def draw(table, width, render):
    """Return lines of characters with their styles; that of spaces is not seen."""
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    drawn = []
    for line in Segment.split_lines(render(table, console, console.options)):
        seen = [(character, str(part.style or "none")) for part in line for character in part.text]
        while seen and seen[-1][0] == " ":
            seen.pop()
        drawn.append([(character, style if character != " " else "") for character, style in seen])
    return drawn


@pytest.mark.parametrize("seed", range(200))
def test_table_looks_as_that_of_rich(seed):
    rng = random.Random(seed)  # noqa: S311 - for cases, not for keys
    headings = [rng.choice(["NODE", "A", "WORDS B"]) for _ in range(rng.randint(1, 6))]
    right = [heading for heading in headings if rng.random() < 0.5]
    table = make_table(*headings, right=right, padding=rng.randint(2, 3))
    cells = _SIMPLE if rng.random() < 0.6 else _SIMPLE + _OTHERS
    for _ in range(rng.randint(0, 5)):
        table.add_row(*(rng.choice(cells) for _ in headings[rng.randint(0, 1) :]))
    width = rng.choice([12, 40, 80, 200])
    expected = draw(table, width, Table.__rich_console__)
    assert draw(table, width, type(table).__rich_console__) == expected


def test_lines_that_fit_take_none_of_the_work_of_rich(monkeypatch):
    def refuse(*_):
        raise AssertionError

    table = make_table("NODE", "STATE")
    for at in range(5000):
        table.add_row(f"node-{at}", Text("Cordoned", "yellow"))
    monkeypatch.setattr(Table, "_calculate_column_widths", refuse)
    assert len(draw(table, 80, type(table).__rich_console__)) == 5001
