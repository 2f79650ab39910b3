"""The commands that show the whole: ``koord status``, ``top`` and ``watch``.

Only their command lines. What they do is imported when they run, as for ``queries``.
"""
# ruff: noqa: PLC0415 - for the reason above

from enum import StrEnum
from typing import Annotated

import typer

from koord.cli.common import (
    AllNamespaces,
    AsExitCode,
    Context,
    Form,
    Kubeconfig,
    Namespace,
    Output,
)
from koord.cli.watching import watchable


class TopSubject(StrEnum):
    """What ``koord top`` shows."""

    NODES = "nodes"
    QUOTAS = "quotas"


@watchable
def status(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Where the operators run.")
    ] = "koord-system",
    output: Form = Output.TEXT,
    as_exit_code: AsExitCode = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Say whether the operators run and how they are.

    Reads only their Leases: who leads since when, what the leader has read, how much waits, and its
    last error.

    For example:

      koord status

      koord status --exit-code || echo "nothing is placed"
    """
    from koord.cli.status_view import show

    show(namespace, kubeconfig, context, output=output, as_exit_code=as_exit_code)


@watchable
def top(
    what: Annotated[TopSubject, typer.Argument(metavar="[nodes|quotas]", help="What to show.")] = (
        TopSubject.NODES
    ),
    namespace: Namespace = "",
    _all_namespaces: AllNamespaces = False,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show what nodes and quotas use.

    Used is what pods request, not what they consume: that decides what fits. With a namespace, the
    quotas that are there, or the nodes that its pods run on.

    For example:

      koord top

      koord top quotas -o json
    """
    from koord.cli.top_view import show_nodes, show_quotas

    show = show_nodes if what is TopSubject.NODES else show_quotas
    show(namespace, kubeconfig, context, output=output)


def watch(
    namespace: Namespace = "",
    _all_namespaces: AllNamespaces = False,
    interval: Annotated[
        float, typer.Option(min=0.5, max=3600, help="Seconds between two looks, at least.")
    ] = 2.0,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Watch queue, gangs, quotas and GPUs on one screen.

    Each node has a cell per GPU, with the letter of the namespace that has it, or an x if the node
    takes no pods. Ctrl-C ends it.
    Where the output is no terminal, it is drawn once. With a namespace, only what waits, runs and
    has quotas there; all nodes.

    For example:

      koord watch

      koord watch --interval 10 --context production
    """
    from koord.cli.watch_view import show

    show(namespace, kubeconfig, context, interval)
