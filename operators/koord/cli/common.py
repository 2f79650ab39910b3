"""Options, exit codes and messages that all commands share. Imports only what ``--help`` needs."""

import sys
from enum import IntEnum, StrEnum
from typing import Annotated, Final, NoReturn, TypeAlias

import typer

from koord.plain_text import escape


class Output(StrEnum):
    """Output format of an answer; ``wide`` has more columns, ``name`` only ``kind/name``."""

    TEXT = "text"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    ANSWER = "answer"
    """JSON with an envelope: as of when, and what is missing."""
    YAML = "yaml"
    SVG = "svg"
    """A picture of the text."""


class TreeOutput(StrEnum):
    """Output format of a tree: that of other answers, or a graph for other tools."""

    TEXT = "text"
    NAME = "name"
    JSON = "json"
    ANSWER = "answer"
    YAML = "yaml"
    SVG = "svg"
    DOT = "dot"
    """For Graphviz."""
    GRAPHML = "graphml"
    """For Gephi, yEd and networkx."""


Form: TypeAlias = Annotated[
    Output,
    typer.Option(
        "--output",
        "-o",
        help="Output format; answer is JSON that also says as of when, and what is missing.",
    ),
]
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


def list_names_for(context: typer.Context, kind: str, namespace: str = "") -> list[str]:
    """Return names for completion from the cluster that the options typed so far choose."""
    from koord.cli.connection import list_names  # noqa: PLC0415 - --help needs none of it

    typed = {key: value or "" for key, value in context.params.items()}
    where = namespace or typed.get("namespace", "")
    return list_names(kind, where, typed.get("kubeconfig", ""), typed.get("context", ""))


def list_kinds_for(context: typer.Context, incomplete: str) -> list[str]:
    """Return the kinds of the cluster, for completion, of which a name begins so."""
    from koord.cli.connection import list_kinds  # noqa: PLC0415 - --help needs none of it

    typed = {key: value or "" for key, value in context.params.items()}
    return list_kinds(incomplete, typed.get("kubeconfig", ""), typed.get("context", ""))


def complete_namespace(context: typer.Context, incomplete: str) -> list[str]:
    namespaces = list_names_for(context, "namespace")
    return [name for name in namespaces if name.startswith(incomplete)]


Namespace: TypeAlias = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        help="Only what is in this namespace.",
        show_default="all",
        autocompletion=complete_namespace,
    ),
]
AllNamespaces: TypeAlias = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="All namespaces, which is the default.")
]
AsExitCode: TypeAlias = Annotated[
    bool, typer.Option("--exit-code", help="Exit with 1 if it is not well, for scripts.")
]


NO_UNITS: Final = frozenset({"quota", "node", "move"})
"""Kinds of ``koord explain`` that stand for nothing that is planned."""


class ExitCode(IntEnum):
    """Exit codes, for scripts."""

    NOT_WELL = 1
    """It waits or does not run, and ``--exit-code`` was given; or checks found problems."""

    USAGE = 2
    """A wrong command line, or one that names something that does not exist."""
    UNREADABLE = 3
    """The cluster cannot be read: no configuration, no answer, or no right to."""


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text that may quote anything."""
    typer.echo(escape(text), err=err, nl=nl)


def write_document(text: str) -> None:
    """Write a file of others: to a terminal without what would steer it, else as it is."""
    typer.echo(escape(text) if sys.stdout.isatty() else text, nl=False)


def say_error(message: object) -> None:
    typer.secho(f"error: {escape(str(message))}", err=True, fg=typer.colors.RED)


def fail(message: str, code: ExitCode) -> NoReturn:
    say_error(message)
    raise typer.Exit(code)


def warn(message: str) -> None:
    typer.secho(f"warning: {escape(message)}", err=True, fg=typer.colors.YELLOW)
