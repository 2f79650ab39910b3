"""The command ``koord``: knows which commands there are, and loads the one that is asked for.

A command is a module ``koord.cli.NAME`` with a typer app called ``app``, or with a function called
``NAME``. Help and completion of the whole import none of them, because what is behind a command
(an operator framework, a numeric library) takes longer to import than people like to wait.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

COMMANDS: Final[Mapping[str, str]] = {
    "run": "Run the operators until SIGTERM or Ctrl-C.",
    "explain": "Say why a pod or a PodGroup waits, and what would help.",
    "quota": "Show quotas, explain them, and ask what would be if.",
    "topology": "Show the domains of the network, and what is free in each.",
    "demo": "See gangs wait and start, on a real API server with fake nodes.",
    "sandbox": "A real Kubernetes control plane on this machine, without containers.",
    "crds": "Write and check the CRDs.",
    "version": "Print the versions of koord, of Python and of the API server.",
}
"""Name -> what it does in a sentence; what has no module is left out."""

_PLUGIN: Final = "kubectl-koord"
_NO_FILES: Final = ":4"
"""How kubectl is told that file names are no completions (Cobra's ShellCompDirectiveNoFileComp)."""


class _Commands(TyperGroup):
    """Shows every command with its sentence; imports a command when it is to run."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, sentence in COMMANDS.items():
            if find_spec(_module_of(name)) is not None:
                self.add_command(TyperCommand(name, help=sentence))

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, stand_in, rest = super().resolve_command(ctx, args)
        return name, stand_in if name is None else _load(name), rest


def _module_of(name: str) -> str:
    return f"koord.cli.{name}"


def _load(name: str) -> Any:
    module = import_module(_module_of(name))
    single = typer.Typer(add_completion=False)
    if hasattr(module, "app"):
        single.add_typer(module.app, name=name)
    else:
        single.command(name)(getattr(module, name))
    single.callback()(lambda: None)
    return typer.main.get_group(single).commands[name]


app = typer.Typer(
    cls=_Commands,
    name="koord",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"koord {version_of('koord-operators')}")
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
    """Run the command line; as a plugin of kubectl it calls itself what people typed."""
    is_plugin = Path(sys.argv[0]).stem == _PLUGIN
    app(prog_name="kubectl koord" if is_plugin else "koord")


def complete() -> None:
    """Answer kubectl, which asks its plugins for completions: one per line, then a directive.

    The arguments are what has been typed so far, the last one being incomplete, maybe empty.
    """
    *typed, incomplete = sys.argv[1:] or [""]
    words = f"{shlex.join(['koord', *typed])} {shlex.quote(incomplete) if incomplete else ''}"
    os.environ |= {
        "_KOORD_COMPLETE": "complete_fish",  # the form "value, tab, help", which is kubectl's too
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": words,
    }
    with suppress(SystemExit):
        app(prog_name="koord")
    sys.stdout.write(f"{_NO_FILES}\n")
