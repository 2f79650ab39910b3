"""Reads the cluster and prints what is not well: what ``koord sick`` does.

Not imported for ``--help``.
"""

import time
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from koord.answers.encoding import encode
from koord.answers.gaps import head_of
from koord.answers.health import HealthFinding, Severity, find_sick
from koord.cli.cluster import read_without_target, refuse_gaps
from koord.cli.common import ExitCode, Output
from koord.cli.output import make_table, print_in
from koord.core.model.text import format_age
from koord.domains.placement import NODES


def show(kubeconfig: str, context: str, output: Output, *, as_exit_code: bool) -> None:
    reading, _ = read_without_target(kubeconfig, context)
    refuse_gaps(reading, NODES)
    now = time.time()
    findings = find_sick(reading.state, now)
    print_in(
        output,
        head_of("Health", reading),
        document=lambda: {"items": encode(findings)},
        names=lambda: (str(finding.subject) for finding in findings),
        text=lambda: make_parts(findings, now),
    )
    if as_exit_code and any(finding.severity is Severity.ERROR for finding in findings):
        raise SystemExit(ExitCode.NOT_WELL)


def make_parts(findings: Sequence[HealthFinding], now: float) -> Iterator[RenderableType]:
    if not findings:
        yield "Nothing is sick, as far as the cluster shows it. How the operators are: koord status"
        return
    table = make_table("WHAT", "REASON", "SINCE", "GPUS OUT", "BECAUSE", right=("GPUS OUT",))
    for finding in findings:
        style = "red" if finding.severity is Severity.ERROR else "yellow"
        table.add_row(
            str(finding.subject),
            Text(finding.reason, style),
            format_age(max(now - finding.since, 0.0)) if finding.since else "",
            str(finding.gpus_out or ""),
            f"{finding.message}. {finding.do_this}",
        )
    yield table
