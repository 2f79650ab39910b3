"""Answers as pictures for pages and tickets: SVG that follows the reader's light or dark scheme.

Each word has its own position. Spaces would not keep words apart everywhere: programs outside of
browsers drop them at the ends of a text, and have no widths of texts.
"""

import io
import re
from collections.abc import Iterable, Iterator
from html import escape, unescape
from typing import Final

from rich.cells import cell_len
from rich.console import RenderableType
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from koord.cli.safe_console import SafeConsole

MAX_COLUMNS: Final = 120
_BLACK: Final = "fill: #000000"
_CELL_WIDTH: Final = 12.2
"""Of one character, as Rich draws it."""
_TEXT: Final = re.compile(
    r'<text class="(?P<style>[^"]+)" x="(?P<x>[^"]+)" (?P<line>y="[^"]+") textLength="[^"]+" '
    r'(?P<clip>clip-path="[^"]+")>(?P<text>[^<]*)</text>'
)

# Rich fills this in; its own frame has a window around the text, and fetches a font. The text is
# moved up, because the last line has no room for descenders.
_FRAME: Final = """\
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
    drawn = console.export_svg(theme=DEFAULT_TERMINAL_THEME, code_format=_FRAME)
    placed = _TEXT.sub(lambda match: "".join(_place_words(match)), drawn)
    return placed.replace(_BLACK, "fill: currentColor")


def _place_words(match: re.Match[str]) -> Iterator[str]:
    """Yield the words of one text, each at the place that the spaces before it give it."""
    text = unescape(match["text"])
    for word in re.finditer(r"\S+", text):
        x = float(match["x"]) + cell_len(text[: word.start()]) * _CELL_WIDTH
        width = cell_len(word[0]) * _CELL_WIDTH
        yield (
            f'<text class="{match["style"]}" x="{x:g}" {match["line"]} textLength="{width:g}" '
            f"{match['clip']}>{escape(word[0])}</text>"
        )
