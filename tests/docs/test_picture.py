"""The pictures are drawn from what the planner decides and the commands answer."""

import sys

import pytest
from tests.docs.conftest import ROOT

from koord.cli.output import to_svg

sys.path.insert(0, str(ROOT / "tools"))
from answers import FOLDER, PICTURES
from colocation_picture import TARGET as COLOCATION
from colocation_picture import make_picture
from picture import TARGET, draw


def test_picture_is_current():
    assert TARGET.read_text(encoding="utf-8") == draw(), "run tools/picture.py"


def test_picture_of_colocation_is_current():
    current = make_picture()
    assert COLOCATION.read_text("utf-8") == current, "run tools/colocation_picture.py"


@pytest.mark.parametrize("name", PICTURES)
def test_answer_is_current(name):
    current = to_svg(PICTURES[name]())
    assert (FOLDER / f"{name}.svg").read_text("utf-8") == current, "run tools/answers.py"
