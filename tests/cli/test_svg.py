"""``--output svg``: every answer as a picture."""

from xml.etree import ElementTree as ET

import pytest
from rich.text import Text

from koord.answers.envelope import AnswerHead
from koord.cli.common import Output
from koord.cli.output import MAX_COLUMNS, make_table, print_in

CELL = 12.2


def draw(capsys, *parts):
    print_in(Output.SVG, AnswerHead("X", 0), document=dict, names=list, text=lambda: iter(parts))
    return capsys.readouterr().out


def elements(picture):
    return list(ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text"))  # noqa: S314 - our own


def lines(picture):
    """Return what a program shows that knows nothing of spaces: each text at its position."""
    cells = {}
    for element in elements(picture):
        row, text = cells.setdefault(float(element.get("y")), {}), "".join(element.itertext())
        row[round(float(element.get("x")) / CELL)] = text.replace("\xa0", " ").strip()
    return [join(row) for _, row in sorted(cells.items())]


def join(row):
    line = ""
    for column, text in sorted(row.items()):
        assert len(line) <= column, "texts overlap"
        line = line.ljust(column) + text
    return line


def test_table_is_drawn_as_printed(capsys):
    table = make_table("NODE", "FREE")
    table.add_row("n0 <&>", "8")
    table.add_row("n1", "[bold]")
    picture = draw(capsys, Text("free", style="green"), table)
    assert lines(picture) == ["free", "NODE     FREE", "n0 <&>   8", "n1       [bold]"]


def test_no_program_has_to_keep_spaces(capsys):
    styled = (("styles", "bold"), "   and", (" gaps ", "red"), "\n")
    parts = Text.assemble("  two ", *styled, "日本  x")
    picture = draw(capsys, parts)
    assert lines(picture) == ["  two styles   and gaps", "日本    x"]
    assert not any(space in element.text for element in elements(picture) for space in " \xa0\n")


def test_picture_is_as_wide_as_its_text_and_not_wider_than_a_page(capsys):
    def width(text):
        return float(ET.fromstring(draw(capsys, text)).get("viewBox").split()[2])  # noqa: S314

    assert width("a") < width("a b c d e f g h") < width("word " * 30) == width("word " * 300)
    assert width("word " * 300) == pytest.approx(MAX_COLUMNS * 12.2 + 18, abs=4)


def test_picture_follows_the_scheme_of_the_reader_and_fetches_nothing(capsys):
    picture = draw(capsys, "waits")
    assert "prefers-color-scheme: dark" in picture
    assert "fill: currentColor" in picture
    assert "url(http" not in picture


def test_nothing_to_show_is_a_picture_too(capsys):
    assert lines(draw(capsys)) == []
