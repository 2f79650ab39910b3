"""``koord quota``: shows the tree of quotas, explains one, and answers what would be if.

Only the command line itself; what it does is in ``koord.cli.quota_commands``,
imported when it runs.
"""

from typing import Annotated, TypeAlias

import typer

from koord.cli.options import Context, Form, Kubeconfig, Output, TreeForm, TreeOutput

app = typer.Typer(no_args_is_help=True, help="Show quotas, explain them, and ask what would be if.")


Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="NAME or NAMESPACE/NAME.", show_default=False)
]


@app.command()
def tree(
    output: TreeForm = TreeOutput.TEXT, kubeconfig: Kubeconfig = "", context: Context = ""
) -> None:
    """Show all quotas: what is guaranteed, entitled, used and asked, and who is over.

    For example:

      koord quota tree

      koord quota tree --output dot | dot -Tsvg > quotas.svg
    """
    from koord.cli.quota_commands import show_tree  # noqa: PLC0415 - numpy and aiohttp are not for --help

    show_tree(kubeconfig, context, output)


@app.command()
def explain(
    name: Name, output: Form = Output.TEXT, kubeconfig: Kubeconfig = "", context: Context = ""
) -> None:
    """Show one quota, and why its pods wait.

    For example:

      koord quota explain team-a
    """
    from koord.cli.quota_commands import show_quota  # noqa: PLC0415 - as above

    show_quota(name, kubeconfig, context, as_json=output is Output.JSON)


_Amounts: TypeAlias = list[str] | None


@app.command()
def what_if(  # noqa: PLR0917 - typer calls it, by name
    name: Name,
    request: Annotated[
        _Amounts,
        typer.Option(
            "--request",
            "-r",
            metavar="RESOURCE=AMOUNT",
            help="What one pod asks; repeat it.",
            show_default=False,
        ),
    ] = None,
    pods: Annotated[int, typer.Option(min=1, max=10_000, help="How many pods, as a gang.")] = 1,
    minimum: Annotated[
        _Amounts,
        typer.Option(
            "--min", metavar="RESOURCE=AMOUNT", help="Another min; repeat it.", show_default=False
        ),
    ] = None,
    maximum: Annotated[
        _Amounts,
        typer.Option(
            "--max", metavar="RESOURCE=AMOUNT", help="Another max; repeat it.", show_default=False
        ),
    ] = None,
    weight: Annotated[
        _Amounts,
        typer.Option(
            metavar="RESOURCE=AMOUNT", help="Another weight; repeat it.", show_default=False
        ),
    ] = None,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Say what would become of a gang in a quota, or of all quotas if one were edited.

    Nothing is created or changed. With both, the gang is tried after the edit.

    For example:

      koord quota what-if team-a --pods 16 --request nvidia.com/gpu=8

      koord quota what-if team-a --min nvidia.com/gpu=64

      koord quota what-if team-a --max nvidia.com/gpu=128 --pods 16 --request nvidia.com/gpu=8
    """
    from koord.cli.quota_commands import EditRequest, WhatIf, show_what_if  # noqa: PLC0415 - as above

    edit = EditRequest(minimum or (), maximum or (), weight or ())
    asked = WhatIf(name, pods, request or (), edit)
    show_what_if(asked, kubeconfig, context, as_json=output is Output.JSON)
