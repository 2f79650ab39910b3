"""How all commands print: consoles, tables, counts, JSON and graphs. Knows no quota or topology.

Graphs are DOT for Graphviz, and GraphML for Gephi, yEd or networkx.
"""

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement

from koord.cli.common import Output, TreeOutput
from koord.cli.line_table import LineTable
from koord.cli.safe_console import SafeConsole
from koord.core.model.units import format_amount, is_in_bytes
from koord.plain_text import escape, escape_line, is_plain

if TYPE_CHECKING:
    import networkx as nx

_WIDTH_OF_FILES: Final = 100_000
_LONGEST_AMOUNT: Final = 7
_UNITS: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


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
    *,
    document: Callable[[], Any],
    names: Callable[[], Iterable[str]],
    text: Callable[[], Iterable[RenderableType]],
) -> None:
    """Print an answer in one of its forms; only that form is made."""
    console = make_console()
    match str(output):
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
    from koord.cli.svg import draw_svg  # noqa: PLC0415 - only pictures need it

    parts = list(text)
    console = SafeConsole(file=io.StringIO(), width=_WIDTH_OF_FILES, highlight=False, markup=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    lines = [len(line.rstrip()) for line in capture.get().splitlines()]
    return draw_svg(parts, max(lines, default=0) + 1)


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
    return escape(msgspec.json.format(msgspec.json.encode(document, enc_hook=str)).decode())


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


AGES: Final[set[str]] = set()
"""What ``format_age`` has returned, for those who compare outputs without ages."""


def format_age(seconds: float) -> str:
    """Write ``42s``, ``3m``, ``5h`` or ``2d``."""
    age, units = max(0, int(seconds)), (("d", 86400), ("h", 3600), ("m", 60))
    unit, size = next((unit for unit in units if age >= 2 * unit[1]), ("s", 1))
    text = f"{age // size}{unit}"
    AGES.add(text)
    return text


def approximate(resource: str, amount: int, *, down: bool = False) -> str:
    """Round bytes to a tenth of a unit; other amounts are exact.

    Requests are rounded up and free amounts down, so that too little never looks like enough.
    """
    exact = format_amount(resource, amount)
    if not is_in_bytes(resource) or len(exact) <= _LONGEST_AMOUNT:
        return exact
    unit, size = next(
        (unit_and_size for unit_and_size in _UNITS if abs(amount) >= unit_and_size[1]), _UNITS[-1]
    )
    tenths = amount * 10 // size if down else -(-amount * 10 // size)
    return f"{tenths / 10:.1f}{unit}"


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
