"""Writes the pages of docs/reference from the entries of the reference.

make reference
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from koord.cli.reference import list_commands
from koord.reference.entries import Entry, EntryKind, list_entries

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGES: Final = {
    EntryKind.KEY: "keys",
    EntryKind.FIELD: "fields",
    EntryKind.CONDITION: "conditions",
    EntryKind.SERIES: "metrics",
    EntryKind.ALERT: "alerts",
    EntryKind.SETTING: "configuration",
    EntryKind.COMMAND: "commands",
}
_LINK: Final = re.compile(r"\]\((?!https?:)([^)]+)\)")


def make_pages() -> dict[Path, str]:
    """Return the text of every page by its path."""
    entries = [*list_entries(), *list_commands()]
    return {
        DOCS / "reference" / f"{PAGES[kind]}.md": make_page(kind, list(of_kind))
        for kind, of_kind in groupby(entries, lambda entry: entry.kind)
    }


def make_page(kind: EntryKind, entries: Iterable[Entry]) -> str:
    lines = [
        f"# {kind}",
        "",
        "Made with `make reference`; `koord reference NAME` prints an entry. Terms:",
        "[glossary](../glossary.md).",
    ]
    for where, of_section in groupby(sorted(entries, key=_section), _section):
        chosen = list(of_section)
        columns = [name for name, is_used in _columns(chosen) if is_used]
        lines += ["", f"## {where}", ""] if where else [""]
        lines += [f"| Name | {' | '.join(columns)} |"]
        lines += ["|---" * (len(columns) + 1) + "|"]
        lines += [f"| `{entry.key}` | {' | '.join(_cells(entry, columns))} |" for entry in chosen]
    return "\n".join(lines) + "\n"


def _section(entry: Entry) -> str:
    """Return the heading of an entry; pages with few entries have none."""
    is_divided = entry.kind in {EntryKind.FIELD, EntryKind.CONDITION}
    return entry.where.partition(":")[0] if is_divided else ""


def _columns(entries: list[Entry]) -> Iterator[tuple[str, bool]]:
    yield "On", entries[0].kind is EntryKind.KEY
    yield "Condition", any(":" in entry.where for entry in entries)
    is_command = entries[0].kind is EntryKind.COMMAND
    names = dict.fromkeys(name for entry in entries for name in entry.facts)
    yield "Options", is_command
    yield from ((name, True) for name in names if not is_command)
    yield "Meaning", True
    yield "What helps", any(entry.helps for entry in entries)


def _cells(entry: Entry, columns: list[str]) -> Iterator[str]:
    for name in columns:
        match name:
            case "On":
                yield entry.where
            case "Condition":
                yield _escape(entry.where.partition(": ")[2])
            case "Options":
                yield ", ".join(f"`{option}`" for option in entry.facts)
            case "Meaning":
                yield _escape(entry.means)
            case "What helps":
                yield _escape(entry.helps)
            case _:
                yield _escape(entry.facts.get(name, ""))


def _escape(text: str) -> str:
    moved = _LINK.sub(lambda link: f"](../{link[1]})", text)
    return " ".join(moved.replace("|", "\\|").split())


def main() -> None:
    for path, text in make_pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
