"""The command ``koord audit``: only its command lines."""
# ruff: noqa: PLC0415 - what it does takes longer to load than --help and completion should

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from koord.cli.common import Context, Form, Kubeconfig, Namespace, Output
from koord.cli.history import parse_age, parse_moment
from koord.store.size import parse_store_size

audit = typer.Typer(
    no_args_is_help=True,
    help="Keep records of decisions in a file, and say who waits, and for whom.",
)
StoreFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--store", help="File of koord audit record.", show_default="the leader's feed"),
]
Feed: TypeAlias = Annotated[
    str,
    typer.Option(
        "--feed",
        help="ADDRESS:PORT of the leader's feed, where kubectl port-forward leads to it.",
    ),
]


@audit.command("analyse")
def analyse(  # noqa: PLR0917 - typer calls it, by name
    store: StoreFile = None,
    since: Annotated[
        str, typer.Option("--since", help="How far to look back: 90m, 24h or 7d; 31d at most.")
    ] = "24h",
    namespace: Namespace = "",
    quota: Annotated[
        str, typer.Option("--quota", help="Only units of this quota.", show_default="all")
    ] = "",
    feed: Feed = "",
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Say where waiting time went: waits, causes, who blocks, who starves.

    From a file of koord audit record, which knows what was. Without one from the feed
    of the leader, which keeps a few thousand records.

    For example:

      koord audit analyse

      koord audit analyse --store /data/see.db --since 7d --quota team-a

      koord audit analyse --store /data/see.db --output json
    """
    from koord.cli.audit_view import AnalyseRequest, show

    request = AnalyseRequest(store, parse_age(since), namespace, quota, feed)
    show(request, kubeconfig, context, output)


@audit.command("record")
def record(  # noqa: PLR0917 - typer calls it, by name
    store: Annotated[Path, typer.Option("--store", help="File to write; it is made if absent.")],
    keep: Annotated[
        str, typer.Option("--keep", help="Days that are older are removed, whole.")
    ] = "30d",
    keep_bytes: Annotated[
        str, typer.Option("--keep-bytes", help="If it takes more, the oldest days are removed.")
    ] = "5Gi",
    feed: Feed = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Keep the leader's records of decisions in a file, until SIGTERM or Ctrl-C.

    Follows the feed of whoever leads (audit.feed). Only one process writes a file;
    others may read it at any time. If the disk is full it waits for room.

    For example:

      koord audit record --store see.db

      koord audit record --store /data/see.db --keep 90d --feed 127.0.0.1:8080
    """
    from koord.cli.audit_record import RecordRequest, follow

    request = RecordRequest(store, parse_age(keep), _parse_bytes(keep_bytes), feed)
    follow(request, kubeconfig, context)


@audit.command("forget")
def forget(
    store: Annotated[Path, typer.Option("--store", help="File of koord audit record.")],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Whose records to remove.")
    ] = "",
    before: Annotated[
        str, typer.Option("--before", help="Only those before this time: 2026-11-25T07:00:30Z.")
    ] = "",
    user: Annotated[
        str, typer.Option("--user", help="Whose name to remove from records and segments.")
    ] = "",
) -> None:
    """Remove what a file says of a namespace, or who a user was.

    Of a namespace records, names of pods and segments go; a gap says how many records
    did, and its sums by hour stay. It may run while the file is written.

    For example:

      koord audit forget --store see.db --namespace team-a

      koord audit forget -n team-a --store see.db --before 2026-11-01T00:00:00Z

      koord audit forget --store see.db --user ann@example.com
    """
    from koord.cli.audit_record import remove

    if bool(namespace) == bool(user):
        raise typer.BadParameter("give one of --namespace and --user")
    if user and before:
        raise typer.BadParameter("goes with --namespace only", param_hint="--before")
    remove(store, namespace, parse_moment(before), user)


def _parse_bytes(text: str) -> int:
    try:
        return parse_store_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--keep-bytes") from error
