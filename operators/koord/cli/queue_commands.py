"""The command ``koord queue`` and what is below it: only their command lines.

What they do is imported when they run, as for ``queries``.
"""
# ruff: noqa: PLC0415 - for the reason above

from enum import StrEnum
from typing import Annotated, TypeAlias

import typer

from koord.cli.common import AllNamespaces, Context, Form, Kubeconfig, Namespace, Output
from koord.cli.queries import Namespace as ItsNamespace
from koord.cli.queries import find_meant
from koord.cli.watching import watchable

queue = typer.Typer(
    invoke_without_command=True,
    help="Show what waits, in the order in which it is planned.",
)


class QueuePolicy(StrEnum):
    """Who may start while an earlier unit waits for room."""

    STRICT = "Strict"
    BEST_EFFORT = "BestEffort"
    BACKFILL = "Backfill"


UnitName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="UNIT",
        help="What waits: pod/NAME, pg/NAME, job/NAME, or a NAME alone.",
        show_default=False,
    ),
]


@queue.callback()
@watchable
def queue_list(
    invoked: typer.Context,
    namespace: Namespace = "",
    _all_namespaces: AllNamespaces = False,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show what waits, in the order in which it is planned.

    Positions count everything that waits in the cluster, also with a namespace. What is not
    complete yet has none. START is when a unit is expected to start (~), or starts at the latest
    (by), as far as it is known when what runs ends; CERTAINTY says what that is worth. Jobs that
    suspend holds come last, if their pods would opt in.

    For example:

      koord queue

      koord queue -n team-a -o wide
    """
    if invoked.invoked_subcommand is None:
        from koord.cli.queue_view import show

        show(namespace, kubeconfig, context, output=output)


@queue.command("explain")
@watchable
def queue_explain(
    unit: UnitName,
    namespace: ItsNamespace = "",
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Say where a unit stands in its queue, why there, and what it waits for.

    Ends with 2 if the unit would not start even if nothing else ran.

    For example:

      koord queue explain train

      koord queue explain pg/train -n team-a -o json
    """
    from koord.cli.queue_answers import UnitQuestion, show_explanation

    kind, where, name = find_meant(unit, namespace, "", kubeconfig, context)
    show_explanation(UnitQuestion(kind, where, name, kubeconfig, context), output)


@queue.command("reservations")
@watchable
def queue_reservations(
    output: Form = Output.TEXT, kubeconfig: Kubeconfig = "", context: Context = ""
) -> None:
    """Show for which waiting units room is reserved, from when on, and where.

    For example:

      koord queue reservations
    """
    from koord.cli.queue_answers import show_reservations

    show_reservations(kubeconfig, context, output)


@queue.command("eta")
def queue_eta(
    file: Annotated[
        str,
        typer.Option(
            "--filename", "-f", help="A file with a job that does not exist yet; - for stdin."
        ),
    ],
    namespace: ItsNamespace = "",
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Say when a job would start if it was created now. Nothing is created.

    Ends with 2 if it would not start even if nothing else ran.

    For example:

      koord queue eta -f job.yaml

      koord queue eta -f job.yaml -n team-a -o json
    """
    from koord.cli.queue_eta import show_eta

    show_eta(file, namespace, kubeconfig, context, output)


@queue.command("simulate")
def queue_simulate(  # noqa: PLR0917 - typer calls it, by name
    policy: Annotated[
        QueuePolicy | None, typer.Option("--policy", help="Who may pass the first that waits.")
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option("--depth", min=1, max=16, help="For how many units of a queue to reserve."),
    ] = None,
    namespace: Namespace = "",
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Play what waits forward with other settings of all queues. Nothing is changed.

    For example:

      koord queue simulate --policy Strict

      koord queue simulate --policy Backfill --depth 4 -o json
    """
    from koord.cli.queue_answers import show_trial

    values: dict[str, object] = {} if policy is None else {"policy": policy.value}
    if depth is not None:
        values["reserve_depth"] = depth
    if not values:
        raise typer.BadParameter("give --policy, --depth, or both", param_hint="--policy")
    show_trial(values, namespace, kubeconfig, context, output)


@queue.command("usage")
def queue_usage(
    name: Annotated[
        str, typer.Argument(metavar="QUEUE", help="Name of a leaf quota.", show_default=False)
    ],
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show who uses a queue, and who waits in it: by namespace.

    For example:

      koord queue usage team-a
    """
    from koord.cli.queue_answers import show_usage

    show_usage(name, kubeconfig, context, output)


@queue.command("hold")
def queue_hold(
    unit: UnitName,
    namespace: ItsNamespace = "",
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Keep a waiting job from starting, until it is released. What has started goes on.

    For example:

      koord queue hold train
    """
    from koord.cli.queue_hold import set_hold

    meant = find_meant(unit, namespace, "", kubeconfig, context)
    set_hold(meant, kubeconfig, context, output, is_held=True)


@queue.command("release")
def queue_release(
    unit: UnitName,
    namespace: ItsNamespace = "",
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Let a job start that was held.

    For example:

      koord queue release train
    """
    from koord.cli.queue_hold import set_hold

    meant = find_meant(unit, namespace, "", kubeconfig, context)
    set_hold(meant, kubeconfig, context, output, is_held=False)
