"""The command ``koord page``: only its command line."""
# ruff: noqa: PLC0415 - what it does takes longer to load than --help and completion should

from pathlib import Path
from typing import Annotated

import typer

from koord.cli.common import Context, Kubeconfig


def page(  # noqa: PLR0917 - typer calls it, by name
    port: Annotated[
        int,
        typer.Option(
            "--port", min=0, max=65535, help="Where to listen, on 127.0.0.1.", show_default="any"
        ),
    ] = 0,
    feed: Annotated[
        str,
        typer.Option(
            "--feed",
            help="ADDRESS:PORT of the leader's feed, where kubectl port-forward leads to it.",
        ),
    ] = "",
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            help="File that koord usage record writes: usage over months, and of deleted pods.",
            show_default=False,
        ),
    ] = None,
    user_label: Annotated[
        str, typer.Option("--user-label", help="The label of pods that names their user.")
    ] = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Serve a page with the answers of koord, on this machine, until Ctrl-C.

    With your own rights, and read-only. Prints the address to open, with a key without
    which nobody else on this machine gets an answer; programs get the same over HTTP.
    Ends after 8 hours without a request.

    For example:

      koord page

      koord page --port 8444

      koord page --feed 127.0.0.1:8080

      koord page --store usage.db
    """
    from koord.cli.page_server import PageRequest, serve

    serve(PageRequest(port, feed, store, user_label), kubeconfig, context)
