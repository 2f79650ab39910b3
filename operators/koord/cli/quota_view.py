"""Reads the cluster and prints quotas: what ``koord quota`` does. Not imported for ``--help``.

Computed on this machine, with the user's own rights, by the same core as the operators.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from koord.api.quantity import InvalidQuantityError
from koord.cli.cluster import (
    Reading,
    read_without_target,
    refuse_gap,
    refuse_unknown_namespace,
)
from koord.cli.common import ExitCode, Output, TreeOutput, fail, suggest, warn
from koord.cli.json_output import (
    make_edit,
    make_loan,
    make_problem,
    make_quota,
    make_terms,
    write_all,
)
from koord.cli.missing_rights import warn_of_gaps
from koord.cli.output import GraphNode, count_of, make_console, print_in, write_graph
from koord.cli.quota_text import (
    choose_glyphs,
    list_amounts,
    list_tree_columns,
    make_edit_lines,
    make_label_lines,
    make_quota_lines,
    make_tree_lines,
)
from koord.core.framework.scoring import Scoring
from koord.core.quota.model import QuotaSpec
from koord.core.quota_view import (
    QuotaOverview,
    QuotaView,
    simulate_edit,
    simulate_gang,
    view_quota,
    view_quotas,
)
from koord.core.state import ClusterState
from koord.core.units import format_amount
from koord.kube.kinds import QUOTAS
from koord.kube.translate.amounts import parse_amount

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class EditRequest:
    """New min, max or weight of a quota, as typed: ``RESOURCE=AMOUNT`` each."""

    min: Sequence[str] = ()
    max: Sequence[str] = ()
    weight: Sequence[str] = ()

    def apply(self, spec: QuotaSpec) -> QuotaSpec:
        weight = _parse_amounts("--weight", self.weight)
        return replace(
            spec,
            min={**spec.min, **_parse_amounts("--min", self.min)},
            max={**spec.max, **_parse_amounts("--max", self.max)},
            weight={**spec.share_weight(), **weight} if weight else spec.weight,
        )


def show_tree(kubeconfig: str, context: str, output: TreeOutput, namespace: str = "") -> None:
    reading = _read(kubeconfig, context)
    refuse_unknown_namespace(reading, namespace)
    overview = view_quotas(reading.state)
    if namespace:
        shown = tuple(one for one in overview.quotas if one.namespace == namespace)
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
            f"{name} {key}": format_amount(key, amount)
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
    state = _read(kubeconfig, context).state
    bare = _find_name(state, name, namespace)
    view = view_quota(state, bare, Scoring())
    if view is None:
        problem = state.quotas.catalog.problem_of(bare)
        if problem:
            fail(f"quota {bare} is not active: {problem.describe()}", ExitCode.USAGE)
        _fail_unknown(state, bare)
    console = make_console()
    print_in(
        output,
        document=lambda: _make_quota_document(view),
        names=lambda: (f"elasticquota/{bare}",),
        text=lambda: make_quota_lines(view, view.loans, choose_glyphs(console.encoding)),
    )


def _make_quota_document(view: QuotaView) -> dict[str, Any]:
    loans = [loan for loan in view.loans if view.summary.name in {loan.lender, loan.borrower}]
    terms = {terms.resource: make_terms(terms) for terms in view.terms}
    return {**make_quota(view), "terms": terms, "loans": [make_loan(loan) for loan in loans]}


def _find_name(state: ClusterState, name: str, namespace: str) -> str:
    """Return the name of NAME or NAMESPACE/NAME; ends the command if it is elsewhere."""
    given, _, bare = name.rpartition("/")
    if given and namespace not in {"", given}:
        fail(f"{name} is not in namespace {namespace}", ExitCode.USAGE)
    where, written = given or namespace, state.quotas.catalog.written.values()
    places = {spec.namespace for spec in written if spec.name == bare}
    if where and places and where not in places:
        found = ", ".join(sorted(places))
        fail(
            f"there is no quota {bare} in namespace {where}; there is one in {found}",
            ExitCode.USAGE,
        )
    return bare


def _fail_unknown(state: ClusterState, name: str) -> NoReturn:
    known = {spec.name for spec in state.quotas.catalog.written.values()}
    fail(f"there is no quota {name}{suggest(name, known)}", ExitCode.USAGE)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The change to simulate: a gang in a quota, an edit of the quota, or both."""

    quota: str
    namespace: str
    pods: int
    requests: Sequence[str]
    edit: EditRequest


def show_what_if(asked: WhatIf, kubeconfig: str, context: str, output: Output) -> None:
    requests = _parse_amounts("--request", asked.requests)
    if not requests and asked.edit == EditRequest():
        fail("give --request for a gang, or --min, --max or --weight for an edit", ExitCode.USAGE)
    reading = _read(kubeconfig, context)
    state = reading.state
    bare = _find_name(state, asked.quota, asked.namespace)
    document: dict[str, Any] = {"quota": bare}
    lines: list[RenderableType] = []
    if asked.edit != EditRequest():
        spec = state.quotas.catalog.written_as(bare)
        if spec is None:
            _fail_unknown(state, bare)
        answer = simulate_edit(state, asked.edit.apply(spec))
        document["edit"] = make_edit(answer)
        lines += make_edit_lines(bare, answer)
    if requests:
        if not state.quotas.catalog.is_written(bare):
            _fail_unknown(state, bare)
        reason = simulate_gang(state, bare, requests, asked.pods, reading.reclaim)
        starts = reason.is_placed
        verdict = "would start now" if starts else f"would wait: {reason.code}"
        gang = f"{count_of(asked.pods, 'pod')} of {list_amounts(requests)}"
        lines += [f"{gang} in quota {bare} {verdict}", reason.text()]
        document |= {"starts": starts, "reason": str(reason.code), "message": reason.text()}
    print_in(
        output,
        document=lambda: document,
        names=lambda: (f"elasticquota/{bare}",),
        text=lambda: lines,
    )


def _read(kubeconfig: str, context: str) -> Reading:
    reading, target = read_without_target(kubeconfig, context)
    refuse_gap(reading, QUOTAS)
    for warning in warn_of_gaps(reading, target):
        warn(warning)
    return reading


def _parse_amounts(option: str, texts: Sequence[str]) -> dict[str, int]:
    amounts = {}
    for text in texts:
        resource, equals, amount = text.partition("=")
        try:
            amounts[resource] = parse_amount(resource, amount)
        except InvalidQuantityError as error:
            fail(f"{option} {text}: {error}", ExitCode.USAGE)
        if not resource or not equals:
            fail(
                f"{option} {text}: expected RESOURCE=AMOUNT, such as nvidia.com/gpu=8",
                ExitCode.USAGE,
            )
    return amounts
