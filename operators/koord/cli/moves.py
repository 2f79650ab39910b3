"""The commands ``koord defrag`` and ``koord drain-plan``: only their command lines."""
# ruff: noqa: PLC0415 - what they do takes longer to load than --help and completion should

from typing import Annotated

import typer

from koord.cli.common import AsExitCode, Context, Form, Kubeconfig, Output
from koord.cli.queries import Namespace, parse_target


def defrag(  # noqa: PLR0917 - typer calls it, by name
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A shape, such as 4x8 (4 pods of 8 GPUs), or what waits: pod/NAME, pg/NAME, "
            "job/NAME.",
            show_default=False,
        ),
    ] = "",
    gpus: Annotated[int, typer.Option("--gpus", help="One pod with so many GPUs.")] = 0,
    plan: Annotated[
        bool, typer.Option("--plan", help="Required: moving pods is up to the operators.")
    ] = False,
    namespace: Namespace = "",
    output: Form = Output.TEXT,
    as_exit_code: AsExitCode = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show which running pods would have to move so that a job fits.

    The fewest moves, and of these the cheapest: in order, each with its new place. Searches as the
    operators do, on this machine, with your own rights; changes nothing.

    For example:

      koord defrag --plan --gpus 8

      koord defrag --plan 4x8 --output json

      koord defrag --plan pg/train -n research
    """
    from koord.cli.moves_view import ClusterAccess, show_shape, show_waiting
    from koord.core.defrag.shapes import parse_shape

    if not plan:
        raise typer.BadParameter(
            "pods are moved by the operators, this only shows the plan: add --plan",
            param_hint="--plan",
        )
    shape = parse_shape(str(gpus) if gpus else target)
    if bool(target) == bool(gpus):
        raise typer.BadParameter("give --gpus, a shape, or what waits", param_hint="TARGET")
    cluster = ClusterAccess(kubeconfig, context)
    if shape is not None:
        show_shape(cluster, shape, output, as_exit_code=as_exit_code)
        return
    if "/" not in target:
        raise typer.BadParameter(
            "give a shape such as 8 or 4x8, or pod/NAME, pg/NAME or job/NAME", param_hint="TARGET"
        )
    show_waiting(cluster, parse_target(target, namespace, ""), output, as_exit_code=as_exit_code)


def drain_plan(
    nodes: Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of nodes.")],
    output: Form = Output.TEXT,
    as_exit_code: AsExitCode = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show what becomes of the pods of nodes that are to be emptied.

    What would move where, and in which order; what ends with its node; and what cannot move, with
    the rule. Searches on this machine, with your own rights; changes nothing.

    For example:

      koord drain-plan node-7

      koord drain-plan node-7 node-8 --output json
    """
    from koord.cli.moves_view import ClusterAccess, show_drain

    show_drain(ClusterAccess(kubeconfig, context), tuple(nodes), output, as_exit_code=as_exit_code)
