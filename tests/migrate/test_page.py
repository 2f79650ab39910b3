"""docs/migration.md has the tables of the code."""

from pathlib import Path

import pytest

from koord.api.migration.pages import render_tables

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"


@pytest.mark.parametrize(("peer", "table"), list(render_tables()))
def test_page_has_the_table_of_a_peer(peer, table):
    assert f"\n{table}\n" in PAGE.read_text(encoding="utf-8")
