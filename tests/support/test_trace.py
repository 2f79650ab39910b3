"""The traces of the way of the data: that they are played, not how long the ways are."""

import json
import sys

import pytest
from tests.support.trace import WAYS, Function, Trace, main


@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_played_and_shown(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--show", way])
    shown = capsys.readouterr().out
    assert "moves between two files" in shown
    assert WAYS[way].__doc__ in shown
    assert sys.getprofile() is None


def test_numbers_of_all_ways_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--output", "json"])
    numbers = json.loads(capsys.readouterr().out)
    assert list(numbers) == list(WAYS)
    for way in numbers.values():
        assert 0 < way["files"] <= way["functions"] <= way["calls"]
        assert way["files"] <= way["moves"] <= way["calls"]


def test_moves_are_counted_between_files_within_a_part() -> None:
    a, other_of_a, b = Function("a.py", "f"), Function("a.py", "g"), Function("b.py", "f")
    trace = Trace([[a, other_of_a, b, a], [b, b]])
    assert trace.numbers() == {"files": 2, "functions": 3, "moves": 4, "calls": 6}
    assert trace.pairs() == {("a.py", "b.py"): 2}
