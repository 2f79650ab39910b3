"""Says when a job in a file would start: what ``koord queue eta`` does. Nothing is created."""

from collections.abc import Iterator

import typer
from rich.console import RenderableType
from rich.text import Text

from koord.answers.edits import EditError
from koord.answers.encoding import encode
from koord.answers.gaps import head_of, list_warnings
from koord.answers.hypothetical import EtaAnswer, ask_eta
from koord.cli.cluster import read_without_target, refuse_gaps
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.manifests import read_defaults, read_file
from koord.cli.output import print_in
from koord.cli.queue_view import draw, make_time_limit
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import NODES, PODS
from koord.domains.quota import QUOTAS
from koord.see.manifests import make_job


def show_eta(file: str, namespace: str, kubeconfig: str, context: str, output: Output) -> None:
    documents = read_file(file)
    reading, target = read_without_target(kubeconfig, context, namespace)
    refuse_gaps(reading, NODES, PODS, POD_GROUPS, QUOTAS)
    defaults = read_defaults(target.namespace, reading.state.now, kubeconfig, context)
    try:
        job, more = make_job(documents, defaults), defaults.gaps
    except EditError as error:
        fail(str(error), ExitCode.USAGE)
    warnings = list_warnings(reading, target, more)
    for warning in warnings:
        warn(warning)
    answer = ask_eta(reading, target, job, make_time_limit())
    now = reading.state.now
    print_in(
        output,
        head_of("Eta", reading, target, more),
        document=lambda: {
            "waiting": encode(answer.waiting),
            "placedByOthers": answer.elsewhere,
            "warnings": list(warnings),
        },
        names=lambda: (f"{entry.kind}/{name}" for entry in answer.waiting for name in entry.names),
        text=lambda: _draw(answer, now),
    )
    if answer.never_fits:
        raise typer.Exit(ExitCode.USAGE)


def _draw(answer: EtaAnswer, now: float) -> Iterator[RenderableType]:
    if answer.waiting:
        yield from draw(answer.waiting, now, is_wide=False)
    for entry in answer.waiting[:3]:
        if entry.reason.is_placed:
            yield Text(f"{entry.names[0]} would start at once.")
            continue
        yield Text(f"{entry.names[0]}: {entry.reason.text()}")
        if entry.standing is not None:
            yield Text(entry.standing.text())
    if answer.elsewhere:
        yield Text(
            f"{answer.elsewhere} of its pods do not opt in: whoever serves their scheduler name "
            "places them."
        )
