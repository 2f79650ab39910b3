"""The command ``koord balance``: which nodes are hot, and what a policy would move."""
# ruff: noqa: PLC0415 - what it does is imported when it runs

from typing import Annotated

import typer

from koord.cli.common import Context, Form, Kubeconfig, Output
from koord.cli.watching import watchable


@watchable
def balance(
    policy: Annotated[
        str,
        typer.Argument(
            metavar="[POLICY]", help="Name of the RebalancePolicy; the oldest by default."
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Also show which pods a round would move now.")
    ] = False,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show which nodes are hot and which are low, by what they really use.

    With --dry-run: which pods a round would move now, where to, and which rule
    keeps others where they are. Decides as the operator does; changes nothing.

    For example:

      koord balance

      koord balance hot-nodes --dry-run

      koord balance --dry-run --output json
    """
    from koord.cli.balance_view import show

    show(policy, kubeconfig, context, output=output, is_dry_run=dry_run)
