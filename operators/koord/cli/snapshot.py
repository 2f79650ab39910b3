"""The commands ``koord snapshot``: only their command lines."""
# ruff: noqa: PLC0415 - what they do takes longer to load than --help and completion should

from typing import Annotated, TypeAlias

import typer

from koord.cli.common import Context, Kubeconfig
from koord.cli.queries import Namespace

snapshot = typer.Typer()

Feed: TypeAlias = Annotated[
    str,
    typer.Option(
        "--feed",
        help="ADDRESS:PORT of the leader's feed, where kubectl port-forward leads to it.",
    ),
]


@snapshot.callback(invoke_without_command=True)
def take(  # noqa: PLR0917 - typer calls it, by name
    typed: typer.Context,
    file: Annotated[
        str,
        typer.Option("--file", "-o", metavar="FILE", help="The file to write.", show_default=False),
    ] = "",
    unit: Annotated[
        str,
        typer.Option(
            "--unit", metavar="NAMESPACE/NAME", help="Add what was recorded of this gang or pod."
        ),
    ] = "",
    is_next: Annotated[
        bool,
        typer.Option(
            "--next",
            help="Have the leader record the next cycle that plans the unit, or any; needs --feed.",
        ),
    ] = False,
    feed: Feed = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Record what plans depend on, as far as you may read it, in a file.

    What the planner knows of objects, and nothing else: no images, variables, commands
    or Secrets. Names and labels are in it; for strangers, anonymise it.

    For example:

      koord snapshot -o today.ksnap

      koord snapshot -o today.ksnap --unit team-a/train

      koord snapshot -o next.ksnap --next --unit team-a/train --feed 127.0.0.1:8080
    """
    if typed.invoked_subcommand is not None:
        return
    if not file:
        raise typer.BadParameter("give the file to write", param_hint="-o")
    if is_next:
        from koord.cli.next_cycle import fetch_cycle

        fetch_cycle(file, unit, feed, (kubeconfig, context))
        return
    from koord.cli.snapshot_view import take_snapshot

    take_snapshot(file, unit, feed, (namespace, kubeconfig, context))


@snapshot.command()
def anonymise(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file that koord snapshot has written.")
    ],
    to: Annotated[str, typer.Option("--file", "-o", metavar="FILE", help="The file to write.")],
) -> None:
    """Replace the names in a snapshot, so that it is planned in the same way.

    Names, values of labels and unknown keys become ranks in the same order, and times
    are moved. What stays is printed: read it before you give the file away.

    For example:

      koord snapshot anonymise today.ksnap -o public.ksnap
    """
    from koord.cli.snapshot_view import write_anonymised

    write_anonymised(file, to)
