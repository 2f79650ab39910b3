"""How all commands print: consoles, tables, counts, JSON, pictures and graphs. Knows no domain.

Text of strangers steers no terminal: what they wrote is escaped before Rich makes sequences of
styles. Pictures are SVG that follows the reader's light or dark scheme; each word has its own
position, because programs outside of browsers drop spaces at the ends of a text, and have no widths
of texts. Graphs are DOT for Graphviz, and GraphML for Gephi, yEd or networkx.
"""

import html
import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Column, Table
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text
from typing_extensions import override

from koord.cli.common import Output, TreeOutput
from koord.plain_text import escape, escape_line, is_plain

if TYPE_CHECKING:
    import networkx as nx

    from koord.answers.envelope import AnswerHead

_WIDTH_OF_FILES: Final = 100_000


class SafeConsole(Console):
    """Escapes what is not printable, whatever is rendered and however deep it lies."""

    @override
    def render_str(self, text: str, **options: Any) -> Text:
        # Before widths are measured; what is no plain string is escaped below.
        return super().render_str(escape(text), **options)

    @override
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(escape(segment.text), segment.style)


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
    text = cell.plain if isinstance(cell, Text) else cell
    if not isinstance(text, str) or text.isprintable():
        return cell
    return Text(escape_line(text), cell.style) if isinstance(cell, Text) else escape_line(text)


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


def make_console() -> Console:
    console = SafeConsole(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH_OF_FILES
    return console


def print_parts(parts: Iterable[RenderableType], console: Console) -> None:
    """Print without the spaces by which tables pad their last column."""
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def print_in(
    output: Output | TreeOutput,
    head: "AnswerHead",
    *,
    document: Callable[[], Any],
    names: Callable[[], Iterable[str]],
    text: Callable[[], Iterable[RenderableType]],
) -> None:
    """Print an answer in one of its forms; only that form is made."""
    console = make_console()
    match str(output):
        case Output.ANSWER:
            console.file.write(f"{to_json(head.wrap(document()))}\n")
        case Output.JSON:
            console.file.write(f"{to_json(document())}\n")
        case Output.YAML:
            console.file.write(to_yaml(document()))
        case Output.NAME:
            console.file.write("".join(f"{escape_line(name)}\n" for name in names()))
        case Output.SVG:
            console.file.write(to_svg(text()))
        case _:
            print_parts(text(), console)


def to_svg(text: Iterable[RenderableType]) -> str:
    parts = list(text)
    console = SafeConsole(file=io.StringIO(), width=_WIDTH_OF_FILES, highlight=False, markup=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    lines = [len(line.rstrip()) for line in capture.get().splitlines()]
    return draw_svg(parts, max(lines, default=0) + 1)


MAX_COLUMNS: Final = 120
_BLACK: Final = "fill: #000000"
_CELL_WIDTH: Final = 12.2
"""Of one character, as Rich draws it."""
_PLACED_TEXT: Final = re.compile(
    r'<text class="(?P<style>[^"]+)" x="(?P<x>[^"]+)" (?P<line>y="[^"]+") textLength="[^"]+" '
    r'(?P<clip>clip-path="[^"]+")>(?P<text>[^<]*)</text>'
)

# Rich fills this in; its own frame has a window around the text, and fetches a font. The text is
# moved up, because the last line has no room for descenders.
_PICTURE: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {terminal_height}">
<style>
svg {{ color: #1f2328 }}
.{unique_id}-background {{ fill: #ffffff }}
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, monospace }}
{styles}
@media (prefers-color-scheme: dark) {{
svg {{ color: #e6edf3 }}
.{unique_id}-background {{ fill: #0d1117 }}
}}
</style>
<defs>{lines}</defs>
<rect class="{unique_id}-background" width="100%" height="100%" rx="6"/>
<g class="{unique_id}-matrix" transform="translate({terminal_x}, -3)">
{backgrounds}
{matrix}
</g>
</svg>
"""


def draw_svg(parts: Iterable[RenderableType], width_of_text: int) -> str:
    """Draw what is printed; lines longer than ``MAX_COLUMNS`` are folded."""
    console = SafeConsole(
        record=True,
        file=io.StringIO(),
        width=min(width_of_text, MAX_COLUMNS),
        highlight=False,
        markup=False,
        emoji=False,
        force_terminal=True,
        color_system="standard",
    )
    for part in parts:
        console.print(part)
    drawn = console.export_svg(theme=DEFAULT_TERMINAL_THEME, code_format=_PICTURE)
    placed = _PLACED_TEXT.sub(lambda match: "".join(_place_words(match)), drawn)
    return placed.replace(_BLACK, "fill: currentColor")


def _place_words(match: re.Match[str]) -> Iterator[str]:
    """Yield the words of one text, each at the place that the spaces before it give it."""
    text = html.unescape(match["text"])
    for word in re.finditer(r"\S+", text):
        x = float(match["x"]) + cell_len(text[: word.start()]) * _CELL_WIDTH
        width = cell_len(word[0]) * _CELL_WIDTH
        yield (
            f'<text class="{match["style"]}" x="{x:g}" {match["line"]} textLength="{width:g}" '
            f"{match['clip']}>{html.escape(word[0])}</text>"
        )


def to_yaml(document: Any) -> str:
    import yaml  # noqa: PLC0415 - slow to import

    plain = msgspec.to_builtins(document, enc_hook=str)
    return safe_yaml(
        lambda wide: yaml.safe_dump(plain, sort_keys=False, width=120, allow_unicode=wide)
    )


def safe_yaml(dump: Callable[[bool], str]) -> str:
    """Return what ``dump`` writes; if it is not all printable, with escapes for all of Unicode."""
    text = dump(True)
    return text if is_plain(text) else dump(False)


def to_json(document: Any) -> str:
    return escape(msgspec.json.format(encode_json(document)).decode())


def encode_json(document: Any) -> bytes:
    """Return a document as JSON, with whole numbers of any length: bytes times milliseconds."""
    try:
        return msgspec.json.encode(document, enc_hook=str)
    except OverflowError:
        plain = msgspec.to_builtins(document, enc_hook=str)
        return json.dumps(plain, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class Fitting:
    """The first of several tables, the one with most columns first, that fits into the width."""

    tables: tuple[RenderableType, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fitting = (
            table
            for table in self.tables
            if Measurement.get(console, options.update(width=_WIDTH_OF_FILES), table).minimum
            <= options.max_width
        )
        yield next(fitting, self.tables[-1])


def make_table(*headings: str, right: Collection[str] = (), padding: int = 3) -> LineTable:
    """Return a table without lines; the columns named in ``right`` are aligned to the right."""
    table = LineTable(padding)
    for heading in headings:
        table.add_column(
            heading,
            justify="right" if heading in right else "left",
            overflow="fold",
            no_wrap=heading == "NODE" or heading in right,
        )
    return table


def count_of(count: int, noun: str) -> str:
    """Write ``1 node``, ``2 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a tree. ``lines`` are its label, ``attributes`` the same facts by name."""

    id: str
    parent: str | None
    lines: tuple[str, ...]
    attributes: Mapping[str, str | int] = field(default_factory=dict)


def write_graph(name: str, nodes: Iterable[GraphNode], output: TreeOutput) -> str:
    """Return the graph as a document; edges lead from parents to children."""
    import networkx as nx  # noqa: PLC0415 - slow to import, and only graphs need it

    graph: nx.DiGraph[str] = nx.DiGraph(name=name)
    for node in nodes:
        texts = {
            key: escape(attribute)
            for key, attribute in node.attributes.items()
            if isinstance(attribute, str)
        }
        label = "\n".join(map(escape_line, node.lines))
        graph.add_node(escape(node.id), label=label, **{**node.attributes, **texts})
        if node.parent is not None:
            graph.add_edge(escape(node.parent), escape(node.id))
    return "\n".join(_write_dot(graph) if output is TreeOutput.DOT else nx.generate_graphml(graph))


def _write_dot(graph: "nx.DiGraph[str]") -> Iterator[str]:
    yield f"digraph {_quote(graph.name)} {{"
    yield "  rankdir=LR;"
    yield "  node [shape=box];"
    for node, attributes in graph.nodes(data=True):
        written = ", ".join(f"{_quote(key)}={_quote(str(of))}" for key, of in attributes.items())
        yield f"  {_quote(node)} [{written}];"
    for parent, child in graph.edges:
        yield f"  {_quote(parent)} -> {_quote(child)};"
    yield "}"


def _quote(text: str) -> str:
    # Graphviz turns backslash sequences into line breaks and names: those of the text are escaped.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
