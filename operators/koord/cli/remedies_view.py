"""Tries what would help, and prints it: what ``koord explain --verify`` adds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.reading import Reading
from koord.answers.remedies import Remedy
from koord.answers.remedy_search import find_remedies
from koord.answers.why import Explanation
from koord.cli.queue_view import make_time_limit
from koord.domains.placement import NODES, PODS


def verify(reading: Reading, answer: Explanation) -> tuple[Explanation, tuple[AnswerGap, ...]]:
    """Return the answer with remedies that were tried, and a gap if not all could be."""
    if reading.extent_of(PODS.name) is not None or reading.extent_of(NODES.name) is not None:
        unread = AnswerGap("remedies", GapCause.NO_RIGHT, "what would help, by trial")
        return replace(answer, remedies=()), (unread,)
    is_over = make_time_limit()
    reason = next(iter(answer.reasons), None)
    remedies = find_remedies(reading, answer.target, (reason, answer.closed), is_over)
    late = AnswerGap("remedies", GapCause.TOO_EXPENSIVE, "whether more would help")
    return replace(answer, remedies=remedies), (late,) if is_over() else ()


def make_remedies(remedies: Sequence[Remedy]) -> Iterator[RenderableType]:
    """Yield what was tried and helps."""
    yield Text("Tried on a copy", style="bold")
    texts = [f"- {remedy.text()}" for remedy in remedies]
    for text in texts or ["No single change that could be tried is enough."]:
        yield Padding(Text(text), (0, 0, 0, 2), expand=False)
