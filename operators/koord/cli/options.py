"""Options that several commands share, so that they are called and mean the same everywhere.

Knows nothing of what commands do; imports nothing that ``--help`` can do without.
"""

from enum import StrEnum
from typing import Annotated, TypeAlias

import typer


class Output(StrEnum):
    """How an answer is written."""

    TEXT = "text"
    JSON = "json"


class TreeOutput(StrEnum):
    """How a tree is written: as text, as JSON, or as a graph for other tools."""

    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    """For Graphviz."""
    GRAPHML = "graphml"
    """For Gephi, yEd and networkx."""


Form: TypeAlias = Annotated[Output, typer.Option("--output", "-o", help="How to write it.")]
TreeForm: TypeAlias = Annotated[
    TreeOutput,
    typer.Option(
        "--output", "-o", help="How to write it; dot is for Graphviz, graphml for Gephi and yEd."
    ),
]
Kubeconfig: TypeAlias = Annotated[
    str, typer.Option(help="Where the cluster is.", show_default="as kubectl does")
]
Context: TypeAlias = Annotated[
    str, typer.Option(help="Context of the kubeconfig.", show_default="the current one")
]
