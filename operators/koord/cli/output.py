"""How all commands print: consoles, tables, counts and JSON. Knows nothing of what is printed."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table

_WIDTH_OF_FILES: Final = 100_000


def make_console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH_OF_FILES
    return console


def print_parts(parts: Iterable[RenderableType], console: Console) -> None:
    """Print without the spaces by which tables pad their last column."""
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def print_json(document: Any) -> None:
    make_console().file.write(f"{to_json(document)}\n")


def to_json(document: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(document, enc_hook=str)).decode()


def make_table(*headings: str, right: Iterable[str] = (), padding: int = 3) -> Table:
    """Return a table without lines; the columns named in ``right`` are aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(
            heading,
            justify="right" if heading in right else "left",
            overflow="fold",
            no_wrap=heading == "NODE",
        )
    return table


def count_of(count: int, noun: str) -> str:
    """Write ``1 node``, ``2 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
