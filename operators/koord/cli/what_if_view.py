"""Reads the cluster, tries edits and prints what would change: what ``koord what-if`` does.

Not imported for ``--help``.
"""

from collections.abc import Iterator

import typer
from rich.console import RenderableType
from rich.text import Text

from koord.answers.edits import EditError
from koord.answers.encoding import encode
from koord.answers.gaps import head_of, list_warnings
from koord.answers.outcomes import view_outcomes
from koord.answers.what_if import UnitOutcome, WhatIfAnswer, ask_what_if
from koord.cli.cluster import read_without_target, refuse_gaps
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.edit_documents import EditReader, TypedEdits
from koord.cli.manifests import read_defaults, read_file
from koord.cli.output import make_table, print_in
from koord.cli.queue_view import make_time_limit
from koord.core.model.units import format_amount
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import NODES, PODS
from koord.domains.quota import QUOTAS
from koord.see.manifests import DEFAULTS_UNSEEN

_MOST_SHARES = 20


def show(
    file: str,
    typed: TypedEdits,
    cluster: tuple[str, str, str],
    output: Output,
    *,
    as_exit_code: bool,
) -> None:
    namespace, kubeconfig, context = cluster
    documents = read_file(file) if file else []
    reading, target = read_without_target(kubeconfig, context, namespace)
    refuse_gaps(reading, NODES, PODS, POD_GROUPS, QUOTAS)
    defaults = read_defaults(target.namespace, reading.state.now, kubeconfig, context)
    edits = EditReader(reading.state, defaults).read(typed, documents)
    own_gaps = (*defaults.gaps, *((DEFAULTS_UNSEEN,) if documents else ()))
    for warning in list_warnings(reading, target, own_gaps):
        warn(warning)
    try:
        before = view_outcomes(reading.state, make_time_limit())
        answer = ask_what_if(reading, edits, make_time_limit(), before)
    except EditError as error:
        fail(str(error), ExitCode.USAGE)
    print_in(
        output,
        head_of("WhatIf", reading, target, (*own_gaps, *answer.gaps)),
        document=lambda: encode(answer),
        names=lambda: (str(change.ref) for change in answer.units),
        text=lambda: make_parts(answer),
    )
    if as_exit_code and answer.first_problem is not None:
        raise typer.Exit(ExitCode.NOT_WELL)


def make_parts(answer: WhatIfAnswer) -> Iterator[RenderableType]:
    if not answer.units:
        yield "No pod and no gang would start, wait or end because of it."
    else:
        table = make_table("UNIT", "NOW", "THEN", padding=2)
        for change in answer.units:
            table.add_row(str(change.ref), _tell(change.before), _tell(change.after))
        yield table
    problem = answer.first_problem
    if problem is not None and problem.after.reason is not None:
        yield Text(f"{problem.ref}: {problem.after.reason.text()}")
    for evicted in answer.evicted:
        yield Text(f"For {evicted.by} the operators would preempt {evicted.ref}.")
    if answer.shares:
        table = make_table("QUOTA", "RESOURCE", "SHARE", "THEN", right=("SHARE", "THEN"), padding=2)
        for share in answer.shares[:_MOST_SHARES]:
            amounts = (format_amount(share.resource, of) for of in (share.before, share.after))
            table.add_row(share.quota, share.resource, *amounts)
        yield table
        if len(answer.shares) > _MOST_SHARES:
            yield f"… and {len(answer.shares) - _MOST_SHARES} more shares: see -o json."
    for gap in answer.gaps:
        yield f"{gap.then[:1].upper()}{gap.then[1:]}: it would take too long."


def _tell(outcome: UnitOutcome) -> Text:
    if outcome.standing is None:
        return Text("does not exist")
    code = "" if outcome.reason is None else f" {outcome.reason.code}"
    return Text(f"{outcome.standing}{code}")
