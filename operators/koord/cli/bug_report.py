"""The command ``koord bug-report``: only its command line."""
# ruff: noqa: PLC0415 - what it does takes longer to load than --help and completion should

from typing import Annotated

import typer

from koord.cli.common import Context, Kubeconfig
from koord.cli.snapshot import Feed


def bug_report(
    file: Annotated[
        str, typer.Option("--file", "-o", metavar="FILE", help="The file to write.")
    ] = "koord-bug-report.tar.gz",
    feed: Feed = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Write what a bug report needs into a file, without names.

    Uploads nothing. Versions, what the leader says of itself and of its settings, an
    anonymised snapshot, and, if the leader can be reached, its metrics and last records.
    Prints the list of files: look at them before you attach the report.

    For example:

      koord bug-report

      koord bug-report -o report.tar.gz --feed 127.0.0.1:8080
    """
    from koord.cli.bug_report_view import write_report

    write_report(file, feed, kubeconfig, context)
