"""The command ``koord serve``: only its command line."""
# ruff: noqa: PLC0415 - what it does takes longer to load than --help and completion should

from pathlib import Path
from typing import Annotated

import typer

from koord.cli.common import Context, Kubeconfig


def serve(
    config: Annotated[
        Path | None,
        typer.Option(help="Configuration file (kind: OperatorConfiguration); its section see."),
    ] = None,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Serve the page and answers to everybody in the cluster, by the rights of each.

    Until SIGTERM or Ctrl-C. Reads the cluster with rights of its own, and can write nothing.
    Whoever asks sends a token of the cluster, and sees by name what that token may list.

    For example:

      koord serve

      koord serve --config /etc/koord/config.yaml
    """
    from koord.cli.serve_server import serve as run

    run(config, kubeconfig, context)
