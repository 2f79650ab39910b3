"""Lists in pages: which rows are asked for, in which order, and where the next page goes on.

Pure: rows are documents, and what may be filtered and sorted is said by the list. A page continues
behind the last row that was shown, so rows that stay are neither lost nor shown twice, whatever
changes meanwhile.
"""

import base64
import binascii
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypedDict

from koord.answers.audit import to_ms, to_text

MOST_ROWS: Final = 1000
FEWEST_ROWS: Final = 1
ROWS: Final = 100
"""Of a page, unless another limit is given."""
MOST_SEARCHED: Final = 64
"""Characters."""
MOST_TOKEN: Final = 4096
"""Characters of what continues a list."""

BOUNDS: Final = ("from", "to")
"""Parameters that are times: the first one of what is shown, and the first one behind it."""

Row = Mapping[str, Any]
Entry = Any
"""What a list consists of: a document, or a value of which ``write`` makes one when it is shown."""
SortValue = Callable[[Entry], Any]
"""Returns a text or a number; of one type for all entries."""


class InvalidQuery(ValueError):  # noqa: N818 - says what is wrong
    """A parameter has a value that cannot be meant."""


class ExpiredPage(ValueError):  # noqa: N818 - says what is wrong
    """The list was continued with other filters, or by another process."""


@dataclass(frozen=True, slots=True)
class ListForm:
    """What a list can be asked: the first of ``sorts`` is its own order."""

    key: Callable[[Entry], str]
    sorts: Mapping[str, SortValue]
    filters: Mapping[str, Callable[[Entry], Collection[str]]] = field(default_factory=dict)
    """Parameter -> the values of an entry, of which one must be the given one."""
    time: str = ""
    """The field whose time ``from`` and ``to`` limit; empty: there is none. Of documents only."""
    write: Callable[[Entry], Row] = lambda entry: entry
    """Returns the document of an entry: of thousands of them few are shown."""
    narrow: Callable[[Sequence[Entry], Mapping[str, str]], Sequence[Entry]] = lambda entries, _: (
        entries
    )
    """Returns those entries, in their order, that filters may choose, where that is known: of
    thousands of them few are looked at."""
    sort: Callable[[Sequence[Entry], str], Sequence[Entry] | None] = lambda *_: None
    """Returns all entries by one of ``sorts``, with ``-`` the other way round, if known."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """All that this list can be asked, beside what every list can."""
        return (*self.filters, *(BOUNDS if self.time else ()))


def texts_of(name: str) -> Callable[[Row], Collection[str]]:
    """Return a filter: what a field of a document says, as text."""
    return lambda row: (str(row[name]),)


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which rows are asked for; ``after`` is (value of the order, key) of the last one shown.

    ``between`` are two times in the form that rows have; an empty one is no limit.
    """

    limit: int = ROWS
    filters: Mapping[str, str] = field(default_factory=dict)
    search: str = ""
    fields: tuple[str, ...] = ()
    sort: str = ""
    is_descending: bool = False
    after: tuple[Any, str] | None = None
    between: tuple[str, str] = ("", "")

    @property
    def digest(self) -> str:
        """What must be the same on all pages of a list."""
        filters = dict(sorted(self.filters.items()))
        parts = [filters, self.search, self.sort, self.is_descending, self.between]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def parse_query(params: Mapping[str, str], form: ListForm, instance: str) -> ListQuery:
    """Read the parameters of a list. Raises ``InvalidQuery`` and ``ExpiredPage``."""
    general = {"limit", "continue", "fields", "sort", "search"}
    unknown = sorted(params.keys() - general - {*form.parameters})
    if unknown:
        allowed = ", ".join(sorted({*general, *form.parameters}))
        raise InvalidQuery(f"{unknown[0]}: there is no such parameter; there are {allowed}")
    sort = params.get("sort") or next(iter(form.sorts))
    name = sort.removeprefix("-")
    if name not in form.sorts:
        raise InvalidQuery(f"sort: {name!r} is none of {', '.join(form.sorts)}")
    search = params.get("search", "")
    if len(search) > MOST_SEARCHED:
        raise InvalidQuery(f"search: at most {MOST_SEARCHED} characters")
    query = ListQuery(
        limit=_parse_limit(params.get("limit", str(ROWS))),
        filters={key: params[key] for key in form.filters if key in params},
        search=search,
        fields=tuple(filter(None, params.get("fields", "").split(","))),
        sort=name,
        is_descending=sort.startswith("-"),
        between=(_parse_time(params, "from"), _parse_time(params, "to")),
    )
    token = params.get("continue", "")
    return query if not token else _continue(query, token, instance)


def _parse_limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not FEWEST_ROWS <= int(text[:9]) <= MOST_ROWS:
        raise InvalidQuery(f"limit: {text!r} is no number from {FEWEST_ROWS} to {MOST_ROWS}")
    return int(text[:9])


def _parse_time(params: Mapping[str, str], name: str) -> str:
    """Return a time in the one form that can be compared as text."""
    given = params.get(name, "")
    at = to_ms(given)
    if given and (at is None or at < 0):
        raise InvalidQuery(f"{name}: {given!r} is no time such as 2026-11-25T07:00:30Z")
    return "" if at is None else to_text(at)


def _continue(query: ListQuery, token: str, instance: str) -> ListQuery:
    try:
        parts = base64.urlsafe_b64decode(token[:MOST_TOKEN])
        of_instance, digest, value, key = json.loads(parts)
    except (ValueError, binascii.Error, RecursionError):
        raise InvalidQuery("continue: not what a page before this one gave") from None
    if (of_instance, digest) != (instance, query.digest):
        raise ExpiredPage("the list was begun with other filters, or elsewhere: begin again")
    if not isinstance(key, str) or not isinstance(value, str | int | float):
        raise InvalidQuery("continue: not what a page before this one gave")
    return replace(query, after=(value, key))


def select(entries: Sequence[Entry], query: ListQuery, form: ListForm) -> Sequence[Entry]:
    """Return all entries that are asked for, in order, whatever page they are on."""
    order, (begin, end) = form.sorts[query.sort], query.between
    if not (query.filters or query.search or begin or end):
        in_order = form.sort(entries, f"{'-' * query.is_descending}{query.sort}")
        if in_order is not None:
            return in_order
    filters = [(form.filters[name], value) for name, value in query.filters.items()]
    chosen = [
        entry
        for entry in form.narrow(entries, query.filters)
        if (not begin or entry[form.time] >= begin)
        and (not end or entry[form.time] < end)
        and all(value in values_of(entry) for values_of, value in filters)
        and (not query.search or query.search in form.key(entry))
    ]
    return _sort(chosen, order, form.key, is_descending=query.is_descending)


def _sort(
    entries: list[Entry], order: SortValue, key: SortValue, *, is_descending: bool
) -> list[Entry]:
    """Sort by order, then by key, which is made only of those that it tells apart."""
    values = [order(entry) for entry in entries]
    counts = Counter(values)
    if len(counts) == len(values):
        pairs = sorted(zip(values, range(len(values)), strict=True), reverse=is_descending)
    else:
        pairs_of = zip(values, entries, strict=True)
        keys = (key(entry) if counts[value] > 1 else "" for value, entry in pairs_of)
        triples = zip(values, keys, range(len(values)), strict=True)
        pairs = [(value, at) for value, _, at in sorted(triples, reverse=is_descending)]
    return [entries[at] for _, at in pairs]


PageDocument = TypedDict(
    "PageDocument", {"items": list[Any], "total": int, "remaining": int, "continue": str}
)
"""Rows of a list, how many there are and how many behind these, and what continues it."""


def make_page(
    entries: Sequence[Entry], query: ListQuery, form: ListForm, instance: str
) -> PageDocument:
    """Return the page that is asked for. Raises ``InvalidQuery`` for fields that no row has."""
    return cut_page(select(entries, query, form), query, form, instance)


def cut_page(
    chosen: Sequence[Entry], query: ListQuery, form: ListForm, instance: str
) -> PageDocument:
    """Return the page that is asked for of what was selected. Raises ``InvalidQuery``."""
    order = form.sorts[query.sort]
    left = chosen if query.after is None else _behind(chosen, query, form)
    shown = left[: query.limit]
    token = ""
    if len(left) > len(shown):
        parts = [instance, query.digest, order(shown[-1]), form.key(shown[-1])]
        token = base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()
    return {
        "items": [_with_fields(form.write(entry), query.fields) for entry in shown],
        "total": len(chosen),
        "remaining": len(left) - len(shown),
        "continue": token,
    }


def _behind(chosen: Sequence[Entry], query: ListQuery, form: ListForm) -> Sequence[Entry]:
    """Return what comes after the row where the page before ended: of entries that are in order."""
    order, after = form.sorts[query.sort], query.after
    begin, end = 0, len(chosen)
    try:
        while begin < end:
            middle = (begin + end) // 2
            entry = chosen[middle]
            rank = order(entry), form.key(entry)
            is_behind = rank < after if query.is_descending else rank > after  # type: ignore[operator]
            begin, end = (begin, middle) if is_behind else (middle + 1, end)
    except TypeError:
        raise InvalidQuery("continue: not what a page before this one gave") from None
    return chosen[begin:]


def _with_fields(row: Row, fields: Collection[str]) -> Row:
    if not fields:
        return row
    unknown = next((name for name in fields if name not in row), "")
    if unknown:
        raise InvalidQuery(f"fields: {unknown!r} is none of {', '.join(row)}")
    return {name: row[name] for name in fields}
