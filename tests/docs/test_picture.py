"""The picture of the README is drawn from what the planner decides."""

import sys

from tests.docs.conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from picture import TARGET, draw


def test_picture_is_current():
    assert TARGET.read_text(encoding="utf-8") == draw(), "run tools/picture.py"
