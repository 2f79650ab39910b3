"""Reads the cluster and prints what there is to say about quotas: what ``koord quota`` does.

Computed on this machine, with the user's own rights, by the same core as the operators.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from rich.console import Console, RenderableType

from koord.api.quantity import InvalidQuantityError
from koord.cli.cluster import Reading, Target, TargetKind, open_client, read_cluster
from koord.cli.errors import ExitCode, fail, warn
from koord.cli.missing_rights import warn_of_gaps
from koord.cli.options import TreeOutput
from koord.cli.quota_bars import choose_glyphs
from koord.cli.quota_text import (
    count_of,
    list_amounts,
    list_tree_columns,
    make_edit_lines,
    make_label_lines,
    make_quota_lines,
    make_tree_lines,
)
from koord.cli.text import make_console
from koord.core.framework.scoring import Scoring
from koord.core.quota.model import QuotaSpec
from koord.core.quota.share_terms import Loan, Terms
from koord.core.quota.spec_errors import InvalidQuota
from koord.core.quota_view import (
    EditAnswer,
    QuotaOverview,
    QuotaView,
    ask_edit,
    ask_what_if,
    view_quota,
    view_quotas,
)
from koord.core.units import Amounts, format_amount
from koord.kube.errors import KubeError
from koord.kube.translate.amounts import parse_amount


@dataclass(frozen=True, slots=True)
class EditRequest:
    """Another min, max or weight of a quota, as typed: ``RESOURCE=AMOUNT`` each."""

    min: Sequence[str] = ()
    max: Sequence[str] = ()
    weight: Sequence[str] = ()

    def apply(self, spec: QuotaSpec) -> QuotaSpec:
        """Return the quota as it would be written."""
        weight = _parse_amounts("--weight", self.weight)
        return replace(
            spec,
            min={**spec.min, **_parse_amounts("--min", self.min)},
            max={**spec.max, **_parse_amounts("--max", self.max)},
            weight={**spec.share_weight(), **weight} if weight else spec.weight,
        )


def show_tree(kubeconfig: str, context: str, output: TreeOutput) -> None:
    """Print all quotas."""
    overview = view_quotas(_read(kubeconfig, context).state)
    console = make_console()
    match output:
        case TreeOutput.TEXT:
            _print(console, make_tree_lines(overview, choose_glyphs(console.encoding)))
        case TreeOutput.JSON:
            _print_json(
                {
                    "quotas": [_make_document(view) for view in overview.quotas],
                    "invalid": [_make_problem(problem) for problem in overview.invalid],
                    "total": {id_: _write_all(total) for id_, total in overview.total.items()},
                    "loans": [_make_loan(loan) for loan in overview.loans],
                }
            )
        case TreeOutput.DOT | TreeOutput.GRAPHML:
            console.file.write(f"{write_quota_graph(overview, output)}\n")


def write_quota_graph(overview: QuotaOverview, output: TreeOutput) -> str:
    """Return the tree of quotas as a graph; ids are the names of quotas."""
    from koord.cli.graph import GraphNode, write_graph  # noqa: PLC0415 - networkx is slow to import

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


def show_quota(name: str, kubeconfig: str, context: str, *, as_json: bool) -> None:
    """Print one quota, how its shares came about, and why its pods wait."""
    state = _read(kubeconfig, context).state
    bare = name.rpartition("/")[2]
    view = view_quota(state, bare, Scoring())
    if view is None:
        problem = state.quotas.book.problem_of(bare)
        known = ", ".join(sorted(state.quotas.book.registry.specs)[:8])
        text = f"is not in force: {problem.describe()}" if problem else "does not exist"
        fail(f"quota {bare} {text}; in force: {known or 'none'}", ExitCode.USAGE)
    if as_json:
        own = [loan for loan in view.loans if bare in {loan.lender, loan.borrower}]
        terms = {terms.resource: _make_terms(terms) for terms in view.terms}
        document = {**_make_document(view), "terms": terms}
        _print_json({**document, "loans": [_make_loan(loan) for loan in own]})
        return
    console = make_console()
    _print(console, make_quota_lines(view, view.loans, choose_glyphs(console.encoding)))


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is supposed: a gang in a quota, another setting of the quota, or both."""

    quota: str
    pods: int
    requests: Sequence[str]
    edit: EditRequest


def show_what_if(asked: WhatIf, kubeconfig: str, context: str, *, as_json: bool) -> None:
    """Print what would become of a gang in a quota, or of the quotas if one were edited."""
    requests = _parse_amounts("--request", asked.requests)
    if not requests and asked.edit == EditRequest():
        fail("say what if: --request for a gang, --min, --max or --weight", ExitCode.USAGE)
    state = _read(kubeconfig, context).state
    bare = asked.quota.rpartition("/")[2]
    document: dict[str, Any] = {"quota": bare}
    lines: list[RenderableType] = []
    if asked.edit != EditRequest():
        spec = state.quotas.book.written_as(bare)
        if spec is None:
            fail(f"quota {bare} does not exist", ExitCode.USAGE)
        answer = ask_edit(state, asked.edit.apply(spec))
        document["edit"] = _make_edit(answer)
        lines += make_edit_lines(bare, answer)
    if requests:
        if not state.quotas.book.is_written(bare):
            fail(f"quota {bare} does not exist", ExitCode.USAGE)
        reason = ask_what_if(state, bare, requests, asked.pods, Scoring())
        starts = reason.is_placed
        verdict = "would start now" if starts else f"would wait: {reason.code}"
        gang = f"{count_of(asked.pods, 'pod')} of {list_amounts(requests)}"
        lines += [f"{gang} in quota {bare} {verdict}", reason.text()]
        document |= {"starts": starts, "reason": str(reason.code), "message": reason.text()}
    if as_json:
        _print_json(document)
    else:
        _print(make_console(), lines)


def _read(kubeconfig: str, context: str) -> Reading:
    try:
        reading, target = asyncio.run(_read_all(kubeconfig, context))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    for warning in warn_of_gaps(reading, target):
        warn(warning)
    return reading


async def _read_all(kubeconfig: str, context: str) -> tuple[Reading, Target]:
    async with open_client(kubeconfig, context) as (client, access):
        target = Target(TargetKind.POD, access.namespace, "")
        return await read_cluster(client, target), target


def _parse_amounts(option: str, texts: Sequence[str]) -> dict[str, int]:
    amounts = {}
    for text in texts:
        resource, equals, amount = text.partition("=")
        try:
            amounts[resource] = parse_amount(resource, amount)
        except InvalidQuantityError as error:
            fail(f"{option} {text}: {error}", ExitCode.USAGE)
        if not resource or not equals:
            fail(f"{option} {text}: write it like nvidia.com/gpu=8", ExitCode.USAGE)
    return amounts


def _make_document(view: QuotaView) -> dict[str, Any]:
    summary = view.summary
    return {
        "name": summary.name,
        "namespace": view.namespace,
        "parent": summary.parent,
        "tree": summary.tree,
        "isParent": summary.is_parent,
        "min": _write_all(summary.min),
        "max": _write_all(summary.max),
        "sharedWeight": _write_all(summary.weight),
        "entitled": _write_all(summary.share),
        "scaledMin": _write_all(summary.scaled_min),
        "used": _write_all(summary.used),
        "request": _write_all(summary.request),
        "demand": _write_all(summary.child_request),
        "submitted": _write_all(summary.submitted),
        "over": {one.resource: format_amount(one.resource, one.over) for one in view.over},
        "problem": _make_problem(view.problem) if view.problem else None,
        "waiting": {str(code): count for code, count in (view.waiting or {}).items()},
    }


def _make_problem(problem: InvalidQuota) -> dict[str, Any]:
    return {"quota": problem.quota, "reason": problem.fault, "message": problem.describe()}


def _write_all(amounts: Amounts) -> dict[str, str]:
    return {key: format_amount(key, amount) for key, amount in sorted(amounts.items())}


def _make_loan(loan: Loan) -> dict[str, str]:
    return {
        "lender": loan.lender,
        "borrower": loan.borrower,
        "resource": loan.resource,
        "amount": format_amount(loan.resource, loan.amount),
    }


def _make_terms(terms: Terms) -> dict[str, Any]:
    key = terms.resource
    amounts = {
        "parentShare": terms.total,
        "parentOwnPods": terms.own,
        "demand": terms.demand,
        "wants": terms.want,
        "min": terms.minimum,
        "scaledMin": terms.scaled,
        "guaranteed": terms.floor,
        "startsWith": terms.starts,
        "leftOver": terms.left,
        "borrows": terms.borrowed,
        "entitled": terms.share,
    }
    written = {name: format_amount(key, amount) for name, amount in amounts.items()}
    return {**written, "lends": terms.lends, "weight": terms.weight, "weights": terms.weights}


def _make_edit(answer: EditAnswer) -> dict[str, Any]:
    return {
        "problem": _make_problem(answer.problem) if answer.problem else None,
        "shares": [
            {
                "quota": quota,
                "resource": key,
                "entitled": format_amount(key, before),
                "then": format_amount(key, after),
            }
            for quota, key, before, after in answer.shares
        ],
        "over": {
            f"{one.quota}/{one.resource}": format_amount(one.resource, one.over)
            for one in answer.over
        },
    }


def _print(console: Console, parts: Iterable[RenderableType]) -> None:
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def _print_json(document: Any) -> None:
    console = make_console()
    text = msgspec.json.format(msgspec.json.encode(document)).decode()
    console.file.write(f"{text}\n")
