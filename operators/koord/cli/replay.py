"""The command ``koord replay``: only its command line."""
# ruff: noqa: PLC0415 - what it does takes longer to load than --help and completion should

from typing import Annotated

import typer

from koord.cli.common import Form, Output


def replay(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file that koord snapshot has written.")
    ],
    unit: Annotated[
        str,
        typer.Option(
            "--unit", metavar="NAMESPACE/NAME", help="Show what is decided about this gang or pod."
        ),
    ] = "",
    edit: Annotated[
        str,
        typer.Option(
            "--edit", metavar="FILE", help="Also show what these edits would have changed."
        ),
    ] = "",
    without_hooks: Annotated[
        bool,
        typer.Option("--without-hooks", help="Go on without hooks that are not installed here."),
    ] = False,
    output: Form = Output.TEXT,
) -> None:
    """Plan a snapshot again, without a cluster, and compare with what was decided.

    With the recorded time and settings, so that the same version decides the same. Exits
    with 0 if it does, with 1 if something is decided differently, and with 2 if the file
    cannot be used.

    For example:

      koord replay today.ksnap

      koord replay today.ksnap --unit team-a/train -o json

      koord replay today.ksnap --edit edits.yaml
    """
    from koord.cli.replay_view import ReplayRequest, show

    show(ReplayRequest(file, unit, edit, without_hooks), output)
