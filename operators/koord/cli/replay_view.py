"""Plans snapshots again and prints what differs: what ``koord replay`` does.

Not imported for ``--help``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import typer
from rich.console import RenderableType
from rich.text import Text

from koord.answers.edits import EditError
from koord.answers.encoding import encode
from koord.answers.envelope import AnswerHead, AnswerSource
from koord.answers.reading import Reading
from koord.answers.what_if import WhatIfAnswer, ask_what_if
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.edit_documents import EditReader, TypedEdits
from koord.cli.manifests import read_file
from koord.cli.output import count_of, make_table, print_in
from koord.cli.queue_view import make_time_limit
from koord.cli.what_if_view import make_parts
from koord.core.model.text import format_time
from koord.replay.archive import UnusableFile
from koord.replay.decisions import DecisionChange, UnitDecision, bare, compare, decide
from koord.replay.snapshot_file import DISTRIBUTION, SnapshotFile, SnapshotSource, read_snapshot
from koord.runtime.hooks import load_hooks
from koord.see.manifests import ServerDefaults

_RECORDED_BY = {SnapshotSource.API: "read from the API", SnapshotSource.LEADER: "by the leader"}
_MOST_NODES = 3


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What is to be planned again, as it was typed."""

    file: str
    unit: str = ""
    edit: str = ""
    without_hooks: bool = False


@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """What is decided now, and where that differs from what was recorded.

    ``what_if`` is what edits would have changed, if there are some.
    """

    snapshot: SnapshotFile
    decisions: tuple[UnitDecision, ...]
    changes: tuple[DecisionChange, ...]
    version: str
    what_if: WhatIfAnswer | None = None


def show(request: ReplayRequest, output: Output) -> None:
    try:
        snapshot = read_snapshot(Path(request.file))
    except UnusableFile as error:
        fail(str(error), ExitCode.USAGE)
    _refuse_hooks(snapshot, without_hooks=request.without_hooks)
    try:
        answer = plan_again(snapshot, request)
    except Exception as error:  # noqa: BLE001 - whatever a file of a stranger makes fail
        fail(f"{request.file} cannot be planned: {type(error).__name__}: {error}", ExitCode.USAGE)
    answer = _choose(answer, request.unit)
    print_in(
        output,
        AnswerHead("Replay", snapshot.cluster.now, AnswerSource.STORED),
        document=lambda: _encode(answer),
        names=lambda: (change.names[0] for change in answer.changes),
        text=lambda: _draw(answer, request.unit),
    )
    if answer.changes:
        raise typer.Exit(ExitCode.NOT_WELL)


def plan_again(snapshot: SnapshotFile, request: ReplayRequest) -> ReplayAnswer:
    """Return what is decided about a recorded cluster now."""
    reading = snapshot.cluster.make_reading(load_hooks())
    decisions = decide(snapshot.cluster, reading.state)
    comparable = tuple(map(bare, decisions)) if snapshot.is_anonymised else decisions
    changes = tuple(compare(snapshot.decisions, comparable))
    what_if = _try_edits(reading, request.edit) if request.edit else None
    return ReplayAnswer(snapshot, decisions, changes, version(DISTRIBUTION), what_if)


def _try_edits(reading: Reading, file: str) -> WhatIfAnswer:
    defaults = ServerDefaults("default", format_time(reading.state.now), None)
    edits = EditReader(reading.state, defaults).read(TypedEdits(), read_file(file))
    try:
        return ask_what_if(reading, edits, make_time_limit())
    except EditError as error:
        fail(str(error), ExitCode.USAGE)


def _refuse_hooks(snapshot: SnapshotFile, *, without_hooks: bool) -> None:
    missing = sorted(set(snapshot.cluster.hooks) - load_hooks().hooks.keys())
    if not missing:
        return
    names = ", ".join(missing)
    if not without_hooks:
        fail(
            f"hooks of quotas decided, too, and are not installed here: {names}; install them, or "
            "give --without-hooks to plan without",
            ExitCode.USAGE,
        )
    warn(f"planned without hooks that are not installed here: {names}")


def _choose(answer: ReplayAnswer, unit: str) -> ReplayAnswer:
    """Return what concerns one unit; ends the command if nothing does."""
    if not unit:
        return answer
    decisions = tuple(each for each in answer.decisions if unit in each.names)
    changes = tuple(change for change in answer.changes if unit in change.names)
    if not decisions and not changes:
        fail(f"{unit} does not wait in this snapshot", ExitCode.USAGE)
    return replace(answer, decisions=decisions, changes=changes)


def _draw(answer: ReplayAnswer, unit: str) -> Iterator[RenderableType]:
    snapshot = answer.snapshot
    result = (
        count_of(len(answer.changes), "difference") if answer.changes else "the same is decided"
    )
    yield Text(
        f"Recorded {format_time(snapshot.cluster.now)} {_RECORDED_BY[snapshot.source]}, koord "
        f"{snapshot.version}; planned again by koord {answer.version}: "
        f"{count_of(len(answer.decisions), 'unit')}, {result}."
    )
    if answer.changes:
        table = make_table("UNIT", "RECORDED", "NOW", padding=2)
        for change in answer.changes:
            table.add_row(", ".join(change.names), _tell(change.before), _tell(change.after))
        yield table
    elif unit:
        for decision in answer.decisions:
            yield Text(f"{decision.title}: {_tell(decision)}")
    if answer.what_if is not None:
        yield from make_parts(answer.what_if)


def _tell(decision: UnitDecision | None) -> str:
    if decision is None:
        return "nothing"
    nodes = list(dict.fromkeys(node for _, node in decision.nodes))
    more = len(nodes) - _MOST_NODES
    shown = ", ".join(nodes[:_MOST_NODES]) + (f" and {more} more" if more > 0 else "")
    placed = f"{count_of(len(decision.nodes), 'pod')} on {shown}" if nodes else ""
    return "; ".join(filter(None, (placed, decision.reason)))


def _encode(answer: ReplayAnswer) -> dict[str, Any]:
    snapshot = answer.snapshot
    return {
        "isEqual": not answer.changes,
        "recorded": {
            "at": format_time(snapshot.cluster.now),
            "source": snapshot.source,
            "version": snapshot.version,
            "isAnonymised": snapshot.is_anonymised,
        },
        "version": answer.version,
        "units": encode(answer.decisions),
        "changes": encode(answer.changes),
        "records": list(snapshot.records),
        "whatIf": None if answer.what_if is None else encode(answer.what_if),
    }
