"""Reads the cluster and prints quotas: what ``koord quota`` does. Not imported for ``--help``.

Computed on this machine, with the user's own rights, by the same core as the operators.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

from koord.answers.quota_view import (
    QuotaOverview,
    QuotaView,
    view_quota,
    view_quotas,
)
from koord.cli.cluster import (
    Reading,
    read_without_target,
    refuse_gap,
    refuse_unknown_namespace,
)
from koord.cli.common import ExitCode, Output, TreeOutput, fail, suggest, warn
from koord.cli.json_output import (
    make_loan,
    make_problem,
    make_quota,
    make_quota_units,
    make_terms,
    write_all,
)
from koord.cli.missing_rights import list_warnings
from koord.cli.output import GraphNode, make_console, print_in, write_graph
from koord.cli.quota_text import (
    choose_glyphs,
    list_tree_columns,
    make_label_lines,
    make_quota_lines,
    make_tree_lines,
)
from koord.cli.reported_quotas import ReportedQuota, list_remarks, make_overview
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.model.units import format_limit
from koord.kube.kinds import QUOTAS, AnyKind


def show_tree(kubeconfig: str, context: str, output: TreeOutput, namespace: str = "") -> None:
    reading = read(kubeconfig, context, namespace)
    refuse_unknown_namespace(reading, namespace)
    reported = reading.reported_quotas
    overview = view_quotas(reading.state) if reported is None else make_overview(reported)
    if namespace:
        shown = tuple(quota for quota in overview.quotas if quota.namespace == namespace)
        overview = replace(overview, quotas=shown)
    console = make_console()
    if output in {TreeOutput.DOT, TreeOutput.GRAPHML}:
        console.file.write(f"{write_quota_graph(overview, output)}\n")
        return
    print_in(
        output,
        document=lambda: _make_tree_document(overview),
        names=lambda: (f"elasticquota/{view.summary.name}" for view in overview.quotas),
        text=lambda: make_tree_lines(overview, choose_glyphs(console.encoding)),
    )


def _make_tree_document(overview: QuotaOverview) -> dict[str, Any]:
    return {
        "quotas": [make_quota(view) for view in overview.quotas],
        "invalid": [make_problem(problem) for problem in overview.invalid],
        "total": {id_: write_all(total) for id_, total in overview.total.items()},
        "loans": [make_loan(loan) for loan in overview.loans],
    }


def write_quota_graph(overview: QuotaOverview, output: TreeOutput) -> str:
    def make_node(view: QuotaView) -> GraphNode:
        summary = view.summary
        amounts = {
            f"{name} {key}": format_limit(key, amount)
            for name, amounts in list_tree_columns(summary)
            for key, amount in sorted(amounts.items())
            if key in summary.max
        }
        return GraphNode(
            id=summary.name,
            parent=summary.parent if view.depth else None,
            lines=(summary.name, *make_label_lines(view, overview.loans)),
            attributes={"namespace": view.namespace, "tree": summary.tree, **amounts},
        )

    return write_graph("quotas", map(make_node, overview.quotas), output)


def show_quota(name: str, namespace: str, kubeconfig: str, context: str, output: Output) -> None:
    """Show a quota; with a namespace only if it is there."""
    reading = read(kubeconfig, context, namespace or name.rpartition("/")[0])
    if reading.reported_quotas is not None:
        _show_reported(reading.reported_quotas, name.rpartition("/")[2], output)
        return
    state = reading.state
    bare = find_name(state, name, namespace)
    view = view_quota(state, bare, Scoring())
    if view is None:
        problem = state.quotas.catalog.problem_of(bare)
        if problem:
            fail(f"quota {bare} is not active: {problem.describe()}", ExitCode.USAGE)
        fail_unknown(state, bare)
    console = make_console()
    print_in(
        output,
        document=lambda: _make_quota_document(view),
        names=lambda: (f"elasticquota/{bare}",),
        text=lambda: make_quota_lines(view, choose_glyphs(console.encoding), time.time()),
    )


def _make_quota_document(view: QuotaView) -> dict[str, Any]:
    loans = [loan for loan in view.loans if view.summary.name in {loan.lender, loan.borrower}]
    terms = {terms.resource: make_terms(terms) for terms in view.terms}
    return {
        **make_quota(view),
        **make_quota_units(view),
        "terms": terms,
        "loans": [make_loan(loan) for loan in loans],
    }


def find_name(state: ClusterState, name: str, namespace: str) -> str:
    """Return the name of NAME or NAMESPACE/NAME; ends the command if it is elsewhere."""
    given, _, bare = name.rpartition("/")
    if given and namespace not in {"", given}:
        fail(f"{name} is not in namespace {namespace}", ExitCode.USAGE)
    where, written = given or namespace, state.quotas.catalog.written.values()
    places = {spec.namespace for spec in written if spec.name == bare}
    if where and places and where not in places:
        existing = ", ".join(sorted(places))
        fail(
            f"there is no quota {bare} in namespace {where}; there is one in {existing}",
            ExitCode.USAGE,
        )
    return bare


def fail_unknown(state: ClusterState, name: str) -> NoReturn:
    """End the command: there is no such quota."""
    names = {spec.name for spec in state.quotas.catalog.written.values()}
    fail(f"there is no quota {name}{suggest(name, names)}", ExitCode.USAGE)


def _show_reported(quotas: Sequence[ReportedQuota], name: str, output: Output) -> None:
    reported_quota = next((quota for quota in quotas if quota.view.summary.name == name), None)
    if reported_quota is None:
        meant = suggest(name, {quota.view.summary.name for quota in quotas})
        fail(f"there is no quota {name} that you may read{meant}", ExitCode.USAGE)
    console = make_console()
    print_in(
        output,
        document=lambda: _make_quota_document(reported_quota.view),
        names=lambda: (f"elasticquota/{name}",),
        text=lambda: (
            *make_quota_lines(reported_quota.view, choose_glyphs(console.encoding), time.time()),
            *list_remarks(reported_quota),
        ),
    )


def read(
    kubeconfig: str, context: str, namespace: str = "", whole: Sequence[AnyKind] = ()
) -> Reading:
    """Read the cluster for a command about quotas, with warnings about what could not be read.

    Ends the command if a kind that is needed as a ``whole`` could not be read.
    """
    reading, target = read_without_target(kubeconfig, context, namespace)
    for kind in whole:
        refuse_gap(reading, kind)
    if reading.reported_quotas is None:
        refuse_gap(reading, QUOTAS)
    for warning in list_warnings(reading, target):
        warn(warning)
    return reading
