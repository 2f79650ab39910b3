"""A table without lines that is fast for thousands of rows.

Rich measures and wraps every cell. Where each cell is one line of one style, and all columns fit,
their widths are all that is needed; everything else is left to rich.
"""

from typing import Any, TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text
from typing_extensions import override

from koord.plain_text import escape_line

_Cell: TypeAlias = tuple[str, int, str | Style]
"""Text, width and style."""


class LineTable(Table):
    """A table whose rows have no styles and no sections; its columns are left- or right-aligned."""

    def __init__(self, padding: int) -> None:
        super().__init__(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="bold")

    @override
    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row; the text of a cell stays in its line, whoever wrote it."""
        super().add_row(*map(_in_one_line, cells), **options)

    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        gap = self.padding[1]
        columns = [self._read(column) for column in self.columns]
        widths = [max((width for _, width, _ in cells), default=0) for cells in columns]
        if not all(columns) or sum(widths) + gap * (len(widths) - 1) > options.max_width:
            yield from super().__rich_console__(console, options)
            return
        padded = [
            [
                Segment(_pad(cell, width, column) + " " * gap, console.get_style(cell[2]))
                for cell in cells
            ]
            for cells, width, column in zip(columns, widths, self.columns, strict=True)
        ]
        end = Segment.line()
        for row in zip(*padded, strict=True):
            yield from row
            yield end

    def _read(self, column: Column) -> list[_Cell]:
        """Return the cells of a column with its heading; empty if one is not a simple line."""
        cells = [_read_cell(column.header, self.header_style or "")]
        cells += [_read_cell(cell, "") for cell in column.cells]
        simple = [cell for cell in cells if cell is not None]
        return simple if len(simple) == len(cells) else []


def _in_one_line(cell: RenderableType | None) -> RenderableType | None:
    if isinstance(cell, str):
        return escape_line(cell)
    if isinstance(cell, Text) and not cell.plain.isprintable():
        return Text(escape_line(cell.plain), cell.style)
    return cell


def _read_cell(cell: RenderableType, style: str | Style) -> _Cell | None:
    text = cell
    if isinstance(cell, Text) and not cell.spans:
        text, style = cell.plain, cell.style
    if not isinstance(text, str) or not text.isprintable():
        return None
    return text, cell_len(text), style


def _pad(cell: _Cell, width: int, column: Column) -> str:
    text, own, _ = cell
    space = " " * (width - own)
    return f"{space}{text}" if column.justify == "right" else f"{text}{space}"
