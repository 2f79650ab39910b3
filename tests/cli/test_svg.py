"""``--output svg``: every answer as a picture."""

from xml.etree import ElementTree as ET

import pytest
from rich.text import Text

from koord.cli.common import Output
from koord.cli.output import make_table, print_in
from koord.cli.svg import MAX_COLUMNS


def draw(capsys, *parts):
    print_in(Output.SVG, document=dict, names=list, text=lambda: iter(parts))
    return capsys.readouterr().out


def texts(picture):
    drawn = ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")  # noqa: S314 - our own
    read = ("".join(one.itertext()).replace("\xa0", " ").strip() for one in drawn)
    return [text for text in read if text]


def test_table_is_drawn_as_printed(capsys):
    table = make_table("NODE", "FREE")
    table.add_row("n0 <&>", "8")
    table.add_row("n1", "[bold]")
    picture = draw(capsys, Text("free", style="green"), table)
    assert texts(picture) == ["free", "NODE", "FREE", "n0 <&>", "8", "n1", "[bold]"]


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
    assert texts(draw(capsys)) == []
