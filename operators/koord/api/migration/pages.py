"""The table as Markdown."""

from collections.abc import Iterator

from koord.api.migration.table import NONE, NOT_NEEDED, TABLE, Action, Peer


def render_tables() -> Iterator[tuple[str, str]]:
    """Yield the name of each peer and its table."""
    for peer in Peer:
        lines = ["| Key | Becomes | Note |", "|---|---|---|"]
        rows = [row for row in TABLE if row.peer is peer]
        internal = [f"`{row.key}`" for row in rows if row.note == NOT_NEEDED]
        for row in (row for row in rows if row.note != NOT_NEEDED):
            key = row.key if "`" in row.key else f"`{row.key}`"
            lines.append(f"| {key} | {row.becomes} | {_describe(row.action, row.note)} |")
        if internal:
            lines.append(f"| {', '.join(internal)} | {NONE} | {NOT_NEEDED} |")
        yield peer.value, "\n".join(lines)


def _describe(action: Action, note: str) -> str:
    if action is Action.REPORT:
        return f"**by hand**{': ' if note else ''}{note}"
    return note
