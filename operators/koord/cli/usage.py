"""The command ``koord usage``: only its command line."""
# ruff: noqa: PLC0415 - what it does takes longer to load than --help and completion should

from enum import StrEnum
from typing import Annotated

import typer

from koord.cli.common import Context, Kubeconfig, Namespace
from koord.core.usage.tables import By


class UsageOutput(StrEnum):
    """Output format of usage: that of other answers, or a table for other programs."""

    TEXT = "text"
    NAME = "name"
    JSON = "json"
    ANSWER = "answer"
    YAML = "yaml"
    SVG = "svg"
    CSV = "csv"
    """With integers besides hours, for spreadsheets and databases."""


def usage(  # noqa: PLR0917 - typer calls it, by name
    period: Annotated[
        str,
        typer.Argument(
            metavar="[PERIOD]",
            help="A month such as 2026-11 or a day such as 2026-11-25.",
            show_default="this month",
        ),
    ] = "",
    by: Annotated[By, typer.Option("--by", help="What to have a row for.")] = (By.NAMESPACE),
    zone: Annotated[
        str, typer.Option("--tz", help="Time zone of days and months, such as Europe/Berlin.")
    ] = "UTC",
    user_label: Annotated[
        str, typer.Option("--user-label", help="The label of pods that names their user.")
    ] = "",
    namespace: Namespace = "",
    output: Annotated[
        UsageOutput,
        typer.Option("--output", "-o", help="Output format; csv is for spreadsheets."),
    ] = UsageOutput.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show how many GPU hours pods have held, by namespace, quota, user or job.

    Of pods that exist, those that have ended included; deleted pods are missing. A
    share of a GPU counts as what it is. What is held counts, whether it was busy or
    not.

    For example:

      koord usage

      koord usage 2026-11 --by quota --tz Europe/Berlin

      koord usage --by user --user-label example.com/user --output csv
    """
    from koord.cli.usage_view import UsageRequest, show

    request = UsageRequest(period, by, zone, user_label, namespace)
    show(request, kubeconfig, context, output)
