"""The table of docs/security.md about what tenants can cost others names tests that are there."""

import re

from tests.manifests.conftest import ROOT

PAGE = ROOT / "docs/security.md"
TITLE = "## What tenants can cost others"


def read_rows() -> list[list[str]]:
    section = PAGE.read_text(encoding="utf-8").partition(TITLE)[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_every_row_says_who_guards_and_which_test_shows_it() -> None:
    rows = read_rows()
    assert len(rows) > 30
    for row in rows:
        assert len(row) == 4, row
        assert all(row), row


def test_the_tests_are_there() -> None:
    for *_, tests in read_rows():
        folder = ""
        for name in re.findall(r"`((?:tests/)?[\w/]+(?:\.py)?)`", tests):
            path = name if name.startswith("tests/") else f"{folder}/{name}"
            folder = path.rpartition("/")[0]
            assert (ROOT / path).exists(), path
