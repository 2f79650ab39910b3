"""The command ``koord usage`` and what is below it: only their command lines."""
# ruff: noqa: PLC0415 - what it does takes longer to load than --help and completion should

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperGroup
from typing_extensions import override

from koord.cli.common import Context, Kubeconfig, Namespace
from koord.cli.usage_options import ReportOutput, UsageOutput
from koord.core.usage.tables import By

_SHOW = "show"


class _Usage(TyperGroup):
    """Runs ``show`` if no command is named: the usual question needs no word more."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and (args[0] in self.commands or args[0] in {"--help", "-h"})
        return super().parse_args(ctx, args if is_named else [_SHOW, *args])


usage = typer.Typer(
    cls=_Usage,
    help="Show how many GPU hours pods have held, by namespace, quota, user or job.",
)


StoreFile: TypeAlias = Annotated[
    Path, typer.Option("--store", help="File of the store.", show_default=False)
]
SomeStore: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--store",
        help="File of a store to read instead of the pods that exist.",
        show_default=False,
    ),
]
Zone: TypeAlias = Annotated[
    str, typer.Option("--tz", help="Time zone of days and months, such as Europe/Berlin.")
]
UserLabel: TypeAlias = Annotated[
    str, typer.Option("--user-label", help="The label of pods that names their user.")
]


@usage.command(_SHOW)
def usage_show(  # noqa: PLR0917 - typer calls it, by name
    period: Annotated[
        str,
        typer.Argument(
            metavar="[PERIOD]",
            help="A month such as 2026-11, last, or a day such as 2026-11-25.",
            show_default="this month",
        ),
    ] = "",
    by: Annotated[By, typer.Option("--by", help="What to have a row for.")] = (By.NAMESPACE),
    zone: Zone = "UTC",
    user_label: UserLabel = "",
    namespace: Namespace = "",
    store: SomeStore = None,
    segments: Annotated[
        bool, typer.Option("--segments", help="A row for each time that a pod held the same.")
    ] = False,
    output: Annotated[
        UsageOutput,
        typer.Option(
            "--output", "-o", help="Output format; csv, jsonl and parquet are for programs."
        ),
    ] = UsageOutput.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show how many GPU hours pods have held, by namespace, quota, user or job.

    Of pods that exist, those that have ended included; deleted pods are missing, unless
    a store is read that koord usage record or koord serve has written. A share of a GPU
    counts as what it is. What is held counts, whether it was busy or not.

    For example:

      koord usage

      koord usage show 2026-11 --by quota --tz Europe/Berlin

      koord usage 2026-10 --by user --store usage.db --output csv
    """
    from koord.cli.usage_view import UsageRequest, show

    request = UsageRequest(period, by, zone, user_label, namespace, store, is_by_segment=segments)
    show(request, kubeconfig, context, output)


@usage.command("report")
def usage_report(  # noqa: PLR0917 - typer calls it, by name
    month: Annotated[
        str,
        typer.Option(
            "--month", help="A month such as 2026-11, last, or a day.", show_default="this month"
        ),
    ] = "",
    quota: Annotated[str, typer.Option("--quota", help="Only this quota and those below it.")] = "",
    price: Annotated[
        list[str] | None,
        typer.Option(
            "--price", metavar="MODEL=PRICE", help="Price of an hour of a GPU of this model."
        ),
    ] = None,
    zone: Zone = "UTC",
    user_label: UserLabel = "",
    store: SomeStore = None,
    output: Annotated[
        ReportOutput, typer.Option("--output", "-o", help="Format of the report.")
    ] = ReportOutput.MARKDOWN,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Report on a month: whether a quota got its share, who used what, what was lost.

    What quotas were guaranteed, borrowed and owed only a store knows. Prices multiply
    what was held, in decimals; they make no bill.

    For example:

      koord usage report --month last --quota research --store usage.db

      koord usage report --store usage.db --price H100=2.50 -o html
    """
    from koord.cli.usage_report_view import ReportRequest, show

    request = ReportRequest(month, quota, tuple(price or ()), zone, user_label, store)
    show(request, kubeconfig, context, output)


@usage.command("record")
def usage_record(  # noqa: PLR0917 - typer calls it, by name
    store: StoreFile,
    seconds: Annotated[
        int, typer.Option("--every", min=1, max=60, help="Seconds between two looks.")
    ] = 30,
    looks: Annotated[
        int, typer.Option("--looks", min=0, help="End after so many looks.", show_default="never")
    ] = 0,
    user_label: UserLabel = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Write into a store who holds what, until Ctrl-C: with your own rights, read-only.

    One process writes a store. What happens while none does is found again as far as
    objects tell it; how long nobody looked is in every report. A crash costs the time
    since the last look.

    For example:

      koord usage record --store usage.db

      koord usage record --store usage.db --every 60 --user-label example.com/user
    """
    from koord.cli.usage_store import UsageRecordRequest, record

    record(store, UsageRecordRequest(seconds, looks, user_label), kubeconfig, context)


@usage.command("import")
def usage_import(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="JSON lines, a segment each.", show_default=False),
    ],
    store: StoreFile,
) -> None:
    """Add segments of before to a store, from a file of JSON lines.

    The form is that of koord usage --segments -o jsonl. What lies before the store
    began counts where it was. Of what was watched, the last two days can be corrected;
    what is older is closed, and counts as an adjustment of now.

    For example:

      koord usage import october.jsonl --store usage.db
    """
    from koord.cli.usage_store import import_file

    import_file(file, store)


@usage.command("rebuild")
def usage_rebuild(store: StoreFile) -> None:
    """Make the sums by hour and by job of a store anew, from its segments.

    For example:

      koord usage rebuild --store usage.db
    """
    from koord.cli.usage_store import rebuild

    rebuild(store)
