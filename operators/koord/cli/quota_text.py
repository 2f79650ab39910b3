"""Quotas as text for people: the tree with bars, the terms of a share, what an edit changes."""

from collections.abc import Iterator
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from koord.cli.quota_bars import Glyphs, make_bar, make_legend
from koord.core.quota.fair_share import effective_min
from koord.core.quota.share_terms import Loan, Terms
from koord.core.quota.status import Summary
from koord.core.quota_view import EditAnswer, QuotaOverview, QuotaView
from koord.core.reasons import Planned
from koord.core.units import Amounts, format_amount

_COLUMNS: Final = (
    ("MIN", "min"),
    ("MAX", "max"),
    ("ENTITLED", "share"),
    ("USED", "used"),
    ("DEMAND", "child_request"),
)
"""Heading -> field of the summary."""


def make_tree_lines(overview: QuotaOverview, glyphs: Glyphs) -> Iterator[RenderableType]:
    """Return what is printed of all quotas."""
    if not overview.quotas and not overview.invalid:
        yield "There are no quotas."
        return
    table = _make_table("QUOTA", "RESOURCE")
    for view in overview.quotas:
        name = f"{'  ' * view.depth}{view.summary.name}"
        for key in sorted(view.summary.max):
            whole = overview.total.get(view.summary.tree, {}).get(key, 0)
            bar = _bar(view, key, whole, glyphs)
            table.add_row(name, key, *_row(view, key), bar, _note(view, key, overview.loans))
            name = ""
        if not view.summary.max:
            table.add_row(name)
    yield table
    yield make_legend(glyphs)
    for tree, total in sorted(overview.total.items()):
        yield f"{f'Tree {tree}' if tree else 'Nodes'} to share out: {list_amounts(total)}"
    if any(overview.outside.used.values()):
        yield f"Used outside of quotas: {list_amounts(overview.outside.used)}"
    for view in overview.quotas:
        if view.problem is not None:
            yield f"{view.summary.name}: as written it is not in force: {view.problem.describe()}"
    for problem in overview.invalid:
        yield f"{problem.quota} is not in force: {problem.describe()}"


def list_tree_columns(summary: Summary) -> list[tuple[str, Amounts]]:
    """Return the columns of the tree: ``("min", amounts)`` and so on."""
    return [(heading.lower(), getattr(summary, field)) for heading, field in _COLUMNS]


def make_label_lines(view: QuotaView, loans: tuple[Loan, ...]) -> Iterator[str]:
    """Return the columns of the tree as lines, one for each resource."""
    for key in sorted(view.summary.max):
        columns = [
            f"{name} {write_amount(key, of)}" for name, of in list_tree_columns(view.summary)
        ]
        note = _note(view, key, loans)
        yield f"{key}: {', '.join([*columns, note] if note else columns)}"


def make_quota_lines(
    view: QuotaView, loans: tuple[Loan, ...], glyphs: Glyphs
) -> Iterator[RenderableType]:
    """Return what is printed of one quota."""
    summary = view.summary
    above = f" below {summary.parent}" if view.depth else ""
    yield f"Quota {view.namespace}/{summary.name}{above}"
    table = _make_table("RESOURCE")
    for key in sorted(summary.max):
        table.add_row(key, *_row(view, key), _bar(view, key, 0, glyphs), _note(view, key, loans))
    yield table
    parent = summary.parent if view.depth else "the tree"
    for terms in view.terms:
        yield from _make_terms(terms, parent)
    if summary.submitted != summary.demand:
        rest = {
            key: amount - summary.demand.get(key, 0)
            for key, amount in summary.submitted.items()
            if key in summary.max and amount > summary.demand.get(key, 0)
        }
        if rest:
            yield f"Submitted, but no demand yet: {list_amounts(rest)} (gangs are not complete)"
    if view.problem is not None:
        yield f"As written it is not in force: {view.problem.describe()}"
    for code, count in sorted((view.waiting or {}).items()):
        verb = "has" if count == 1 else "have"
        if code is Planned.code:
            yield f"{count_of(count, 'pod')} {verb} a place, and will be bound"
        else:
            yield f"{count_of(count, 'pod')} {'waits' if count == 1 else 'wait'}: {code}"


def _make_terms(terms: Terms, parent: str) -> Iterator[RenderableType]:
    """Return how a share came about, a line for each step."""

    def amount(of: int) -> str:
        return format_amount(terms.resource, of)

    asked = f"asked {amount(terms.demand)}"
    if not terms.lends and terms.demand < terms.minimum:
        asked += f", at least min {amount(terms.minimum)} because it does not lend"
    elif terms.demand > terms.want:
        asked += f", at most max {amount(terms.want)}"
    kept = f"min {amount(terms.minimum)}"
    if terms.scaled < terms.minimum:
        felt = effective_min(terms.minimum, terms.scaled, terms.want, terms.share)
        is_scaled = felt < terms.minimum
        why = "all mins together exceed what is there" if is_scaled else "it asks for no more"
        kept += f", scaled to {amount(terms.scaled)}: {why}"
    if terms.floor > terms.scaled:
        kept += ", and what is used is guaranteed"
    starts = "the smaller of both" if terms.lends else "the guarantee"
    rest = f"what remains of {amount(terms.total)} after all of {parent} started"
    if terms.own:
        rest += f", and {amount(terms.own)} for its own pods"
    weight = f"weight {terms.weight} of {terms.weights} that want more"
    steps = [
        ("wants", terms.want, asked),
        ("guaranteed", terms.floor, kept),
        ("starts with", terms.starts, starts),
    ]
    if terms.want > terms.starts:
        steps += [("left over", terms.left, rest), ("gets of it", terms.borrowed, weight)]
    yield ""
    yield Text(f"{terms.resource}: entitled to {amount(terms.share)}", style="bold")
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for name, number, why in steps:
        table.add_row(f"  {name}", amount(number), why)
    yield table


def make_edit_lines(name: str, answer: EditAnswer) -> Iterator[RenderableType]:
    """Return what is printed of an edit that was tried."""
    if answer.problem is not None:
        yield f"{name} would not be in force like this: {answer.problem.describe()}"
        return
    if not answer.shares:
        yield "No share would change now."
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("QUOTA", "RESOURCE"):
        table.add_column(heading, no_wrap=True)
    for heading in ("ENTITLED", "THEN"):
        table.add_column(heading, justify="right", no_wrap=True)
    for quota, key, before, after in answer.shares:
        table.add_row(quota, key, format_amount(key, before), format_amount(key, after))
    yield table
    for one in answer.over:
        over = format_amount(one.resource, one.over)
        yield f"{one.quota} would use {over} {one.resource} more than it is entitled to"


def _make_table(*first: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in first:
        table.add_column(heading, no_wrap=True)
    for heading, _ in _COLUMNS:
        table.add_column(heading, justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("")
    return table


def _row(view: QuotaView, key: str) -> list[str]:
    return [write_amount(key, getattr(view.summary, field)) for _, field in _COLUMNS]


def _bar(view: QuotaView, key: str, whole: int, glyphs: Glyphs) -> Text:
    """Return a bar up to max, or to all there is of the resource where that is less."""
    summary = view.summary
    most = summary.max[key]
    used, share = summary.used.get(key, 0), summary.share.get(key, 0)
    if whole:
        most = min(most, max(whole, used, share))
    return make_bar(used, share, summary.guarantee().get(key, 0), most, glyphs)


def _note(view: QuotaView, key: str, loans: tuple[Loan, ...]) -> str:
    """Say what is odd about one resource of a quota."""
    summary = view.summary
    over = next((one.over for one in view.over if one.resource == key), 0)
    minimum, used = summary.guarantee().get(key, 0), summary.used.get(key, 0)
    notes = []
    if over:
        notes.append(f"over by {format_amount(key, over)}")
    elif used > minimum:
        lenders = _from(summary.name, key, loans)
        notes.append(f"borrows {format_amount(key, used - minimum)}{lenders}")
    notes += [
        f"lends {format_amount(key, loan.amount)} to {loan.borrower}"
        for loan in loans
        if (loan.lender, loan.resource) == (summary.name, key)
    ]
    if minimum < summary.min.get(key, 0):
        notes.append(f"min scaled to {format_amount(key, minimum)}")
    return ", ".join(notes)


def _from(name: str, key: str, loans: tuple[Loan, ...]) -> str:
    lenders = [
        f"{format_amount(key, loan.amount)} of {loan.lender}"
        for loan in loans
        if (loan.borrower, loan.resource) == (name, key)
    ]
    return f" ({', '.join(lenders)})" if lenders else ""


def write_amount(key: str, amounts: Amounts) -> str:
    """Write one amount in the units of its resource."""
    return format_amount(key, amounts.get(key, 0))


def list_amounts(amounts: Amounts) -> str:
    """Write all amounts that are not zero."""
    shown = (f"{format_amount(key, n)} {key}" for key, n in sorted(amounts.items()) if n)
    return ", ".join(shown) or "nothing"


def count_of(count: int, noun: str) -> str:
    """Write a number of things."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
