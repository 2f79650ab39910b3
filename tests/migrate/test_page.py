"""The pages about migration have the tables of the code."""

from pathlib import Path

import pytest

from koord_migrate.table import render_tables

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("migration.md", "migration-keys.md")


@pytest.mark.parametrize(("peer", "table"), list(render_tables()))
def test_page_has_the_table_of_a_peer(peer, table):
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)
    assert f"\n{table}\n" in text
