"""Parses a command line of koord, as the shell would give it, and runs nothing."""

import shlex
from typing import Any

import typer

from koord.cli.main import app


def parse_command(line: str) -> dict[str, Any]:
    """Return the values of the last command's parameters. Raises a UsageError of click."""
    command: Any = typer.main.get_command(app)
    program, *words = shlex.split(line)
    assert program == "koord"
    context = command.make_context(program, list(words))
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, found, rest = command.resolve_command(context, rest)
        command, context = found, found.make_context(name, rest, parent=context)
    return context.params
