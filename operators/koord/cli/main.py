"""The command ``koord``: lists the commands, and loads the one that runs.

A command is a typer app or a function of its name, in one of the modules of this package, or in a
package of its own (`koord.cli.installed`). The overview and completion import none of them: an
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
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

from koord.cli.common import say
from koord.cli.installed import find_installed, import_command, read_summary


class Command(NamedTuple):
    """Where a command is defined, and its summary."""

    module: str
    """A module of this package, or else the folder with the package of the command."""
    summary: str

    @property
    def is_ours(self) -> bool:
        return "/" not in self.module


COMMANDS: Final[Mapping[str, Command]] = {
    "run": Command("run", "Run the operators until SIGTERM or Ctrl-C."),
    "explain": Command(
        "queries",
        "Say why a pod, PodGroup, Job or Reservation waits, or who uses a quota or a node.",
    ),
    "status": Command("overview", "Say whether the operators run and how they are."),
    "queue": Command("overview", "Show what waits, in the order in which it is planned."),
    "top": Command("overview", "Show what nodes and quotas use."),
    "watch": Command("overview", "Watch queue, gangs, quotas and GPUs on one screen."),
    "preempt": Command(
        "queries", "Show whom a waiting pod, gang or reservation would preempt, and why."
    ),
    "lint": Command("lint", "Find mistakes in YAML files before they cost a job its start."),
    "release": Command("release", "Take our gate off waiting pods, so that others place them."),
    "quota": Command("queries", "Show quotas, explain shares, simulate changes."),
    "topology": Command("queries", "Show the domains of the network, and what is free in each."),
    "devices": Command("queries", "Show the GPUs and NICs of nodes, and who holds what."),
    "reservation": Command("queries", "Show reservations, and why a pod may use one or not."),
    "device-agent": Command("agent", "Report the devices of this node as its Device object."),
    "demo": Command(
        "contrib/sandbox", "See gangs wait and start, on a real API server with fake nodes."
    ),
    "sandbox": Command(
        "contrib/sandbox", "A real Kubernetes control plane on this machine, without containers."
    ),
    "reference": Command("reference", "Say what a key, field, reason, metric or setting means."),
    "migrate": Command(
        "contrib/migrate",
        "Rewrite manifests of Volcano, Kueue, KAI and others to ours, or to Koordinator.",
    ),
    "crds": Command("crds", "Write and check the CRDs."),
    "version": Command("queries", "Print the versions of koord, of Python and of the API server."),
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


_SHORT: Final = frozenset({"queries", "overview"})
"""Modules whose commands read once and end: what they import and read is kept to the end, and
looking through it for garbage would take a tenth of their time."""


def list_names() -> list[str]:
    """Return the commands that can run here."""
    installed = find_installed()
    names = [name for name, command in COMMANDS.items() if command.is_ours or name in installed]
    return [*names, *sorted(installed.keys() - COMMANDS.keys())]


def load(name: str) -> Any:
    """Import a command."""
    command_entry = COMMANDS.get(name)
    if command_entry is None or command_entry.module not in _SHORT:
        gc.enable()
    if command_entry is not None and command_entry.is_ours:
        module = import_module(f"koord.cli.{command_entry.module}")
        command = getattr(module, name.replace("-", "_"))
    else:
        command = import_command(name, "" if command_entry is None else command_entry.module)
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
