"""``koord reference``: what a key, field, condition, series, setting or command means.

Reads no cluster. The entries come from ``koord.reference``, those of commands from the commands.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType
from rich.markdown import Markdown

from koord.cli.common import ExitCode, Form, Output, fail, suggest
from koord.cli.output import print_in
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
    found = find(key, entries)
    if not found:
        names = {name for one in entries for name in (one.key, _last(one.key))}
        fail(f"nothing is called {key!r}{suggest(key, names)}", ExitCode.USAGE)
    print_in(
        output,
        document=lambda: [one._asdict() for one in found],
        names=lambda: [one.key for one in found],
        text=lambda: map(_write, found) if key else _overview(found),
    )


def find(key: str, entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries with this name; or else with this last part; or else with it inside."""
    known, sought = list(entries), key.lower()
    exact = [one for one in known if one.key.lower() == sought]
    ends = [one for one in known if sought in {_last(one.key).lower(), one.key.lower()}]
    return exact or ends or [one for one in known if sought in one.key.lower()]


def list_commands() -> Iterator[Entry]:
    """Yield an entry per command, with its options."""
    from koord.cli.main import COMMANDS, load  # noqa: PLC0415 - which loads this module

    for name in COMMANDS:
        yield from _walk(f"koord {name}", load(name))


def _walk(name: str, command: Any) -> Iterator[Entry]:
    facts = {
        ", ".join(one.opts) if one.param_type_name == "option" else str(one.name).upper(): (
            getattr(one, "help", "") or ""
        )
        for one in command.params
        if one.name != "help"
    }
    first = " ".join((command.help or "").split("\n\n", maxsplit=1)[0].split())
    yield Entry(name, EntryKind.COMMAND, "command line", first, facts=facts)
    for below, one in getattr(command, "commands", {}).items():
        yield from _walk(f"{name} {below}", one)


def _write(one: Entry) -> RenderableType:
    """Write an entry; code is marked, and links are only their text."""
    lines = [f"**{one.key}** ({one.where})", ""]
    lines += [f"* {name}: {value}" for name, value in one.facts.items()]
    lines += ["", _LINK.sub(r"\1", one.means)]
    if one.helps:
        lines += ["", "What helps: " + _LINK.sub(r"\1", one.helps)]
    return Markdown("\n".join(lines))


def _overview(entries: Iterable[Entry]) -> Iterator[str]:
    for kind, some in groupby(entries, lambda one: one.kind):
        names = [one.key for one in some]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield f"{kind} ({len(names)}): {', '.join(names[:_SHOWN])}{more}"
    yield "koord reference NAME says what one means."


def _last(key: str) -> str:
    return re.split(r"[/.]", key)[-1]
