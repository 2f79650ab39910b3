"""``koord reference``: what a key, field, condition, series, setting or command means.

Reads no cluster. The entries come from ``koord.reference``, those of commands from the commands.
"""

import re
import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType
from rich.markdown import Markdown

from koord.answers.envelope import AnswerHead
from koord.cli.common import ExitCode, Form, Output, fail
from koord.cli.output import print_in
from koord.core.model.text import suggest
from koord.reference.entries import Entry, EntryKind, list_entries

_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_SHOWN: Final = 8


def reference(
    key: Annotated[str, typer.Argument(help="A name, or a part of one.", show_default="all")] = "",
    output: Form = Output.TEXT,
) -> None:
    """Say what a key, field, reason, metric or setting means.

    For example:

      koord reference InsufficientMax

      koord reference min-available

      koord reference elasticQuota.delayEvictTime -o json
    """
    entries = [*list_entries(), *list_commands()]
    matches = find(key, entries)
    if not matches:
        names = {name for entry in entries for name in (entry.key, _last(entry.key))}
        fail(f"nothing is called {key!r}{suggest(key, names)}", ExitCode.USAGE)
    print_in(
        output,
        AnswerHead("Reference", time.time()),
        document=lambda: [entry._asdict() for entry in matches],
        names=lambda: [entry.key for entry in matches],
        text=lambda: map(_write, matches) if key else _overview(matches),
    )


def find(key: str, entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries with this name; or else with this last part; or else with it inside."""
    candidates, sought = list(entries), key.lower()
    exact = [entry for entry in candidates if entry.key.lower() == sought]
    ends = [
        entry for entry in candidates if sought in {_last(entry.key).lower(), entry.key.lower()}
    ]
    return exact or ends or [entry for entry in candidates if sought in entry.key.lower()]


def list_commands() -> Iterator[Entry]:
    """Yield an entry per command, with its options."""
    from koord.cli.main import list_names, load  # noqa: PLC0415 - which loads this module

    for name in list_names():
        yield from _walk(f"koord {name}", load(name))


def _walk(name: str, command: Any) -> Iterator[Entry]:
    facts = {
        ", ".join(param.opts) if param.param_type_name == "option" else str(param.name).upper(): (
            getattr(param, "help", "") or ""
        )
        for param in command.params
        if param.name != "help"
    }
    first = " ".join((command.help or "").split("\n\n", maxsplit=1)[0].split())
    yield Entry(name, EntryKind.COMMAND, "command line", first, facts=facts)
    for below, subcommand in getattr(command, "commands", {}).items():
        yield from _walk(f"{name} {below}", subcommand)


def _write(entry: Entry) -> RenderableType:
    """Write an entry; code is marked, and links are only their text."""
    lines = [f"**{entry.key}** ({entry.where})", ""]
    lines += [f"* {name}: {value}" for name, value in entry.facts.items()]
    lines += ["", _LINK.sub(r"\1", entry.means)]
    if entry.helps:
        lines += ["", "What helps: " + _LINK.sub(r"\1", entry.helps)]
    return Markdown("\n".join(lines))


def _overview(entries: Iterable[Entry]) -> Iterator[str]:
    for kind, group in groupby(entries, lambda entry: entry.kind):
        names = [entry.key for entry in group]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield f"{kind} ({len(names)}): {', '.join(names[:_SHOWN])}{more}"
    yield "koord reference NAME says what one means."


def _last(key: str) -> str:
    return re.split(r"[/.]", key)[-1]
