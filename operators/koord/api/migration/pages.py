"""The table as Markdown."""

import re
from collections.abc import Iterator
from typing import Final

from koord.api.migration.table import NONE, TABLE, Action, Peer

_PAGE: Final = re.compile(r"\bdocs/(([\w-]+)\.md\S*)")
"""How a message names a page; on a page it is a link."""


def render_tables() -> Iterator[tuple[str, str]]:
    """Yield the name of each peer and its table."""
    for peer in Peer:
        lines = ["| Key | Becomes | Note |", "|---|---|---|"]
        cells: dict[tuple[str, ...], list[str]] = {}
        for row in (row for row in TABLE if row.peer is peer):
            key = row.key if "`" in row.key else f"`{row.key}`"
            columns = (row.becomes, _describe(row.action, row.note))
            # Keys without an equivalent of which the same is to be said are one line.
            cells.setdefault(columns if row.becomes == NONE else (*columns, key), []).append(key)
        lines += (
            f"| {', '.join(keys)} | {columns[0]} | {columns[1]} |"
            for columns, keys in cells.items()
        )
        yield peer.value, "\n".join(lines)


def _describe(action: Action, note: str) -> str:
    note = _PAGE.sub(r"[\2](\1)", note)
    if action is Action.REPORT:
        return f"**by hand**{': ' if note else ''}{note}"
    return note
