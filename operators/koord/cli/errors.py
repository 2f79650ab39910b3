"""How a command ends when it cannot do what it was asked: a sentence and an exit code."""

from enum import IntEnum
from typing import NoReturn

import typer


class ExitCode(IntEnum):
    """What scripts can tell apart."""

    USAGE = 2
    """The command line makes no sense, or names something that does not exist."""
    UNREADABLE = 3
    """The cluster cannot be read: no configuration, no answer, or no right to."""


def fail(message: str, code: ExitCode) -> NoReturn:
    """Say what went wrong and end."""
    typer.secho(f"error: {message}", err=True, fg=typer.colors.RED)
    raise typer.Exit(code)


def warn(message: str) -> None:
    """Say what the reader of the answer should know beside it."""
    typer.secho(f"warning: {message}", err=True, fg=typer.colors.YELLOW)
