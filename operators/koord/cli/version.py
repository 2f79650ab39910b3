"""``koord version``: what is installed, and on demand what the API server is."""

import platform
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from koord.cli.options import Context, Kubeconfig


def version(
    server: Annotated[
        bool, typer.Option("--server", help="Ask the API server for its version, too.")
    ] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Print the versions of koord, of Python and of the API server.

    For example:

      koord version

      koord version --server
    """
    typer.echo(f"koord      {version_of('koord-operators')}")
    typer.echo(f"Python     {platform.python_version()}")
    if server:
        from koord.cli.ask import ask_version  # noqa: PLC0415 - no client without --server

        typer.echo(f"Kubernetes {ask_version(kubeconfig, context)}")
