"""The command ``koord colocation``: what nodes offer to batch and mid pods."""
# ruff: noqa: PLC0415 - what it does is imported when it runs

from typing import Annotated

import typer

from koord.cli.common import Context, Form, Kubeconfig, Output
from koord.cli.watching import watchable

colocation = typer.Typer(
    no_args_is_help=True, help="Show what nodes offer to batch and mid pods, and why."
)


@colocation.command("nodes")
@watchable
def list_nodes(
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """List what each node offers to batch and mid pods.

    Computed as by the operators, on this machine, with your own rights.

    For example:

      koord colocation nodes

      koord colocation nodes --output json
    """
    from koord.cli.colocation_view import show_nodes

    show_nodes(kubeconfig, context, output=output)


@colocation.command("explain")
@watchable
def explain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")],
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show the terms of what a node offers to batch and mid pods: a sum to check.

    For example:

      koord colocation explain node-7

      koord colocation explain node-7 --output json
    """
    from koord.cli.colocation_view import show_node

    show_node(node, kubeconfig, context, output=output)
