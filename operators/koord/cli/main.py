"""The command ``koord``: lists the commands, and loads the one that runs.

A command is a typer app or a function of its name, in a module of this package, of a domain, or in
a package of its own (`koord.cli.installed`). The overview and completion import none of them: an
operator framework or numpy takes long to import.
"""

import atexit
import gc
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

from koord.cli.common import say
from koord.cli.installed import find_installed, import_command, read_summary
from koord.domains import DOMAINS
from koord.domains.domain import Command

_HERE: Final = "koord.cli"
CONTRIB: Final[Mapping[str, tuple[str, str]]] = {
    "demo": ("contrib/sandbox", "See gangs wait and start, on a real API server with fake nodes."),
    "sandbox": (
        "contrib/sandbox",
        "A real Kubernetes control plane on this machine, without containers.",
    ),
    "migrate": (
        "contrib/migrate",
        "Rewrite manifests of Volcano, Kueue, KAI and others to ours, or to Koordinator.",
    ),
}
"""Commands of packages of this project that may not be installed: folder and summary."""
COMMANDS: Final[Mapping[str, Command]] = {
    command.name: command
    for command in (
        Command("run", f"{_HERE}.run", "Run the operators until SIGTERM or Ctrl-C."),
        Command(
            "explain",
            f"{_HERE}.queries",
            "Say why a pod, PodGroup, Job or Reservation waits, or who uses a quota or a node.",
        ),
        Command("status", f"{_HERE}.overview", "Say whether the operators run and how they are."),
        Command(
            "queue",
            f"{_HERE}.queue_commands",
            "Show what waits, in the order in which it is planned.",
        ),
        Command("top", f"{_HERE}.overview", "Show what nodes and quotas use."),
        Command("watch", f"{_HERE}.overview", "Watch queue, gangs, quotas and GPUs on one screen."),
        Command(
            "page",
            f"{_HERE}.page",
            "Serve a page with the answers of koord, on this machine, until Ctrl-C.",
        ),
        Command(
            "lint", f"{_HERE}.lint", "Find mistakes in YAML files before they cost a job its start."
        ),
        Command(
            "what-if",
            f"{_HERE}.what_if",
            "Show what would change if a job was submitted, or nodes came or went.",
        ),
        Command(
            "snapshot",
            f"{_HERE}.snapshot",
            "Record what plans depend on, as far as you may read it, in a file.",
        ),
        Command(
            "replay",
            f"{_HERE}.replay",
            "Plan a snapshot again, without a cluster, and compare with what was decided.",
        ),
        Command(
            "bug-report",
            f"{_HERE}.bug_report",
            "Write what a bug report needs into a file, without names.",
        ),
        Command(
            "release",
            f"{_HERE}.release",
            "Take our gate off waiting pods, so that others place them.",
        ),
        *(command for domain in DOMAINS for command in domain.commands),
        *(Command(name, "", summary) for name, (_, summary) in CONTRIB.items()),
        Command(
            "reference",
            f"{_HERE}.reference",
            "Say what a key, field, reason, metric or setting means.",
        ),
        Command("crds", f"{_HERE}.crds", "Write and check the CRDs."),
        Command(
            "version",
            f"{_HERE}.queries",
            "Print the versions of koord, of Python and of the API server.",
        ),
    )
}

_PLUGIN: Final = "kubectl-koord"
_NO_FILES: Final = ":4"
"""Tells kubectl not to complete file names (Cobra's ShellCompDirectiveNoFileComp)."""


class _Commands(TyperGroup):
    """Shows the summary of every command; imports a command only when it runs."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, command in COMMANDS.items():
            self.add_command(TyperCommand(name, help=command.summary))

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return list_names()

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS and cmd_name in find_installed():
            return TyperCommand(cmd_name, help=read_summary(find_installed()[cmd_name]))
        return super().get_command(ctx, cmd_name)

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, stand_in, arguments = super().resolve_command(ctx, args)
        return name, stand_in if name is None else load(name), arguments


_SHORT: Final = frozenset(
    {f"{_HERE}.{name}" for name in ("queries", "overview", "queue_commands", "replay", "snapshot")}
)
"""Modules whose commands read once and end: what they import and read is kept to the end, and
looking through it for garbage would take a tenth of their time."""


def list_names() -> list[str]:
    """Return the commands that can run here."""
    installed = find_installed()
    names = [name for name, command in COMMANDS.items() if command.module or name in installed]
    return [*names, *sorted(installed.keys() - COMMANDS.keys())]


def load(name: str) -> Any:
    """Import a command."""
    command_entry = COMMANDS.get(name)
    if command_entry is None or command_entry.module not in _SHORT:
        gc.enable()
    if command_entry is not None and command_entry.module:
        command = getattr(import_module(command_entry.module), name.replace("-", "_"))
    else:
        command = import_command(name, CONTRIB[name][0] if name in CONTRIB else "")
    single = typer.Typer(add_completion=False)
    if isinstance(command, typer.Typer):
        single.add_typer(command, name=name)
    else:
        single.command(name)(command)
    single.callback()(lambda: None)
    loaded = typer.main.get_group(single).commands[name]
    _reflow(loaded)
    return loaded


def _reflow(command: Any) -> None:
    """Join the lines of each paragraph of help, so that it breaks where the terminal ends."""
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(
        paragraph if paragraph.startswith(" ") else " ".join(paragraph.split("\n"))
        for paragraph in paragraphs
    )
    for inner in getattr(command, "commands", {}).values():
        _reflow(inner)


app = typer.Typer(
    cls=_Commands,
    name="koord",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        say(f"koord {version_of('koord-operators')}")
        raise typer.Exit


@app.callback()
def koord(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Koordinator's scheduling for AI and batch jobs, as Kubernetes operators."""


def main() -> None:
    """Run the command line, under the name that was typed: ``koord`` or ``kubectl koord``."""
    gc.disable()
    atexit.register(gc.freeze)  # nor is the interpreter to look through everything as it ends
    is_plugin = Path(sys.argv[0]).stem == _PLUGIN
    with _unless_nobody_reads():
        app(prog_name="kubectl koord" if is_plugin else "koord")


def complete() -> None:
    """Print completions for kubectl: one per line, then a directive.

    The arguments are what has been typed so far; the last one is incomplete and may be empty.
    """
    *typed, incomplete = sys.argv[1:] or [""]
    words = f"{shlex.join(['koord', *typed])} {shlex.quote(incomplete) if incomplete else ''}"
    os.environ |= {
        "_KOORD_COMPLETE": "complete_fish",  # the form "value, tab, help", which is kubectl's too
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": words,
    }
    with _unless_nobody_reads():
        with suppress(SystemExit):
            app(prog_name="koord")
        sys.stdout.write(f"{_NO_FILES}\n")
        sys.stdout.flush()


@contextmanager
def _unless_nobody_reads() -> Iterator[None]:
    """End without a message if the reader of the output has gone, as ``head`` does."""
    is_read = True
    try:
        yield
    except* BrokenPipeError:
        is_read = False
    if not is_read:
        # What is left in the buffer is written when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
