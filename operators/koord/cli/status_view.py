"""Reads the Leases of the operators and prints how they are: what ``koord status`` does.

Reads nothing else while somebody leads, so it answers at once and needs few rights. Not imported
for ``--help``.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import typer
from rich.console import RenderableType
from rich.text import Text

from koord.answers.encoding import encode
from koord.answers.envelope import AnswerHead
from koord.answers.gaps import head_of
from koord.answers.leaders import Leader, LeaderStatement
from koord.cli.cluster import read_without_target, refuse_without_pods
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.connection import open_client
from koord.cli.leases import NAMES, age_of, get_lease, make_leader
from koord.cli.output import make_table, print_in
from koord.core.model.text import MAX_NAMES, format_age, named, plural
from koord.kube.election import Lease
from koord.kube.errors import Forbidden, KubeError
from koord.kube.plan_keys import describe_missing, is_missing

_LABEL: Final = "app.kubernetes.io/part-of=koord-operators"


def show(
    namespace: str, kubeconfig: str, context: str, *, output: Output, as_exit_code: bool
) -> None:
    try:
        leaders, refused, has_key = asyncio.run(_read(namespace, kubeconfig, context))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    if not has_key:
        warn(describe_missing(namespace))
    if refused:
        _tell_refused(refused, namespace, is_all=not leaders)
    if refused and not leaders:
        _show_reports(kubeconfig, context, output)
        if as_exit_code:
            raise typer.Exit(ExitCode.UNREADABLE)
        return
    print_in(
        output,
        AnswerHead("Status", time.time()),
        document=lambda: {"leaders": encode(leaders)},
        names=lambda: (f"lease/{leader.lease}" for leader in leaders),
        text=lambda: draw(leaders, namespace),
    )
    if as_exit_code and not (leaders and all(leader.is_well for leader in leaders)):
        raise typer.Exit(ExitCode.NOT_WELL)


async def _read(
    namespace: str, kubeconfig: str, context: str
) -> tuple[list[Leader], list[str], bool]:
    """Return what Leases say, the names of those that must not be read, and if there is the key.

    A process without the key never leads, and so cannot say in its Lease what it lacks.
    """
    refused: list[str] = []

    async def read(name: str) -> Lease | None:
        try:
            return await get_lease(client, namespace, name)
        except Forbidden:
            refused.append(name)
            return None

    async with open_client(kubeconfig, context) as (client, _):
        leases = await asyncio.gather(*map(read, NAMES))
        now = time.time()
        leaders = [make_leader(lease, now) for lease in leases if lease is not None]
        leads = any(leader.holder for leader in leaders)
        has_key = leads or not await is_missing(client, namespace)
    return leaders, refused, has_key


def _show_reports(kubeconfig: str, context: str, output: Output) -> None:
    """Show what the operators reported where the user may read: all that is known of them."""
    reading, target = read_without_target(kubeconfig, context)
    refuse_without_pods(reading, target)
    reports = [
        report for key, report in reading.reports.items() if key.startswith(f"{target.namespace}/")
    ]
    reasons = Counter(reported.reason for reported in reports)
    last = max((reported.since for reported in reports), default="")
    age = age_of(last, time.time())
    ago = "" if age is None else f"; the last reason is from {format_age(age)} ago"
    counts = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    verb = "waits" if len(reports) == 1 else "wait"
    waits = f"{plural(len(reports), 'pod')} {verb} ({counts})" if reports else "no pod waits"
    print_in(
        output,
        head_of("Status", reading, target),
        document=lambda: {
            "leaders": [],
            "namespace": target.namespace,
            "reasons": dict(reasons),
            "lastReason": last or None,
        },
        names=tuple,
        text=lambda: (f"Namespace {target.namespace}: {waits}, as the operators reported{ago}.",),
    )


def _tell_refused(refused: Sequence[str], namespace: str, *, is_all: bool) -> None:
    """Say which Leases must not be read."""
    which = "of the operators" if is_all else ", ".join(refused)
    text = (
        f"you may not get the Leases {which} in namespace {namespace} (the ClusterRole koord-user "
        "has the right)"
    )
    warn(f"{text}: whether the operators run is not known" if is_all else text)


def draw(leaders: Sequence[Leader], namespace: str) -> Iterator[RenderableType]:
    if not leaders:
        yield Text(f"No operators have run in namespace {namespace}.", "bold red")
        yield "Install them (kubectl apply -k manifests/base), or name their namespace with -n."
        return
    for leader in leaders:
        yield from _draw(leader, namespace)


def _draw(leader: Leader, namespace: str) -> Iterator[RenderableType]:
    if not leader.holder:
        ago = "" if leader.renewed is None else f"; last renewed {format_age(leader.renewed)} ago"
        yield Text(f"{leader.lease}: nobody leads{ago}", "bold red")
        yield "  Nothing is placed and no status is updated. Pods that run are not affected."
        yield f"  Look at their pods: kubectl get pods -n {namespace} -l {_LABEL}"
        yield "  Or start them from here: koord run"
        return
    age = age_of(leader.since, time.time())
    since = "" if age is None else f" for {format_age(age)}"
    renewed = "" if leader.renewed is None else f", renewed {format_age(leader.renewed)} ago"
    yield Text.assemble((f"{leader.lease}: ", "bold"), f"{leader.holder} leads{since}{renewed}")
    report = leader.report
    if report is None:
        yield "  It does not say more: it is starting, or of an earlier release."
        return
    table = make_table("", "")
    table.show_header = False
    table.add_row("  version", report.version)
    missing = ", ".join(report.not_ready)
    table.add_row("  synced", f"no: {missing}" if missing else "yes")
    for at, refused in enumerate(report.refused):
        table.add_row("  refused" if at == 0 else "", refused, style="bold red")
    if report.ready is not None:
        queued = f"{report.ready} to plan, {report.blocked} wait, {report.incomplete} incomplete"
        table.add_row("  queue", queued)
        reasons = ", ".join(f"{code} {count}" for code, count in report.reasons.items())
        table.add_row("  reasons", reasons or "none")
        after = report.reclaim_after
        table.add_row("  reclaim", "off" if after is None else f"after {after:g} s of over-use")
    for at, text in enumerate(_describe_open(report)):
        table.add_row("  quotas" if at == 0 else "", text)
    last = f"{report.last_error_at} {report.last_error}".strip()
    table.add_row("  last problem", last or "none")
    yield table


def _describe_open(report: LeaderStatement) -> Iterator[str]:
    """Yield whom quotas bind, if that is known and quotas cover any namespaces."""
    if report.open_count:
        names = named(report.open_namespaces) if report.open_count <= MAX_NAMES else ""
        first_listed = ", ".join(report.open_namespaces[:MAX_NAMES])
        more = report.open_count - MAX_NAMES
        open_names = names or f"{first_listed} and {more} more"
        yield f"open: pods of {open_names} are limited only if they opt in"
        yield "(kubectl apply -k manifests/overlays/enforce makes them)"
    elif report.open_count == 0 and report.enforced:
        yield f"bind every pod of {plural(report.enforced, 'namespace')}"
