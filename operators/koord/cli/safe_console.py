"""The console on which all commands print: text of strangers steers no terminal through it.

Rich makes escape sequences of styles after that, so only those get through.
"""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text
from typing_extensions import override

from koord.plain_text import escape


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
