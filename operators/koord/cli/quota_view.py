"""Reads the cluster and prints quotas: what ``koord quota`` does. Not imported for ``--help``.

Computed on this machine, with the user's own rights, by the same core as the operators; so are
edits and gangs that are only tried.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from rich.console import RenderableType
from rich.table import Table

from koord.answers.encoding import encode
from koord.answers.gaps import NO_TARGET, head_of, list_warnings
from koord.answers.hints import find_hints
from koord.answers.quota_simulation import (
    EditResult,
    GangResult,
    simulate_edit,
    simulate_gang,
)
from koord.answers.quota_view import (
    QuotaOverview,
    QuotaView,
    ReportedQuota,
    WaitingUnit,
    encode_in_full,
    list_remarks,
    make_overview,
    view_quota,
    view_quotas,
)
from koord.answers.reading import Reading
from koord.answers.waiting import find_waiting
from koord.api.quantity import InvalidQuantityError
from koord.api.resource_names import find_nearest_resource
from koord.cli.cluster import read_without_target, refuse_gap, refuse_unknown_namespace
from koord.cli.common import ExitCode, Output, TreeOutput, fail, warn
from koord.cli.output import GraphNode, count_of, make_console, print_in, write_graph
from koord.cli.quota_text import (
    choose_glyphs,
    list_amounts,
    list_tree_columns,
    make_label_lines,
    make_quota_lines,
    make_tree_lines,
)
from koord.core.engine.state import ClusterState
from koord.core.model.device_names import CARDS
from koord.core.model.text import named, suggest
from koord.core.model.units import approximate, format_amount, format_limit
from koord.core.quota.model import QuotaSpec
from koord.domains.quota import QUOTAS
from koord.kube.kind import AnyKind
from koord.kube.translate.amounts import parse_amount


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
        head_of("Quotas", reading),
        document=lambda: encode(overview),
        names=lambda: (f"elasticquota/{view.summary.name}" for view in overview.quotas),
        text=lambda: make_tree_lines(overview, choose_glyphs(console.encoding)),
    )


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
        _show_reported(reading, reading.reported_quotas, name.rpartition("/")[2], output)
        return
    state = reading.state
    bare = find_name(state, name, namespace)
    view = view_quota(state, bare, find_waiting(reading, NO_TARGET))
    if view is None:
        problem = state.quotas.catalog.problem_of(bare)
        if problem:
            fail(f"quota {bare} is not active: {problem.describe()}", ExitCode.USAGE)
        fail_unknown(state, bare)
    console = make_console()
    print_in(
        output,
        head_of("Quota", reading),
        document=lambda: encode_in_full(view),
        names=lambda: (f"elasticquota/{bare}",),
        text=lambda: make_quota_lines(view, choose_glyphs(console.encoding), time.time()),
    )


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


def _show_reported(
    reading: Reading, quotas: Sequence[ReportedQuota], name: str, output: Output
) -> None:
    reported_quota = next((quota for quota in quotas if quota.view.summary.name == name), None)
    if reported_quota is None:
        meant = suggest(name, {quota.view.summary.name for quota in quotas})
        fail(f"there is no quota {name} that you may read{meant}", ExitCode.USAGE)
    console = make_console()
    print_in(
        output,
        head_of("Quota", reading),
        document=lambda: encode_in_full(reported_quota.view),
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


_MOST_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class EditRequest:
    """New min, max or weight of a quota, as typed: ``RESOURCE=AMOUNT`` each."""

    min: Sequence[str] = ()
    max: Sequence[str] = ()
    weight: Sequence[str] = ()

    def apply(self, spec: QuotaSpec, resources: Collection[str]) -> QuotaSpec:
        weight = _parse_amounts("--weight", self.weight, resources)
        return replace(
            spec,
            min={**spec.min, **_parse_amounts("--min", self.min, resources)},
            max={**spec.max, **_parse_amounts("--max", self.max, resources)},
            weight={**spec.share_weight(), **weight} if weight else spec.weight,
        )


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The change to simulate: a gang in a quota, an edit of the quota, or both."""

    quota: str
    namespace: str
    pods: int
    requests: Sequence[str]
    edit: EditRequest


def show_what_if(what_if: WhatIf, kubeconfig: str, context: str, output: Output) -> None:
    if not what_if.requests and what_if.edit == EditRequest():
        fail("give --request for a gang, or --min, --max or --weight for an edit", ExitCode.USAGE)
    _parse_amounts("--request", what_if.requests, ())
    reading = read(kubeconfig, context, "", (QUOTAS,))
    state = reading.state
    bare = find_name(state, what_if.quota, what_if.namespace)
    spec = state.quotas.catalog.written_as(bare)
    resources = _known_resources(state)
    requests = _parse_amounts("--request", what_if.requests, resources)
    if spec is None and (
        what_if.edit != EditRequest() or not state.quotas.catalog.is_written(bare)
    ):
        fail_unknown(state, bare)
    document: dict[str, Any] = {"quota": bare}
    lines: list[RenderableType] = []
    if spec is not None and what_if.edit != EditRequest():
        answer = simulate_edit(state, what_if.edit.apply(spec, resources))
        document["edit"] = encode(answer.limited_to(resources))
        lines += make_edit_lines(bare, answer)
    if requests:
        gang = simulate_gang(state, bare, requests, what_if.pods, reading.reclaim)
        title = f"{count_of(what_if.pods, 'pod')} of {list_amounts(requests)} in quota {bare}"
        document |= encode(gang.limited_to(resources))
        lines += make_gang_lines(title, bare, gang, _advise(reading, gang))
    print_in(
        output,
        head_of("QuotaWhatIf", reading),
        document=lambda: document,
        names=lambda: (f"elasticquota/{bare}",),
        text=lambda: lines,
    )


def _advise(reading: Reading, answer: GangResult) -> Sequence[str]:
    reason = answer.reason
    if reason.is_placed or answer.starts_alone:
        return ()
    hints = find_hints(reading.state, reason, reclaim=reading.reclaim)
    return (*hints, *answer.nameless.advice())


def make_edit_lines(name: str, answer: EditResult) -> Iterator[RenderableType]:
    if answer.problem is not None:
        yield f"{name} would be invalid: {answer.problem.describe()}"
        return
    if answer.shares:
        table = Table(box=None, pad_edge=False)
        for heading in ("QUOTA", "RESOURCE"):
            table.add_column(heading, overflow="fold")
        for heading in ("ENTITLED", "THEN"):
            table.add_column(heading, justify="right", no_wrap=True)
        for quota, key, before, after in answer.shares:
            table.add_row(quota, key, format_amount(key, before), format_amount(key, after))
        yield table
    else:
        yield "No share would change now."
    for overuse in answer.over:
        over = format_amount(overuse.resource, overuse.over)
        yield f"{overuse.quota} would use {over} {overuse.resource} more than it is entitled to"
    if answer.starting:
        verb = "waits" if len(answer.starting) == 1 else "wait"
        names = named([_tell_unit(waiting_unit) for waiting_unit in answer.starting], _MOST_NAMED)
        yield f"With this, {names}, which {verb} now, would start"
    still: dict[str, list[str]] = {}
    for unit in answer.waiting:
        still.setdefault(unit.reason.code, []).append(_tell_unit(unit))
    for code, titles in still.items():
        yield f"{named(titles, _MOST_NAMED)} would still wait: {code}"


def make_gang_lines(
    title: str, quota: str, answer: GangResult, advice: Sequence[str]
) -> Iterator[str]:
    """Yield the outcome of a gang, and what waits already and would be planned before it."""
    reason = answer.reason
    verdict = "would start now" if reason.is_placed else f"would wait: {reason.code}"
    if answer.starts_alone and not reason.is_placed:
        verdict += "; it would start now if nothing was ahead of it"
    yield f"{title} {verdict}"
    yield answer.nameless.text()
    if answer.ahead:
        count, kinds = len(answer.ahead), {waiting_unit.kind for waiting_unit in answer.ahead}
        is_mixed = len(kinds) > 1
        what = count_of(count, "unit" if is_mixed else kinds.pop())
        names = [_tell_unit(waiting_unit, with_kind=is_mixed) for waiting_unit in answer.ahead]
        verb = "waits" if count == 1 else "wait"
        yield f"{what} {verb} in {quota} already, ahead of it: {named(names, _MOST_NAMED)}"
    if answer.room:
        room = ", ".join(f"{format_amount(key, amount)} {key}" for key, amount in answer.room)
        yield f"After those ahead of it, quota {quota} could hold only {room} more (its max)"
    if answer.ahead_elsewhere:
        verb = "waits" if answer.ahead_elsewhere == 1 else "wait"
        units = count_of(answer.ahead_elsewhere, "unit")
        yield f"{units} {verb} in other quotas, ahead of it (koord queue)"
    if advice:
        yield ""
        yield "What would help"
        yield from (f"  - {sentence}" for sentence in advice)


def _tell_unit(waiting_unit: WaitingUnit, *, with_kind: bool = True) -> str:
    """Write ``gang t/x (8 nvidia.com/gpu)``."""
    key = next(
        (key for key in (*CARDS, *sorted(waiting_unit.asks)) if waiting_unit.asks.get(key)), ""
    )
    amount = f" ({approximate(key, waiting_unit.asks[key])} {key})" if key else ""
    return f"{waiting_unit.title if with_kind else waiting_unit.name}{amount}"


def _known_resources(state: ClusterState) -> set[str]:
    """Return what nodes have and quotas name."""
    nodes = (state.table.node_at(row).allocatable for _, row in state.table.live_rows())
    specs = state.quotas.catalog.written.values()
    return {key for of in (*nodes, *(spec.max for spec in specs)) for key in of}


def _parse_amounts(option: str, texts: Sequence[str], resources: Collection[str]) -> dict[str, int]:
    """Parse ``RESOURCE=AMOUNT``; report a resource outside ``resources``, if any are given."""
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
        if resources and resource not in resources:
            _tell_unknown(f"{option} {text}: no node has any {resource}", resource, resources)
    return amounts


def _tell_unknown(problem: str, resource: str, resources: Collection[str]) -> None:
    """End the command if another resource is probably meant."""
    if nearest := find_nearest_resource(resource, resources):
        fail(f"{problem}. Did you mean {nearest}?", ExitCode.USAGE)
    warn(f"{problem}, and no quota names it")
