"""The table as Markdown."""

from collections.abc import Iterator

from koord.api.migration.table import TABLE, Action, Peer


def render_tables() -> Iterator[tuple[str, str]]:
    """Yield the name of each peer and its table."""
    for peer in Peer:
        lines = ["| Key | Becomes | Note |", "|---|---|---|"]
        for row in (row for row in TABLE if row.peer is peer):
            key = row.key if "`" in row.key else f"`{row.key}`"
            lines.append(f"| {key} | {row.becomes} | {_describe(row.action, row.note)} |")
        yield peer.value, "\n".join(lines)


def _describe(action: Action, note: str) -> str:
    if action is Action.REPORT:
        return f"**by hand**{': ' if note else ''}{note}"
    return note
