"""The commands ``koord room`` and ``koord fragments``: only their command lines."""
# ruff: noqa: PLC0415 - what they do takes longer to load than --help and completion should

from typing import Annotated

import typer

from koord.cli.common import AsExitCode, Context, Form, Kubeconfig, Output
from koord.cli.queries import Namespace
from koord.cli.watching import watchable


def room(  # noqa: PLR0917 - typer calls it, by name
    shape: Annotated[
        str,
        typer.Argument(
            metavar="SHAPE", help="GPUs of one pod, such as 8, or pods x GPUs, such as 4x8."
        ),
    ],
    quota: Annotated[
        str, typer.Option("--quota", help="Also say how many of them this quota lets start.")
    ] = "",
    namespace: Namespace = "",
    output: Form = Output.TEXT,
    as_exit_code: AsExitCode = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show where there is room for pods with so many GPUs, and what lacks.

    Where the planner would place them now, into which domains of the network they
    fit, and how many more nodes would be enough. Plans on this machine, with your
    own rights; changes nothing.

    For example:

      koord room 8

      koord room 4x8 --quota research -n team-a

      koord room 4x8 --output json
    """
    from koord.cli.room_view import RoomRequest, show_room

    show_room(
        RoomRequest(shape, namespace, quota), kubeconfig, context, output, as_exit_code=as_exit_code
    )


@watchable
def fragments(
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show by model how the free GPUs are spread over nodes, and what no job can use.

    For jobs of 1, 2, 4 and 8 GPUs per pod: how many pods can be placed, and how
    many could be if all that is free were on the same nodes.

    For example:

      koord fragments

      koord fragments --output json
    """
    from koord.cli.room_view import show_fragments

    show_fragments(kubeconfig, context, output)
