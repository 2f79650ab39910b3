"""Options, exit codes and messages that all commands share. Imports only what ``--help`` needs."""

from enum import IntEnum, StrEnum
from typing import Annotated, NoReturn, TypeAlias

import typer


class Output(StrEnum):
    """Output format of an answer."""

    TEXT = "text"
    JSON = "json"


class TreeOutput(StrEnum):
    """Output format of a tree: text, JSON, or a graph for other tools."""

    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    """For Graphviz."""
    GRAPHML = "graphml"
    """For Gephi, yEd and networkx."""


Form: TypeAlias = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
TreeForm: TypeAlias = Annotated[
    TreeOutput,
    typer.Option(
        "--output", "-o", help="Output format; dot is for Graphviz, graphml for Gephi and yEd."
    ),
]
Kubeconfig: TypeAlias = Annotated[
    str, typer.Option(help="Kubeconfig file.", show_default="as for kubectl")
]
Context: TypeAlias = Annotated[
    str, typer.Option(help="Context of the kubeconfig.", show_default="the current one")
]


class ExitCode(IntEnum):
    """Exit codes, for scripts."""

    USAGE = 2
    """A wrong command line, or one that names something that does not exist."""
    UNREADABLE = 3
    """The cluster cannot be read: no configuration, no answer, or no right to."""


def fail(message: str, code: ExitCode) -> NoReturn:
    typer.secho(f"error: {message}", err=True, fg=typer.colors.RED)
    raise typer.Exit(code)


def warn(message: str) -> None:
    typer.secho(f"warning: {message}", err=True, fg=typer.colors.YELLOW)
