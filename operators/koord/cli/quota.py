"""``koord quota``: shows the tree of quotas, explains one, and answers what would be if.

Only the command line itself; what it does is in ``koord.cli.quotas``, imported when it is done.
"""

from typing import Annotated, TypeAlias

import typer

from koord.cli.options import Context, Form, Kubeconfig, Output

app = typer.Typer(no_args_is_help=True, help="Show quotas, explain them, and ask what would be if.")


Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="NAME or NAMESPACE/NAME.", show_default=False)
]


@app.command()
def tree(output: Form = Output.TEXT, kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Show all quotas: what is guaranteed, entitled, used and asked, and who is over.

    For example:

      koord quota tree
    """
    from koord.cli.quotas import show_tree  # noqa: PLC0415 - numpy and aiohttp are not for --help

    show_tree(kubeconfig, context, as_json=output is Output.JSON)


@app.command()
def explain(
    name: Name, output: Form = Output.TEXT, kubeconfig: Kubeconfig = "", context: Context = ""
) -> None:
    """Show one quota, and why its pods wait.

    For example:

      koord quota explain team-a
    """
    from koord.cli.quotas import show_quota  # noqa: PLC0415 - as above

    show_quota(name, kubeconfig, context, as_json=output is Output.JSON)


@app.command()
def what_if(
    name: Name,
    request: Annotated[
        list[str],
        typer.Option(
            "--request", "-r", metavar="RESOURCE=AMOUNT", help="What one pod asks; repeat it."
        ),
    ],
    pods: Annotated[int, typer.Option(min=1, max=10_000, help="How many pods, as a gang.")] = 1,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Say what would become of a gang in a quota now. Nothing is created.

    For example:

      koord quota what-if team-a --pods 16 --request nvidia.com/gpu=8
    """
    from koord.cli.quotas import show_what_if  # noqa: PLC0415 - as above

    show_what_if(name, pods, request, kubeconfig, context)
