"""Prints what would help and was tried: what ``koord explain --verify`` adds."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from koord.answers.remedies import Remedy


def make_remedies(remedies: Sequence[Remedy]) -> Iterator[RenderableType]:
    """Yield what was tried and helps."""
    yield Text("Tried on a copy", style="bold")
    texts = [f"- {remedy.text()}" for remedy in remedies]
    for text in texts or ["No single change that could be tried is enough."]:
        yield Padding(Text(text), (0, 0, 0, 2), expand=False)
