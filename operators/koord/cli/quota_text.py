"""Quotas as text for people: the tree with bars, how a share is computed, what an edit changes."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from koord.answers.explain import PlacementState
from koord.answers.quota_view import QuotaOverview, QuotaView
from koord.cli.output import Fitting, count_of, make_table
from koord.core.model.text import format_age
from koord.core.model.units import UNLIMITED, Amounts, approximate, format_amount, is_unlimited
from koord.core.quota.model import TreeId
from koord.core.quota.share_terms import Loan, ShareTerms, explain_scaling
from koord.core.quota.status import Summary

BAR_WIDTH: Final = 20
MOST_UNITS: Final = 10
"""Gangs and pods that are listed of a quota."""
_NOT_ACTIVE: Final = "the current spec is not active, the last valid one is"
_COLUMNS: Final = (
    ("MIN", "min"),
    ("MAX", "max"),
    ("ENTITLED", "share"),
    ("USED", "used"),
    ("DEMAND", "child_request"),
)
"""Heading -> field of the summary."""


class Glyphs(NamedTuple):
    """The characters of a bar."""

    used: str
    entitled: str
    empty: str
    minimum: str


BLOCKS: Final = Glyphs("█", "▒", "·", "┃")
ASCII: Final = Glyphs("#", "=", ".", "|")


def make_tree_lines(overview: QuotaOverview, glyphs: Glyphs) -> Iterator[RenderableType]:
    if not overview.quotas and not overview.invalid:
        yield "There are no quotas."
        return
    rows = [
        _Row(f"{'  ' * view.depth}{view.summary.name}" if at == 0 else "", key, view)
        for view in overview.quotas
        for at, key in enumerate(sorted(view.summary.max) or [""])
    ]
    yield _make_tables(rows, overview, glyphs)
    for tree, total in sorted(overview.total.items()):
        yield f"{_name_tree(tree, overview)} to share: {list_amounts(total)}"
    if any(overview.outside.used.values()):
        yield f"Used outside quotas: {list_amounts(overview.outside.used)}"
    kept = [view for view in overview.quotas if view.lost]
    yield from (f"{view.summary.name}: {_tell_kept(view)}" for view in kept)
    for view in overview.quotas:
        yield from (f"{view.summary.name}: {note}" for note in _make_notes(view))
    for problem in overview.invalid:
        yield f"{problem.quota} is not active: {problem.describe()}"


def _make_notes(view: QuotaView) -> Iterator[str]:
    if view.problem is not None:
        yield f"{_NOT_ACTIVE}: {view.problem.describe()}"
    if view.kept_for is not None:
        yield view.kept_for.describe()


def _name_tree(tree: TreeId, overview: QuotaOverview) -> str:
    """Name a tree by its roots, which people have named; its id can be a hash."""
    if not tree:
        return "Nodes"
    quotas = (quota for quota in overview.quotas if quota.summary.tree == tree and not quota.depth)
    roots = ", ".join(quota.summary.name for quota in quotas)
    return f"Tree of {roots} (id {tree})" if roots else f"Tree {tree}"


def list_tree_columns(summary: Summary) -> list[tuple[str, Amounts]]:
    return [(heading.lower(), getattr(summary, field)) for heading, field in _COLUMNS]


def make_label_lines(view: QuotaView, loans: tuple[Loan, ...]) -> Iterator[str]:
    for key in sorted(view.summary.max):
        columns = [
            f"{name} {write_limit(key, of.get(key, 0))}"
            for name, of in list_tree_columns(view.summary)
        ]
        note = _note(view, key, loans)
        yield f"{key}: {', '.join([*columns, note] if note else columns)}"


def make_quota_lines(view: QuotaView, glyphs: Glyphs, now: float) -> Iterator[RenderableType]:
    """Yield one quota; ages are relative to ``now``."""
    summary = view.summary
    above = f" below {summary.parent}" if view.depth else ""
    yield f"Quota {view.namespace}/{summary.name}{above}"
    rows = [_Row("", key, view) for key in sorted(summary.max)]
    yield _make_tables(rows, None, glyphs)
    for terms in view.terms:
        yield from _make_terms(terms, summary.parent if view.depth else "")
    if summary.submitted != summary.demand:
        not_yet_demanded = {
            key: amount - summary.demand.get(key, 0)
            for key, amount in summary.submitted.items()
            if key in summary.max and amount > summary.demand.get(key, 0)
        }
        if not_yet_demanded:
            yield f"Submitted by incomplete gangs, no demand yet: {list_amounts(not_yet_demanded)}"
    if view.lost:
        yield _tell_kept(view).capitalize()
    for note in _make_notes(view):
        yield f"{note[0].upper()}{note[1:]}"
    yield from _make_units(view, now)


def _make_units(view: QuotaView, now: float) -> Iterator[RenderableType]:
    """Yield what uses a quota, the largest first, and what waits in it, the first in line first."""
    key, own = view.scarcest, view.summary.name
    used = [(user, user.amounts, user.state) for user in view.users]
    waiting = [
        (
            waiting_unit,
            waiting_unit.asks,
            str(PlacementState.PLACEABLE)
            if waiting_unit.reason.is_placed
            else waiting_unit.reason.code,
        )
        for waiting_unit in view.waits
    ]
    for first, last, units in (("USED BY", "STATE", used), ("WAITS", "REASON", waiting)):
        if not units:
            continue
        yield ""
        below = ["QUOTA"] if any(unit.quota != own for unit, _, _ in units) else []
        amount = [key] if key else []
        right = (*amount, "PODS", "AGE")
        table = make_table(first, *below, *right, last, right=right, padding=2)
        for unit, amounts, word in units[:MOST_UNITS]:
            age = format_age(now - unit.since) if unit.since else ""
            written = [approximate(key, amounts.get(key, 0))] if key else []
            quota = [unit.quota] if below else []
            table.add_row(f"{unit.kind} {unit.name}", *quota, *written, str(unit.pods), age, word)
        yield table
        if len(units) > MOST_UNITS:
            yield f"… and {len(units) - MOST_UNITS} more (-o json lists them)"


def _tell_kept(view: QuotaView) -> str:
    return f"kept for replacements: room for {count_of(view.lost, 'pod')}, for a limited time"


def _make_terms(terms: ShareTerms, above: str) -> Iterator[RenderableType]:
    """Yield how a share came about; ``above`` is empty at the top of the tree."""
    parent = above or "the tree"

    def amount(of: int) -> str:
        return format_amount(terms.resource, of)

    demand_note = f"asked {amount(terms.demand)}"
    if not terms.lends and terms.demand < terms.minimum:
        demand_note += f", at least min {amount(terms.minimum)} because it does not lend"
    elif terms.demand > terms.want:
        demand_note += f", at most max {amount(terms.want)}"
    kept = f"min {amount(terms.minimum)}"
    if terms.scaled < terms.minimum:
        scaled = explain_scaling(terms, above)
        why = "its demand is lower" if scaled is None else scaled.tell_sum()
        kept += f", scaled to {amount(terms.scaled)}: {why}"
    if terms.floor > terms.scaled:
        kept += ", raised to what it uses"
    starts = "the smaller of the two" if terms.lends else "the guarantee"
    rest_note = f"rest of {amount(terms.total)} after the first step for all quotas of {parent}"
    if terms.own:
        rest_note += f", and {amount(terms.own)} for the own pods of {parent}"
    weight = f"weight {terms.weight} of {terms.weights} among quotas that want more"
    if terms.weight == terms.weights:  # that of a generated quota is as large as its max
        weight = "no other quota wants more"
    steps = [
        ("wants", terms.want, demand_note),
        ("scaled min", terms.floor, kept),
        ("starts with", terms.starts, starts),
    ]
    if terms.want > terms.starts:
        steps += [("left over", terms.left, rest_note), ("gets of it", terms.borrowed, weight)]
    yield ""
    yield Text(f"{terms.resource}: entitled to {amount(terms.share)}", style="bold")
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for name, number, why in steps:
        table.add_row(f"  {name}", amount(number), why)
    yield table


class _Row(NamedTuple):
    """A line of a table of quotas: one resource of a quota; ``name`` is empty for all but one."""

    name: str
    key: str
    view: QuotaView


def _make_tables(
    rows: Sequence[_Row], overview: QuotaOverview | None, glyphs: Glyphs
) -> RenderableType:
    """Return a table of quotas, or of one without overview; without bars if they do not fit."""
    table = _make_table(rows, overview, glyphs)
    with_bars = table if overview is None else Group(table, make_legend(glyphs))
    return Fitting((with_bars, _make_table(rows, overview, None)))


def _make_table(rows: Sequence[_Row], overview: QuotaOverview | None, bars: Glyphs | None) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("RESOURCE",) if overview is None else ("QUOTA", "RESOURCE"):
        table.add_column(heading, overflow="fold")
    for heading, _ in _COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for _ in (bars,) if bars else ():
        table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    for name, key, view in rows:
        names = (key,) if overview is None else (name, key)
        if not key:
            table.add_row(*names)
            continue
        amounts = [
            write_limit(key, getattr(view.summary, field).get(key, 0)) for _, field in _COLUMNS
        ]
        whole = overview.total.get(view.summary.tree, {}).get(key, 0) if overview else 0
        bar = (_bar(view, key, whole, bars),) if bars else ()
        loans = view.loans if overview is None else overview.loans
        table.add_row(*names, *amounts, *bar, _note(view, key, loans))
    return table


def _bar(view: QuotaView, key: str, whole: int, glyphs: Glyphs) -> Text:
    """Return a bar up to max, or up to the total of the resource if that is less."""
    summary = view.summary
    most = summary.max[key]
    used, share = summary.used.get(key, 0), summary.share.get(key, 0)
    if whole:
        most = min(most, max(whole, used, share))
    return make_bar(used, share, summary.guarantee().get(key, 0), most, glyphs)


def _note(view: QuotaView, key: str, loans: tuple[Loan, ...]) -> str:
    summary = view.summary
    over = next((overuse.over for overuse in view.over if overuse.resource == key), 0)
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


def write_limit(key: str, amount: int) -> str:
    """Write an amount that may be ``unlimited``, as the max of generated quotas is."""
    return UNLIMITED if is_unlimited(amount) else approximate(key, amount)


def list_amounts(amounts: Amounts) -> str:
    """Write all amounts that are not zero."""
    shown = (f"{format_amount(key, n)} {key}" for key, n in sorted(amounts.items()) if n)
    return ", ".join(shown) or "nothing"


def choose_glyphs(encoding: str) -> Glyphs:
    return BLOCKS if encoding.lower().startswith("utf") else ASCII


def make_legend(glyphs: Glyphs) -> str:
    return (
        f"Bars, from 0 to max: {glyphs.used} used, {glyphs.entitled} entitled to, "
        f"{glyphs.minimum} guaranteed"
    )


def make_bar(used: int, entitled: int, guaranteed: int, whole: int, glyphs: Glyphs) -> Text:
    """Return a bar of ``BAR_WIDTH`` cells for ``whole``, cut off there.

    Used is green within the guarantee, yellow beyond, red beyond the entitlement.
    """
    bar = Text()
    ends = {amount: _cells(amount, whole) for amount in (used, entitled, guaranteed)}
    for at in range(BAR_WIDTH):
        if guaranteed and at == min(ends[guaranteed], BAR_WIDTH - 1):
            bar.append(glyphs.minimum, "bold")
        elif at < ends[used]:
            style = "green" if at < ends[guaranteed] else "yellow"
            bar.append(glyphs.used, style if at < ends[entitled] else "red")
        else:
            bar.append(glyphs.entitled if at < ends[entitled] else glyphs.empty, "dim")
    return bar


def _cells(amount: int, whole: int) -> int:
    """Return how many cells an amount fills; at least one if there is anything."""
    if amount <= 0 or whole <= 0:
        return 0
    return min(BAR_WIDTH, max(1, round(BAR_WIDTH * amount / whole)))
