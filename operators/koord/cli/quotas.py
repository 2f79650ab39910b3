"""Reads the cluster and prints what there is to say about quotas: what ``koord quota`` does.

Computed on this machine, with the user's own rights, by the same core as the operators.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from rich.table import Table

from koord.api.quantity import InvalidQuantityError
from koord.cli.cluster import Kind, Reading, Target, open_client, read_cluster
from koord.cli.doubts import warn_of_gaps
from koord.cli.errors import ExitCode, fail, warn
from koord.cli.text import make_console
from koord.core.messages import render
from koord.core.placement.scoring import Scoring
from koord.core.quota.fault import InvalidQuota
from koord.core.quotatexts import write_fault
from koord.core.quotaview import QuotaOverview, QuotaView, ask_what_if, view_quota, view_quotas
from koord.core.reasons import Planned
from koord.core.units import Amounts, format_amount
from koord.kube.errors import KubeError
from koord.kube.translate.amounts import parse_amount

_COLUMNS: Final = (
    ("MIN", "min"),
    ("MAX", "max"),
    ("ENTITLED", "share"),
    ("USED", "used"),
    ("DEMAND", "child_request"),
)
"""Heading -> field of the summary."""


def show_tree(kubeconfig: str, context: str, *, as_json: bool) -> None:
    """Print all quotas."""
    overview = view_quotas(_read(kubeconfig, context).state)
    if as_json:
        _print_json(
            {
                "quotas": [_make_document(view) for view in overview.quotas],
                "invalid": [_make_problem(problem) for problem in overview.invalid],
                "total": {id_: _write_all(total) for id_, total in overview.total.items()},
            }
        )
        return
    _print(make_tree_lines(overview))


def show_quota(name: str, kubeconfig: str, context: str, *, as_json: bool) -> None:
    """Print one quota, and why its pods wait."""
    state = _read(kubeconfig, context).state
    bare = name.rpartition("/")[2]
    view = view_quota(state, bare, Scoring())
    if view is None:
        problem = state.quotas.book.problem_of(bare)
        known = ", ".join(sorted(state.quotas.book.registry.specs)[:8])
        text = f"is not in force: {write_fault(problem)}" if problem else "does not exist"
        fail(f"quota {bare} {text}; in force: {known or 'none'}", ExitCode.USAGE)
    if as_json:
        _print_json(_make_document(view))
        return
    _print(make_quota_lines(view))


def show_what_if(
    name: str, pods: int, requests: Sequence[str], kubeconfig: str, context: str
) -> None:
    """Print what would become of a gang in a quota."""
    asked = _parse_requests(requests)
    state = _read(kubeconfig, context).state
    bare = name.rpartition("/")[2]
    if not state.quotas.book.is_written(bare):
        fail(f"quota {bare} does not exist", ExitCode.USAGE)
    reason = ask_what_if(state, bare, asked, pods, Scoring())
    verdict = "would start now" if isinstance(reason, Planned) else f"would wait: {reason.code}"
    _print([f"{_count(pods, 'pod')} of {_list(asked)} in quota {bare} {verdict}", render(reason)])


def make_tree_lines(overview: QuotaOverview) -> Iterator[Any]:
    """Return what is printed of all quotas, as renderables."""
    if not overview.quotas and not overview.invalid:
        yield "There are no quotas."
        return
    table = _make_table("QUOTA", "RESOURCE")
    for view in overview.quotas:
        name = f"{'  ' * view.depth}{view.summary.name}"
        for key in sorted(view.summary.max):
            table.add_row(name, key, *_row(view, key), _note(view, key))
            name = ""
        if not view.summary.max:
            table.add_row(name)
    yield table
    for tree, total in sorted(overview.total.items()):
        yield f"{f'Tree {tree}' if tree else 'Nodes'} to share out: {_list(total)}"
    if any(overview.outside.used.values()):
        yield f"Used outside of quotas: {_list(overview.outside.used)}"
    for view in overview.quotas:
        if view.problem is not None:
            yield f"{view.summary.name}: as written it is not in force: {write_fault(view.problem)}"
    for problem in overview.invalid:
        yield f"{problem.quota} is not in force: {write_fault(problem)}"


def make_quota_lines(view: QuotaView) -> Iterator[Any]:
    """Return what is printed of one quota, as renderables."""
    summary = view.summary
    above = f" below {summary.parent}" if view.depth else ""
    yield f"Quota {view.namespace}/{summary.name}{above}"
    table = _make_table("RESOURCE")
    for key in sorted(summary.max):
        table.add_row(key, *_row(view, key), _note(view, key))
    yield table
    if summary.submitted != summary.demand:
        rest = {
            key: amount - summary.demand.get(key, 0)
            for key, amount in summary.submitted.items()
            if key in summary.max and amount > summary.demand.get(key, 0)
        }
        if rest:
            yield f"Submitted, but no demand yet: {_list(rest)} (their gangs are not complete)"
    if view.problem is not None:
        yield f"As written it is not in force: {write_fault(view.problem)}"
    for code, count in sorted((view.waiting or {}).items()):
        verb = "has" if count == 1 else "have"
        if code is Planned.code:
            yield f"{_count(count, 'pod')} {verb} a place, and will be bound"
        else:
            yield f"{_count(count, 'pod')} {'waits' if count == 1 else 'wait'}: {code}"


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
        target = Target(Kind.POD, access.namespace, "")
        return await read_cluster(client, target), target


def _parse_requests(requests: Sequence[str]) -> dict[str, int]:
    asked = {}
    for text in requests:
        resource, equals, amount = text.partition("=")
        try:
            asked[resource] = parse_amount(resource, amount)
        except InvalidQuantityError as error:
            fail(f"--request {text}: {error}", ExitCode.USAGE)
        if not resource or not equals:
            fail(f"--request {text}: write it like nvidia.com/gpu=8", ExitCode.USAGE)
    return asked


def _make_table(*first: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in first:
        table.add_column(heading, no_wrap=True)
    for heading, _ in _COLUMNS:
        table.add_column(heading, justify="right")
    table.add_column("")
    return table


def _row(view: QuotaView, key: str) -> list[str]:
    return [_write(key, getattr(view.summary, field)) for _, field in _COLUMNS]


def _note(view: QuotaView, key: str) -> str:
    """Say what is odd about one resource of a quota."""
    summary = view.summary
    over = next((one.over for one in view.over if one.resource == key), 0)
    minimum, used = summary.scaled_min.get(key, 0), summary.used.get(key, 0)
    notes = []
    if over:
        notes.append(f"over by {format_amount(key, over)}")
    elif used > minimum:
        notes.append(f"borrows {format_amount(key, used - minimum)}")
    if minimum < summary.min.get(key, 0):
        notes.append(f"min scaled to {format_amount(key, minimum)}")
    return ", ".join(notes)


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
    return {"quota": problem.quota, "reason": problem.fault, "message": write_fault(problem)}


def _write(key: str, amounts: Amounts) -> str:
    return format_amount(key, amounts.get(key, 0))


def _write_all(amounts: Amounts) -> dict[str, str]:
    return {key: format_amount(key, amount) for key, amount in sorted(amounts.items())}


def _list(amounts: Amounts) -> str:
    shown = (f"{format_amount(key, n)} {key}" for key, n in sorted(amounts.items()) if n)
    return ", ".join(shown) or "nothing"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _print(parts: Any) -> None:
    console = make_console()
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def _print_json(document: Any) -> None:
    console = make_console()
    text = msgspec.json.format(msgspec.json.encode(document)).decode()
    console.file.write(f"{text}\n")
