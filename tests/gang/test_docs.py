"""The page on gangs agrees with the code."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from koord.api.keys import gang as keys
from koord.core.gang.phase import TABLE
from koord.core.model.gangs import GangPhase

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join((DOCS / f"{one}.md").read_text("utf-8") for one in ("gangs", "gang-lifecycle"))

OTHER_PAGES = {
    keys.NETWORK_TOPOLOGY_SPEC,
    keys.NETWORK_TOPOLOGY_INDEX,
    keys.NETWORK_TOPOLOGY_SELECTOR,
    keys.TOPOLOGY_KEY_TO_EXPLAIN,
    keys.KUEUE_FAST,
    keys.PLUGINS_GROUP,
    keys.LWS_SIZE,
    keys.VOLCANO_GROUP,
}
UNUSED = {keys.TIMEOUT, keys.SCHEDULING_HINT, keys.SCHEDULING_HINT_DEPRECATED, keys.PREFIX}
WITHOUT_INTERNAL = {keys.BIND_GROUP_ID_DEPRECATED, keys.BIND_MEMBER_COUNT_DEPRECATED}


def write_phases() -> list[str]:
    """Write the table of phases as on the page."""
    return [f"| {name_phases(row.origins)} | {row.when} | `{row.target.value}` |" for row in TABLE]


def name_phases(phases: frozenset[GangPhase]) -> str:
    names = (
        f"`{phase.value}`" if phase.value else "none" for phase in GangPhase if phase in phases
    )
    return ", ".join(names)


def test_page_contains_the_table_of_phases() -> None:
    _, rest = PAGE.split("<!-- phases: made from the table in core/gang/phase.py -->\n")
    _, lines = next(groupby(rest.splitlines(), key=lambda line: line.startswith("|")))
    assert list(lines)[2:] == write_phases()


def test_page_names_every_key() -> None:
    known = {value for name, value in vars(keys).items() if name.isupper()}
    missing = {key for key in known - OTHER_PAGES - UNUSED - WITHOUT_INTERNAL if key not in PAGE}
    assert not missing
