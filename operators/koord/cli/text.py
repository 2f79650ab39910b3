"""An answer as text for people: what, why, what would help, and the numbers.

Colours and line breaks suit the terminal; what goes elsewhere is plain and has one line per
statement.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from koord.cli.answer import Explanation, GangAnswer, Place
from koord.cli.history import Reported
from koord.cli.node_text import count_of, make_offers, make_table
from koord.cli.topology_text import MOST_DOMAINS, make_network
from koord.core.explain import PlacementState
from koord.core.gang.reasons import InvalidAnnotation

BEST_NODES: Final = 20
MAX_SHAPES: Final = 5
"""Kinds of pods for which nodes are listed."""
_WIDTH_OF_FILES: Final = 100_000

_STYLES: Final = {
    PlacementState.WAITING: "bold yellow",
    PlacementState.PLACEABLE: "bold green",
    PlacementState.HELD_UP: "bold red",
    PlacementState.BOUND: "bold green",
    PlacementState.ENDED: "bold",
    PlacementState.NOT_OURS: "bold magenta",
    PlacementState.NOTHING_WAITS: "bold green",
}
_SENTENCES: Final = {
    PlacementState.PLACEABLE: (
        "Nothing is in its way now: the operators place it at once, "
        "unless something else comes first."
    ),
    PlacementState.HELD_UP: (
        "The API server does not take what the operators write for it; they try again and again."
    ),
    PlacementState.ENDED: "It has ended or is being deleted.",
    PlacementState.NOTHING_WAITS: "No member of it waits for a node.",
}

_TO_COME: Final = {PlacementState.WAITING, PlacementState.PLACEABLE, PlacementState.HELD_UP}


def make_console() -> Console:
    """Return the console that answers are printed on."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH_OF_FILES
    return console


def print_answer(answer: Explanation, console: Console, now: float, *, all_nodes: bool) -> None:
    """Print an answer; times are given as seen from ``now`` (seconds since the epoch)."""
    most = len(max((offers.nodes for offers in answer.offers), key=len, default=()))
    with console.capture() as capture:
        for part in _make_parts(answer, now, most if all_nodes else BEST_NODES):
            console.print(part)
    lines = capture.get().splitlines()
    # Tables pad their last column; nobody wants to find that in a file.
    console.file.write("".join(f"{line.rstrip()}\n" for line in lines))


def _make_parts(answer: Explanation, now: float, most_nodes: int) -> Iterator[RenderableType]:
    yield _make_title(answer, now)
    yield from map(_indent, _make_statements(answer, now))
    if answer.gang is not None:
        yield ""
        yield from _make_gang(answer.gang)
    if answer.network is not None:
        yield ""
        yield from make_network(answer.network, None if most_nodes > BEST_NODES else MOST_DOMAINS)
    if answer.advice:
        yield ""
        yield Text("What would help", style="bold")
        yield from (_indent(f"- {sentence}") for sentence in answer.advice)
    if answer.add:
        yield ""
        yield _indent(answer.add.rstrip(), 4)
    for offers in answer.offers[:MAX_SHAPES]:
        yield ""
        yield from make_offers(offers, most_nodes)
    if len(answer.offers) > MAX_SHAPES:
        yield ""
        yield f"Members of {len(answer.offers) - MAX_SHAPES} more kinds: see --output json."


def _make_title(answer: Explanation, now: float) -> Text:
    title = Text()
    title.append(f"{answer.target.kind} {answer.target.key} ", style="bold")
    title.append(answer.standing, style=_STYLES[answer.standing])
    if answer.reason is not None and answer.standing is PlacementState.WAITING:
        title.append(f" {answer.reason.reason.code}", style="bold")
    if answer.history.since:
        title.append(f" since {_format_since(answer.history.since, now)}")
    return title


def _make_statements(answer: Explanation, now: float) -> Iterator[str]:
    if answer.reason is not None:
        yield answer.reason.message
    elif answer.standing is PlacementState.WAITING:
        yield "Why is not known from here."
    if answer.standing in _SENTENCES:
        yield _SENTENCES[answer.standing]
    if answer.place is not None:
        yield _describe_place(answer.place)
    if answer.standing in _TO_COME and answer.is_reported_on:
        yield from _compare_report(answer, now)


def _describe_place(place: Place) -> str:
    where = f"It is bound to node {place.node}" if place.is_bound else f"It has node {place.node}"
    if not place.plan_id:
        return f"{where}; somebody else placed it."
    plan = f"{where} by plan {place.plan_id}"
    if place.member_count > 1:
        plan += f", with {place.member_count} members of {place.group}"
    return f"{plan}." if place.is_bound else f"{plan}, and is released for its scheduler to bind."


def _compare_report(answer: Explanation, now: float) -> Iterator[str]:
    """Yield what the operators said, if it is not the same; nothing if it is."""
    said = answer.history.reported
    if said is None:
        yield (
            "The operators have not said anything about it; if that lasts longer than some "
            "seconds, they do not run or do not reach the cluster."
        )
    elif not _is_same(answer, said):
        since = f" since {_format_since(said.since, now)}" if said.since else ""
        yield f"The operators say{since}: {said.reason}: {said.message}"


def _is_same(answer: Explanation, said: Reported) -> bool:
    told = answer.reason
    return told is not None and (told.reason.code, told.message) == (said.reason, said.message)


def _make_gang(gang: GangAnswer) -> Iterator[RenderableType]:
    if gang.group:
        table = make_table("GANG", "PRESENT", "NEEDED")
        for count in gang.group:
            style = "" if count.present >= count.min_member else "yellow"
            table.add_row(count.gang, Text(str(count.present), style), str(count.min_member))
        yield table
    members = gang.members
    counts = {
        "present": members.present,
        "bound": members.bound,
        "running": members.running,
        "succeeded": members.succeeded,
        "failed": members.failed,
        "terminating": members.terminating,
    }
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    place = ""
    if gang.plan_id:
        place = f"; plan {gang.plan_id} on {count_of(len(gang.nodes), 'node')}"
    elif members.bound:
        place = "; others placed them"
    yield f"Members of {gang.key}: {shown or 'none'}{place}"
    for value in gang.ignored:
        yield f"Cannot be used: {InvalidAnnotation((value,)).text()}"


def _indent(text: str, by: int = 2) -> Padding:
    return Padding(Text(text), (0, 0, 0, by), expand=False)


def _format_since(time: str, now: float) -> str:
    """Write ``2026-01-01T00:00:00Z (4m ago)``."""
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return time
    age = now - (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return f"{time} ({_format_age(max(0, int(age)))} ago)"


def _format_age(seconds: int) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
