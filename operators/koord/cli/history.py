"""The command ``koord history``: only its command line."""
# ruff: noqa: PLC0415 - what it does takes longer to load than --help and completion should

from pathlib import Path
from typing import Annotated, Final

import typer

from koord.api.quantity import parse_age_seconds
from koord.cli.common import NO_UNITS, Context, Form, Kubeconfig, Output
from koord.cli.queries import Namespace, TargetName, parse_subject
from koord.cli.watching import watchable

_KINDS: Final = {
    "pod": "Pod",
    "podgroup": "PodGroup",
    "job": "Job",
    "statefulset": "StatefulSet",
    "replicaset": "ReplicaSet",
    "": "",
}
"""Kinds of which pods and records tell themselves; of others the pods are looked up."""


@watchable
def history(  # noqa: PLR0917 - typer calls it, by name
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="pod (po), podgroup (pg), job, statefulset (sts), replicaset (rs), or any kind "
            "that owns pods, such as pytorchjob; or KIND/NAME, or a NAME alone.",
            show_default=False,
        ),
    ],
    name: TargetName = "",
    namespace: Namespace = "",
    since: Annotated[
        str, typer.Option("--since", help="Only what happened lately: 90m, 12h or 7d.")
    ] = "",
    at: Annotated[
        str,
        typer.Option("--at", help="Only what was decided last by this time: 2026-11-25T07:00:30Z."),
    ] = "",
    feed: Annotated[
        str,
        typer.Option(
            "--feed",
            help="ADDRESS:PORT of the leader's feed, where kubectl port-forward leads to it.",
        ),
    ] = "",
    store: Annotated[
        Path | None,
        typer.Option("--store", help="File of koord audit record, instead of the feed."),
    ] = None,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show what happened to a pod, gang or Job, and where its time went.

    From the records of decisions of the leader, if they are served (audit.feed) and can
    be reached from here, and from histories, conditions and events. What is deleted is
    still told of as long as there are records. Reads only, with your own rights.

    For example:

      koord history train

      koord history pg/train --since 12h --namespace team-a

      koord history pod worker-0 --at 2026-11-25T07:00:30Z

      koord history job/train --store see.db --output json
    """
    from koord.cli.history_view import HistoryRequest, show

    kind, namespace, name = parse_subject(kind, namespace, name)
    if kind in NO_UNITS or kind == "reservation":
        raise typer.BadParameter("give a pod, podgroup or workload", param_hint="KIND")
    request = HistoryRequest(
        _KINDS.get(kind, kind), namespace, name, parse_age(since), parse_moment(at), feed, store
    )
    show(request, kubeconfig, context, output)


def parse_age(text: str) -> float:
    """Parse ``90m`` or ``7d``; an empty text is 0."""
    if not text:
        return 0.0
    seconds = parse_age_seconds(text)
    if seconds is None:
        raise typer.BadParameter("is not an age, such as 90m, 12h or 7d", param_hint="--since")
    return float(seconds)


def parse_moment(text: str) -> str:
    """Accept a time with its zone; an empty text is none."""
    from koord.answers.audit import to_ms

    if text and to_ms(text) is None:
        raise typer.BadParameter("is not a time, such as 2026-11-25T07:00:30Z", param_hint="--at")
    return text
